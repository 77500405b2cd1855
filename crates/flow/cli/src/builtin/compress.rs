//! gzip and Zstandard, both ways. The coders write into a buffer, from which blocks are sent.

use std::io::Write;

use bytes::Bytes;
use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports};

use zstd::stream::{raw, zio};

use super::Built;
use crate::options::{Fault, Options};

pub(super) fn gzip(options: &mut Options<'_>) -> Result<Built, Fault> {
    let level = level(options, 0..=9, 6)?;
    Ok(coder(move || {
        Ok(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level)))
    }))
}

pub(super) fn gunzip(_: &mut Options<'_>) -> Result<Built, Fault> {
    Ok(coder(|| Ok(flate2::write::MultiGzDecoder::new(Vec::new()))))
}

pub(super) fn zstd(options: &mut Options<'_>) -> Result<Built, Fault> {
    let level = level(options, 1..=19, 3)?;
    Ok(coder(move || zstd::stream::write::Encoder::new(Vec::new(), level as i32)))
}

pub(super) fn unzstd(_: &mut Options<'_>) -> Result<Built, Fault> {
    Ok(coder(|| Ok(Unzstd::new(Vec::new(), raw::Decoder::new()?))))
}

fn level(
    options: &mut Options<'_>,
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
    make: impl Fn() -> std::io::Result<C> + Send + Sync + Clone + 'static,
) -> Built {
    // The state of a stream is one: copies would each see a part.
    Built::new(Ports::step(), move || Coding { make: make.clone(), coder: None }).alone()
}

/// What takes bytes and puts others into a buffer.
trait Coder: Write {
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// The rest of the buffer.
    fn end(self) -> std::io::Result<Vec<u8>>;
}

impl Coder for flate2::write::GzEncoder<Vec<u8>> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }
    fn end(self) -> std::io::Result<Vec<u8>> {
        self.finish()
    }
}

impl Coder for flate2::write::MultiGzDecoder<Vec<u8>> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }
    fn end(self) -> std::io::Result<Vec<u8>> {
        self.finish()
    }
}

impl Coder for zstd::stream::write::Encoder<'static, Vec<u8>> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }
    fn end(self) -> std::io::Result<Vec<u8>> {
        self.finish()
    }
}

/// Unlike the decoder that the crate offers for writing, it tells a frame that is not whole.
type Unzstd = zio::Writer<Vec<u8>, raw::Decoder<'static>>;

impl Coder for Unzstd {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.writer_mut()
    }
    fn end(mut self) -> std::io::Result<Vec<u8>> {
        self.finish()?;
        Ok(self.into_inner().0)
    }
}

struct Coding<M, C> {
    make: M,
    coder: Option<C>,
}

/// So much of a block is coded at once: a small block may become a very large one.
const AT_ONCE: usize = 4096;

/// A larger buffer is not kept for what comes next.
const KEPT: usize = 256 << 10;

/// What is in the buffer, of which only the room is left.
fn taken(buffer: &mut Vec<u8>) -> Bytes {
    if buffer.capacity() > KEPT {
        return std::mem::take(buffer).into();
    }
    let bytes = Bytes::copy_from_slice(buffer);
    buffer.clear();
    bytes
}

impl<M, C> Filter for Coding<M, C>
where
    M: Fn() -> std::io::Result<C> + Send,
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
        for part in block.chunks(AT_ONCE) {
            coder.write_all(part)?;
            let made = taken(coder.buffer());
            if !made.is_empty() {
                out.send(0, made)?;
            }
        }
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let Some(coder) = self.coder.take() else { return Ok(()) };
        let rest = coder.end()?;
        if !rest.is_empty() {
            out.send(0, rest)?;
        }
        Ok(())
    }
}
