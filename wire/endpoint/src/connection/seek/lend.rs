//! Bytes that are taken but stay where they are, in the sender's segments, until they are given
//! back.

use std::io::IoSliceMut;
use std::sync::atomic::AtomicU8;

use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::buffer::zeros;
use seekwire_transport::iov::Scatter;
use seekwire_transport::queue::Violation;
use seekwire_transport::seek::{At, Attempt, LookAhead, SeekOptions, SegmentLoan, cost};

use super::source::{ReceivePath, ReceivePathSource};
use super::state::{SeekState, Seeking};
use crate::connection::call_limit::Limit;
use crate::connection::state::Connection;

/// One piece of a [`RangeLoan`].
#[derive(Debug)]
pub enum LoanPiece {
    /// Bytes of a segment of the peer's.
    Segment(SegmentLoan),
    /// A copy.
    Copy(Vec<u8>),
}

/// A range of the stream on loan, in order: bytes of segments, then those that had to be copied.
#[derive(Debug, Default)]
pub struct RangeLoan {
    /// The usual few segments need no allocation.
    first: [Option<SegmentLoan>; 2],
    more: Vec<SegmentLoan>,
    /// The copied bytes.
    pub copy: Vec<u8>,
}

impl RangeLoan {
    fn push(&mut self, loan: SegmentLoan) {
        match self.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(loan),
            None => self.more.push(loan),
        }
    }

    fn clear(&mut self) {
        self.first = [None; 2];
        self.more.clear();
    }

    /// The bytes in segments.
    pub fn loans(&self) -> impl Iterator<Item = &SegmentLoan> {
        self.first.iter().flatten().chain(&self.more)
    }

    /// Total number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.loans().map(|loan| loan.len).sum::<usize>() + self.copy.len()
    }

    /// Whether nothing was lent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The outcome of one attempt to lend.
enum Lending {
    Done,
    /// Nothing can be lent before more bytes have arrived.
    Missing,
    /// The bytes from here on are not on the ring, or not all of them.
    Elsewhere(At),
}

impl Connection {
    /// Lends `len` bytes that begin at `at`, waiting as [`Connection::seek`] does: they count as
    /// taken, and stay in the peer's memory until [`Connection::return_loan`]; those that cannot
    /// stay are copied. Fewer only if the stream ends.
    ///
    /// # Errors
    /// As [`Connection::seek`].
    pub fn seek_lend(
        &self,
        mut at: At,
        len: usize,
        dont_wait: bool,
    ) -> Result<Vec<LoanPiece>, Errno> {
        self.seek_lend_again(&mut at, len, dont_wait)
    }

    /// As [`Connection::seek_lend`]; `at` becomes the absolute position, as with
    /// [`Connection::seek_again`].
    ///
    /// # Errors
    /// As [`Connection::seek`].
    pub fn seek_lend_again(
        &self,
        at: &mut At,
        len: usize,
        dont_wait: bool,
    ) -> Result<Vec<LoanPiece>, Errno> {
        let lent = self.seek_lend_range(at, len, dont_wait)?;
        let mut pieces: Vec<LoanPiece> = lent.loans().copied().map(LoanPiece::Segment).collect();
        if !lent.copy.is_empty() {
            pieces.push(LoanPiece::Copy(lent.copy));
        }
        Ok(pieces)
    }

    /// As [`Connection::seek_lend_again`], but allocates no list for a few pieces.
    ///
    /// # Errors
    /// As [`Connection::seek`].
    pub fn seek_lend_range(
        &self,
        at: &mut At,
        len: usize,
        dont_wait: bool,
    ) -> Result<RangeLoan, Errno> {
        let seeking = self.seeking();
        let call = self.begin_call();
        let mut lent = RangeLoan::default();
        let limit = Limit::receive();
        let (mut begun, mut last) = (None, false);
        let mut rest = loop {
            let tried = self.lend_from_ring(seeking, *at, len, &mut begun, &mut lent);
            if let Some(attempt) = &begun {
                *at = At::Position(attempt.position());
            }
            match tried {
                Ok(Lending::Done) => return Ok(lent),
                Ok(Lending::Elsewhere(rest)) => break rest,
                Ok(Lending::Missing) => {}
                Err(Errno::AGAIN) => break *at,
                Err(error) => return Err(error),
            }
            let Some(attempt) = begun else { break *at };
            if last || limit.forbids(self, dont_wait) || self.is_receive_shut() {
                break *at;
            }
            if let Some(until) = limit.until(self) {
                // If the socket has ended, the missing bytes do not come any more.
                last = self.wait_for(seeking, &attempt, until, &call)?;
            }
        };
        let taken = lent.len();
        let mut copy = match zeros(len - taken) {
            Ok(copy) => copy,
            Err(error) if taken == 0 => return Err(error),
            Err(error) => {
                self.keep_for_next(seeking, error);
                return Ok(lent);
            }
        };
        match self.seek_within(
            &mut [IoSliceMut::new(&mut copy)],
            &mut rest,
            SeekOptions::TAKE,
            dont_wait,
            &limit,
        ) {
            Ok(n) => {
                copy.truncate(n);
                lent.copy = copy;
            }
            Err(error) if taken == 0 => return Err(error),
            // Lent bytes cannot be put back: the next call returns the error.
            Err(error) => self.keep_for_next(seeking, error),
        }
        Ok(lent)
    }

    /// Lends the bytes in segments and copies those in between, if all of them are there.
    fn lend_from_ring(
        &self,
        seeking: &Seeking,
        at: At,
        len: usize,
        begun: &mut Option<Attempt>,
        lent: &mut RangeLoan,
    ) -> Result<Lending, Errno> {
        self.with_path(seeking, false, |state, path, _| {
            let SeekState { engine, cursor, loans, violation, .. } = state;
            let attempt = match *begun {
                Some(attempt) => attempt,
                None => *begun.insert(engine.begin(at, len as u64, SeekOptions::TAKE)?),
            };
            let mut stopped = LookAhead::Done;
            let mut violated = |violated: Violation| {
                *violation = Some(violated);
                Errno::CONNRESET
            };
            let taken = if engine.prefers_copy(&attempt, cost::switch_on_ring()) {
                0
            } else {
                let ReceivePath::Attached(_, rx) = path.get()? else {
                    return Ok(Lending::Elsewhere(At::Position(attempt.position())));
                };
                engine.lend(&attempt, |ahead, len, front| {
                    stopped = match rx.step().map_err(&mut violated)? {
                        RxStep::Ring => LookAhead::Done,
                        RxStep::RingEmpty => LookAhead::Missing,
                        // Before the switch to the ring, nothing on it counts.
                        _ => LookAhead::Behind(0),
                    };
                    if stopped != LookAhead::Done {
                        return Ok(0);
                    }
                    let mut in_a_row = true;
                    let there = rx.parts(ahead, len, |part| match SegmentLoan::new(part, front) {
                        Some(loan) if in_a_row => lent.push(loan),
                        _ => in_a_row = false,
                    });
                    stopped = there.map_err(&mut violated)?;
                    if stopped != LookAhead::Done {
                        lent.clear();
                    }
                    lent.loans().for_each(|loan| loans.add(*loan));
                    Ok(lent.len() as u64)
                })?
            };
            match stopped {
                LookAhead::Done => {}
                LookAhead::Missing => return Ok(Lending::Missing),
                LookAhead::Ended | LookAhead::Behind(_) => {
                    return Ok(Lending::Elsewhere(At::Position(attempt.position())));
                }
            }
            let front = engine.front();
            let mut source = ReceivePathSource {
                connection: self,
                path,
                cursor,
                loans,
                front,
                asks_kernel: false,
                violation,
            };
            let rest = attempt.behind(taken);
            if taken == len as u64 {
                engine.discard_taken(&mut source)?;
                return Ok(Lending::Done);
            }
            let mut copy = match zeros(len - taken as usize) {
                Ok(copy) => copy,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => return Ok(Lending::Elsewhere(At::Position(rest.position()))),
            };
            match engine.attempt(
                &mut source,
                rest,
                &mut Scatter::new(&mut [IoSliceMut::new(&mut copy)]),
            ) {
                Ok(n) => {
                    copy.truncate(n);
                    lent.copy = copy;
                    Ok(Lending::Done)
                }
                Err(Errno::AGAIN) if taken == 0 => {
                    Ok(Lending::Elsewhere(At::Position(attempt.position())))
                }
                Err(error) if taken == 0 => Err(error),
                Err(_) => Ok(Lending::Elsewhere(At::Position(rest.position()))),
            }
        })
    }

    /// The bytes of a loan from the ring. They belong to another process, which can change them at
    /// any time. `None` if the connection is not attached.
    #[must_use]
    pub fn loan_bytes(&self, loan: &SegmentLoan) -> &[AtomicU8] {
        self.data_path
            .get()
            .map_or(&[], |data_path| data_path.ring.queue.peer().bytes(loan.offset, loan.len))
    }

    /// Returns a loan, whose bytes are no longer needed.
    ///
    /// # Errors
    /// EINVAL if it is not a loan.
    pub fn return_loan(&self, loan: SegmentLoan) -> Result<(), Errno> {
        self.return_loans(&[loan])
    }

    /// Returns loans, whose bytes are no longer needed.
    ///
    /// # Errors
    /// EINVAL if one is not a loan; the others are returned. EBUSY and EAGAIN as
    /// [`Connection::seek`]: then nothing has changed.
    pub fn return_loans<'l>(
        &self,
        loans: impl IntoIterator<Item = &'l SegmentLoan>,
    ) -> Result<(), Errno> {
        let mut loans = loans.into_iter().peekable();
        if loans.peek().is_none() {
            return Ok(());
        }
        self.with_path(self.seeking(), false, |state, path, front| {
            let SeekState { engine, cursor, loans: lent, violation, .. } = state;
            let now = path.get()?;
            // The segment with the front is freed when the front passes it, or by its last loan: by
            // one of the two.
            let mut source = ReceivePathSource {
                connection: self,
                path,
                cursor,
                loans: lent,
                front,
                asks_kernel: false,
                violation,
            };
            engine.discard_taken(&mut source)?;
            let mut result = Ok(());
            for loan in loans {
                match lent.end(engine, *loan) {
                    Ok(None) => {}
                    Ok(Some(segment)) => {
                        if let ReceivePath::Attached(_, rx) = now {
                            rx.return_lent_segment(segment);
                        }
                    }
                    Err(error) => result = Err(error),
                }
            }
            result
        })
    }
}
