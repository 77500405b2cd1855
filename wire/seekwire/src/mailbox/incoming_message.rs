//! A message whose header has been read.

use seekwire_protocol::message::{HEADER, MessageHeader};
use seekwire_protocol::span::Span;

#[derive(Debug)]
pub(super) struct IncomingMessage {
    pub(super) sequence: u32,
    /// Length of the body in bytes.
    pub(super) len: usize,
    /// All of it had arrived when it was found, and it is small enough to be copied from a view.
    pub(super) is_small: bool,
    /// Position of the first byte that is still in the stream.
    pub(super) at: u64,
    /// Bytes of the header that are still in the stream.
    pub(super) header: usize,
    /// The first bytes of the body, if they have already been taken out of the stream.
    pub(super) owned: Vec<u8>,
    /// Bytes of the body that the receiver has.
    pub(super) done: usize,
}

impl IncomingMessage {
    pub(super) fn new(header: MessageHeader, is_small: bool, at: u64) -> Self {
        let len = header.len as usize;
        Self {
            sequence: header.sequence,
            len,
            is_small,
            at,
            header: HEADER,
            owned: Vec::new(),
            done: 0,
        }
    }

    /// The part that is still in the stream.
    pub(super) fn span(&self) -> Span {
        let body = self.len - self.owned.len().max(self.done);
        Span { start: self.at, end: self.at + (self.header + body) as u64 }
    }

    /// True if nothing of it has been taken out of the stream.
    pub(super) fn is_untouched(&self) -> bool {
        self.header == HEADER
    }

    /// Records that the body has been copied into memory of this end.
    pub(super) fn moved_to(&mut self, body: Vec<u8>) {
        self.at = self.span().end;
        self.header = 0;
        self.owned = body;
    }

    /// Records that `n` bytes were taken out of the stream; those of the body went to the receiver.
    pub(super) fn took(&mut self, n: usize) {
        let header = n.min(self.header);
        self.header -= header;
        self.done += n - header;
        self.at += n as u64;
    }

    /// Keeps the part of the message in `buffer`, because the receiver gives up.
    pub(super) fn give_back(&mut self, buffer: &[u8]) {
        if self.done > 0 {
            self.owned = buffer[..self.done].to_vec();
            self.done = 0;
        }
    }
}
