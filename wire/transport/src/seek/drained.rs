//! Bytes of a stream that were moved into library memory before they were requested.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use seekwire_protocol::span::Span;

use crate::Errno;
use crate::buffer::Buffer;

/// Bytes of memory that are allocated at a time, and freed together.
pub(super) const CHUNK: usize = 256 << 10;

/// Chunks that a process keeps for its next stream: fresh memory costs a fault for each page.
const SPARE: usize = 8;

static SPARES: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

fn spares() -> Option<MutexGuard<'static, Vec<Buffer>>> {
    // Never waits for the lock: the holder may be a call that this signal handler has interrupted.
    SPARES.try_lock().ok()
}

/// A smaller chunk is not worth its own memory.
const SMALLEST: usize = 4 << 10;
/// Room in the last chunk that justifies another read.
const ENOUGH: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Drained {
    /// In order of position, without overlap.
    chunks: VecDeque<Chunk>,
    /// Freed chunks, at most as many as were in use at once since this was last empty: the next
    /// burst will need as many.
    spare: Vec<Buffer>,
    peak: usize,
    /// Bytes of memory in use, and their maximum.
    bytes: usize,
    most: usize,
}

#[derive(Debug)]
struct Chunk {
    begin: u64,
    /// All of it is memory to read into; the first `used` bytes hold a part of the stream.
    memory: Buffer,
    used: usize,
    /// Bytes that were not taken yet.
    live: u64,
}

impl Chunk {
    fn span(&self) -> Span {
        Span { start: self.begin, end: self.begin + self.used as u64 }
    }
}

impl Drained {
    /// Creates an empty one that may use `most` bytes of memory.
    pub(super) fn new(most: usize) -> Self {
        Self { chunks: VecDeque::new(), spare: Vec::new(), peak: 0, bytes: 0, most }
    }

    /// Whether no memory is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether there is room for another chunk.
    pub(super) fn has_room(&self) -> bool {
        self.most.saturating_sub(self.bytes) >= CHUNK
    }

    /// Room for the bytes that begin at `position`, after all that are here, at most `most` of them.
    pub(super) fn room(&mut self, position: u64, most: u64) -> Result<&mut [u8], Errno> {
        self.room_for(position, most, 0)
    }

    /// As [`Self::room`]; if memory does not suffice for a chunk, room for `least` bytes.
    fn room_for(&mut self, position: u64, most: u64, least: usize) -> Result<&mut [u8], Errno> {
        let left = self.most.saturating_sub(self.bytes);
        let goes_on = self.chunks.back().is_some_and(|last| {
            let room = last.memory.len() - last.used;
            last.span().end == position
                && room > 0
                && (room >= ENOUGH.min(last.memory.len() / 4) || left == 0)
        });
        if !goes_on {
            if left == 0 {
                return Err(Errno::NOBUFS);
            }
            // Between two holes, a whole chunk would be wasted.
            let most = usize::try_from(most).unwrap_or(usize::MAX).max(SMALLEST);
            let size = CHUNK.min(left).min(most);
            let memory = match self.spare.pop() {
                _ if size < CHUNK => None,
                None => spares().and_then(|mut spares| spares.pop()),
                spare => spare,
            };
            let memory = match memory {
                Some(memory) => memory,
                None => Buffer::try_new(size).or_else(|error| match least.min(size) {
                    0 => Err(error),
                    least => Buffer::try_new(least),
                })?,
            };
            self.bytes += memory.len();
            self.chunks.push_back(Chunk { begin: position, memory, used: 0, live: 0 });
            self.peak = self.peak.max(self.chunks.len());
        }
        let last = self.chunks.back_mut().ok_or(Errno::NOBUFS)?;
        Ok(&mut last.memory[last.used..])
    }

    /// Counts the first `n` bytes of [`Self::room`] as filled, none of them taken before.
    pub(super) fn filled(&mut self, n: usize) {
        if let Some(last) = self.chunks.back_mut() {
            last.used += n;
            last.live += n as u64;
            if last.used == 0 {
                self.drop_chunk(self.chunks.len() - 1);
            }
        }
    }

    /// Adds bytes that begin at `position`, after all that are here. Cannot fail while
    /// [`Self::has_room`].
    pub(super) fn put(&mut self, mut position: u64, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let room = self.room_for(position, u64::MAX, bytes.len())?;
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            self.filled(n);
            bytes = &bytes[n..];
            position += n as u64;
        }
        Ok(())
    }

    /// Index of the chunk that holds a position, or of the first chunk after it.
    #[inline]
    fn find(&self, position: u64) -> usize {
        match self.chunks.front() {
            Some(first) if position < first.span().end => 0,
            _ => self.chunks.partition_point(|chunk| chunk.span().end <= position),
        }
    }

    /// Shows the bytes of `span`, all of which must be here and live, piece by piece.
    #[inline]
    pub(super) fn read(&self, span: Span, mut piece: impl FnMut(&[u8])) {
        let mut at = span.start;
        for chunk in self.chunks.iter().skip(self.find(at)) {
            if at >= span.end || at < chunk.begin {
                break;
            }
            let from = (at - chunk.begin) as usize;
            let to = chunk.used.min((span.end - chunk.begin) as usize);
            piece(&chunk.memory[from..to]);
            at = chunk.begin + to as u64;
        }
    }

    /// Marks the bytes of `span`, which were live, as taken; ignores those that are not here.
    #[inline]
    pub(super) fn forget(&mut self, span: Span) {
        let mut index = self.find(span.start);
        while let Some(chunk) = self.chunks.get_mut(index).filter(|chunk| chunk.begin < span.end) {
            chunk.live = chunk.live.saturating_sub(chunk.span().intersection(span).len());
            if chunk.live == 0 {
                self.drop_chunk(index);
            } else {
                index += 1;
            }
        }
    }

    fn drop_chunk(&mut self, index: usize) {
        if let Some(chunk) = self.chunks.remove(index) {
            self.bytes -= chunk.memory.len();
            if chunk.memory.len() == CHUNK {
                self.spare.push(chunk.memory);
            }
            if self.chunks.is_empty() {
                let peak = std::mem::take(&mut self.peak);
                self.spare.drain(peak.min(self.spare.len())..).for_each(give_away);
            }
        }
    }
}

fn give_away(memory: Buffer) {
    if memory.len() == CHUNK {
        if let Some(mut spares) = spares() {
            if spares.len() < SPARE {
                spares.push(memory);
            }
        }
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let chunks = self.chunks.drain(..).map(|chunk| chunk.memory);
        chunks.chain(self.spare.drain(..)).for_each(give_away);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_put_over_the_end_of_a_small_chunk() {
        let mut drained = Drained::new(CHUNK + 40);
        let bytes: Vec<u8> = (0..CHUNK + 94).map(|i| i as u8).collect();
        let end = CHUNK as u64;
        drained.put(0, &bytes[..CHUNK]).unwrap();
        drained.put(end, &bytes[CHUNK..CHUNK + 30]).unwrap();
        assert!(!drained.has_room());
        drained.forget(Span { start: 0, end });
        assert!(drained.has_room());
        drained.put(end + 30, &bytes[CHUNK + 30..]).unwrap();
        let mut got = Vec::new();
        drained.read(Span { start: end, end: end + 94 }, |piece| got.extend_from_slice(piece));
        assert_eq!(got, bytes[CHUNK..]);
    }
}
