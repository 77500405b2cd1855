//! Receivers of messages with tags: a mailbox, and the usual method of libraries without seeks.

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Read};

use anyhow::{Result, bail, ensure};
use seekwire::mailbox::{Mailbox, RecvError, Selector, Ticket};
use seekwire::seek::SeekSocket;
use seekwire_protocol::message::{HEADER, HELLO, MessageHeader};

use super::connection::{Connection, Request, Target};
use super::searcher::{Ends, Search, Seekable, Slot, check};
use crate::launch::Traffic;
use crate::search::SearchPlan;

/// Memory into which [`Aside`] reads what has arrived.
const BULK: usize = 256 << 10;

/// The laps of a connection: number of the first message, its number of tags, and how many of them
/// come unexpected.
fn laps(plan: SearchPlan, messages: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let tags = plan.tags.unwrap_or(1);
    (0..messages).step_by(tags as usize).map(move |first| {
        let lap = tags.min(messages - first);
        (first, lap, plan.skip * lap / tags)
    })
}

/// A mailbox. Expected messages are posted before they arrive; unexpected ones are requested once
/// all of them are known to be there.
pub(super) struct Mailboxes<S: SeekSocket> {
    plan: SearchPlan,
    target: Target,
    mailbox: Option<Mailbox<S>>,
    message: Vec<u8>,
    /// Buffers for expected messages.
    spare: Vec<Vec<u8>>,
    posted: VecDeque<Ticket>,
}

impl<S: SeekSocket + Seekable> Mailboxes<S> {
    pub(super) fn new(plan: SearchPlan, target: Target) -> Self {
        let buffer = || vec![1; plan.size as usize];
        let expected = plan.tags.unwrap_or(1) - plan.skip;
        let spare = (0..expected).map(|_| buffer()).collect();
        Self { plan, target, mailbox: None, message: buffer(), spare, posted: VecDeque::new() }
    }
}

impl<S: SeekSocket + Seekable> Search for Mailboxes<S> {
    fn open(&mut self, request: Request) -> Result<Option<u64>> {
        let (stream, receive_buffer) = S::open(&self.target, request)?;
        self.mailbox = Some(Mailbox::new(stream)?);
        Ok(receive_buffer)
    }

    fn receive(&mut self, messages: u64) -> Result<()> {
        let Some(mailbox) = &self.mailbox else { bail!("there is no connection") };
        for (first, lap, skip) in laps(self.plan, messages) {
            for tag in skip..lap {
                let buffer = self.spare.pop().unwrap_or_else(|| vec![1; self.plan.size as usize]);
                self.posted.push_back(mailbox.post(Selector::exact(tag), buffer));
            }
            if skip > 0 {
                mailbox.probe_wait(Selector::exact(skip - 1))?;
            }
            for tag in skip..lap {
                let Some(ticket) = self.posted.pop_front() else { bail!("nothing is posted") };
                let completed = mailbox.wait(ticket)?;
                check(self.plan, Ends::of(completed.bytes()), first + tag)?;
                self.spare.push(completed.buffer);
            }
            for tag in 0..skip {
                let envelope = mailbox.recv(Selector::exact(tag), &mut self.message)?;
                check(self.plan, Ends::of(&self.message[..envelope.len]), first + tag)?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Option<Traffic>> {
        let Some(mailbox) = self.mailbox.take() else { bail!("there is no connection") };
        match mailbox.recv_any(&mut self.message) {
            Err(RecvError::Closed) => Ok(mailbox.get_ref().traffic()),
            Err(error) => Err(error.into()),
            Ok(envelope) => bail!("more has arrived than was requested: {envelope:?}"),
        }
    }
}

/// The usual way of libraries: arrived bytes are read at once, and messages that nobody waits for
/// are copied aside. Large ones that are awaited go straight to their buffer.
pub(super) struct Aside<C> {
    plan: SearchPlan,
    slot: Slot<BufReader<C>>,
    aside: HashMap<u64, VecDeque<Vec<u8>>>,
    spare: Vec<Vec<u8>>,
    message: Vec<u8>,
    /// As in a mailbox: a buffer for each expected message.
    expected: Vec<Vec<u8>>,
    sequence: u32,
}

impl<C: Connection> Aside<C> {
    pub(super) fn new(plan: SearchPlan, target: Target) -> Self {
        let buffer = || vec![1; plan.size as usize];
        let spare = (0..plan.skip).map(|_| buffer()).collect();
        let expected = (plan.skip..plan.tags.unwrap_or(1)).map(|_| buffer()).collect();
        Self {
            plan,
            slot: Slot::new(target),
            aside: HashMap::new(),
            spare,
            message: buffer(),
            expected,
            sequence: 0,
        }
    }

    /// Receives the next message of this tag, the `nth` of the expected ones.
    fn take(&mut self, tag: u64, nth: Option<usize>) -> Result<Ends> {
        if let Some(message) = self.aside.get_mut(&tag).and_then(VecDeque::pop_front) {
            self.message.copy_from_slice(&message);
            self.spare.push(message);
            return Ok(Ends::of(&self.message));
        }
        loop {
            let header = self.header()?;
            let connection = self.slot.get()?;
            if header.tag == tag {
                let message =
                    nth.and_then(|nth| self.expected.get_mut(nth)).unwrap_or(&mut self.message);
                connection.read_exact(message)?;
                return Ok(Ends::of(message));
            }
            let mut unexpected =
                self.spare.pop().unwrap_or_else(|| vec![1; self.plan.size as usize]);
            connection.read_exact(&mut unexpected)?;
            self.aside.entry(header.tag).or_default().push_back(unexpected);
        }
    }

    fn header(&mut self) -> Result<MessageHeader> {
        let mut bytes = [0; HEADER];
        self.slot.get()?.read_exact(&mut bytes)?;
        let header = MessageHeader::decode(bytes, self.sequence, self.plan.size as u32)?;
        ensure!(u64::from(header.len) == self.plan.size, "a message of {} bytes", header.len);
        self.sequence = self.sequence.wrapping_add(1);
        Ok(header)
    }
}

impl<C: Connection> Search for Aside<C> {
    fn open(&mut self, request: Request) -> Result<Option<u64>> {
        let (connection, receive_buffer) = self.slot.target.open(request)?;
        let mut connection: BufReader<C> = BufReader::with_capacity(BULK, connection);
        let mut hello = [0; HELLO.len()];
        connection.read_exact(&mut hello)?;
        ensure!(hello == HELLO, "the sender is no mailbox");
        self.slot.connection = Some(connection);
        self.sequence = 0;
        Ok(receive_buffer)
    }

    fn receive(&mut self, messages: u64) -> Result<()> {
        for (first, lap, skip) in laps(self.plan, messages) {
            for tag in (skip..lap).chain(0..skip) {
                let nth = tag.checked_sub(skip).map(|nth| nth as usize);
                let ends = self.take(tag, nth)?;
                check(self.plan, ends, first + tag)?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Option<Traffic>> {
        Ok(self.slot.end()?.into_inner().traffic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lap_keeps_the_share() {
        let plan = SearchPlan { tags: Some(8), ..SearchPlan::search(64, 4) };
        assert_eq!(laps(plan, 20).collect::<Vec<_>>(), [(0, 8, 4), (8, 8, 4), (16, 4, 2)]);
    }
}
