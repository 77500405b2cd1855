//! A process that has run out of descriptors, and a peer that has not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use seekwire::{Listener, Stream};
use seekwire_endpoint::Config;
use seekwire_transport::sys::limit;

/// Set in the other process, which runs this program again.
const OTHER: &str = "SEEKWIRE_TEST_OTHER";

fn pair() -> [Stream; 2] {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let from = Stream::connect(listener.local_addr().unwrap()).unwrap();
    [listener.accept().unwrap().0, from]
}

/// Makes a few calls on both ends; returns whether both are on the ring.
fn negotiate(ends: &[Stream; 2]) -> bool {
    (0..100).any(|_| ends.iter().filter(|end| end.upgrade(Duration::ZERO).unwrap()).count() == 2)
}

fn rendezvous_of(pid: u32) -> PathBuf {
    let start = format!("{pid}-");
    let files = fs::read_dir(&Config::get().dir).unwrap().map(|file| file.unwrap().path());
    let mut found =
        files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&start));
    found.next().expect("it has a rendezvous")
}

#[test]
fn the_other_process() {
    if std::env::var_os(OTHER).is_none() {
        return;
    }
    assert!(negotiate(&pair()));
    println!("ready");
    std::io::stdin().lines().for_each(drop);
}

#[test]
fn who_cannot_ask_leaves_what_others_have_and_asks_again_later() {
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture"])
        .env(OTHER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")));
    let rendezvous = rendezvous_of(other.id());

    let ends = pair();
    let lowest = fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let (soft, _) = limit::descriptor_limit();
    for left in 0..3 {
        limit::set_descriptor_limit(lowest + left).unwrap();
        let on_ring = negotiate(&ends);
        limit::set_descriptor_limit(soft).unwrap();
        assert!(!on_ring && rendezvous.exists(), "with {left} descriptors");
    }
    assert!(negotiate(&ends));

    drop(other.stdin.take());
    lines.for_each(drop);
    assert!(other.wait().unwrap().success());
}
