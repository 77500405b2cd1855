//! Limits on a JSON text before it is parsed: checks the bytes as they are read.

use std::io::{self, Read};

/// The longest text or number, in bytes.
const LONGEST: usize = 1 << 20;
/// Maximum nesting of arrays and objects.
const DEEPEST: usize = 64;

/// A reader that fails if a text is too long, nesting is too deep, or the whole is too large.
pub(super) struct Guard<R> {
    from: R,
    left: u64,
    depth: usize,
    length: usize,
    in_text: bool,
    is_escaped: bool,
}

impl<R: Read> Guard<R> {
    /// Allows at most `most` bytes.
    pub(super) fn new(from: R, most: u64) -> Self {
        Self { from, left: most, depth: 0, length: 0, in_text: false, is_escaped: false }
    }

    fn look(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for byte in bytes {
            self.length += 1;
            if self.length > LONGEST {
                return Err("a text or number of more than 1 MiB");
            }
            if self.in_text {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => (self.in_text, self.length) = (false, 0),
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_text = true,
                    b'[' | b'{' => self.depth += 1,
                    b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                    b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
                    _ => continue,
                }
                self.length = 0;
            }
            if self.depth > DEEPEST {
                return Err("nested too deep");
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        let refused = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| refused("too large"))?;
        self.look(&into[..count]).map_err(refused)?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, most: u64) -> io::Result<usize> {
        let mut bytes = Vec::new();
        Guard::new(text.as_bytes(), most).read_to_end(&mut bytes)
    }

    #[test]
    fn what_costs_too_much_is_not_read() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(&nested(DEEPEST), 1000).is_ok());
        assert!(read(&nested(DEEPEST + 1), 1000).is_err());
        // Brackets inside a string are text.
        assert!(read(&format!("\"\\\"{}\"", "[".repeat(500)), 1000).is_ok());
        assert!(read("[1, 2]", 6).is_ok());
        assert!(read("[1, 2]", 5).is_err());
        let most = 1 << 30;
        for long in ["7".repeat(LONGEST + 9), format!("\"{}\"", "a".repeat(LONGEST + 9))] {
            let error = read(&long, most).unwrap_err();
            assert!(error.to_string().contains("1 MiB"), "{error}");
        }
        assert!(read(&"[1,2],".repeat(1 << 18), most).is_ok());
    }
}
