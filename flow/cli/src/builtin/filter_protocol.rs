//! The bytes of the filter protocol, version 1, as specified in flow/docs/filter-protocol.md.

use bytes::Bytes;

const VERSION: u32 = 1;

/// First bytes of this side's hello, and of the program's.
const OURS: &[u8; 8] = b"seekflt>";
const THEIRS: &[u8; 8] = b"seekflt<";

pub(super) const HELLO: usize = 16;
pub(super) const HEADER: usize = 24;

pub(super) const INIT: u32 = 1;
pub(super) const BLOCK: u32 = 2;
pub(super) const GENERATE: u32 = 3;
pub(super) const END: u32 = 4;
pub(super) const DONE: u32 = 5;
pub(super) const MORE: u32 = 6;
pub(super) const ERROR: u32 = 7;

/// A longer error text is refused.
const LONGEST_ERROR: u64 = 64 << 10;

/// Bytes to read from the program at once.
const CHUNK: usize = 64 << 10;

/// The header that precedes the bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u32,
    pub(super) port: u32,
    /// An answer has the number of its request.
    pub(super) number: u64,
    pub(super) length: u64,
}

pub(super) fn hello(inputs: usize, outputs: usize) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    hello[..8].copy_from_slice(OURS);
    hello[8..12].copy_from_slice(&VERSION.to_le_bytes());
    hello[12..14].copy_from_slice(&(inputs as u16).to_le_bytes());
    hello[14..].copy_from_slice(&(outputs as u16).to_le_bytes());
    hello
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.port.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            kind: word(bytes, 0),
            port: word(bytes, 4),
            number: u64::from(word(bytes, 8)) | u64::from(word(bytes, 12)) << 32,
            length: u64::from(word(bytes, 16)) | u64::from(word(bytes, 20)) << 32,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..at + 4].iter().rev();
    bytes.fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// The program's output, cut into frames.
pub(super) struct Incoming {
    chunk: Box<[u8]>,
    /// The part of the chunk that is not consumed yet.
    left: std::ops::Range<usize>,
    /// The bytes of the hello or the header received so far.
    head: Vec<u8>,
    /// The frame whose bytes are being received, once its header is complete.
    body: Option<(Header, Vec<u8>)>,
    /// The largest block, in bytes.
    largest: u64,
}

impl Incoming {
    pub(super) fn new(largest: usize) -> Self {
        Self {
            chunk: vec![0; CHUNK].into_boxed_slice(),
            left: 0..0,
            head: Vec::new(),
            body: None,
            largest: largest as u64,
        }
    }

    /// Where to read bytes to when there is no whole frame; [`Self::filled`] takes their number.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.chunk
    }

    pub(super) fn filled(&mut self, count: usize) {
        self.left = 0..count;
    }

    /// True if [`Self::room`] can be filled again.
    pub(super) fn is_drained(&self) -> bool {
        self.left.is_empty()
    }

    /// True if everything received was consumed.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.head.is_empty() && self.body.is_none()
    }

    fn take(&mut self, most: usize) -> &[u8] {
        let start = self.left.start;
        let end = self.left.end.min(start.saturating_add(most));
        self.left.start = end;
        &self.chunk[start..end]
    }

    /// Extends `head` to that length; false if more bytes must arrive first.
    fn take_head(&mut self, len: usize) -> bool {
        let missing = len - self.head.len();
        let part = self.take(missing).to_vec();
        self.head.extend(part);
        self.head.len() == len
    }

    /// True once the program's hello is complete. Fails as soon as the bytes cannot be a hello.
    pub(super) fn hello(&mut self) -> Result<bool, String> {
        let is_whole = self.take_head(HELLO);
        let len = self.head.len().min(THEIRS.len());
        if self.head[..len] != THEIRS[..len] {
            return Err(format!(
                "does not speak the filter protocol: it begins with \"{}\"",
                self.head.escape_ascii()
            ));
        }
        if !is_whole {
            return Ok(false);
        }
        let (version, rest) = (word(&self.head, 8), word(&self.head, 12));
        if version != VERSION {
            return Err(format!(
                "speaks version {version} of the filter protocol, and this is version {VERSION}"
            ));
        }
        if rest != 0 {
            return Err("says hello with bytes that must be 0".to_owned());
        }
        self.head.clear();
        Ok(true)
    }

    /// The next frame; `None` if more bytes must arrive first.
    pub(super) fn next(&mut self) -> Result<Option<(Header, Bytes)>, String> {
        if self.body.is_none() {
            if !self.take_head(HEADER) {
                return Ok(None);
            }
            let header = Header::from_bytes(&self.head);
            self.head.clear();
            self.check(header)?;
            self.body = Some((header, Vec::new()));
        }
        let Some((header, mut bytes)) = self.body.take() else { return Ok(None) };
        // `check` made sure that it fits.
        let missing = header.length as usize - bytes.len();
        let part = self.take(missing);
        if bytes.capacity() < bytes.len() + part.len() {
            // Reserve for what was received, not for what was announced, and no more than that in
            // the end.
            bytes.reserve_exact(missing.min(part.len().max(bytes.len())));
        }
        bytes.extend_from_slice(part);
        if bytes.len() as u64 == header.length {
            return Ok(Some((header, bytes.into())));
        }
        self.body = Some((header, bytes));
        Ok(None)
    }

    fn check(&self, header: Header) -> Result<(), String> {
        let length = header.length;
        match header.kind {
            BLOCK if length > self.largest => Err(format!(
                "sent a block of {length} bytes; `largest` allows {} bytes",
                self.largest
            )),
            ERROR if length > LONGEST_ERROR => {
                Err(format!("sent an error of {length} bytes; it can have at most {LONGEST_ERROR}"))
            }
            DONE | MORE if length > 0 => Err(format!(
                "sent a frame of kind {} with {length} bytes: that kind has none",
                header.kind
            )),
            BLOCK | ERROR | DONE | MORE => Ok(()),
            kind => Err(format!("sent a frame of kind {kind}, which no program sends")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(incoming: &mut Incoming, bytes: &[u8]) {
        incoming.room()[..bytes.len()].copy_from_slice(bytes);
        incoming.filled(bytes.len());
    }

    fn answer() -> Vec<u8> {
        let mut hello = hello(0, 0);
        hello[..8].copy_from_slice(THEIRS);
        hello.to_vec()
    }

    #[test]
    fn frames_are_found_however_their_bytes_come() {
        let block = Header { kind: BLOCK, port: 3, number: 1 << 40, length: 5 };
        let done = Header { kind: DONE, port: 0, number: 7, length: 0 };
        let bytes = [&answer(), &block.to_bytes()[..], b"bytes", &done.to_bytes()].concat();
        for step in 1..bytes.len() {
            let mut incoming = Incoming::new(5);
            let (mut is_open, mut frames) = (false, Vec::new());
            for part in bytes.chunks(step) {
                fed(&mut incoming, part);
                is_open = is_open || incoming.hello().unwrap();
                if is_open {
                    frames.extend(std::iter::from_fn(|| incoming.next().unwrap()));
                }
            }
            assert_eq!(frames, [(block, "bytes".into()), (done, Bytes::new())]);
            assert!(incoming.is_empty());
        }
    }

    #[test]
    fn a_promise_of_many_bytes_takes_no_memory() {
        let mut incoming = Incoming::new(1 << 30);
        let header = Header { kind: BLOCK, port: 0, number: 0, length: 1 << 30 };
        fed(&mut incoming, &[&header.to_bytes()[..], b"few"].concat());
        assert_eq!(incoming.next(), Ok(None));
        assert!(incoming.body.is_some_and(|(_, bytes)| bytes.capacity() < 100));
    }

    #[test]
    fn violations_of_the_protocol_are_reported() {
        let said = |header: Header| {
            let mut incoming = Incoming::new(1000);
            fed(&mut incoming, &header.to_bytes());
            incoming.next().unwrap_err()
        };
        let frame = |kind, length| Header { kind, port: 0, number: 0, length };
        assert!(said(frame(BLOCK, 4 << 30)).contains("a block of 4294967296 bytes; `largest`"));
        assert!(said(frame(ERROR, u64::MAX)).contains("an error of 18446744073709551615 bytes"));
        assert!(said(frame(DONE, 1)).contains("kind 5 with 1 bytes"));
        for kind in [0, INIT, GENERATE, END, 8, u32::MAX] {
            assert!(said(frame(kind, 0)).contains(&format!("kind {kind}, which no program sends")));
        }
    }

    #[test]
    fn a_missing_hello_is_reported_from_the_first_byte() {
        let said = |bytes: &[u8]| {
            let mut incoming = Incoming::new(1000);
            fed(&mut incoming, bytes);
            incoming.hello()
        };
        assert!(said(b"x").unwrap_err().contains("begins with \"x\""));
        assert!(said(&hello(1, 1)).unwrap_err().contains("\"seekflt>"));
        assert_eq!(said(b"seekf"), Ok(false));
        let mut newer = answer();
        newer[8] = 9;
        assert!(said(&newer).unwrap_err().contains("version 9"));
        newer[8..13].copy_from_slice(&[1, 0, 0, 0, 1]);
        assert!(said(&newer).unwrap_err().contains("must be 0"));
    }

    /// Frames that are nearly right, and bytes that are nothing.
    #[test]
    fn whatever_comes_is_a_frame_or_an_error() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut frames, mut errors) = (0, 0);
        for _ in 0..20_000 {
            let mut incoming = Incoming::new(64);
            let mut bytes = Vec::new();
            for _ in 0..random.usize(1..5) {
                let kind = random.u32(0..9);
                let length = if kind == BLOCK || kind == ERROR { random.u64(0..70) } else { 0 };
                let header = Header { kind, port: random.u32(..), number: random.u64(..), length };
                bytes.extend(header.to_bytes());
                bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length as usize));
            }
            if random.bool() {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            'all: for part in bytes.chunks(random.usize(1..100)) {
                fed(&mut incoming, part);
                while !incoming.is_drained() {
                    match incoming.next() {
                        Ok(Some((header, bytes))) => {
                            assert_eq!(header.length, bytes.len() as u64);
                            frames += 1;
                        }
                        Ok(None) => assert!(incoming.is_drained()),
                        Err(_) => {
                            errors += 1;
                            break 'all;
                        }
                    }
                }
            }
        }
        assert!(frames > 1000 && errors > 1000, "{frames} frames, {errors} errors");
    }
}
