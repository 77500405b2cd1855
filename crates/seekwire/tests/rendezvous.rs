//! Two processes whose rendezvous are fuller than the kernel's queues hold.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use seekwire::{Listener, Stream};

/// Set in the connecting process, which is this program again: where to connect to.
const PORT: &str = "SEEKWIRE_TEST_PORT";
/// Offers that fit into a queue at once (net.unix.max_dgram_qlen is at least 10), and groups of so many.
const GROUP: usize = 8;
const GROUPS: usize = 4;

/// One call on each connection, without waiting; returns how many use the ring.
fn call(streams: &[Stream]) -> usize {
    streams.iter().filter(|stream| stream.upgrade(Duration::ZERO).unwrap()).count()
}

/// The connecting process: for every line that it reads it makes a call on a group, or on all, and says how many
/// of these are on the ring.
#[test]
fn the_connecting_process() {
    let Ok(port) = std::env::var(PORT) else { return };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()));
    let streams: Vec<Stream> = (0..GROUPS * GROUP).map(|_| Stream::connect(address).unwrap()).collect();
    for line in std::io::stdin().lines() {
        let called = match line.unwrap().parse::<usize>() {
            Ok(group) => &streams[group * GROUP..][..GROUP],
            Err(_) => &streams[..],
        };
        println!("on the ring: {}", call(called));
    }
}

/// Its answers fill the queue of the connecting process, which makes no call while they are sent.
#[test]
fn an_acceptor_answers_later_what_it_cannot_answer_now() {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut connecting = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_connecting_process", "--nocapture"])
        .env(PORT, listener.local_addr().unwrap().port().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = connecting.stdin.take().unwrap();
    let mut lines = BufReader::new(connecting.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut order = |what: &str| -> usize {
        writeln!(orders, "{what}").unwrap();
        lines.find_map(|line| line.strip_prefix("on the ring: ")?.parse().ok()).unwrap()
    };
    let streams: Vec<Stream> = (0..GROUPS * GROUP).map(|_| listener.accept().unwrap().0).collect();
    assert_eq!(call(&streams), 0);
    for group in 0..GROUPS {
        assert_eq!(order(&group.to_string()), 0);
        // One connection's call takes the offers for all of its group out of the queue, and answers its own.
        call(&streams[group * GROUP..][..1]);
    }
    let mut on_ring = (0, 0);
    for _ in 0..10 {
        on_ring = (call(&streams), order("all"));
    }
    assert_eq!(on_ring, (streams.len(), streams.len()));
    drop(orders);
    assert!(connecting.wait().unwrap().success());
}
