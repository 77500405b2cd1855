//! A copy of some bytes of the stream, which stay in it: headers and small messages are found in there instead of
//! with a call each.

use std::io::{self, IoSliceMut};

use crate::seek::{At, SeekFlags, SeekSocket};

/// The most bytes that are looked at with one call.
const MOST: usize = 64 << 10;
/// The fewest: a header.
const LEAST: usize = protocol::message::HEADER;

#[derive(Debug)]
pub(super) struct View {
    /// Position of the first byte.
    start: u64,
    bytes: Vec<u8>,
    len: usize,
    /// How many to look at next time.
    want: usize,
    /// How many of these were of use.
    used: usize,
}

impl View {
    pub(super) fn new() -> Self {
        Self { start: 0, bytes: Vec::new(), len: 0, want: 4096, used: 0 }
    }

    /// The `len` bytes at a position, if they are here.
    pub(super) fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes[..self.len].get(from..from.checked_add(len)?)
    }

    /// What is here from a position on.
    pub(super) fn from(&self, at: u64) -> &[u8] {
        let from = at.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.bytes[..self.len].get(from..)).unwrap_or_default()
    }

    /// `n` bytes were of use.
    pub(super) fn used(&mut self, n: usize) {
        self.used += n;
    }

    /// Looks at what has arrived from `at` on, at `least` bytes or more, and returns how many there are; fewer only
    /// where the stream ends. It looks at more each time as long as most of it is of use, which is so when messages
    /// are small, and at less when it is not. With `WouldBlock` the view has what there is.
    pub(super) fn refill(&mut self, stream: &impl SeekSocket, at: u64, least: usize) -> io::Result<usize> {
        if self.used * 4 < self.len {
            self.want = (self.want / 4).max(LEAST);
        } else if self.len >= self.want && self.used * 2 >= self.len {
            self.want = (self.want * 4).min(MOST);
        }
        let size = self.want.max(least);
        if self.bytes.len() < size {
            self.bytes.resize(size, 0);
        }
        (self.start, self.len, self.used) = (at, 0, 0);
        self.len = self.look(stream, size, true)?;
        if self.len > 0 && self.len < least {
            // Is that because the rest has not come yet, or because it never will?
            self.len = self.look(stream, least, false)?;
        }
        Ok(self.len)
    }

    fn look(&mut self, stream: &impl SeekSocket, size: usize, partial: bool) -> io::Result<usize> {
        let into = &mut [IoSliceMut::new(&mut self.bytes[..size])];
        stream.try_seek(At::Position(self.start), into, SeekFlags { peek: true, partial })
    }
}
