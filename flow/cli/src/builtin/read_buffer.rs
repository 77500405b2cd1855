//! Read buffers for filters, for sources that often return less than there is room for.

use std::io::{self, ErrorKind, Read};

use bytes::{Bytes, BytesMut};

/// A buffer that is kept as long as reads are short: their bytes are copied out of it. After a long
/// read, the buffer itself is passed on, and the next one is new.
pub(super) struct Scratch {
    size: usize,
    buffer: BytesMut,
}

/// Reads of this many bytes or more are never copied here.
const MUCH: usize = 1 << 20;

impl Scratch {
    /// Reads at most this many bytes at once.
    pub(super) fn new(size: usize) -> Self {
        Self { size, buffer: BytesMut::new() }
    }

    /// The bytes of one read; `None` at the end.
    pub(super) fn read(&mut self, from: &mut impl Read) -> io::Result<Option<Bytes>> {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::zeroed(self.size);
        }
        loop {
            match from.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(len) if len < MUCH.min(self.size / 2) => {
                    return Ok(Some(Bytes::copy_from_slice(&self.buffer[..len])));
                }
                Ok(len) => {
                    let mut bytes = std::mem::take(&mut self.buffer);
                    bytes.truncate(len);
                    return Ok(Some(bytes.freeze()));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns this many bytes for each read.
    struct Slow(usize);

    impl Read for Slow {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            to[..self.0].fill(7);
            Ok(self.0)
        }
    }

    #[test]
    fn little_is_copied_and_much_is_not() {
        let mut scratch = Scratch::new(1000);
        let read = |scratch: &mut Scratch, len| scratch.read(&mut Slow(len)).unwrap();
        let at = |scratch: &Scratch| scratch.buffer.as_ptr();
        let capacity = |bytes: Bytes| bytes.try_into_mut().unwrap().capacity();
        assert_eq!(capacity(read(&mut scratch, 1).unwrap()), 1);
        let before = at(&scratch);
        assert_eq!(capacity(read(&mut scratch, 499).unwrap()), 499);
        assert_eq!(read(&mut scratch, 0), None);
        assert_eq!(at(&scratch), before);
        let much = read(&mut scratch, 500).unwrap();
        assert_eq!((much.as_ptr(), &much[..]), (before, &[7; 500][..]));
        assert_eq!(read(&mut scratch, 1000).unwrap().len(), 1000);
    }
}
