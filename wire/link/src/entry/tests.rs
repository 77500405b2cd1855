use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::*;
use crate::{Access, Definition, Half, Link, Provider, Side};

/// A forked child inherits its parent's file descriptions. So does a child whose standard input is
/// one of them.
#[test]
fn a_lease_ends_with_the_last_process_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("region");
    std::fs::File::create(&region).unwrap().set_len(1 << 20).unwrap();
    let provider = Provider::File(region);
    let definition = Definition { name: "test".to_owned(), provider, side: Side::First };
    Link::attach(&definition, dir.path(), Access { mode: 0o600, group: None }).unwrap();
    let link = Link::open(&definition, dir.path()).unwrap();
    let [local, peer] = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)).into());
    let tuple = FourTuple { local, peer, namespace: 0 };
    let enter = || link.enter(&tuple, Role::Connected, 0).unwrap();
    let is_leased = || link.entries(Half::Own)[0].is_leased.unwrap();

    let end = enter();
    let at = end.place(1).unwrap();
    let inherited = rustix::io::fcntl_dupfd_cloexec(&end._lease, 3).unwrap();
    let mut child =
        Command::new("sleep").arg("1000").stdin(Stdio::from(inherited)).spawn().unwrap();
    drop(end);
    assert!(is_leased());
    let other = enter();
    assert_eq!(other.index(), 1);
    assert_ne!(other.place(1), Some(at));
    drop(other);

    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_leased());
    let other = enter();
    assert_eq!((other.index(), other.place(1)), (0, Some(at)));
}
