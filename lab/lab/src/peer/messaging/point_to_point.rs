//! Request and reply, push and pull between two mailboxes.

use anyhow::{Result, ensure};
use seekwire::mailbox::{Mailbox, Selector};

use super::mailbox_stream::Line;
use crate::messaging::{self, Ask, Drive, MessagePattern, TestReading};

/// Tags: of the measured messages, and of the exchange about them.
const DATA: u64 = 0;
const CONTROL: u64 = 1;

/// An end, the buffer that it receives into, and the one that holds its next request, with its
/// length.
struct End<'a, S: Line> {
    mailbox: &'a Mailbox<S>,
    received: Vec<u8>,
    message: Vec<u8>,
    length: usize,
}

impl<'a, S: Line> End<'a, S> {
    fn new(mailbox: &'a Mailbox<S>, size: usize) -> Self {
        // The mark is longer than the messages.
        let buffer = || vec![0; size + 1];
        Self { mailbox, received: buffer(), message: buffer(), length: size }
    }

    fn receive(&mut self) -> Result<usize> {
        Ok(self.mailbox.recv(Selector::exact(DATA), &mut self.received)?.len)
    }
}

impl<S: Line> messaging::Requester for End<'_, S> {
    fn set(&mut self, message: &[u8]) {
        self.length = message.len();
        self.message[..self.length].copy_from_slice(message);
    }

    fn message(&mut self) -> &mut [u8] {
        &mut self.message[..self.length]
    }

    fn exchange(&mut self) -> Result<()> {
        self.mailbox.send(DATA, &self.message[..self.length])?;
        self.length = self.receive()?;
        // Received into the other buffer, so that missing bytes are not already there.
        std::mem::swap(&mut self.message, &mut self.received);
        Ok(())
    }
}

impl<S: Line> messaging::Replier for End<'_, S> {
    fn answer(&mut self) -> Result<usize> {
        let length = self.receive()?;
        self.mailbox.send(DATA, &self.received[..length])?;
        Ok(length)
    }
}

impl<S: Line> messaging::Pusher for End<'_, S> {
    fn push(&mut self, message: &[u8]) -> Result<()> {
        Ok(self.mailbox.send(DATA, message)?)
    }
}

impl<S: Line> messaging::Puller for End<'_, S> {
    fn pull(&mut self) -> Result<&[u8]> {
        let length = self.receive()?;
        Ok(&self.received[..length])
    }
}

/// The end that listens on `address`.
pub(super) fn serve<S: Line>(address: &str) -> Result<()> {
    let (listener, address) = S::listen(address)?;
    messaging::ready(&address.to_string())?;
    let mailbox = S::accept(&listener)?;
    let hear = || -> Result<Ask> {
        Ok(serde_json::from_slice(&mailbox.recv_vec(Selector::exact(CONTROL))?.1)?)
    };
    while let Ask::Begin(test) = hear()? {
        mailbox.send(CONTROL, b"")?;
        let mut end = End::new(&mailbox, test.size);
        let measured = match test.kind {
            MessagePattern::RequestReply => messaging::reply(&mut end, test.size)?,
            MessagePattern::PushPull => messaging::pull(&mut end, test.size)?,
        };
        let finish = hear()?;
        ensure!(finish == Ask::Finish, "{finish:?} arrived instead of the end");
        mailbox.send(CONTROL, &serde_json::to_vec(&measured)?)?;
    }
    mailbox.finish()?;
    Ok(())
}

/// The end that connects and reports.
pub(super) fn drive<S: Line>(order: &str) -> Result<()> {
    let Drive { address, tests } = messaging::parse(order)?;
    let mailbox = S::connect(&address)?;
    let say = |ask: Ask| -> Result<()> { Ok(mailbox.send(CONTROL, &serde_json::to_vec(&ask)?)?) };
    for test in tests {
        let before = S::traffic(&mailbox);
        say(Ask::Begin(test))?;
        mailbox.recv_vec(Selector::exact(CONTROL))?;
        let mut end = End::new(&mailbox, test.size);
        let mine = match test.kind {
            MessagePattern::RequestReply => messaging::request(&mut end, test.size, test.time())?,
            MessagePattern::PushPull => messaging::push(&mut end, test.size, test.time())?,
        };
        say(Ask::Finish)?;
        let theirs = serde_json::from_slice(&mailbox.recv_vec(Selector::exact(CONTROL))?.1)?;
        let traffic = S::traffic(&mailbox).zip(before).map(|(now, before)| now.since(before));
        messaging::report(&TestReading { traffic, ..TestReading::of(test, mine, theirs)? })?;
    }
    say(Ask::Leave)
}
