//! Two honest ends that switch between the ring and a model of TCP at will: the bytes that come out
//! are the bytes that went in. Played by a property test and by a fuzz target.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::Geometry;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{PublishError, QueuePair, RecallOutcome};

use super::{Pattern, queues};

/// One step of one of the two ends; `false` and `true` name them.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Operation {
    Ready(bool),
    Send(bool, u16),
    /// Announces more, for which these bytes are held back.
    SendMore(bool, u16),
    /// Cork or uncork.
    Cork(bool, bool),
    /// Reserve a segment, fill it, commit this many bytes of it; 0 cancels.
    InPlace(bool, u16),
    Recv(bool, u16),
    Peek(bool, u16),
    Discard(bool, u16),
    /// Look at the head of the ring, then take this many bytes of it.
    Borrow(bool, u16),
    /// Use TCP for good, in both directions.
    TcpOnly(bool),
    /// Ask for a recall; then check whether it was served, or withdraw.
    AskRecall(bool),
    HandOver(bool),
    Withdraw(bool),
    /// Leave the request for a recall standing, and stop waiting.
    KeepAsking(bool),
    /// Serve the peer's requests without a send; the kernel has room for this many bytes to
    /// retransmit.
    ServicePeer(bool, u16),
    /// Leave the ring as if it were full.
    Overflow(bool),
    Shutdown(bool),
}

/// One direction, by its sender.
#[derive(Default)]
struct Direction {
    tcp: VecDeque<u8>,
    tcp_ended: bool,
    /// The receiver has asked for the bytes on the ring.
    asked: bool,
    /// The receiver no longer knows of the ring.
    handed_over: bool,
    sent: u64,
    received: u64,
    /// Bytes that the receiver discarded, and that came again.
    discarded: u64,
    corked: bool,
    held: Option<Held>,
    /// A hold that was not released may have ended: the beginning of the next one is unknown.
    is_unsure: bool,
    /// The receiver has asked for a recall: from then on it sees all bytes.
    sees_all: bool,
    hidden: u64,
}

/// The bytes that a receiver may not see yet.
#[derive(Clone, Copy)]
struct Held {
    from: u64,
    /// The time just before the first of these bytes was published.
    since: Instant,
}

/// Bytes of a full segment, which is never held back.
const SEGMENT: usize = 3000;
/// A hold surely lasts longer than this.
const SURELY: Duration = Duration::from_millis(190);

struct World {
    ends: [QueuePair<Own, Peer>; 2],
    directions: [Direction; 2],
    pattern: &'static Pattern,
    /// In a region of two machines, nothing is lent.
    by_link: bool,
    geometries: [Geometry; 2],
    /// Bytes that went by TCP, by the ring, and by one after the other.
    moved: [u64; 3],
}

/// Plays the operations, then reads everything to its end. Returns the numbers of bytes that went
/// by TCP, by the ring, by TCP after a recall from the ring, and discarded from TCP, to be
/// retransmitted; and how often the receiver found nothing although bytes were held back for it.
pub(crate) fn play(
    geometries: (Geometry, Geometry),
    by_link: bool,
    operations: &[Operation],
) -> [u64; 5] {
    let (a, b) = geometries;
    let mut world = World {
        ends: queues(by_link, a, b),
        directions: Default::default(),
        pattern: &PATTERN,
        by_link,
        geometries: [a, b],
        moved: [0; 3],
    };
    for operation in operations {
        world.step(operation);
    }
    for end in [false, true] {
        world.step(&Operation::Shutdown(end));
    }
    for end in [0, 1] {
        while world.ends[1 - end].to_retransmit() > 0 || world.ends[1 - end].wants_attention() {
            world.step(&Operation::ServicePeer(end == 0, 5000));
        }
        if world.directions[1 - end].asked {
            world.step(&Operation::HandOver(end == 1));
            assert!(!world.directions[1 - end].asked, "no answer");
        }
        while !world.receive(end, 50_000, Take::Pull) {}
        let direction = &world.directions[1 - end];
        assert_eq!(direction.sent, direction.received, "the end came early");
    }
    let [tcp, ring, back] = world.moved;
    let sum = |count: fn(&Direction) -> u64| world.directions.iter().map(count).sum();
    [tcp, ring, back, sum(|direction| direction.discarded), sum(|direction| direction.hidden)]
}

static PATTERN: LazyLock<Pattern> = LazyLock::new(|| Pattern::new(3));

#[derive(Clone, Copy, Eq, PartialEq)]
enum Take {
    Pull,
    Peek,
    Discard,
    Borrow,
}

impl World {
    fn step(&mut self, operation: &Operation) {
        match *operation {
            Operation::Ready(end) => self.ends[usize::from(end)].set_ready(),
            Operation::Send(end, len) => self.send(end.into(), len.into(), false),
            Operation::SendMore(end, len) => self.send(end.into(), len.into(), true),
            Operation::Cork(end, on) => {
                let (q, direction) =
                    (&self.ends[usize::from(end)], &mut self.directions[usize::from(end)]);
                let tx = q.tx();
                tx.set_corked(on);
                let was_corked = std::mem::replace(&mut direction.corked, on);
                if on && !was_corked && direction.held.take().is_some() {
                    // A hold for MSG_MORE still ends at an answer.
                    direction.is_unsure = true;
                }
                if !on {
                    let _ = tx.release();
                    assert!(!tx.release(), "once is enough");
                    direction.held = None;
                    direction.is_unsure = false;
                }
            }
            Operation::InPlace(end, len) => self.in_place(end.into(), len.into()),
            Operation::Recv(end, len) => drop(self.receive(end.into(), len.into(), Take::Pull)),
            Operation::Peek(end, len) => drop(self.receive(end.into(), len.into(), Take::Peek)),
            Operation::Discard(end, len) => {
                let _ = self.receive(end.into(), len.into(), Take::Discard);
            }
            Operation::Borrow(end, len) => drop(self.receive(end.into(), len.into(), Take::Borrow)),
            Operation::TcpOnly(end) => self.ends[usize::from(end)].set_tcp_only(),
            Operation::AskRecall(end) => {
                let direction = &mut self.directions[1 - usize::from(end)];
                if !direction.handed_over {
                    self.ends[usize::from(end)].rx().ask_recall();
                    direction.asked = true;
                    direction.sees_all = true;
                }
            }
            Operation::HandOver(end) => self.hand_over(end.into(), false),
            Operation::Withdraw(end) => self.hand_over(end.into(), true),
            Operation::KeepAsking(end) => {
                let direction = &mut self.directions[1 - usize::from(end)];
                if direction.asked {
                    let rx = self.ends[usize::from(end)].rx();
                    if rx.keep_asking().expect("the peer is honest") == RecallOutcome::Pending {
                        direction.asked = false;
                    }
                    drop(rx);
                    self.hand_over(end.into(), false);
                }
            }
            Operation::ServicePeer(end, room) => {
                let end = usize::from(end);
                let result = self.ends[end].tx().carrier();
                assert!(!matches!(result, Err(PublishError::Violation(_))), "the peer is honest");
                self.retransmit(end, room.into());
            }
            Operation::Overflow(end) => {
                let tx = self.ends[usize::from(end)].tx();
                assert!(tx.overflow().is_ok(), "there is always room to leave");
            }
            Operation::Shutdown(end) => {
                let end = usize::from(end);
                self.ends[end].tx().shutdown().expect("there is room for the end");
                self.directions[end].tcp_ended = self.ends[end].to_retransmit() == 0;
            }
        }
        let sends = match *operation {
            Operation::Send(end, _)
            | Operation::SendMore(end, _)
            | Operation::Cork(end, _)
            | Operation::InPlace(end, _)
            | Operation::ServicePeer(end, _)
            // Its own hold ends then.
            | Operation::Overflow(end)
            | Operation::Shutdown(end) => Some(usize::from(end)),
            _ => None,
        };
        for (at, (end, direction)) in self.ends.iter().zip(&mut self.directions).enumerate() {
            // A send of the receiver ends a hold, but not that of a cork.
            if sends == Some(1 - at) && !direction.corked && direction.held.take().is_some() {
                direction.is_unsure = true;
            }
            if !end.tx_on_ring() || end.is_shut() {
                direction.held = None;
                direction.is_unsure = false;
            }
        }
    }

    /// Checks whether the peer has served the recall. If it has not, the receiver takes nothing off
    /// the ring until it withdraws or is refused.
    fn hand_over(&mut self, end: usize, gives_up: bool) {
        let direction = &mut self.directions[1 - end];
        if !direction.asked {
            return;
        }
        let rx = self.ends[end].rx();
        let answer = match rx.answer().expect("the peer is honest") {
            answer @ RecallOutcome::Taken => answer,
            answer @ (RecallOutcome::Pending | RecallOutcome::AtWork) if !gives_up => answer,
            _ => rx.withdraw().expect("the peer is honest"),
        };
        if matches!(answer, RecallOutcome::Taken | RecallOutcome::Refused) {
            let discards = usize::try_from(rx.discard_left()).unwrap();
            direction.tcp.drain(..discards);
            rx.note_discarded(discards);
            direction.discarded += discards as u64;
            direction.asked = false;
            direction.handed_over = answer == RecallOutcome::Taken;
        }
    }

    /// Gives this many bytes to retransmit to the model of TCP.
    fn retransmit(&mut self, end: usize, room: usize) {
        let q = &self.ends[end];
        let direction = &mut self.directions[end];
        let tx = q.tx();
        let mut room = room;
        let mut piece = Vec::new();
        loop {
            tx.to_retransmit(&mut piece).expect("these bytes are this end's own");
            let n = piece.len().min(room);
            if n == 0 {
                break;
            }
            direction.tcp.extend(&piece[..n]);
            tx.retransmitted(n);
            room -= n;
            self.moved[0] += n as u64;
            self.moved[2] += n as u64;
        }
        direction.tcp_ended |= q.is_shut() && q.to_retransmit() == 0;
    }

    fn send(&mut self, end: usize, len: usize, more: bool) {
        let q = &self.ends[end];
        let direction = &mut self.directions[end];
        if q.is_shut() {
            return;
        }
        let bytes = self.pattern.bytes(direction.sent, len);
        // Two pieces, so that borders within a record are covered.
        let (head, tail) = bytes.split_at(len / 3);
        let tx = q.tx();
        let sent = match tx.carrier() {
            Ok(Carrier::Ring) => {
                let slices = [IoSlice::new(head), IoSlice::new(tail)];
                let mut gather = Gather::new(&slices);
                let since = Instant::now();
                let pushed = if more || q.holds() {
                    tx.push_held(&mut gather, more, SEGMENT)
                } else {
                    tx.push(&mut gather)
                };
                let sent = pushed.expect("the peer is honest");
                self.moved[1] += sent as u64;
                if len > 0 {
                    let before = direction.held.unwrap_or(Held { from: direction.sent, since });
                    let after = direction.sent + sent as u64;
                    let is_kept = more || direction.corked;
                    // If the hold may have expired meanwhile, nothing is known.
                    let is_known = is_kept && sent == len && before.since.elapsed() < SURELY;
                    let total = after - before.from;
                    // Without a cork, the rest of full segments is not held back.
                    let is_tail = direction.corked || total < SEGMENT as u64;
                    let tail = if is_tail { total % SEGMENT as u64 } else { 0 };
                    let from = after - tail;
                    let since = if from > before.from { since } else { before.since };
                    direction.is_unsure &= is_kept;
                    direction.is_unsure |= is_kept && !is_known;
                    let is_held = is_known && tail > 0 && q.has_room() && !direction.is_unsure;
                    direction.held = is_held.then_some(Held { from, since });
                }
                sent
            }
            Ok(Carrier::Tcp) if q.to_retransmit() > 0 => {
                drop(tx);
                return self.retransmit(end, len);
            }
            Ok(Carrier::Tcp) => {
                assert!(tx.may_use_tcp(), "nobody is inside a read");
                direction.tcp.extend(&bytes);
                tx.keep(0, head);
                tx.keep(head.len(), tail);
                tx.sent_by_tcp(len);
                self.moved[0] += len as u64;
                len
            }
            Err(PublishError::NoRoom) => 0,
            Err(PublishError::Violation(_)) => panic!("an honest peer was taken for a hostile one"),
        };
        let _ = tx.announce();
        direction.sent += sent as u64;
    }

    fn in_place(&mut self, end: usize, len: usize) {
        let q = &self.ends[end];
        let direction = &mut self.directions[end];
        if q.is_shut() || q.tx().carrier() != Ok(Carrier::Ring) {
            return;
        }
        let Ok(segment) = q.tx().reserve() else { return };
        let len = len % (self.geometries[end].segment_size() + 1);
        let Some(mut claim) = q.own().claim(segment) else {
            assert!(self.by_link, "reserved for this caller alone");
            return q.tx().cancel(segment);
        };
        claim[..len].copy_from_slice(&self.pattern.bytes(direction.sent, len));
        drop(claim);
        if len > 0 {
            direction.held = None;
            direction.is_unsure = false;
        }
        if len > 0 && q.tx().commit(segment, len).is_ok() {
            direction.sent += len as u64;
            self.moved[1] += len as u64;
        } else {
            q.tx().cancel(segment);
        }
    }

    /// Returns whether the stream has ended.
    fn receive(&mut self, end: usize, len: usize, take: Take) -> bool {
        let q = &self.ends[end];
        let direction = &mut self.directions[1 - end];
        if direction.asked {
            // The receiving half is held meanwhile.
            return false;
        }
        let mut bytes = vec![0; len];
        if direction.handed_over {
            let n = direction.tcp.len().min(len);
            let bytes: Vec<u8> = direction.tcp.drain(..n).collect();
            let expected = self.pattern.bytes(direction.received, n);
            assert!(bytes == expected, "wrong bytes at {} after the hand-over", direction.received);
            direction.received += n as u64;
            assert_eq!((q.has_record(), q.unread()), (false, 0), "the ring is done with");
            return n == 0 && len > 0 && direction.tcp_ended;
        }
        let mut there = true;
        let held = direction.held.filter(|_| !direction.sees_all);
        let rx = q.rx();
        let n = match rx.step().expect("the peer is honest") {
            RxStep::Ring => {
                let mut slices = [IoSliceMut::new(&mut bytes)];
                let mut into = Scatter::new(&mut slices);
                let n = match take {
                    Take::Pull => rx.pull(&mut into),
                    Take::Peek => rx.peek(&mut into),
                    Take::Discard => rx.discard(len),
                    Take::Borrow => {
                        let head =
                            rx.head_bytes().expect("the peer is honest").expect("there is data");
                        let n = head.len.min(len);
                        let borrowed = q.peer().bytes(head.offset, n);
                        into.fill(n, |at, piece| {
                            for (to, from) in piece.iter_mut().zip(&borrowed[at..]) {
                                *to = from.load(std::sync::atomic::Ordering::Relaxed);
                            }
                        });
                        rx.discard(n)
                    }
                };
                let n = n.expect("the peer is honest");
                assert!(n > 0 || len == 0, "there was something");
                n
            }
            step @ (RxStep::Tcp(_) | RxStep::TcpUnbounded) => {
                let bound = if let RxStep::Tcp(bound) = step { bound as usize } else { usize::MAX };
                if step == RxStep::TcpUnbounded {
                    assert!(rx.begin_unbounded_read(), "the ring is still empty");
                }
                let n = direction.tcp.len().min(len).min(bound);
                bytes.iter_mut().zip(&direction.tcp).for_each(|(to, from)| *to = *from);
                if take != Take::Peek {
                    direction.tcp.drain(..n);
                    rx.received_by_tcp(n);
                }
                if step == RxStep::TcpUnbounded {
                    rx.end_unbounded_read();
                }
                assert!(
                    n > 0 || len == 0 || bound == usize::MAX,
                    "the ring spoke of bytes that TCP lost"
                );
                there = n > 0 || len == 0 || !direction.tcp_ended;
                n
            }
            RxStep::End => {
                there = false;
                0
            }
            RxStep::RingEmpty => {
                there = !direction.tcp_ended;
                0
            }
            RxStep::Advance | RxStep::Violation => unreachable!("not left to callers"),
        };
        let _ = rx.announce();
        drop(rx);
        if take != Take::Discard {
            let expected = self.pattern.bytes(direction.received, n);
            assert!(bytes[..n] == expected, "wrong bytes at {}", direction.received);
        }
        if take != Take::Peek {
            direction.received += n as u64;
        }
        assert!(direction.received <= direction.sent);
        if let Some(held) = held.filter(|held| held.since.elapsed() < SURELY) {
            let seen = direction.received + if take == Take::Peek { n as u64 } else { 0 };
            assert!(seen <= held.from, "seen up to {seen}, held from {}", held.from);
            direction.hidden += u64::from(n == 0 && len > 0);
        }
        !there
    }
}
