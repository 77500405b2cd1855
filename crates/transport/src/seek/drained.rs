//! Bytes of a stream that were moved out of the kernel before they were asked for.

use std::collections::BTreeMap;

use protocol::span::Span;

/// Bytes that are read from the kernel at a time, and freed together.
pub(super) const CHUNK: usize = 256 << 10;

/// Buffers that are kept for the next time.
const SPARE: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Drained {
    /// By the position of their first byte.
    chunks: BTreeMap<u64, Chunk>,
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// Bytes that nobody has taken yet.
    live: u64,
}

impl Drained {
    /// Bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A buffer of [`CHUNK`] bytes to read into.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; CHUNK])
    }

    /// Takes a buffer back that was not needed.
    pub(super) fn put_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE && buffer.capacity() == CHUNK {
            buffer.resize(CHUNK, 0);
            self.spare.push(buffer);
        }
    }

    /// Keeps the first `len` bytes of a buffer, which begin at `position`; `live` of them were not taken
    /// before. Little ones share a chunk: they must not cost the memory of a large one each.
    pub(super) fn keep(&mut self, position: u64, mut buffer: Vec<u8>, len: usize, live: u64) {
        if live > 0 {
            let tail = self.chunks.range_mut(..=position).next_back();
            let tail = tail.filter(|(begin, chunk)| {
                *begin + chunk.bytes.len() as u64 == position && chunk.bytes.len() + len <= CHUNK
            });
            if let Some((_, chunk)) = tail {
                self.bytes -= chunk.bytes.capacity();
                chunk.bytes.extend_from_slice(&buffer[..len]);
                chunk.live += live;
                self.bytes += chunk.bytes.capacity();
            } else if len < CHUNK / 2 {
                let bytes = buffer[..len].to_vec();
                self.bytes += bytes.capacity();
                self.chunks.insert(position, Chunk { bytes, live });
            } else {
                buffer.truncate(len);
                self.bytes += buffer.capacity();
                self.chunks.insert(position, Chunk { bytes: buffer, live });
                return;
            }
        }
        self.put_back(buffer);
    }

    /// Shows the bytes of `span`, all of which must be here and live, piece by piece.
    pub(super) fn read(&self, span: Span, mut piece: impl FnMut(&[u8])) {
        let mut at = span.start;
        while at < span.end
            && let Some((&begin, chunk)) = self.chunks.range(..=at).next_back()
        {
            let from = (at - begin) as usize;
            let to = chunk.bytes.len().min((span.end - begin) as usize);
            if from >= to {
                return;
            }
            piece(&chunk.bytes[from..to]);
            at = begin + to as u64;
        }
    }

    /// The bytes of `span`, which were live, are no longer; those that are not here are ignored.
    pub(super) fn forget(&mut self, span: Span) {
        let first = self.chunks.range(..=span.start).next_back().map_or(span.start, |(&begin, _)| begin);
        let mut used_up = Vec::new();
        for (&begin, chunk) in self.chunks.range_mut(first..span.end) {
            let here = Span { start: begin, end: begin + chunk.bytes.len() as u64 };
            chunk.live = chunk.live.saturating_sub(here.intersection(span).len());
            if chunk.live == 0 {
                used_up.push(begin);
            }
        }
        for begin in used_up {
            if let Some(chunk) = self.chunks.remove(&begin) {
                self.bytes -= chunk.bytes.capacity();
                self.put_back(chunk.bytes);
            }
        }
    }
}
