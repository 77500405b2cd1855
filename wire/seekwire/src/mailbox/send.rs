//! The sending side: it sends one message after the other, and receives while there is no room.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{MutexGuard, PoisonError};

use seekwire_protocol::message::MessageHeader;

use super::error::{End, RecvError, SendError};
use super::inbox::{InboxStep, Mine};
use super::outbox::Outbox;
use super::session::Session;
use super::state::Mailbox;
use crate::seek::SeekSocket;

/// IOV_MAX: maximum number of buffers in one call.
const BUFFERS: usize = 1024;

/// The right to send.
struct Turn<'a, S: SeekSocket> {
    mailbox: &'a Mailbox<S>,
    sequence: u32,
    rest: VecDeque<u8>,
}

impl<S: SeekSocket> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        let mut outbox = self.mailbox.outbox();
        outbox.busy = false;
        outbox.sequence = self.sequence;
        outbox.rest = std::mem::take(&mut self.rest);
        drop(outbox);
        self.mailbox.turn.notify_one();
    }
}

impl<S: SeekSocket> Mailbox<S> {
    /// Sends a message. While there is no room it waits, and receives: expected messages into
    /// posted buffers, and the rest into library memory. So two ends that send to each other do not
    /// wait for ever. Threads take turns.
    ///
    /// A message that fits into the stream's buffers takes one system call.
    ///
    /// # Errors
    /// [`SendError::TooLong`]; [`SendError::Full`] if the peer does not receive and this end cannot
    /// receive, either; [`SendError::Finished`]; [`SendError::Misbehaved`]; [`SendError::Io`] if
    /// the peer is gone.
    pub fn send(&self, tag: u64, bytes: &[u8]) -> Result<(), SendError> {
        let header = self.header(tag, bytes.len())?;
        let mut turn = self.turn()?;
        let header = MessageHeader { sequence: turn.sequence, ..header }.encode();
        turn.message(&mut [IoSlice::new(&header), IoSlice::new(bytes)])
    }

    /// Sends a message that is made of several pieces.
    ///
    /// # Errors
    /// As [`Mailbox::send`].
    pub fn send_vectored(&self, tag: u64, pieces: &[IoSlice<'_>]) -> Result<(), SendError> {
        let header = self.header(tag, pieces.iter().map(|piece| piece.len()).sum())?;
        let mut turn = self.turn()?;
        let header = MessageHeader { sequence: turn.sequence, ..header }.encode();
        let mut bufs = Vec::with_capacity(pieces.len() + 1);
        bufs.push(IoSlice::new(&header));
        bufs.extend_from_slice(pieces);
        turn.message(&mut bufs)
    }

    /// Waits until messages that were partly sent ([`SendError::Full`]) are sent completely.
    ///
    /// # Errors
    /// As [`Mailbox::send`].
    pub fn flush(&self) -> Result<(), SendError> {
        self.turn()?.rest()
    }

    fn header(&self, tag: u64, len: usize) -> Result<MessageHeader, SendError> {
        let most = self.limits.message;
        match u32::try_from(len) {
            Ok(short) if short <= most => Ok(MessageHeader { len: short, sequence: 0, tag }),
            _ => Err(SendError::TooLong { len, most }),
        }
    }

    pub(super) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> Result<Turn<'_, S>, SendError> {
        let mut outbox = self.outbox();
        while outbox.busy {
            outbox = self.turn.wait(outbox).unwrap_or_else(PoisonError::into_inner);
        }
        if outbox.finished {
            // Wakes the next thread in the queue, which also fails.
            self.turn.notify_one();
            return Err(SendError::Finished);
        }
        outbox.busy = true;
        let rest = std::mem::take(&mut outbox.rest);
        Ok(Turn { mailbox: self, sequence: outbox.sequence, rest })
    }

    /// Sends the rest of a message that was begun, or the part of it that has room now. Returns
    /// whether bytes are left and no other thread is sending.
    pub(super) fn send_rest(&self) -> bool {
        let mut outbox = self.outbox();
        if outbox.busy || outbox.rest.is_empty() {
            return false;
        }
        match try_send_from(&self.stream, &mut outbox.rest) {
            Ok(()) => {}
            Err(error) if is_passing(&error) => {}
            // The next thread that sends gets the error.
            Err(_) => return false,
        }
        !outbox.rest.is_empty()
    }

    /// Sends the rest of a message that was begun, and allows no further ones.
    pub(super) fn finish_sending(&self) -> Result<(), SendError> {
        let mut turn = self.turn()?;
        turn.rest()?;
        self.outbox().finished = true;
        Ok(())
    }

    /// Receives messages, then sleeps until there may be room to send or bytes to receive.
    fn wait_for_room(&self) -> Result<(), SendError> {
        let mut session = Session::new(self);
        let received = loop {
            match session.step(&self.stream, Mine::None) {
                Ok(InboxStep::Wait(_)) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        if let Some(End::Misbehaved(why)) = &session.end {
            return Err(why.clone().into());
        }
        // If there is a leader, it makes room itself.
        if !session.is_led()
            && (received.is_ok() || matches!(received, Err(RecvError::Full { .. })))
        {
            session.make_room().map_err(|_| SendError::Full {
                messages: session.unexpected_count(),
                begun: false,
            })?;
        }
        drop(session);
        match self.stream.wait_send(None) {
            Err(error) if !is_passing(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl<S: SeekSocket> Turn<'_, S> {
    fn rest(&mut self) -> Result<(), SendError> {
        while !self.rest.is_empty() {
            match try_send_from(&self.mailbox.stream, &mut self.rest) {
                Ok(()) => {}
                Err(error) if is_passing(&error) => self.mailbox.wait_for_room()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn message(&mut self, bufs: &mut [IoSlice<'_>]) -> Result<(), SendError> {
        self.rest()?;
        let mut left = bufs;
        let mut begun = false;
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let why = match self.mailbox.stream.try_send(&left[..left.len().min(BUFFERS)]) {
                Ok(n) => {
                    begun |= n > 0;
                    IoSlice::advance_slices(&mut left, n);
                    continue;
                }
                Err(error) if is_passing(&error) => match self.mailbox.wait_for_room() {
                    Ok(()) => continue,
                    Err(why) => why,
                },
                Err(error) => error.into(),
            };
            if begun {
                left.iter().for_each(|piece| self.rest.extend(&**piece));
                self.sequence = self.sequence.wrapping_add(1);
            }
            return Err(match why {
                SendError::Full { messages, .. } => SendError::Full { messages, begun },
                why => why,
            });
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}

fn try_send_from(stream: &impl SeekSocket, rest: &mut VecDeque<u8>) -> io::Result<()> {
    let (front, back) = rest.as_slices();
    let bufs = [IoSlice::new(front), IoSlice::new(back)];
    let n = stream.try_send(if back.is_empty() { &bufs[..1] } else { &bufs })?;
    rest.drain(..n);
    Ok(())
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
