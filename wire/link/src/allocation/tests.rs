use std::net::SocketAddr;

use seekwire_protocol::{FourTuple, Role};
use seekwire_transport::sys::limit;

use super::*;
use crate::{Access, Definition, Half, Link, Provider, Side};

#[test]
fn a_sweep_asks_for_some_leases_and_those_that_follow_for_the_others() {
    const ENTRIES: u16 = 1100;
    const LEFT: usize = 10;
    let (soft, hard) = limit::descriptor_limit();
    limit::set_descriptor_limit(hard.min(soft.max(4096))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("region");
    std::fs::File::create(&region).unwrap().set_len(160 << 20).unwrap();
    let definition =
        Definition { name: "test".to_owned(), provider: Provider::File(region), side: Side::First };
    Link::attach(&definition, dir.path(), Access { mode: 0o600, group: None }).unwrap();
    let link = Link::open(&definition, dir.path()).unwrap();
    let enter = |port: u16| {
        let [local, peer] = [port, 0].map(|port| SocketAddr::from(([10, 0, 0, 1], port)).into());
        let tuple = FourTuple { local, peer, namespace: 0 };
        link.enter(&tuple, Role::Connected, 0).unwrap()
    };
    let mut ends: Vec<_> = (0..ENTRIES).map(enter).collect();
    // Entries of a live process: only their missing leases show that they are stale.
    ends.truncate(ends.len() - LEFT);
    let used = || link.entries(Half::Own).len();
    assert_eq!(used(), usize::from(ENTRIES));

    let file = link.0.state.reopen().unwrap().unwrap();
    let table = Table::lock(&link.0, &file).unwrap();
    let sweeps = usize::from(ENTRIES).div_ceil(ASKED_AT_MOST);
    for _ in 0..sweeps {
        assert!(table.sweep() <= ASKED_AT_MOST);
    }
    assert_eq!(used(), ends.len());
}
