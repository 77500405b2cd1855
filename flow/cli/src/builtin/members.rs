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
    /// ended. Once the buffer holds [`ENOUGH`], it may leave the rest for the next call.
    fn decode(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)>;

    /// Fails unless the member is complete.
    fn end(&mut self) -> io::Result<()>;

    /// The decoded bytes.
    fn buffer(&mut self) -> &mut Vec<u8>;
}

/// Output of this many bytes is sent before more input is decoded: a few bytes may become very many.
pub(super) const ENOUGH: usize = 256 << 10;

enum MemberPosition {
    Within,
    /// Between two members, with bytes that may begin the next one.
    Between(Vec<u8>),
    Padding,
    /// After the last member, with the number of bytes that followed it.
    Behind(u64),
}

pub(super) struct Members<F> {
    format: F,
    position: MemberPosition,
}

impl<F: Format> Members<F> {
    pub(super) fn new(format: F) -> Self {
        Self { format, position: MemberPosition::Within }
    }

    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.format.buffer()
    }

    /// Decodes until the buffer holds enough. Returns how many of the bytes were taken.
    pub(super) fn decode(&mut self, all: &[u8]) -> io::Result<usize> {
        let mut bytes = all;
        while let Some(next) = bytes.first() {
            match &mut self.position {
                MemberPosition::Within if self.format.buffer().len() >= ENOUGH => break,
                MemberPosition::Within => {
                    let (consumed, has_ended) = self.format.decode(bytes)?;
                    bytes = &bytes[consumed..];
                    if has_ended {
                        self.position = MemberPosition::Between(Vec::new());
                    }
                }
                MemberPosition::Between(begun) => {
                    begun.push(*next);
                    bytes = &bytes[1..];
                    if begun == &[0] {
                        self.position = MemberPosition::Padding;
                    } else if !F::can_begin(begun) {
                        self.position = MemberPosition::Behind(begun.len() as u64);
                    } else if begun.len() == F::MAGIC {
                        self.format.begin()?;
                        let mut magic = &begun[..];
                        while !magic.is_empty() {
                            let (consumed, _) = self.format.decode(magic)?;
                            magic = &magic[consumed..];
                        }
                        self.position = MemberPosition::Within;
                    }
                }
                MemberPosition::Padding if *next == 0 => bytes = &bytes[1..],
                MemberPosition::Padding => self.position = MemberPosition::Behind(0),
                MemberPosition::Behind(count) => {
                    *count += bytes.len() as u64;
                    bytes = &[];
                }
            }
        }
        Ok(all.len() - bytes.len())
    }

    /// How many bytes after the last member belong to no member.
    pub(super) fn end(&mut self) -> io::Result<u64> {
        match &self.position {
            MemberPosition::Within => self.format.end().map(|()| 0),
            MemberPosition::Between(begun) => Ok(begun.len() as u64),
            MemberPosition::Padding => Ok(0),
            MemberPosition::Behind(count) => Ok(*count),
        }
    }
}
