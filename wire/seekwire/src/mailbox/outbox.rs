//! Bytes to send and the state of sending.

use std::collections::VecDeque;

use seekwire_protocol::message::HELLO;

#[derive(Debug)]
pub(super) struct Outbox {
    /// True while a thread is sending a message.
    pub(super) busy: bool,
    pub(super) sequence: u32,
    /// Bytes to send before the next message: the greeting, or the rest of a message that was
    /// begun.
    pub(super) rest: VecDeque<u8>,
    pub(super) finished: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { busy: false, sequence: 0, rest: VecDeque::from(HELLO), finished: false }
    }
}
