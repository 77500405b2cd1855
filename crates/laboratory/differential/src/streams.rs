//! Tracks what went into each direction of each connection, and what came out of it.

use std::collections::BTreeMap;

use crate::program::{Answer, Call, payload};

/// A small piece in a receive queue is as much as a quarter of a full one.
const PIECE: u64 = 256;

/// Bytes of one direction that calls have sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Sends since nothing was in flight.
    pieces: u64,
}

impl Counters {
    pub(crate) fn in_flight(self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Of what is in flight, to the kernel's buffers: small pieces take more of them than they have
    /// bytes.
    pub(crate) fn weight(self) -> u64 {
        self.in_flight() + self.pieces * PIECE
    }
}

/// More than a receiver may have room for at once.
pub(crate) const MUCH: u64 = 64 << 10;

#[derive(Debug, Default)]
struct Direction {
    counters: Counters,
    /// Steps that sent, in the order of their beginning, and how much of it was taken once that is
    /// known.
    sends: Vec<(u64, usize, Option<usize>)>,
    /// From which byte on, and what was read there; empty: thrown away.
    reads: Vec<(u64, u64, Vec<u8>)>,
    /// Bytes went by urgently, or two calls were under way at a time: order and number are not
    /// known.
    unsure: bool,
    /// The step in which the sending end was shut down by its own program.
    shut: Option<u64>,
    /// The receiving end was shut down for reading by its own program.
    refused: bool,
    /// The most that was in flight at a time.
    most: u64,
    /// Its receiver was told of a reset: what was still on its way may be lost.
    reset: bool,
    /// How the last drain ended.
    end: Option<(i64, i32)>,
}

/// All connections of a run. A direction is two times the connection's number, in the order of
/// their making, plus 1 for what the accepting end sends.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    directions: Vec<Direction>,
    /// By the connecting end's port.
    connections: BTreeMap<u16, usize>,
    /// Socket by the kernel's number: the direction in which it sends.
    sockets: BTreeMap<u64, usize>,
    under_way: BTreeMap<u64, Call>,
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
    pub(crate) fn counters(&self) -> Vec<Counters> {
        self.directions.iter().map(|direction| direction.counters).collect()
    }

    /// The direction in which the socket of an answer sends.
    pub(crate) fn direction(&self, answer: &Answer) -> Option<usize> {
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
        self.under_way.insert(step, call.clone());
    }

    pub(crate) fn end(&mut self, step: u64, call: &Call, answer: &Answer) {
        self.under_way.remove(&step);
        match call {
            Call::Connect { .. } => self.made(answer, 0),
            Call::Accept { .. } => self.made(answer, 1),
            _ => {}
        }
        let Some(direction) = self.direction(answer) else { return };
        if let Call::Shutdown { how, .. } = call {
            if *how != libc::SHUT_RD && answer.value == 0 {
                self.directions[direction].shut.get_or_insert(step);
            }
            self.directions[direction ^ 1].refused |= *how != libc::SHUT_WR;
        }
        // Told to a send, a reset is not told again, and what had not arrived is gone.
        self.directions[direction ^ 1].reset |=
            sends(call).is_some() && answer.value == -1 && answer.errno == libc::ECONNRESET;
        if let Some(length) = sends(call) {
            let taken = usize::try_from(answer.value).unwrap_or(0);
            let others = self.under_way.values().any(|call| sends(call).is_some());
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

    fn received(&mut self, step: u64, direction: usize, call: &Call, answer: &Answer) {
        let others = self.under_way.values().any(receives);
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

    /// Learns of a socket of a connection: the one that connects, or (1) the one that accepts.
    fn made(&mut self, answer: &Answer, side: usize) {
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

    /// What is wrong with what was received: bytes that were never sent, lost, doubled or out of
    /// order.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let pending = self.under_way.values().any(|call| sends(call).is_some());
        for (at, direction) in self.directions.iter().enumerate() {
            if direction.unsure || self.handled {
                continue;
            }
            let mut expected: Vec<u8> = Vec::new();
            for (step, length, taken) in &direction.sends {
                let bytes = payload(*step, *length);
                expected.extend(&bytes[..taken.unwrap_or(*length)]);
            }
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
            // What comes for an end that was shut down both ways is thrown away, with a reset. One
            // that is shut down for reading does not tell TCP when it has room again: what waits
            // for that may come later than the last look.
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
