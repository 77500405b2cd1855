//! Rings in places of a region that many connections share while they come and go.

use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::common::{Bed, MIB, enter, tuple};
use crate::transport::carrier::Carrier;
use crate::transport::{Pattern, geometries};
use seekwire_link::{Link, LinkEntry};
use seekwire_protocol::Role;
use seekwire_transport::Errno;
use seekwire_transport::layout::Geometry;
use seekwire_transport::mem::Own;
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::ring::Ring;
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::poll::{Deadline, Events};

const THREADS: usize = 4;
const ROUNDS: usize = 12;
const BYTES: usize = 300_000;

/// Formats this end's memory in its half.
fn memory(link: &Link, entry: &LinkEntry, geometry: Geometry) -> Own {
    let bytes = geometry.shown_bytes();
    // `None` while another process is choosing.
    let at = std::iter::repeat_with(|| entry.place(bytes)).find_map(|at| at).unwrap();
    let own = link.region().own(at, bytes, geometry.bytes()).unwrap();
    queue::format(&own, geometry);
    own
}

/// The two ends of a connection over a link, ready for each other.
fn connect(links: [&Link; 2], port: u16, ends: (Geometry, Geometry)) -> [(LinkEntry, Ring); 2] {
    let view = tuple(port);
    let [one, two] = links;
    let from = enter(one, &view, Role::Connected);
    let to = enter(two, &view.mirrored(), Role::Accepted);
    let (from_own, to_own) = (memory(one, &from, ends.0), memory(two, &to, ends.1));

    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (taken, _) = listener.accept().unwrap();
    let ring = |link: &Link, entry: &LinkEntry, own: Own, geometry: Geometry, stream: TcpStream| {
        let is_first = link.side() == one.side();
        let (tuple, role) =
            if is_first { (view.mirrored(), Role::Accepted) } else { (view, Role::Connected) };
        let other = link.find(&tuple, role).unwrap();
        assert!(entry.names(&other));
        let (at, bytes) = other.place.unwrap();
        let peer = link.region().peer(at, bytes).unwrap();
        let peer_geometry = queue::shown_geometry(&peer, bytes).unwrap();
        stream.set_nodelay(true).unwrap();
        let (doorbell, peer_doorbell) =
            Doorbell::remote_pair(PrivateFd::new(stream.into()).unwrap(), || None).unwrap();
        let queue = QueuePair::new(own, geometry, peer, peer_geometry);
        queue.set_ready();
        Ring { queue, doorbell, peer_doorbell }
    };
    let from_ring = ring(one, &from, from_own, ends.0, stream);
    let to_ring = ring(two, &to, to_own, ends.1, taken);
    [(from, from_ring), (to, to_ring)]
}

fn send(ring: &Ring, seed: u64) {
    let bytes = Pattern::new(seed).bytes(0, BYTES);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        // Lengths vary, to cover all kinds of records.
        let n = rest.len().min(1 + rest.len() * 7 % 5000);
        match Carrier::send(ring, &[IoSlice::new(&rest[..n])]) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::AGAIN) => wait(ring, Events::WRITE),
            Err(error) => panic!("send: {error}"),
        }
    }
    Carrier::shutdown(ring).unwrap();
}

fn receive(ring: &Ring, seed: u64) {
    let (mut received, mut bytes) = (Vec::new(), vec![0; 4000]);
    loop {
        match Carrier::recv(ring, &mut [IoSliceMut::new(&mut bytes)]) {
            Ok(0) => break,
            Ok(n) => received.extend_from_slice(&bytes[..n]),
            Err(Errno::AGAIN) => wait(ring, Events::READ),
            Err(error) => panic!("receive: {error}"),
        }
    }
    assert!(received == Pattern::new(seed).bytes(0, BYTES), "wrong bytes");
}

fn wait(ring: &Ring, want: Events) {
    // Never reached unless a wake-up was lost.
    let until = Deadline::after(Some(Duration::from_secs(60)));
    Carrier::wait(ring, want, until).unwrap();
}

#[test]
fn connections_that_share_a_region_carry_their_own_bytes_while_others_come_and_go() {
    let bed = Bed::new(32 * MIB);
    let [one, two] = bed.both();
    let links = [&one, &two];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let number = thread * ROUNDS + round;
                    let sizes = geometries();
                    let sizes = sizes[number % sizes.len()];
                    let [(from, one), (to, two)] = connect(links, number as u16, sizes);
                    let seeds = [2 * number as u64 + 1, 2 * number as u64 + 2];
                    std::thread::scope(|scope| {
                        for (here, there, seed) in [(&one, &two, seeds[0]), (&two, &one, seeds[1])]
                        {
                            scope.spawn(move || send(here, seed));
                            scope.spawn(move || receive(there, seed));
                        }
                    });
                    drop((one, two));
                    from.clear();
                    to.clear();
                }
            });
        }
    });
    for link in links {
        assert_eq!((link.usage().entries_used, link.usage().bytes_used), (0, 0));
    }
}
