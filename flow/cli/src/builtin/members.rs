//! Data of several members, one after the other, as in gzip and Zstandard files, and what may
//! follow the last one: zeros, as on a tape, or bytes that are no member.

use std::io;

/// How one format decodes a member.
pub(super) trait Format: Send {
    /// Whether a member can begin so. Called with one more byte each time, up to [`Format::MAGIC`].
    fn can_begin(bytes: &[u8]) -> bool;

    /// Number of bytes that identify a member.
    const MAGIC: usize;

    /// Starts a new member.
    fn begin(&mut self) -> io::Result<()>;

    /// Decodes into the buffer. Returns how many bytes were taken, and whether the member has
    /// ended.
    fn decode(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)>;

    /// Fails unless the member is complete.
    fn end(&mut self) -> io::Result<()>;

    /// The decoded bytes.
    fn buffer(&mut self) -> &mut Vec<u8>;
}

enum Place {
    Within,
    /// Between two members, with bytes that may begin the next one.
    Between(Vec<u8>),
    Padding,
    /// After the last member, with the number of bytes that followed it.
    Behind(u64),
}

pub(super) struct Members<F> {
    format: F,
    place: Place,
}

impl<F: Format> Members<F> {
    pub(super) fn new(format: F) -> Self {
        Self { format, place: Place::Within }
    }

    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.format.buffer()
    }

    pub(super) fn decode(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some(next) = bytes.first() {
            match &mut self.place {
                Place::Within => {
                    let (taken, has_ended) = self.format.decode(bytes)?;
                    bytes = &bytes[taken..];
                    if has_ended {
                        self.place = Place::Between(Vec::new());
                    }
                }
                Place::Between(begun) => {
                    begun.push(*next);
                    bytes = &bytes[1..];
                    if begun == &[0] {
                        self.place = Place::Padding;
                    } else if !F::can_begin(begun) {
                        self.place = Place::Behind(begun.len() as u64);
                    } else if begun.len() == F::MAGIC {
                        let magic = std::mem::take(begun);
                        self.place = Place::Within;
                        self.format.begin()?;
                        self.decode(&magic)?;
                    }
                }
                Place::Padding if *next == 0 => bytes = &bytes[1..],
                Place::Padding => self.place = Place::Behind(0),
                Place::Behind(count) => {
                    *count += bytes.len() as u64;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// How many bytes after the last member belong to no member.
    pub(super) fn end(&mut self) -> io::Result<u64> {
        match &self.place {
            Place::Within => self.format.end().map(|()| 0),
            Place::Between(begun) => Ok(begun.len() as u64),
            Place::Padding => Ok(0),
            Place::Behind(count) => Ok(*count),
        }
    }
}
