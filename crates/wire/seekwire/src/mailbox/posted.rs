//! Receives that are posted before their messages come, and completed by whichever thread finds
//! these.

use std::ops::ControlFlow;

use seekwire_protocol::message::{Selector, Ticket};

use super::error::RecvError;
use super::inbox::{Mine, Outcome, Receive, Step};
use super::reader::Wait;
use super::session::Session;
use super::state::Mailbox;
use super::terms::Completed;
use super::waiting::On;
use crate::seek::SeekSocket;

impl<S: SeekSocket> Mailbox<S> {
    /// Posts a receive of a message of at most `buffer.len()` bytes that `selector` matches.
    /// Messages go to receives in the order in which these were posted. The message is moved into
    /// `buffer` in the course of any later call of any thread; there is no thread behind a mailbox.
    /// No system call unless the message has come already.
    ///
    /// Never fails: [`Mailbox::wait`] and [`Mailbox::test`] tell how it went.
    pub fn post(&self, selector: Selector, buffer: Vec<u8>) -> Ticket {
        Session::new(self).post(&self.stream, selector, buffer)
    }

    /// Waits until a posted receive has its message, and gives the buffer back.
    ///
    /// # Errors
    /// [`RecvError::TooSmall`]: the message belonged to this receive but did not fit; it goes to
    /// another one. [`RecvError::Full`]: it cannot come before others are received; the receive
    /// stays posted. [`RecvError::Closed`], [`RecvError::Misbehaved`], [`RecvError::Io`]: it will
    /// not come. After any of these [`Mailbox::cancel`] gives the buffer back.
    /// [`RecvError::UnknownTicket`].
    pub fn wait(&self, ticket: Ticket) -> Result<Completed, RecvError> {
        let mut session = Session::new(self);
        loop {
            match session.advance(ticket)? {
                ControlFlow::Break(completed) => return Ok(completed),
                ControlFlow::Continue(wait) => session.block(On::Ticket(ticket), wait)?,
            }
        }
    }

    /// As [`Mailbox::wait`], but does not wait: `None` when the message has not come, or not with
    /// all its bytes.
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

    /// Takes a posted receive back, or the buffer of one that has failed. `None` when it has its
    /// message or the beginning of it, so that [`Mailbox::wait`] will give it out, and when the
    /// ticket is not known.
    pub fn cancel(&self, ticket: Ticket) -> Option<Vec<u8>> {
        match Session::new(self).cancel(ticket)? {
            Receive::Buffer(buffer) => Some(buffer),
            Receive::Thread(_) => None,
        }
    }
}

impl<S: SeekSocket> Session<'_, S> {
    /// Receives what has come until this receive has its message.
    fn advance(&mut self, ticket: Ticket) -> Result<ControlFlow<Completed, Wait>, RecvError> {
        let stream = self.stream();
        let mut stepped = Ok(Step::Other);
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
                Step::Wait(wait) => return Ok(ControlFlow::Continue(wait)),
                _ => stepped = self.step(stream, Mine::None),
            }
        }
    }
}
