//! Tracks the bytes that entered and left each direction of each connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::program::{Call, CallResult, payload};

/// A small piece in a receive queue is as much as a quarter of a full one.
const PIECE: u64 = 256;

/// Bytes of one direction that calls have sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ByteCounters {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Sends since nothing was in flight.
    pieces: u64,
}

impl ByteCounters {
    pub(crate) fn in_flight(self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Room that the bytes in flight take in the kernel's buffers: for small pieces more than their
    /// length.
    pub(crate) fn weight(self) -> u64 {
        self.in_flight() + self.pieces * PIECE
    }
}

/// More than a receiver may have room for at once.
pub(crate) const MUCH: u64 = 64 << 10;

#[derive(Debug, Default)]
struct Direction {
    counters: ByteCounters,
    /// Steps that sent, in the order they began, with the number of bytes taken, once known.
    sends: Vec<(u64, usize, Option<usize>)>,
    /// Each read: its step, the offset, and the bytes; empty if they were thrown away.
    reads: Vec<(u64, u64, Vec<u8>)>,
    /// Urgent bytes went by, or two calls were under way at a time: order and number are unknown.
    unsure: bool,
    /// The step in which the sending end was shut down by its own program.
    shut: Option<u64>,
    /// The receiving end was shut down for reading by its own program.
    refused: bool,
    /// The most that was in flight at a time.
    most: u64,
    /// Its receiver learned of a reset: bytes still on their way may be lost.
    reset: bool,
    /// How the last drain ended.
    end: Option<(i64, i32)>,
}

/// Number of bytes that never equal others by chance.
const CERTAIN: usize = 4;

impl Direction {
    /// The bytes that were sent.
    fn expected(&self) -> Vec<u8> {
        let pieces = self.sends.iter().flat_map(|(step, length, taken)| {
            payload(*step, *length).into_iter().take(taken.unwrap_or(*length))
        });
        pieces.collect()
    }
}

/// All connections of a run. A direction is twice the connection's number, in order of creation,
/// plus 1 for bytes that the accepting end sends.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    directions: Vec<Direction>,
    /// By the connecting end's port.
    connections: BTreeMap<u16, usize>,
    /// By the kernel's number of a socket: the direction in which it sends.
    sockets: BTreeMap<u64, usize>,
    /// By process: the directions in which the sockets send that were passed to it and not yet
    /// taken.
    passed: BTreeMap<usize, VecDeque<Option<usize>>>,
    /// Directions out of which bytes were sought.
    sought: BTreeSet<usize>,
    /// Calls under way, with the socket through which they move bytes.
    under_way: BTreeMap<u64, (Call, Option<u64>)>,
    handled: bool,
}

/// Bytes that a call would send if it is a sending one.
fn sends(call: &Call) -> Option<usize> {
    match call {
        Call::Send { length, .. }
        | Call::Sendfile { length, .. }
        | Call::SpliceTo { length, .. } => Some(*length),
        Call::SendMany { length, count, .. } => Some(length * count),
        _ => None,
    }
}

fn receives(call: &Call) -> bool {
    matches!(
        call,
        Call::Receive { .. } | Call::Drain { .. } | Call::SpliceFrom { .. } | Call::Seek { .. }
    )
}

impl Streams {
    pub(crate) fn counters(&self) -> Vec<ByteCounters> {
        self.directions.iter().map(|direction| direction.counters).collect()
    }

    /// The direction in which the socket of an answer sends.
    pub(crate) fn direction(&self, answer: &CallResult) -> Option<usize> {
        self.sockets.get(&answer.connection?.0).copied()
    }

    /// Whether the program itself had shut a direction down before a step.
    pub(crate) fn is_shut(&self, direction: usize, step: usize) -> bool {
        self.directions[direction].shut.is_some_and(|shut| shut < step as u64 * 2)
    }

    pub(crate) fn begin(&mut self, step: u64, call: &Call) {
        if let Call::Handler { action: Some(_) } = call {
            self.handled = true;
        }
        self.under_way.insert(step, (call.clone(), None));
    }

    /// Notes through which socket a call under way moves bytes.
    pub(crate) fn begun(&mut self, step: u64, socket: Option<(u64, u16, u16)>) {
        if let Some((_, cookie)) = self.under_way.get_mut(&step) {
            *cookie = socket.map(|(cookie, ..)| cookie);
        }
    }

    /// Whether another such call is under way that sends, or receives, in a direction.
    fn is_beside(&self, direction: usize, is_such: fn(&Call) -> bool) -> bool {
        let mut such = self.under_way.values().filter(|(call, _)| is_such(call));
        such.any(|(call, socket)| self.is_in(direction, call, *socket))
    }

    /// Whether a call sends, or receives, in a direction.
    fn is_in(&self, direction: usize, call: &Call, socket: Option<u64>) -> bool {
        let sends_in = socket.and_then(|socket| self.sockets.get(&socket).copied());
        sends_in.map(|sends_in| sends_in ^ usize::from(receives(call))) == Some(direction)
    }

    pub(crate) fn end(&mut self, process: usize, step: u64, call: &Call, answer: &CallResult) {
        self.under_way.remove(&step);
        match call {
            Call::Connect { .. } => self.made(answer, 0),
            Call::Accept { .. } => self.made(answer, 1),
            Call::Pass { to, .. } if answer.value >= 0 => {
                let direction = self.direction(answer);
                self.passed.entry(*to).or_default().push_back(direction);
            }
            // It may be the end of a relay that no call has shown so far.
            Call::Take { .. } if answer.value >= 0 => {
                let passed = self.passed.entry(process).or_default().pop_front().flatten();
                if let (Some((socket, ..)), Some(direction)) = (answer.connection, passed) {
                    self.sockets.insert(socket, direction);
                }
            }
            _ => {}
        }
        // seek_recv(3): the new program misses bytes that lie in the library's memory.
        if *call == (Call::Exec { there: true }) && answer.value == 0 {
            for direction in &self.sought {
                self.directions[*direction].unsure = true;
            }
        }
        // The same may hold where exec has replaced a socket.
        for (before, now) in &answer.replaced {
            if let Some(direction) = self.sockets.get(before).copied() {
                self.sockets.insert(*now, direction);
            }
        }
        let Some(direction) = self.direction(answer) else { return };
        if let Call::Seek { .. } = call {
            self.sought.insert(direction ^ 1);
        }
        if let Call::Shutdown { how, .. } = call {
            if *how != libc::SHUT_RD && answer.value == 0 {
                self.directions[direction].shut.get_or_insert(step);
            }
            self.directions[direction ^ 1].refused |= *how != libc::SHUT_WR;
        }
        // A reset that a send returns is not returned again, and bytes that had not arrived are
        // lost. It is EPIPE where the peer had ended the stream.
        let is_shut = self.directions[direction].shut.is_some();
        let is_reset = match answer.errno {
            libc::ECONNRESET => true,
            libc::EPIPE => !is_shut,
            _ => false,
        };
        self.directions[direction ^ 1].reset |= sends(call).is_some() && is_reset;
        if answer.moved {
            // A restarted call continues on what the number stands for by then.
            self.elsewhere(step, direction, call, answer);
        } else if let Some(length) = sends(call) {
            let taken = usize::try_from(answer.value).unwrap_or(0);
            let others = self.is_beside(direction, |call| sends(call).is_some());
            let urgent = call.flags() & libc::MSG_OOB != 0;
            let direction = &mut self.directions[direction];
            direction.unsure |= others || urgent;
            direction.counters.sent += taken as u64;
            direction.counters.pieces += match call {
                Call::SendMany { length, .. } => taken.div_ceil((*length).max(1)) as u64,
                _ => 1,
            };
            direction.most = direction.most.max(direction.counters.weight());
            direction.sends.push((step, length, Some(taken)));
        } else if receives(call) {
            self.received(step, direction ^ 1, call, answer);
        }
    }

    /// Handles a call whose number came to stand for something else while it was under way: the
    /// bytes it received show where. Nothing shows where it sent.
    fn elsewhere(&mut self, step: u64, direction: usize, call: &Call, answer: &CallResult) {
        let is_seen = receives(call) && call.flags() & (libc::MSG_OOB | libc::MSG_TRUNC) == 0;
        if is_seen {
            let others = (0..self.directions.len()).filter(|at| *at != direction ^ 1);
            let mut candidates = std::iter::once(direction ^ 1).chain(others);
            let from = candidates.find(|at| self.goes_on_with(*at, &answer.bytes));
            self.received(step, from.unwrap_or(direction ^ 1), call, answer);
        }
        let is_nothing = answer.value <= 0 && answer.bytes.is_empty();
        if !(is_nothing || is_seen && answer.bytes.len() >= CERTAIN) {
            self.directions.iter_mut().for_each(|direction| direction.unsure = true);
        }
    }

    /// Whether these bytes can be the next ones that are received in a direction. The call that
    /// sent them may not have returned yet.
    fn goes_on_with(&self, direction: usize, bytes: &[u8]) -> bool {
        let mut expected = self.directions[direction].expected();
        for (step, (call, socket)) in &self.under_way {
            if let (Some(length), true) = (sends(call), self.is_in(direction, call, *socket)) {
                expected.extend(payload(*step, length));
            }
        }
        let start = self.directions[direction].counters.received as usize;
        expected.get(start..).is_some_and(|rest| rest.starts_with(bytes))
    }

    fn received(&mut self, step: u64, direction: usize, call: &Call, answer: &CallResult) {
        let others = self.is_beside(direction, receives);
        let direction = &mut self.directions[direction];
        direction.unsure |= others;
        let flags = call.flags();
        direction.reset |= answer.value == -1 && answer.errno == libc::ECONNRESET;
        if let Call::Drain { .. } = call {
            direction.end = Some((answer.value, answer.errno));
        }
        if flags & libc::MSG_OOB != 0 {
            return;
        }
        let from = direction.counters.received;
        let thrown_away = flags & libc::MSG_TRUNC != 0;
        if !thrown_away {
            direction.reads.push((step, from, answer.bytes.clone()));
        }
        if flags & libc::MSG_PEEK == 0 {
            let count = if thrown_away {
                u64::try_from(answer.value).unwrap_or(0)
            } else {
                answer.bytes.len() as u64
            };
            direction.counters.received += count;
            if direction.counters.in_flight() == 0 {
                direction.counters.pieces = 0;
            }
        }
    }

    /// Records a socket of a connection: the one that connects, or (1) the one that accepts.
    fn made(&mut self, answer: &CallResult, side: usize) {
        let Some((cookie, local, remote)) = answer.connection else { return };
        let port = if side == 0 { local } else { remote };
        if port == 0 {
            return;
        }
        let next = self.connections.len();
        let connection = *self.connections.entry(port).or_insert(next);
        if connection == next {
            self.directions.extend([Direction::default(), Direction::default()]);
        }
        self.sockets.insert(cookie, connection * 2 + side);
    }

    /// Errors in the received bytes: never sent, lost, duplicated or out of order.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (at, direction) in self.directions.iter().enumerate() {
            let pending = self.is_beside(at, |call| sends(call).is_some());
            if direction.unsure || self.handled {
                continue;
            }
            let expected = direction.expected();
            for (step, from, bytes) in &direction.reads {
                let from = *from as usize;
                let there =
                    expected.get(from..expected.len().min(from + bytes.len())).unwrap_or_default();
                let more = bytes.len() - there.len();
                if bytes[..there.len()] != *there {
                    let first =
                        bytes.iter().zip(there).position(|(got, want)| got != want).unwrap_or(0);
                    wrong.push(format!(
                        "step {}: byte {} of direction {at} is another",
                        step / 2,
                        from + first
                    ));
                } else if more > 0 && !pending {
                    wrong.push(format!(
                        "step {}: {more} bytes of direction {at} that nobody sent",
                        step / 2
                    ));
                }
            }
        }
        wrong
    }

    /// Bytes of each direction that were sent and never came, though a receiver has read to the
    /// end, or until nothing more came.
    pub(crate) fn lost(&self) -> Vec<u64> {
        let clean = |at: usize| {
            let direction = &self.directions[at];
            // Bytes that arrive for an end that was shut down both ways are discarded, with a
            // reset. An end that is shut down for reading does not announce new room to TCP: bytes
            // that wait for room may arrive after the last look.
            let refused = direction.refused
                && (self.directions[at ^ 1].shut.is_some() || direction.most >= MUCH);
            matches!(direction.end, Some((0, _) | (-1, libc::EAGAIN)))
                && !refused
                && !direction.reset
                && !direction.unsure
                && !self.handled
        };
        let lost = |at| if clean(at) { self.directions[at].counters.in_flight() } else { 0 };
        (0..self.directions.len()).map(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{ReceiveWay, SendWay};

    const RECEIVE: Call = Call::Receive { slot: 0, length: 100, flags: 0, way: ReceiveWay::Recv };
    const SEND: Call = Call::Send { slot: 0, length: 8, flags: 0, way: SendWay::Send };

    /// Two connections, of sockets 1 and 2, and 3 and 4.
    fn two() -> Streams {
        let mut streams = Streams::default();
        for (at, port) in [(0, 5000), (1, 5001)] {
            let (connect, accept) = (at * 2 + 1, at * 2 + 2);
            let made = |socket, local, remote| CallResult {
                connection: Some((socket, local, remote)),
                ..CallResult::default()
            };
            let call = Call::Connect { slot: 0, to: 0 };
            streams.end(1, 0, &call, &made(connect, port, 80));
            let call = Call::Accept { slot: 0, listener: 0, flags: 0 };
            streams.end(0, 1, &call, &made(accept, 80, port));
        }
        streams
    }

    fn by(socket: u64, bytes: Vec<u8>) -> CallResult {
        let connection = Some((socket, 1, 2));
        CallResult { value: bytes.len() as i64, connection, bytes, ..CallResult::default() }
    }

    fn sends(streams: &mut Streams, step: u64, socket: u64) {
        let sent = CallResult { bytes: Vec::new(), ..by(socket, payload(step, 8)) };
        streams.end(0, step, &SEND, &sent);
    }

    #[test]
    fn what_was_passed_by_a_relay_is_the_same_connection() {
        let mut streams = two();
        sends(&mut streams, 10, 1);
        streams.end(
            0,
            11,
            &Call::Pass { slot: 0, to: 2 },
            &CallResult { value: 1, ..by(2, Vec::new()) },
        );
        streams.end(2, 12, &Call::Take { slot: 0 }, &CallResult { value: 9, ..by(77, Vec::new()) });
        streams.end(2, 13, &RECEIVE, &by(77, payload(10, 8)));
        // Exec put another relay in its place.
        let replaced = vec![(77, 78)];
        streams.end(
            2,
            14,
            &Call::Exec { there: true },
            &CallResult { replaced, ..CallResult::default() },
        );
        sends(&mut streams, 15, 78);
        streams.end(1, 16, &RECEIVE, &by(1, payload(15, 8)));
        assert!(streams.wrong().is_empty());
        assert_eq!(streams.counters()[0], ByteCounters { sent: 8, received: 8, pieces: 0 });
        streams.end(2, 17, &RECEIVE, &by(78, payload(10, 8)));
        assert_eq!(streams.wrong().len(), 1, "nobody sent that again");
    }

    #[test]
    fn a_call_goes_on_with_what_its_number_has_come_to_stand_for() {
        let mut streams = two();
        sends(&mut streams, 10, 3);
        let received = |bytes| CallResult { moved: true, ..by(2, bytes) };
        streams.end(0, 11, &RECEIVE, &received(payload(10, 8)));
        assert!(streams.wrong().is_empty());
        assert_eq!(streams.counters()[2], ByteCounters { sent: 8, received: 8, pieces: 0 });
        // The answer of the call that sent it comes later.
        streams.begin(12, &SEND);
        streams.begun(12, Some((3, 1, 2)));
        streams.end(0, 13, &RECEIVE, &received(payload(12, 8)));
        sends(&mut streams, 12, 3);
        assert!(streams.wrong().is_empty());
        streams.end(0, 14, &RECEIVE, &received(vec![1; 8]));
        assert_eq!(streams.wrong().len(), 1, "it is on no connection");
    }

    #[test]
    fn a_reset_takes_bytes_with_it_that_were_not_sent_yet() {
        for (ends, lost) in [(false, 8), (true, 0)] {
            let mut streams = two();
            sends(&mut streams, 10, 1);
            if ends {
                // The second of some sends finds it.
                let sent = CallResult { value: 4, errno: libc::EPIPE, ..by(2, Vec::new()) };
                let call = Call::SendMany { slot: 0, length: 4, count: 2, flags: 0 };
                streams.end(0, 12, &call, &sent);
            }
            streams.end(0, 14, &Call::Drain { slot: 0 }, &by(2, Vec::new()));
            assert_eq!(streams.lost()[0], lost);
        }
    }

    #[test]
    fn who_sleeps_on_another_connection_leaves_the_order_certain() {
        let mut streams = two();
        let reads_wrong = |streams: &mut Streams, socket| {
            streams.begin(9, &RECEIVE);
            streams.begun(9, Some((socket, 80, 5000)));
            streams.end(0, 10, &RECEIVE, &by(2, vec![1; 8]));
            streams.wrong().len()
        };
        assert_eq!(reads_wrong(&mut streams, 4), 1);
        assert_eq!(reads_wrong(&mut streams, 2), 0, "either may be first");
    }
}
