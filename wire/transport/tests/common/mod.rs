//! Helpers that several test programs share: pairs of ends, and a stream of bytes in which every
//! position is recognizable.
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod carrier;
pub(crate) mod heap;
pub(crate) mod honest;
pub(crate) mod hostile;
pub(crate) mod places;
pub(crate) mod seek;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use places::{Place, place};
use seekwire_transport::layout::Geometry;
use seekwire_transport::mem::{Own, Peer, Region};
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::ring::Ring;
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::fd::PrivateFd;

/// Memory of one end, formatted, and the descriptor for its peer.
pub(crate) fn memory(geometry: Geometry) -> (Own, PrivateFd) {
    let base = geometry.segment_at(0);
    let created =
        Own::create(geometry.bytes(), base, geometry.segment_size(), geometry.segments()).unwrap();
    queue::format(&created.0, geometry);
    created
}

/// Memory of two ends on two machines, formatted, with each end's view of the other's; and its
/// location, the first end's part first.
pub(crate) fn linked(a: Geometry, b: Geometry) -> ([(Own, Peer); 2], Place) {
    let place = place(a.shown_bytes() + b.shown_bytes());
    let Place { regions, at } = &place;
    let own = |region: &Region, at, geometry: Geometry| {
        let own = region.own(at, geometry.shown_bytes(), geometry.bytes()).unwrap();
        queue::format(&own, geometry);
        own
    };
    let behind = at + a.shown_bytes();
    let a_own = own(&regions[0], *at, a);
    let b_own = own(&regions[1], behind, b);
    let b_seen = regions[0].peer(behind, b.shown_bytes()).unwrap();
    let a_seen = regions[1].peer(*at, a.shown_bytes()).unwrap();
    ([(a_own, b_seen), (b_own, a_seen)], place)
}

/// The queues of two ends, on two machines or on one.
pub(crate) fn queues(by_link: bool, a: Geometry, b: Geometry) -> [QueuePair<Own, Peer>; 2] {
    if !by_link {
        let ((a_own, a_fd), (b_own, b_fd)) = (memory(a), memory(b));
        return [joined(a_own, a, &b_fd), joined(b_own, b, &a_fd)];
    }
    let ([a_memory, b_memory], _) = linked(a, b);
    [(a_memory, a), (b_memory, b)].map(|((own, peer), geometry)| {
        let peer_geometry = queue::shown_geometry(&peer, peer.len()).unwrap();
        QueuePair::new(own, geometry, peer, peer_geometry)
    })
}

/// Two ends on two machines, ready for each other.
pub(crate) fn linked_pair(a: Geometry, b: Geometry) -> (Ring, Ring) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let doorbells = [one, other].map(|socket| {
        socket.set_nodelay(true).unwrap();
        Doorbell::remote_pair(PrivateFd::new(socket.into()).unwrap(), || None).unwrap()
    });
    rings(queues(true, a, b), doorbells)
}

/// The queue of an end that has `own`; `peer` is the descriptor of its peer's memory.
pub(crate) fn joined(own: Own, geometry: Geometry, peer: &PrivateFd) -> QueuePair<Own, Peer> {
    let peer = Peer::attach(peer.as_fd(), Geometry::MAX_BYTES).unwrap();
    let peer_geometry = queue::peer_geometry(&peer, peer.len()).unwrap();
    QueuePair::new(own, geometry, peer, peer_geometry)
}

/// Two ends with these geometries, ready for each other.
pub(crate) fn ring_pair(a: Geometry, b: Geometry) -> (Ring, Ring) {
    let (of_a, of_b) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
    let lent = |doorbell: &Doorbell| {
        let sent = doorbell.as_fd().try_clone_to_owned().unwrap();
        Doorbell::from_peer(PrivateFd::new(sent).unwrap()).unwrap()
    };
    let (to_a, to_b) = (lent(&of_a), lent(&of_b));
    rings(queues(false, a, b), [(of_a, to_b), (of_b, to_a)])
}

/// Adds the doorbell of each end, and its peer's.
fn rings(queues: [QueuePair<Own, Peer>; 2], doorbells: [(Doorbell, Doorbell); 2]) -> (Ring, Ring) {
    let [a, b] = queues;
    let [of_a, of_b] = doorbells;
    let ring = |queue, (doorbell, peer_doorbell)| Ring { queue, doorbell, peer_doorbell };
    let (a, b) = (ring(a, of_a), ring(b, of_b));
    a.queue.set_ready();
    b.queue.set_ready();
    (a, b)
}

/// The smallest ring, the default one, and others between and beyond.
pub(crate) fn geometries() -> Vec<(Geometry, Geometry)> {
    let new = |cells, size, segments| Geometry::new(cells, size, segments).unwrap();
    let smallest = new(64, 4096, 8);
    vec![
        (smallest, smallest),
        (Geometry::default(), Geometry::default()),
        (smallest, new(1024, 8192, 64)),
        (new(128, 12288, 16), new(64, 4096, 128)),
    ]
}

/// Bytes that repeat with a prime period, so that no two laps of a ring have the same bytes in the
/// same place.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Vec<u8>);

const PERIOD: usize = 65521;

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bytes = (0..PERIOD).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        });
        Self(bytes.collect())
    }

    /// `len` bytes of the stream from `at` on.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        let mut from = at as usize % PERIOD;
        while bytes.len() < len {
            let n = (PERIOD - from).min(len - bytes.len());
            bytes.extend_from_slice(&self.0[from..from + n]);
            from = 0;
        }
        bytes
    }
}

/// A small, fast and repeatable generator.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

/// Prints a line even if the test harness keeps the output of passing tests.
pub(crate) fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
