//! The receiving side: finds messages in the stream and delivers them to the receives that match.
//! Nothing in this module sleeps.

use std::collections::{HashMap, hash_map};

use foldhash::fast::RandomState;

use seekwire_protocol::message::{Labelled, Matching, Selector, Ticket};

use super::error::{End, RecvError};
use super::incoming_message::IncomingMessage;
use super::reader::{Fill, MessageReader, Wait};
use super::scanner::{Scanner, Stop};
use super::types::{Envelope, Limits};
use super::waiting::WaitQueue;
use crate::seek::SeekSocket;

/// Number of messages moved out of the stream at a time when it has too many holes.
const MOVED: usize = 128;

/// A receive that waits for its message.
#[derive(Debug)]
pub(super) enum Receive {
    /// A sleeping thread, which takes a message of up to this many bytes itself.
    Thread(usize),
    /// Any thread may put the message into this buffer.
    Buffer(Vec<u8>),
}

/// The outcome of a receive that had to wait.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The message is in the buffer.
    Ready(Envelope, Vec<u8>),
    /// No message will come; the buffer is returned.
    Failed(ReceiveFailure, Vec<u8>),
    /// The thread may take this message.
    Yours(Labelled<IncomingMessage>),
}

/// Why a receive failed.
#[derive(Clone, Debug)]
pub(super) enum ReceiveFailure {
    TooSmall { needed: usize, room: usize },
    End(End),
}

impl From<ReceiveFailure> for RecvError {
    fn from(failure: ReceiveFailure) -> Self {
        match failure {
            ReceiveFailure::TooSmall { needed, room } => Self::TooSmall { needed, room },
            ReceiveFailure::End(end) => end.into(),
        }
    }
}

/// A posted receive whose message has begun but not ended.
#[derive(Debug)]
struct Active {
    ticket: Ticket,
    buffer: Vec<u8>,
    tag: u64,
    incoming: IncomingMessage,
}

/// The receive of the caller of [`Inbox::step`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Mine {
    None,
    /// Posted later than all waiting receives.
    Fresh(Selector),
    /// A waiting receive.
    Waiting(Ticket),
}

/// The result of one step.
#[derive(Debug)]
pub(super) enum InboxStep {
    /// A message for the caller.
    Mine(Labelled<IncomingMessage>),
    /// A message for another receive, or for none yet.
    Other,
    /// Nothing more has arrived.
    Wait(Wait),
}

#[derive(Debug)]
pub(super) struct Inbox {
    limits: Limits,
    matching: Matching<Receive, IncomingMessage>,
    /// Total size of the bodies of unexpected messages.
    unexpected_bytes: u64,
    done: HashMap<Ticket, Outcome, RandomState>,
    active: Vec<Active>,
    reader: MessageReader,
    scanner: Scanner,
    pub(super) end: Option<End>,
    pub(super) waiting: WaitQueue,
}

impl Inbox {
    pub(super) fn new(start: u64, limits: Limits) -> Self {
        Self {
            limits,
            matching: Matching::default(),
            unexpected_bytes: 0,
            done: HashMap::default(),
            active: Vec::new(),
            reader: MessageReader::new(),
            scanner: Scanner::new(start, limits.message),
            end: None,
            waiting: WaitQueue::default(),
        }
    }

    /// Finds the next message, if it has arrived, and the receive that it is for.
    pub(super) fn step(
        &mut self,
        stream: &impl SeekSocket,
        mine: Mine,
    ) -> Result<InboxStep, RecvError> {
        if let Some(step) = self.go_on(stream)? {
            return Ok(step);
        }
        if let Some(end) = &self.end {
            return Err(end.clone().into());
        }
        let scanned = match self.scanner.look(stream, &mut self.reader) {
            Ok(scanned) => scanned,
            Err(Stop::Wait(wait)) => return Ok(InboxStep::Wait(wait)),
            Err(Stop::End(end)) => {
                self.stop(end.clone());
                return Err(end.into());
            }
        };
        let header = scanned.header;
        let len = header.len as usize;
        let receive = self.claim(header.tag, len);
        let fresh = matches!(mine, Mine::Fresh(selector) if selector.matches(header.tag));
        if receive.is_none() && !fresh && self.matching.unexpected_count() >= self.limits.unexpected
        {
            return Err(self.full());
        }
        let message = self.matching.label(header.tag, self.scanner.pass(scanned));
        match (receive, mine) {
            (Some((ticket, _)), Mine::Waiting(own)) if ticket == own => {
                return Ok(InboxStep::Mine(message));
            }
            (None, _) if fresh => return Ok(InboxStep::Mine(message)),
            (Some((ticket, receive)), _) => self.deliver(stream, ticket, receive, message),
            (None, _) => self.keep(message),
        }
        Ok(InboxStep::Other)
    }

    /// Continues the posted receives whose messages have not ended.
    fn go_on(&mut self, stream: &impl SeekSocket) -> Result<Option<InboxStep>, RecvError> {
        let mut wait = None;
        for at in 0..self.active.len() {
            let Active { ticket, mut buffer, tag, mut incoming } = self.active.remove(at);
            match self.fill(stream, &mut incoming, &mut buffer, true) {
                Ok(fill @ (Fill::Wait(_) | Fill::Crowded)) => {
                    self.active.insert(at, Active { ticket, buffer, tag, incoming });
                    match fill {
                        Fill::Wait(next) => wait = Some(InboxStep::Wait(next)),
                        _ => return Err(self.full()),
                    }
                }
                filled => {
                    self.complete(ticket, filled, tag, &incoming, buffer);
                    return Ok(Some(InboxStep::Other));
                }
            }
        }
        Ok(wait)
    }

    /// No message comes any more: fails all receives that wait for one.
    pub(super) fn stop(&mut self, end: End) {
        for (ticket, receive) in self.matching.drain_posted() {
            let buffer = match receive {
                Receive::Thread(_) => Vec::new(),
                Receive::Buffer(buffer) => buffer,
            };
            self.done.insert(ticket, Outcome::Failed(ReceiveFailure::End(end.clone()), buffer));
        }
        self.end.get_or_insert(end);
        self.waiting.wake_all();
    }

    /// The first receive that matches a message and has room for it. Matching receives without
    /// enough room fail.
    fn claim(&mut self, tag: u64, len: usize) -> Option<(Ticket, Receive)> {
        loop {
            let (ticket, receive) = self.matching.claim(tag)?;
            let (room, buffer) = match receive {
                Receive::Thread(room) if room < len => (room, Vec::new()),
                Receive::Buffer(buffer) if buffer.len() < len => (buffer.len(), buffer),
                fits => return Some((ticket, fits)),
            };
            self.finish(
                ticket,
                Outcome::Failed(ReceiveFailure::TooSmall { needed: len, room }, buffer),
            );
        }
    }

    fn deliver(
        &mut self,
        stream: &impl SeekSocket,
        ticket: Ticket,
        receive: Receive,
        mut message: Labelled<IncomingMessage>,
    ) {
        match receive {
            Receive::Thread(_) => {
                if message.message.is_untouched() && message.message.is_small {
                    // Cheaper now than when the thread has woken up and the view has moved on.
                    self.reader.own(stream, &mut message.message);
                }
                self.finish(ticket, Outcome::Yours(message));
            }
            Receive::Buffer(mut buffer) => {
                let (tag, mut incoming) = (message.tag, message.message);
                match self.fill(stream, &mut incoming, &mut buffer, true) {
                    Ok(Fill::Wait(_) | Fill::Crowded) => {
                        self.active.push(Active { ticket, buffer, tag, incoming });
                    }
                    filled => self.complete(ticket, filled, tag, &incoming, buffer),
                }
            }
        }
    }

    /// Completes a posted receive.
    fn complete(
        &mut self,
        ticket: Ticket,
        filled: Result<Fill, End>,
        tag: u64,
        incoming: &IncomingMessage,
        buffer: Vec<u8>,
    ) {
        match filled {
            Ok(_) => self.finish(ticket, Outcome::Ready(Envelope::of(tag, incoming), buffer)),
            Err(end) => {
                self.finish(ticket, Outcome::Failed(ReceiveFailure::End(end.clone()), buffer));
                self.stop(end);
            }
        }
    }

    fn finish(&mut self, ticket: Ticket, outcome: Outcome) {
        self.done.insert(ticket, outcome);
        self.waiting.wake(ticket);
    }

    fn keep(&mut self, message: Labelled<IncomingMessage>) {
        self.unexpected_bytes += message.message.len as u64;
        self.waiting.wake_probes(message.tag);
        self.matching.keep(message);
    }

    /// Passes on a message that a receive could not take: to the next receive that matches it, or
    /// back into its place.
    pub(super) fn give_back(
        &mut self,
        stream: &impl SeekSocket,
        message: Labelled<IncomingMessage>,
    ) {
        match self.claim(message.tag, message.message.len) {
            Some((ticket, receive)) => self.deliver(stream, ticket, receive, message),
            None => self.keep(message),
        }
    }

    /// The unexpected message that a receive gets, if it has room for it.
    pub(super) fn take(
        &mut self,
        selector: Selector,
        room: usize,
    ) -> Result<Option<Labelled<IncomingMessage>>, RecvError> {
        match self.matching.probe(selector) {
            None => Ok(None),
            Some((_, incoming)) if incoming.len > room => {
                Err(RecvError::TooSmall { needed: incoming.len, room })
            }
            Some((_, incoming)) => {
                self.unexpected_bytes -= incoming.len as u64;
                Ok(self.matching.take(selector))
            }
        }
    }

    pub(super) fn probe(&self, selector: Selector) -> Option<Envelope> {
        self.matching.probe(selector).map(|(tag, incoming)| Envelope::of(tag, incoming))
    }

    /// Moves the bytes of a message that have arrived into a buffer. Reduces the number of holes if
    /// necessary.
    pub(super) fn fill(
        &mut self,
        stream: &impl SeekSocket,
        incoming: &mut IncomingMessage,
        buffer: &mut [u8],
        partial: bool,
    ) -> Result<Fill, End> {
        let len = buffer.len().min(incoming.len);
        loop {
            match self.reader.fill(stream, incoming, &mut buffer[..len], partial)? {
                Fill::Crowded if self.flush(stream) || self.move_out(stream) => {}
                fill => return Ok(fill),
            }
        }
    }

    /// Moves unexpected messages into memory, earliest first, so that holes join. Returns whether
    /// there were any.
    fn move_out(&mut self, stream: &impl SeekSocket) -> bool {
        let Self { matching, reader, limits, .. } = self;
        let mut used = 0;
        matching.for_unexpected(|incoming| {
            used += incoming.owned.len();
            true
        });
        let mut moved = 0;
        matching.for_unexpected(|incoming| {
            let fits =
                incoming.is_untouched() && incoming.len <= limits.memory.saturating_sub(used);
            if fits && reader.move_out(stream, incoming) {
                used += incoming.len;
                moved += 1;
            }
            moved < MOVED
        });
        moved > 0
    }

    /// Takes all consumed bytes out of the stream. Returns whether there were any.
    pub(super) fn flush(&mut self, stream: &impl SeekSocket) -> bool {
        let mut any = false;
        loop {
            let flushed = self.reader.flush(stream);
            any |= flushed.any;
            if flushed.all || !self.move_out(stream) {
                return any;
            }
        }
    }

    /// The error for a mailbox that is full of messages nobody has asked for.
    pub(super) fn full(&self) -> RecvError {
        RecvError::Full { messages: self.unexpected_count(), bytes: self.unexpected_bytes }
    }

    pub(super) fn unexpected_count(&self) -> usize {
        self.matching.unexpected_count()
    }

    /// Adds a waiting receive.
    pub(super) fn wait(&mut self, selector: Selector, receive: Receive) -> Ticket {
        self.matching.wait(selector, receive)
    }

    /// Posts a receive for an unexpected message or a future one.
    pub(super) fn post(
        &mut self,
        stream: &impl SeekSocket,
        selector: Selector,
        buffer: Vec<u8>,
    ) -> Ticket {
        let failure = match self.take(selector, buffer.len()) {
            Ok(Some(message)) => {
                let ticket = self.matching.ticket();
                self.deliver(stream, ticket, Receive::Buffer(buffer), message);
                return ticket;
            }
            Ok(None) => match &self.end {
                None => return self.matching.wait(selector, Receive::Buffer(buffer)),
                Some(end) => ReceiveFailure::End(end.clone()),
            },
            Err(RecvError::TooSmall { needed, room }) => ReceiveFailure::TooSmall { needed, room },
            Err(_) => ReceiveFailure::End(End::Closed),
        };
        let ticket = self.matching.ticket();
        self.done.insert(ticket, Outcome::Failed(failure, buffer));
        ticket
    }

    /// The outcome of a receive that had to wait. A failure is kept until the receive is cancelled.
    pub(super) fn outcome(&mut self, ticket: Ticket) -> Option<Result<Outcome, RecvError>> {
        match self.done.entry(ticket) {
            hash_map::Entry::Vacant(_) => None,
            hash_map::Entry::Occupied(done) => match done.get() {
                Outcome::Failed(failure, _) => Some(Err(failure.clone().into())),
                _ => Some(Ok(done.remove())),
            },
        }
    }

    /// True if a receive still waits for its message or for a part of it.
    pub(super) fn waits(&self, ticket: Ticket) -> bool {
        self.matching.waits(ticket) || self.active.iter().any(|active| active.ticket == ticket)
    }

    /// Takes back a receive that failed or has no message yet.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<Receive> {
        if let Some(Outcome::Failed(..)) = self.done.get(&ticket) {
            if let Some(Outcome::Failed(_, buffer)) = self.done.remove(&ticket) {
                return Some(Receive::Buffer(buffer));
            }
        }
        // Another thread may be waiting for it.
        self.waiting.wake(ticket);
        self.matching.cancel(ticket)
    }
}
