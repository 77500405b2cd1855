//! Offers and answers for which nobody waits any more.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use seekwire::{Listener, Stream};
use seekwire_endpoint::Config;
use seekwire_protocol::offer::{Datagram, Message, SlotRef};
use seekwire_protocol::{Endpoint, FourTuple};
use seekwire_transport::sys::unix;

/// Number of rounds. Each has two connections that end while they negotiate, and as many datagrams
/// for unknown connections.
const ROUNDS: usize = 960;
const STRAY: usize = 5;

fn pair(listener: &Listener) -> [Stream; 2] {
    let from = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let to = listener.accept().unwrap().0;
    for end in [&from, &to] {
        // In TIME_WAIT, this many connections would leave no free port for a minute.
        set_socket_linger(end.kernel_socket(), Some(Duration::ZERO)).unwrap();
    }
    [from, to]
}

/// Makes one call that may negotiate, without waiting.
fn call(end: &Stream) -> bool {
    end.upgrade(Duration::ZERO).unwrap()
}

/// The connection is closed just before the offer arrives.
fn end_before_the_offer_is_seen(listener: &Listener) {
    let [from, to] = pair(listener);
    call(&to);
    call(&from);
    drop(to);
}

/// The connection is closed just before the answer arrives.
fn end_before_the_answer_is_seen(listener: &Listener) {
    let [from, to] = pair(listener);
    call(&to);
    call(&from);
    call(&to);
    drop(from);
}

/// Sends this process a datagram for a connection that it has never had.
fn send_stray_datagram(from: &unix::DatagramSocket, number: u32, descriptor: impl AsFd) {
    let own = format!("{}-", std::process::id());
    let is_own = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&own);
    let to = fs::read_dir(&Config::get().dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .find(is_own)
        .unwrap();
    let nowhere = Endpoint::from_parts(0, 0);
    let datagram = Datagram {
        message: Message::Offer,
        target: SlotRef { index: number, token: number.into() },
        reply: SlotRef { index: 0, token: 0 },
        tuple: FourTuple { local: nowhere, peer: nowhere, namespace: 0 },
    };
    from.send(&to, &datagram.encode(), &[descriptor.as_fd(), descriptor.as_fd()]).unwrap();
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn datagrams_that_come_too_late_cost_nothing_and_keep_nobody_from_the_ring() {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let stranger = unix::DatagramSocket::bind(&directory.path().join("stranger")).unwrap();
    let enclosed = fs::File::open(directory.path()).unwrap();
    let mut before = 0;
    for round in 0..ROUNDS {
        end_before_the_offer_is_seen(&listener);
        end_before_the_answer_is_seen(&listener);
        for stray in 0..STRAY {
            send_stray_datagram(&stranger, (round * STRAY + stray) as u32, &enclosed);
        }
        if round == 0 {
            // By now the process has its rendezvous and its other permanent descriptors.
            before = descriptors();
        }
    }
    let [from, to] = pair(&listener);
    let on_ring = (0..100).any(|_| [&to, &from].into_iter().filter(|end| call(end)).count() == 2);
    assert!(on_ring, "{} datagrams were sent", ROUNDS * (2 + STRAY));
    drop((from, to));
    assert_eq!(descriptors(), before);
}
