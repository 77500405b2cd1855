//! Two processes with more offers under way than the kernel's queues hold.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use seekwire::{Listener, Stream};

/// Set in the connecting process, which runs this program again: the port to connect to.
const PORT: &str = "SEEKWIRE_TEST_PORT";
/// More than fit into a queue at once (net.unix.max_dgram_qlen is 10 by default).
const CONNECTIONS: usize = 32;

/// Makes one call on each connection, without waiting; returns how many use the ring.
fn call(streams: &[Stream]) -> usize {
    streams.iter().filter(|stream| stream.upgrade(Duration::ZERO).unwrap()).count()
}

/// The connecting process: for every line that it reads, it makes a call on each connection, and
/// reports how many are on the ring.
#[test]
fn the_connecting_process() {
    let Ok(port) = std::env::var(PORT) else { return };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()));
    let streams: Vec<Stream> =
        (0..CONNECTIONS).map(|_| Stream::connect(address).unwrap()).collect();
    for line in std::io::stdin().lines() {
        line.unwrap();
        println!("on the ring: {}", call(&streams));
    }
}

/// The offers fill the queue of the accepting process, which makes no call while they are sent.
#[test]
fn offers_for_which_there_is_no_room_come_later() {
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
    let mut order = || -> usize {
        writeln!(orders, "call").unwrap();
        lines.find_map(|line| line.strip_prefix("on the ring: ")?.parse().ok()).unwrap()
    };
    let streams: Vec<Stream> = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
    assert_eq!(call(&streams), 0);
    assert_eq!(order(), 0);
    let mut on_ring = (0, 0);
    for _ in 0..CONNECTIONS {
        on_ring = (call(&streams), order());
        if on_ring == (streams.len(), streams.len()) {
            break;
        }
    }
    assert_eq!(on_ring, (streams.len(), streams.len()));
    drop(orders);
    assert!(connecting.wait().unwrap().success());
}
