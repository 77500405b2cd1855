//! A copy of some bytes that are still in the stream. The mailbox finds headers and small messages
//! in this copy, without a call for each.

use std::io::IoSliceMut;

use crate::SeekError;
use crate::seek::{At, SeekOptions, SeekSocket};

/// Maximum size of a small message, header included. A small message is copied from a view, because
/// a call of its own would cost more than the copies.
pub(super) const SMALL: usize = 2048;
/// Maximum number of bytes that one call looks at.
const MOST: usize = 64 << 10;
/// The minimum: a header.
const LEAST: usize = seekwire_protocol::message::HEADER;

/// Maximum number of bytes per useful item for a view to grow: a small message, and its share of
/// the message that is cut off at the end.
const FAR: usize = SMALL * 5 / 4;

#[derive(Debug)]
pub(super) struct View {
    /// Position of the first byte.
    start: u64,
    bytes: Vec<u8>,
    len: usize,
    /// Number of bytes to look at next time.
    want: usize,
    /// Number of times that this copy was useful.
    uses: usize,
}

impl View {
    pub(super) fn new() -> Self {
        Self { start: 0, bytes: Vec::new(), len: 0, want: 4096, uses: 0 }
    }

    /// The `len` bytes at position `at`, if this copy has them.
    pub(super) fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes[..self.len].get(from..from.checked_add(len)?)
    }

    /// The bytes of this copy from position `at` on.
    pub(super) fn from(&self, at: u64) -> &[u8] {
        let from = at.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.bytes[..self.len].get(from..)).unwrap_or_default()
    }

    /// Records that this copy was useful.
    pub(super) fn used(&mut self) {
        self.uses += 1;
    }

    /// Looks at the bytes from `at` on, at least `least` of them, and returns how many there are;
    /// fewer only at the end of the stream. It looks at more bytes each time while useful items lie
    /// close together, and otherwise at the minimum. `bulk` as in [`SeekOptions`]. With
    /// `WouldBlock` the view has the bytes that have arrived.
    pub(super) fn refill(
        &mut self,
        stream: &impl SeekSocket,
        at: u64,
        least: usize,
        bulk: bool,
    ) -> Result<usize, SeekError> {
        let end = self.start + self.len as u64;
        let is_near = (self.start..=end + FAR as u64).contains(&at);
        if !is_near || self.len / self.uses.max(1) > FAR {
            self.want = LEAST;
        } else if self.len >= self.want {
            self.want = (self.want * 4).min(MOST);
        }
        self.want = self.want.max(least);
        let size = self.want;
        if self.bytes.len() < size {
            self.bytes.resize(size, 0);
        }
        (self.start, self.len, self.uses) = (at, 0, 0);
        let all = SeekOptions::PEEK.bulk(bulk);
        self.len = self.look(stream, size, all.partial(true))?;
        if self.len > 0 && self.len < least {
            // Have the other bytes not arrived yet, or will they never?
            self.len = self.look(stream, least, all)?;
        }
        Ok(self.len)
    }

    fn look(
        &mut self,
        stream: &impl SeekSocket,
        size: usize,
        options: SeekOptions,
    ) -> Result<usize, SeekError> {
        let into = &mut [IoSliceMut::new(&mut self.bytes[..size])];
        stream.try_seek(At::Position(self.start), into, options)
    }
}
