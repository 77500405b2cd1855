//! Caches the blocks of a source on which each read is a request.

use crate::source::{Source, check};
use crate::{Error, Result};
use bytes::Bytes;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

/// Bytes of a block, the unit of requests and of the cache.
const BLOCK: u64 = 64 << 10;
/// Longer reads bypass the cache: they would evict everything else.
const LONGEST: u64 = 4 << 20;

/// Keeps the most recently used blocks of another source. The lock is not held while the other
/// source is read, so two threads that need the same block at the same time may both request it.
pub struct CachedSource<S> {
    inner: S,
    blocks: Mutex<LruCache<u64, Bytes>>,
}

impl<S: Source> CachedSource<S> {
    /// Keeps at most `memory` bytes, but at least one block.
    pub fn new(inner: S, memory: u64) -> Self {
        let blocks = NonZeroUsize::new((memory / BLOCK) as usize).unwrap_or(NonZeroUsize::MIN);
        Self { inner, blocks: Mutex::new(LruCache::new(blocks)) }
    }

    fn kept(&self, block: u64) -> Option<Bytes> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).get(&block).cloned()
    }

    /// Reads blocks `from..to` with one request.
    fn fetch(&self, from: u64, to: u64) -> Result<Bytes> {
        let at = from * BLOCK;
        // A web server may claim that a file is as long as a u64 can count.
        let length = to.saturating_mul(BLOCK).min(self.inner.length()) - at;
        let mut bytes = vec![0; length as usize];
        self.inner.read_at(at, &mut bytes)?;
        let mut kept = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, block) in (from..to).zip(bytes.chunks(BLOCK as usize)) {
            // Copied: a slice of the answer would keep all of it in memory.
            kept.put(number, Bytes::copy_from_slice(block));
        }
        Ok(bytes.into())
    }
}

impl<S: Source> Source for CachedSource<S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn state(&self) -> Option<String> {
        self.inner.state()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let length = into.len() as u64;
        check(self, at, length)?;
        if length > LONGEST {
            return self.inner.read_at(at, into);
        }
        let end = at + length;
        let last = end.div_ceil(BLOCK);
        let mut block = at / BLOCK;
        while block < last {
            let (bytes, next) = match self.kept(block) {
                Some(bytes) => (bytes, block + 1),
                None => {
                    let mut next = block + 1;
                    while next < last && self.kept(next).is_none() {
                        next += 1;
                    }
                    (self.fetch(block, next)?, next)
                }
            };
            let start = block * BLOCK;
            let (from, to) = (at.max(start), end.min(start.saturating_add(bytes.len() as u64)));
            let part = bytes
                .get((from - start) as usize..(to.max(from) - start) as usize)
                .filter(|part| !part.is_empty());
            let Some(part) = part else {
                return Err(Error::Malformed {
                    name: self.name().into(),
                    at: from,
                    what: "a block is shorter than it was".into(),
                });
            };
            into[(from - at) as usize..][..part.len()].copy_from_slice(part);
            block = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As long as a u64 can count.
    struct Longest;

    impl Source for Longest {
        fn name(&self) -> &str {
            "longest"
        }

        fn length(&self) -> u64 {
            u64::MAX
        }

        fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
            check(self, at, into.len() as u64)?;
            into.fill(at as u8);
            Ok(())
        }
    }

    #[test]
    fn the_last_block_of_the_longest_file_is_read() {
        let source = CachedSource::new(Longest, 1 << 20);
        for _ in 0..2 {
            let mut bytes = [1; 3];
            source.read_at(u64::MAX - 3, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 3]);
        }
        assert!(source.read_at(u64::MAX - 2, &mut [0; 3]).is_err());
    }
}
