//! Receives that are posted before their messages come. Whichever thread finds a message completes
//! its receive.

use std::ops::ControlFlow;

use seekwire_protocol::message::{Selector, Ticket};

use super::error::RecvError;
use super::inbox::{InboxStep, Mine, Outcome, Receive};
use super::reader::Wait;
use super::session::Session;
use super::state::Mailbox;
use super::types::Completed;
use super::waiting::WaitTarget;
use crate::seek::SeekSocket;

impl<S: SeekSocket> Mailbox<S> {
    /// Posts a receive for a message of at most `buffer.len()` bytes that `selector` matches.
    /// Messages go to receives in the order in which these were posted. Any later call of any
    /// thread may move the message into `buffer`; a mailbox has no thread of its own. Posting makes
    /// no system call unless the message has already arrived.
    ///
    /// It never fails: [`Mailbox::wait`] and [`Mailbox::test`] return the result.
    pub fn post(&self, selector: Selector, buffer: Vec<u8>) -> Ticket {
        Session::new(self).post(&self.stream, selector, buffer)
    }

    /// Waits until a posted receive has its message, and returns the buffer.
    ///
    /// # Errors
    /// [`RecvError::TooSmall`]: the message belonged to this receive but did not fit; it goes to
    /// another one. [`RecvError::Full`]: it cannot arrive until others are received; the receive
    /// stays posted. [`RecvError::Closed`], [`RecvError::Misbehaved`], [`RecvError::Io`]: it will
    /// not come. After any of these, [`Mailbox::cancel`] returns the buffer.
    /// [`RecvError::UnknownTicket`].
    pub fn wait(&self, ticket: Ticket) -> Result<Completed, RecvError> {
        let mut session = Session::new(self);
        loop {
            match session.advance(ticket)? {
                ControlFlow::Break(completed) => return Ok(completed),
                ControlFlow::Continue(wait) => session.block(WaitTarget::Ticket(ticket), wait)?,
            }
        }
    }

    /// Like [`Mailbox::wait`], but does not wait. Returns `None` if the message has not arrived
    /// completely.
    ///
    /// # Errors
    /// Those of [`Mailbox::wait`].
    pub fn test(&self, ticket: Ticket) -> Result<Option<Completed>, RecvError> {
        let mut session = Session::new(self);
        match session.advance(ticket)? {
            ControlFlow::Break(completed) => Ok(Some(completed)),
            ControlFlow::Continue(wait) => session.nudge(wait).map(|()| None),
        }
    }

    /// Cancels a posted receive, or gets back the buffer of one that has failed. Returns `None` if
    /// the ticket is unknown, or if the receive already has its message or the beginning of it; in
    /// that case [`Mailbox::wait`] will return it.
    pub fn cancel(&self, ticket: Ticket) -> Option<Vec<u8>> {
        match Session::new(self).cancel(ticket)? {
            Receive::Buffer(buffer) => Some(buffer),
            Receive::Thread(_) => None,
        }
    }
}

impl<S: SeekSocket> Session<'_, S> {
    /// Receives messages until this one is complete or no more have arrived.
    fn advance(&mut self, ticket: Ticket) -> Result<ControlFlow<Completed, Wait>, RecvError> {
        let stream = self.stream();
        let mut stepped = Ok(InboxStep::Other);
        loop {
            match self.outcome(ticket) {
                Some(Ok(Outcome::Ready(envelope, buffer))) => {
                    return Ok(ControlFlow::Break(Completed { envelope, buffer }));
                }
                Some(Err(error)) => return Err(error),
                _ if !self.waits(ticket) => return Err(RecvError::UnknownTicket(ticket)),
                _ => {}
            }
            match stepped? {
                InboxStep::Wait(wait) => return Ok(ControlFlow::Continue(wait)),
                _ => stepped = self.step(stream, Mine::None),
            }
        }
    }
}
