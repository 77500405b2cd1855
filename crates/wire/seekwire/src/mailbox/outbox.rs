//! What is to go out.

use std::collections::VecDeque;

use seekwire_protocol::message::HELLO;

#[derive(Debug)]
pub(super) struct Outbox {
    /// A thread is in the middle of a message.
    pub(super) busy: bool,
    pub(super) sequence: u32,
    /// What has to go out before the next message.
    pub(super) rest: VecDeque<u8>,
    pub(super) finished: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { busy: false, sequence: 0, rest: VecDeque::from(HELLO), finished: false }
    }
}
