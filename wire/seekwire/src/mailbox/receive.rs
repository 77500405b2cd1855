//! Receives that belong to the thread that calls them.

use std::ops::ControlFlow;

use seekwire_protocol::message::{Labelled, Selector};

use super::error::RecvError;
use super::inbox::{InboxStep, Mine, Outcome, Receive};
use super::incoming_message::IncomingMessage;
use super::reader::{Fill, Wait};
use super::session::Session;
use super::state::Mailbox;
use super::types::Envelope;
use super::waiting::WaitTarget;
use crate::seek::SeekSocket;

/// Initial limit for the memory reserved for a message, because the length is the peer's claim.
const TRUSTED: usize = 1 << 20;

/// Where a message goes.
enum Target<'a> {
    Slice(&'a mut [u8]),
    Vec(&'a mut Vec<u8>),
}

impl Target<'_> {
    fn room(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Vec(_) => usize::MAX,
        }
    }

    /// Room for the message or a first part of it, larger than the room that was full.
    fn space(&mut self, incoming: &IncomingMessage) -> &mut [u8] {
        match self {
            Self::Slice(slice) => slice,
            Self::Vec(vec) => {
                if vec.len() <= incoming.done.max(incoming.owned.len()) {
                    let have = vec.len().max(incoming.owned.len());
                    vec.resize(incoming.len.min(have.saturating_mul(2).max(TRUSTED)), 0);
                }
                vec
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Slice(slice) => slice,
            Self::Vec(vec) => vec,
        }
    }
}

impl<S: SeekSocket> Mailbox<S> {
    /// Waits for the earliest message that `selector` matches, and receives it into the front of
    /// `buffer`. Receives that were posted earlier, or in which other threads already wait, come
    /// first.
    ///
    /// A large message of any size goes straight from the stream into `buffer` as it arrives.
    ///
    /// # Errors
    /// [`RecvError::TooSmall`]: the message stays where it is. [`RecvError::Full`]: it cannot arrive
    /// until others are received; `buffer` may have been written to, but nothing is lost.
    /// [`RecvError::Closed`], [`RecvError::Misbehaved`], [`RecvError::Io`]: there is no such
    /// message, and none will come.
    pub fn recv(&self, selector: Selector, buffer: &mut [u8]) -> Result<Envelope, RecvError> {
        let received = self.receive(selector, Target::Slice(buffer), true)?;
        received.ok_or(RecvError::Closed)
    }

    /// Receives the earliest message, whatever its tag: [`Mailbox::recv`] with [`Selector::ANY`].
    ///
    /// # Errors
    /// Those of [`Mailbox::recv`].
    pub fn recv_any(&self, buffer: &mut [u8]) -> Result<Envelope, RecvError> {
        self.recv(Selector::ANY, buffer)
    }

    /// Like [`Mailbox::recv`], but returns memory of the message's length. The memory grows as
    /// bytes arrive, so that the peer cannot make this end use more memory than it sends.
    ///
    /// # Errors
    /// Those of [`Mailbox::recv`], without [`RecvError::TooSmall`].
    pub fn recv_vec(&self, selector: Selector) -> Result<(Envelope, Vec<u8>), RecvError> {
        let mut bytes = Vec::new();
        let envelope =
            self.receive(selector, Target::Vec(&mut bytes), true)?.ok_or(RecvError::Closed)?;
        Ok((envelope, bytes))
    }

    /// Like [`Mailbox::recv`], but does not wait. Returns `None` if no such message has arrived
    /// completely.
    ///
    /// # Errors
    /// Those of [`Mailbox::recv`]. A message that is larger than the stream's buffers and memory
    /// never arrives with all of its bytes: [`RecvError::Full`] or an ENOBUFS in [`RecvError::Io`],
    /// and [`Mailbox::recv`] or [`Mailbox::post`] get it.
    pub fn try_recv(
        &self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Envelope>, RecvError> {
        self.receive(selector, Target::Slice(buffer), false)
    }

    /// Returns the envelope of the message that [`Mailbox::recv`] would receive, if its header has
    /// arrived. The message stays, and another thread may take it.
    ///
    /// # Errors
    /// As [`Mailbox::recv`], without [`RecvError::TooSmall`].
    pub fn probe(&self, selector: Selector) -> Result<Option<Envelope>, RecvError> {
        let mut session = Session::new(self);
        match session.search(selector)? {
            ControlFlow::Break(envelope) => Ok(Some(envelope)),
            ControlFlow::Continue(wait) => session.nudge(wait).map(|()| None),
        }
    }

    /// Like [`Mailbox::probe`], but waits.
    ///
    /// # Errors
    /// Those of [`Mailbox::probe`].
    pub fn probe_wait(&self, selector: Selector) -> Result<Envelope, RecvError> {
        let mut session = Session::new(self);
        loop {
            match session.search(selector)? {
                ControlFlow::Break(envelope) => return Ok(envelope),
                ControlFlow::Continue(wait) => session.block(WaitTarget::Probe(selector), wait)?,
            }
        }
    }

    fn receive(
        &self,
        selector: Selector,
        mut target: Target<'_>,
        waits: bool,
    ) -> Result<Option<Envelope>, RecvError> {
        let mut session = Session::new(self);
        let Some(mut message) = session.find(selector, target.room(), waits)? else {
            return Ok(None);
        };
        let incoming = &mut message.message;
        let why = loop {
            let filled = session.fill(&self.stream, incoming, target.space(incoming), waits);
            match filled {
                Ok(Fill::Done) => return Ok(Some(Envelope::of(message.tag, incoming))),
                Ok(Fill::Room) => {}
                Ok(Fill::Crowded) => break Err(session.full()),
                Ok(Fill::Wait(wait)) if waits => {
                    if let Err(error) = session.block(WaitTarget::Bytes, wait) {
                        break Err(error);
                    }
                }
                Ok(Fill::Wait(_)) => {
                    let rest = incoming.span();
                    break session.nudge(Wait::all(rest.start, rest.len()));
                }
                Err(end) => {
                    session.stop(end.clone());
                    return Err(end.into());
                }
            }
        };
        incoming.give_back(target.bytes());
        session.give_back(&self.stream, message);
        why.map(|()| None)
    }
}

impl<S: SeekSocket> Session<'_, S> {
    /// Finds the message for a receive with this much room.
    fn find(
        &mut self,
        selector: Selector,
        room: usize,
        waits: bool,
    ) -> Result<Option<Labelled<IncomingMessage>>, RecvError> {
        if let Some(message) = self.take(selector, room)? {
            return Ok(Some(message));
        }
        let stream = self.stream();
        let wait = loop {
            match self.step(stream, Mine::Fresh(selector))? {
                InboxStep::Mine(message) if message.message.len > room => {
                    let needed = message.message.len;
                    self.give_back(stream, message);
                    return Err(RecvError::TooSmall { needed, room });
                }
                InboxStep::Mine(message) => return Ok(Some(message)),
                InboxStep::Other => {}
                InboxStep::Wait(wait) => break wait,
            }
        };
        if waits {
            self.await_message(selector, room, wait).map(Some)
        } else {
            self.nudge(wait).map(|()| None)
        }
    }

    fn await_message(
        &mut self,
        selector: Selector,
        room: usize,
        mut wait: Wait,
    ) -> Result<Labelled<IncomingMessage>, RecvError> {
        let stream = self.stream();
        let ticket = self.wait(selector, Receive::Thread(room));
        let why = 'asleep: loop {
            let mut stepped =
                self.block(WaitTarget::Ticket(ticket), wait).map(|()| InboxStep::Other);
            loop {
                match self.outcome(ticket) {
                    Some(Ok(Outcome::Yours(message))) => return Ok(message),
                    Some(Err(error)) => break 'asleep error,
                    _ => {}
                }
                match stepped {
                    Ok(InboxStep::Mine(message)) => return Ok(message),
                    Ok(InboxStep::Wait(next)) => {
                        wait = next;
                        break;
                    }
                    Ok(InboxStep::Other) => stepped = self.step(stream, Mine::Waiting(ticket)),
                    Err(error) => break 'asleep error,
                }
            }
        };
        self.cancel(ticket);
        Err(why)
    }

    /// Searches all messages that have arrived for one that matches.
    fn search(&mut self, selector: Selector) -> Result<ControlFlow<Envelope, Wait>, RecvError> {
        let stream = self.stream();
        loop {
            if let Some(envelope) = self.probe(selector) {
                return Ok(ControlFlow::Break(envelope));
            }
            if let InboxStep::Wait(wait) = self.step(stream, Mine::None)? {
                return Ok(ControlFlow::Continue(wait));
            }
        }
    }
}
