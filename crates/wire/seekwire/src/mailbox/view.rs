//! A copy of some bytes that are still in the stream. The mailbox finds headers and small messages
//! in it, without a call for each.

use std::io::IoSliceMut;

use crate::SeekError;
use crate::seek::{At, SeekOptions, SeekSocket};

/// Up to how many bytes, header included, a message is small: it is copied from a view, because a
/// call of its own would cost more than the copies.
pub(super) const SMALL: usize = 2048;
/// The most bytes that are looked at with one call.
const MOST: usize = 64 << 10;
/// The fewest: a header.
const LEAST: usize = seekwire_protocol::message::HEADER;

/// Bytes from one thing of use to the next that are still close together: a small message, and a
/// share of the one that is cut off at the end.
const FAR: usize = SMALL * 5 / 4;

#[derive(Debug)]
pub(super) struct View {
    /// Position of the first byte.
    start: u64,
    bytes: Vec<u8>,
    len: usize,
    /// How many to look at next time.
    want: usize,
    /// How often something in here was of use.
    uses: usize,
}

impl View {
    pub(super) fn new() -> Self {
        Self { start: 0, bytes: Vec::new(), len: 0, want: 4096, uses: 0 }
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

    /// Something in here was of use.
    pub(super) fn used(&mut self) {
        self.uses += 1;
    }

    /// Looks at what has arrived from `at` on, at `least` bytes or more, and returns how many there
    /// are; fewer only where the stream ends. It looks at more each time as long as what is of use
    /// in there lies close together, and at no more than it must when it does not. `bulk` as in
    /// [`SeekOptions`]. With `WouldBlock` the view has what there is.
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
            // Is that because the rest has not come yet, or because it never will?
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
