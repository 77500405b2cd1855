//! Reports of an edge-triggered registration whose events come from a ring and from a socket,
//! against one socket as epoll(7) describes it: an event that is ready and news is reported, with all
//! that is ready; and nothing is reported again before anything has happened.

use std::collections::VecDeque;

use proptest::prelude::*;
use seekwire_protocol::Carrier;
use seekwire_protocol::readiness::{
    ALWAYS, EDGE, EXCLUSIVE, Look, Marks, ONE_SHOT, RDHUP, READ, Reports, Sends, WRITE,
};

const WANTED: u32 = READ | WRITE | RDHUP | EDGE;

#[derive(Clone, Copy, Debug)]
enum Operation {
    RingArrives,
    TcpArrives,
    /// Receives all bytes, or one.
    Receive(bool),
    /// Sends until there is no room; then the last send has found none.
    Fill(bool),
    Room,
    PeerEnds,
    ShutDown,
    Modify,
    /// The library changes the kernel's registration.
    Reregister,
    Wait,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        4 => Just(RingArrives),
        4 => Just(TcpArrives),
        4 => any::<bool>().prop_map(Receive),
        3 => any::<bool>().prop_map(Fill),
        3 => Just(Room),
        1 => Just(PeerEnds),
        1 => Just(ShutDown),
        2 => Just(Modify),
        3 => Just(Reregister),
        9 => Just(Wait),
    ]
}

/// The plain socket.
#[derive(Debug)]
struct Plain {
    unread: usize,
    has_ended: bool,
    has_room: bool,
    /// A send or a report has found no room.
    lacks_room: bool,
    news: u32,
    /// Anything has happened since the last wait: then the kernel may report what is not news.
    is_woken: bool,
}

impl Plain {
    fn ready(&self) -> u32 {
        let read = if self.unread > 0 || self.has_ended { READ } else { 0 };
        let end = if self.has_ended { RDHUP } else { 0 };
        read | end | if self.has_room { WRITE } else { 0 }
    }

    fn happens(&mut self, news: u32) {
        self.news |= news;
        self.is_woken = true;
    }

    /// Whether a wait may have this outcome.
    fn allows(&mut self, reported: u32) -> bool {
        let is_woken = std::mem::take(&mut self.is_woken);
        if reported == 0 {
            return self.ready() & self.news == 0;
        }
        let has_news = self.ready() & self.news != 0;
        self.news = 0;
        self.lacks_room |= !self.has_room;
        // The kernel is not asked whether the end of a direction that is on the ring can be read.
        let unsaid = if reported & RDHUP != 0 { READ } else { 0 };
        reported | unsaid == self.ready() && (has_news || is_woken)
    }
}

/// The same socket with a ring beside it.
#[derive(Debug)]
struct Ours {
    reports: Reports,
    sends: Sends,
    has_room: bool,
    /// The carriers of the unread bytes.
    unread: VecDeque<Carrier>,
    peer_has_ended: bool,
    is_shut: bool,
    marks: Marks,
    arrived: u64,
    /// It is in the kernel's ready list, and comes there once there is room.
    is_listed: bool,
    kernel_lacks_room: bool,
}

impl Ours {
    fn asked(&self) -> u32 {
        if self.sends == Sends::Tcp { WANTED } else { WANTED & !WRITE }
    }

    fn kernels(&self) -> u32 {
        let has_ended = self.peer_has_ended || self.is_shut;
        let read = if self.unread.contains(&Carrier::Tcp) || has_ended { READ } else { 0 };
        let write = if self.sends == Sends::Tcp && self.has_room { WRITE } else { 0 };
        read | write | if has_ended { RDHUP } else { 0 }
    }

    fn take(&mut self, with_kernel: bool) -> u32 {
        let on_ring = self.sends == Sends::Ring;
        let next = self.unread.front().copied();
        let is_by_tcp = next == Some(Carrier::Tcp);
        let read = match next {
            Some(Carrier::Ring) => READ,
            Some(Carrier::Tcp) if self.reports.has_new_bytes(self.marks) => READ,
            None if self.peer_has_ended => READ,
            _ => 0,
        };
        let write = if on_ring && self.has_room { WRITE } else { 0 };
        let is_full = on_ring && !self.has_room;
        let look = Look { events: read | write, is_full, marks: self.marks };
        if !self.reports.take(&look, with_kernel) {
            return 0;
        }
        let (by_tcp, arrived) = (self.unread.contains(&Carrier::Tcp), self.arrived);
        self.reports.note_bytes(&look, || by_tcp, || Some(arrived));
        let ended = self.peer_has_ended || self.is_shut;
        if !ended && !is_by_tcp && on_ring {
            return look.events;
        }
        self.kernel_lacks_room |= !on_ring && !self.has_room;
        let kernels = self.kernels() & if is_by_tcp { !0 } else { !READ };
        if ended {
            self.reports.note_end(kernels);
        }
        self.reports.note_kernels(kernels, self.asked(), self.marks, || Some(arrived));
        look.events | kernels
    }

    fn wait(&mut self) -> u32 {
        let mut reported = self.take(false);
        let is_listed = std::mem::take(&mut self.is_listed);
        let events = if is_listed { self.kernels() } else { 0 };
        let arrived = self.arrived;
        self.kernel_lacks_room |= is_listed && self.sends == Sends::Tcp && !self.has_room;
        if events == 0 {
            return reported;
        }
        if reported != 0 {
            self.reports.note_kernels(events, self.asked(), self.marks, || Some(arrived));
            reported |= events;
        } else if !self.reports.repeats(events, self.marks, || Some(arrived)) {
            self.reports.note_kernels(events, self.asked(), self.marks, || Some(arrived));
            reported = events | self.take(true);
        }
        reported
    }
}

fn check(sends: Sends, operations: Vec<Operation>) -> Result<(), TestCaseError> {
    let all = READ | WRITE | RDHUP;
    let mut plain = Plain {
        unread: 0,
        has_ended: false,
        has_room: true,
        lacks_room: false,
        news: all,
        is_woken: true,
    };
    let mut ours = Ours {
        reports: Reports::new(WANTED),
        sends,
        has_room: true,
        unread: VecDeque::new(),
        peer_has_ended: false,
        is_shut: false,
        marks: Marks::default(),
        arrived: 0,
        is_listed: true,
        kernel_lacks_room: false,
    };
    ours.reports.registered(EDGE);
    for operation in operations {
        match operation {
            Operation::RingArrives | Operation::TcpArrives if plain.has_ended => {}
            Operation::RingArrives => {
                plain.unread += 1;
                plain.happens(READ);
                ours.unread.push_back(Carrier::Ring);
                ours.marks.data += 2;
            }
            Operation::TcpArrives => {
                plain.unread += 1;
                plain.happens(READ);
                ours.unread.push_back(Carrier::Tcp);
                ours.arrived += 1;
                ours.is_listed = true;
            }
            Operation::Receive(all) => {
                ours.unread.drain(..if all { ours.unread.len() } else { ours.unread.len().min(1) });
                plain.unread = ours.unread.len();
            }
            Operation::Fill(finds_none) => {
                (plain.has_room, ours.has_room) = (false, false);
                plain.lacks_room |= finds_none;
                ours.kernel_lacks_room |= finds_none && sends == Sends::Tcp;
                ours.marks.starved += u64::from(finds_none);
            }
            Operation::Room if plain.has_room => {}
            Operation::Room => {
                (plain.has_room, ours.has_room) = (true, true);
                if std::mem::take(&mut plain.lacks_room) {
                    plain.happens(WRITE);
                }
                if std::mem::take(&mut ours.kernel_lacks_room) {
                    ours.is_listed = true;
                    plain.happens(0);
                }
            }
            Operation::PeerEnds | Operation::ShutDown if plain.has_ended => {}
            Operation::PeerEnds => {
                plain.has_ended = true;
                plain.happens(READ | RDHUP);
                ours.peer_has_ended = true;
                ours.marks.data += 1;
                ours.arrived += 1;
                ours.is_listed = true;
            }
            Operation::ShutDown => {
                plain.has_ended = true;
                plain.happens(READ | RDHUP);
                ours.is_shut = true;
                ours.marks.shutdowns += 1;
                ours.is_listed = true;
            }
            Operation::Modify => {
                plain.happens(all);
                ours.reports.registered(EDGE);
                ours.reports.changed(WANTED);
                ours.is_listed = true;
            }
            Operation::Reregister => {
                ours.reports.registered(EDGE);
                ours.is_listed = true;
            }
            Operation::Wait => {
                let reported = ours.wait();
                let is_allowed = plain.allows(reported);
                prop_assert!(is_allowed, "{:x} by {:?} and {:?}", reported, plain, ours);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn an_edge_is_reported_once_whichever_carrier_has_it(
        sends in prop_oneof![Just(Sends::Ring), Just(Sends::Tcp)],
        operations in prop::collection::vec(operation(), 1..40),
    ) {
        check(sends, operations)?;
    }
}

#[test]
fn a_level_is_news_at_every_look() {
    let mut reports = Reports::new(READ);
    let look = Look { events: READ, ..Look::default() };
    for _ in 0..3 {
        assert!(reports.is_news(&look) && reports.take(&look, false));
        assert!(!reports.repeats(READ, Marks::default(), || Some(0)));
    }
    assert!(!reports.take(&Look::default(), false));
}

#[test]
fn the_events_are_those_of_the_kernel() {
    let bits = |events: &[libc::c_int]| events.iter().fold(0, |bits, event| bits | *event as u32);
    assert_eq!(READ, bits(&[libc::EPOLLIN, libc::EPOLLRDNORM]));
    assert_eq!(WRITE, bits(&[libc::EPOLLOUT, libc::EPOLLWRNORM]));
    assert_eq!(ALWAYS, bits(&[libc::EPOLLERR, libc::EPOLLHUP]));
    assert_eq!(RDHUP, bits(&[libc::EPOLLRDHUP]));
    assert_eq!(EDGE, bits(&[libc::EPOLLET]));
    assert_eq!(ONE_SHOT, bits(&[libc::EPOLLONESHOT]));
    assert_eq!(EXCLUSIVE, bits(&[libc::EPOLLEXCLUSIVE]));
}

#[test]
fn room_is_asked_for_where_it_means_something() {
    let asked = |sends: Sends| [sends.asks_for_room(false), sends.asks_for_room(true)];
    assert_eq!(asked(Sends::Ring), [false, false]);
    assert_eq!(asked(Sends::HeldUp), [false, false]);
    assert_eq!(asked(Sends::Retransmit), [true, true]);
    assert_eq!(asked(Sends::Tcp), [false, true]);
}
