//! gzip and Zstandard, compression and decompression. The coders write into a buffer, from which
//! blocks are sent.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::GzDecoder;
use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports};
use zstd::stream::raw::{self, InBuffer, Operation, OutBuffer};

use super::built_filter::BuiltFilter;
use super::members::{ENOUGH, Format, Members};
use crate::options::{Fault, OptionTable};

pub(super) fn gzip(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let level = level(options, 0..=9, 6)?;
    Ok(coder(move || {
        Ok(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level)))
    }))
}

pub(super) fn gunzip(_: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    Ok(coder(|| Ok(Members::new(Gunzip(GzDecoder::new(Vec::new()))))))
}

pub(super) fn zstd(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let level = level(options, 1..=19, 3)?;
    Ok(coder(move || zstd::stream::write::Encoder::new(Vec::new(), level as i32)))
}

pub(super) fn unzstd(_: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    Ok(coder(|| Ok(Members::new(Unzstd { decoder: raw::Decoder::new()?, buffer: Vec::new() }))))
}

fn level(
    options: &mut OptionTable<'_>,
    range: std::ops::RangeInclusive<u32>,
    default: u32,
) -> Result<u32, Fault> {
    let Some(level) = options.number("level")? else { return Ok(default) };
    let level = u32::try_from(level).ok().filter(|level| range.contains(level));
    level.ok_or_else(|| {
        (options.span(), format!("level must be {} to {}", range.start(), range.end()))
    })
}

fn coder<C: Coder + Send + 'static>(
    make: impl Fn() -> io::Result<C> + Send + Sync + Clone + 'static,
) -> BuiltFilter {
    // The state of a stream is one: copies would each see a part.
    BuiltFilter::new(Ports::step(), move || Coding { make: make.clone(), coder: None }).alone()
}

/// A compressor or decompressor: takes bytes, and appends its output to a buffer.
trait Coder: Write {
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// The rest of the buffer, and how many bytes follow the data without belonging to it.
    fn end(self) -> io::Result<(Vec<u8>, u64)>;
}

impl Coder for flate2::write::GzEncoder<Vec<u8>> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }
    fn end(self) -> io::Result<(Vec<u8>, u64)> {
        Ok((self.finish()?, 0))
    }
}

impl Coder for zstd::stream::write::Encoder<'static, Vec<u8>> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }
    fn end(self) -> io::Result<(Vec<u8>, u64)> {
        Ok((self.finish()?, 0))
    }
}

impl<F: Format> Write for Members<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.decode(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: Format> Coder for Members<F> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        Members::buffer(self)
    }
    fn end(mut self) -> io::Result<(Vec<u8>, u64)> {
        let behind = Members::end(&mut self)?;
        Ok((std::mem::take(self.buffer()), behind))
    }
}

/// The decoder of one member.
struct Gunzip(GzDecoder<Vec<u8>>);

impl Format for Gunzip {
    const MAGIC: usize = 2;

    fn can_begin(bytes: &[u8]) -> bool {
        [0x1f, 0x8b].starts_with(bytes)
    }

    fn begin(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(self.0.get_mut());
        self.0 = GzDecoder::new(buffer);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        // Once it has the checksum, it takes no more.
        let consumed = self.0.write(bytes)?;
        if consumed == 0 {
            self.0.try_finish()?;
        }
        Ok((consumed, consumed == 0))
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.try_finish()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        self.0.get_mut()
    }
}

/// Unlike the decoders for writing that the crate has, it reports where a frame ends.
struct Unzstd {
    decoder: raw::Decoder<'static>,
    buffer: Vec<u8>,
}

impl Format for Unzstd {
    const MAGIC: usize = 4;

    /// True if these bytes can begin a frame or a skippable frame.
    fn can_begin(bytes: &[u8]) -> bool {
        let skipped = |number: u8| [number, 0x2a, 0x4d, 0x18].starts_with(bytes);
        [0x28, 0xb5, 0x2f, 0xfd].starts_with(bytes) || (0x50..=0x5f).any(skipped)
    }

    fn begin(&mut self) -> io::Result<()> {
        self.decoder.reinit()
    }

    fn decode(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        let mut input = InBuffer::around(bytes);
        loop {
            self.buffer.reserve(zstd::zstd_safe::DCtx::out_size());
            let at = self.buffer.len();
            let mut output = OutBuffer::around_pos(&mut self.buffer, at);
            let is_end = self.decoder.run(&mut input, &mut output)? == 0;
            let is_full = output.pos() == output.capacity();
            let is_all = input.pos() == bytes.len();
            // While there is more input, the next call gets the rest of a block from the decoder.
            let is_enough = !is_all && self.buffer.len() >= ENOUGH;
            if is_end || is_enough || !is_full && is_all {
                return Ok((input.pos(), is_end));
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete frame"))
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }
}

struct Coding<M, C> {
    make: M,
    coder: Option<C>,
}

/// Bytes of a block to code at once.
const AT_ONCE: usize = 4096;

/// A buffer larger than this is not kept for the next block.
const KEPT: usize = 256 << 10;

/// Takes the content of the buffer. A small buffer stays allocated.
fn take_buffer(buffer: &mut Vec<u8>) -> Bytes {
    if buffer.capacity() > KEPT {
        return std::mem::take(buffer).into();
    }
    let bytes = Bytes::copy_from_slice(buffer);
    buffer.clear();
    bytes
}

impl<M, C> Filter for Coding<M, C>
where
    M: Fn() -> io::Result<C> + Send,
    C: Coder + Send,
{
    fn init(&mut self, _: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.coder = Some((self.make)()?);
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let Some(coder) = &mut self.coder else { return Ok(()) };
        let mut rest = &block[..];
        while !rest.is_empty() {
            let taken = coder.write(&rest[..rest.len().min(AT_ONCE)])?;
            rest = &rest[taken..];
            let made = take_buffer(coder.buffer());
            if !made.is_empty() {
                out.send(0, made)?;
            }
        }
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let Some(coder) = self.coder.take() else { return Ok(()) };
        let (rest, behind) = coder.end()?;
        if !rest.is_empty() {
            out.send(0, rest)?;
        }
        if behind > 0 {
            out.reject(&format!(
                "the data are complete; {behind} bytes of trailing garbage ignored"
            ));
        }
        Ok(())
    }
}
