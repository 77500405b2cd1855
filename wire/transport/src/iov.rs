//! Walks scattered buffers, from which a send gathers and to which a receive scatters.

use std::io::{IoSlice, IoSliceMut};

use crate::sys::socket::Control;

/// Reads through a list of buffers from the front.
#[derive(Debug)]
pub struct Gather<'a> {
    bufs: &'a [IoSlice<'a>],
    offset: usize,
    remaining: usize,
}

impl<'a> Gather<'a> {
    /// Starts at the first byte of the first buffer.
    #[inline]
    #[must_use]
    pub fn new(bufs: &'a [IoSlice<'a>]) -> Self {
        Self { bufs, offset: 0, remaining: bufs.iter().map(|b| b.len()).sum() }
    }

    /// Bytes not yet taken.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Takes `len` bytes, at most [`Self::remaining`], piece by piece.
    #[inline]
    pub fn take(&mut self, len: usize, mut piece: impl FnMut(&[u8])) {
        let mut left = len;
        while left > 0 {
            let Some((first, rest)) = self.bufs.split_first() else { break };
            let available = &first[self.offset..];
            let n = available.len().min(left);
            piece(&available[..n]);
            left -= n;
            self.offset += n;
            if self.offset == first.len() {
                self.bufs = rest;
                self.offset = 0;
            }
        }
        self.remaining -= len - left;
    }

    /// The next `len` bytes, at most [`Self::remaining`], without taking them.
    #[must_use]
    pub fn front(&self, len: usize) -> Self {
        Self { remaining: len.min(self.remaining), ..*self }
    }

    /// The remaining bytes, as a list for the kernel.
    #[must_use]
    pub fn rest(&self) -> Vec<IoSlice<'a>> {
        let mut rest: Vec<IoSlice<'a>> = self.bufs.to_vec();
        if let Some(first) = rest.first_mut() {
            first.advance(self.offset);
        }
        rest
    }
}

/// Fills a list of buffers from the front.
#[derive(Debug)]
pub struct Scatter<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    index: usize,
    offset: usize,
    remaining: usize,
    filled: usize,
    control: Option<&'a mut Control>,
}

impl<'a, 'b> Scatter<'a, 'b> {
    /// Starts at the first byte of the first buffer.
    #[inline]
    #[must_use]
    pub fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        let remaining = bufs.iter().map(|b| b.len()).sum();
        Self { bufs, index: 0, offset: 0, remaining, filled: 0, control: None }
    }

    /// Adds room for the kernel's control messages about received bytes.
    #[must_use]
    pub fn with_control(mut self, control: Option<&'a mut Control>) -> Self {
        self.control = control;
        self
    }

    /// Bytes of room left.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Bytes filled so far.
    #[inline]
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Forgets the filled bytes.
    pub fn begin_again(&mut self) {
        self.remaining += self.filled;
        (self.index, self.offset, self.filled) = (0, 0, 0);
    }

    /// Lets `piece(at, into)` fill the next `len` bytes, at most [`Self::remaining`], piece by
    /// piece; `at` counts from the first of these bytes.
    #[inline]
    pub fn fill(&mut self, len: usize, mut piece: impl FnMut(usize, &mut [u8])) {
        let mut done = 0;
        while done < len && self.index < self.bufs.len() {
            let room = &mut self.bufs[self.index][self.offset..];
            let n = room.len().min(len - done);
            piece(done, &mut room[..n]);
            done += n;
            self.skip_in_buffer(n);
        }
        self.remaining -= done;
        self.filled += done;
    }

    /// Fills the next bytes with `bytes`, at most [`Self::remaining`].
    pub fn put(&mut self, bytes: &[u8]) {
        self.fill(bytes.len(), |at, into| into.copy_from_slice(&bytes[at..at + into.len()]));
    }

    /// The next buffer's free part, at most `max` bytes, for a read by the kernel.
    pub fn next_room(&mut self, max: usize) -> &mut [u8] {
        while self.index < self.bufs.len() && self.bufs[self.index].len() == self.offset {
            self.index += 1;
            self.offset = 0;
        }
        match self.bufs.get_mut(self.index) {
            Some(buf) => {
                let end = buf.len().min(self.offset.saturating_add(max.min(self.remaining)));
                &mut buf[self.offset..end]
            }
            None => &mut [],
        }
    }

    /// As [`Self::next_room`], with the room for control messages.
    pub fn next_room_and_control(&mut self, max: usize) -> (&mut [u8], Option<&mut Control>) {
        let len = self.next_room(max).len();
        let room = match self.bufs.get_mut(self.index) {
            Some(buf) => &mut buf[self.offset..self.offset + len],
            None => &mut [],
        };
        (room, self.control.as_deref_mut())
    }

    /// Lets `fill` fill at most `most` bytes.
    pub fn at_most<R>(&mut self, most: u64, fill: impl FnOnce(&mut Self) -> R) -> R {
        let hidden = self.remaining.saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
        self.remaining -= hidden;
        let result = fill(self);
        self.remaining += hidden;
        result
    }

    /// Forgets the last `n` bytes filled: they will be filled again.
    pub fn rewind(&mut self, n: usize) {
        let mut left = n.min(self.filled);
        self.remaining += left;
        self.filled -= left;
        while left > self.offset {
            left -= self.offset;
            self.index -= 1;
            self.offset = self.bufs[self.index].len();
        }
        self.offset -= left;
    }

    /// Counts `n` bytes as filled that were read into [`Self::next_room`]; `n` may be 0.
    pub fn filled_in_place(&mut self, n: usize) {
        if n > 0 {
            self.skip_in_buffer(n);
        }
        self.remaining -= n;
        self.filled += n;
    }

    /// Counts `n` discarded bytes as filled.
    pub fn skip(&mut self, n: usize) {
        self.fill(n, |_, _| ());
    }

    fn skip_in_buffer(&mut self, n: usize) {
        self.offset += n;
        if self.offset == self.bufs[self.index].len() {
            self.index += 1;
            self.offset = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gathered_then_scattered_is_the_same(
            from in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6),
            to in proptest::collection::vec(0usize..20, 0..8),
            step in 1usize..30,
        ) {
            let flat: Vec<u8> = from.concat();
            let slices: Vec<IoSlice<'_>> = from.iter().map(|b| IoSlice::new(b)).collect();
            let mut gather = Gather::new(&slices);
            let mut bufs: Vec<Vec<u8>> = to.iter().map(|n| vec![0; *n]).collect();
            let mut slices: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let mut scatter = Scatter::new(&mut slices);
            while gather.remaining() > 0 && scatter.remaining() > 0 {
                let n = step.min(gather.remaining()).min(scatter.remaining());
                let mut chunk = Vec::new();
                gather.take(n, |piece| chunk.extend_from_slice(piece));
                prop_assert_eq!(gather.rest().iter().map(|b| b.len()).sum::<usize>(), gather.remaining());
                if step % 2 == 0 {
                    scatter.fill(n, |at, into| into.copy_from_slice(&chunk[at..at + into.len()]));
                } else {
                    let mut at = 0;
                    while at < n {
                        let room = scatter.next_room(n - at);
                        let m = room.len();
                        room.copy_from_slice(&chunk[at..at + m]);
                        scatter.filled_in_place(m);
                        at += m;
                    }
                }
            }
            let filled = scatter.filled();
            prop_assert_eq!(filled, flat.len().min(to.iter().sum()));
            prop_assert_eq!(&bufs.concat()[..filled], &flat[..filled]);
        }
    }
}
