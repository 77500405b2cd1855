//! Decompression into a bounded number of bytes, except JPEG and JPEG 2000.

use crate::blosc;
use std::io::{Cursor, Read};

/// How a tile is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// The tile was not scanned: it has no bytes, and one colour.
    Absent,
    /// Uncompressed.
    Raw,
    /// LZW as in TIFF 6.0.
    Lzw,
    /// zlib.
    Deflate,
    /// JPEG.
    Jpeg,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// One block of LZ4, after its length.
    Lz4,
    /// Blosc, version 1.
    Blosc,
    /// PackBits, of TIFF.
    PackBits,
    /// LZMA2 in a file of xz.
    Lzma,
    /// WebP.
    WebP,
    /// RLE, of DICOM.
    Rle,
    /// A codestream of JPEG 2000.
    Jpeg2000,
}

impl Codec {
    /// All codecs; a stored tile names its codec by the position in this list.
    pub(crate) const ALL: [Self; 14] = [
        Self::Absent,
        Self::Raw,
        Self::Lzw,
        Self::Deflate,
        Self::Jpeg,
        Self::Gzip,
        Self::Zstd,
        Self::Lz4,
        Self::Blosc,
        Self::PackBits,
        Self::Lzma,
        Self::WebP,
        Self::Rle,
        Self::Jpeg2000,
    ];

    /// The first `length` bytes after decompression. Further bytes are ignored, or are an error.
    pub(crate) fn unpack(self, bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
        let unpacked = match self {
            Self::Absent | Self::Jpeg | Self::WebP | Self::Rle | Self::Jpeg2000 => {
                return Err("its codec does not store plain samples".into());
            }
            Self::Raw => bytes[..length.min(bytes.len())].to_vec(),
            Self::Deflate => deflate(bytes, length)?,
            Self::Gzip => all(flate2::bufread::MultiGzDecoder::new(bytes), length)?,
            Self::Lzw => lzw(bytes, length)?,
            Self::Zstd => {
                zstd::bulk::decompress(bytes, length).map_err(|error| error.to_string())?
            }
            Self::Lz4 => lz4(bytes.get(4..).ok_or("it has no length")?, length)?,
            Self::Blosc => blosc::unpack(bytes, length, blosc_stream)?,
            Self::PackBits => packbits(bytes, length),
            Self::Lzma => {
                all(lzma_rust2::XzReader::new_mem_limit(bytes, false, LZMA_MEMORY), length)?
            }
        };
        if unpacked.len() < length {
            return Err(format!("{} bytes of {length}", unpacked.len()));
        }
        Ok(unpacked)
    }
}

/// Memory for LZMA in KiB: the strongest preset of xz needs this much, with a dictionary of 64 MiB.
const LZMA_MEMORY: u32 = 66 << 10;

/// Room made at first, in bytes, for a tile that may have none of them.
const AT_ONCE: usize = 1 << 20;

fn all(decoder: impl Read, length: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::with_capacity(length.min(AT_ONCE));
    decoder.take(length as u64).read_to_end(&mut unpacked).map_err(|error| error.to_string())?;
    Ok(unpacked)
}

/// libdeflate takes half to two thirds of the time, but refuses a stream that is longer, has another
/// checksum or is cut off.
fn deflate(bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = vec![0; length];
    match libdeflater::Decompressor::new().zlib_decompress(bytes, &mut unpacked) {
        Ok(filled) => {
            unpacked.truncate(filled);
            Ok(unpacked)
        }
        Err(_) => all(flate2::bufread::ZlibDecoder::new(bytes), length),
    }
}

fn blosc_stream(format: u8, bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
    match format {
        1 => lz4(bytes, length),
        3 => Codec::Deflate.unpack(bytes, length),
        4 => Codec::Zstd.unpack(bytes, length),
        2 => Err("Blosc with Snappy, which is not supported".into()),
        _ => Err("Blosc with an unknown compressor".into()),
    }
}

/// One block of at most `length` bytes.
fn lz4(bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = vec![0; length];
    let filled = lz4_flex::block::decompress_into(bytes, &mut unpacked)
        .map_err(|error| error.to_string())?;
    unpacked.truncate(filled);
    Ok(unpacked)
}

fn lzw(bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = vec![0; length];
    let mut decoder = weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
    let mut done = (0, 0);
    while done.1 < length {
        let step = decoder.decode_bytes(&bytes[done.0..], &mut unpacked[done.1..]);
        done = (done.0 + step.consumed_in, done.1 + step.consumed_out);
        match step.status.map_err(|error| error.to_string())? {
            weezl::LzwStatus::Ok if step.consumed_in + step.consumed_out > 0 => {}
            _ => break,
        }
    }
    unpacked.truncate(done.1);
    Ok(unpacked)
}

/// Runs of one byte, and of literal bytes (TIFF 6.0, section 9).
fn packbits(mut bytes: &[u8], length: usize) -> Vec<u8> {
    let mut unpacked = Vec::with_capacity(length);
    while let [count, rest @ ..] = bytes {
        if unpacked.len() >= length {
            break;
        }
        bytes = match (count, rest) {
            (128, _) => rest,
            (129.., [byte, rest @ ..]) => {
                unpacked.resize(unpacked.len() + 257 - usize::from(*count), *byte);
                rest
            }
            (129.., []) => rest,
            _ => {
                let (run, rest) = rest.split_at(rest.len().min(usize::from(*count) + 1));
                unpacked.extend_from_slice(run);
                rest
            }
        };
    }
    unpacked.truncate(length);
    unpacked
}

/// Decodes RLE (DICOM PS3.5, annex G) into planes of samples of `wide` bytes each, the lowest byte
/// first. The input has a header of 16 numbers (how many segments there are, and where each
/// begins), then a PackBits segment for each byte of a sample, the highest first.
pub(crate) fn rle(
    bytes: &[u8],
    planes: usize,
    wide: usize,
    length: usize,
) -> Result<Vec<u8>, String> {
    let count = planes * wide;
    let (header, _) = bytes.split_at_checked(64).ok_or("its RLE has no header")?;
    let mut numbers = header
        .chunks_exact(4)
        .map(|number| u32::from_le_bytes([number[0], number[1], number[2], number[3]]) as usize);
    let segments = numbers.next().unwrap_or(0);
    if segments != count || count > 15 {
        return Err(format!("its RLE has {segments} segments, its samples {count} bytes"));
    }
    let starts: Vec<usize> = numbers.take(count).chain([bytes.len()]).collect();
    let each = length / count;
    let mut samples = vec![0; length];
    for (number, bounds) in starts.windows(2).enumerate() {
        let segment = Some(bounds[0]).filter(|start| *start >= 64);
        let segment = segment.and_then(|start| bytes.get(start..bounds[1]));
        let unpacked = packbits(segment.ok_or("segments of its RLE are out of place")?, each);
        if unpacked.len() < each {
            return Err(format!("a segment of {} bytes of {each}", unpacked.len()));
        }
        let (plane, byte) = (number / wide, wide - 1 - number % wide);
        let into = samples[plane * each * wide + byte..].iter_mut().step_by(wide);
        into.zip(unpacked).for_each(|(into, byte)| *into = byte);
    }
    Ok(samples)
}

/// Red, green and blue of a WebP image of exactly this size.
pub(crate) fn webp(bytes: &[u8], size: (u32, u32), most: u64) -> Result<Vec<u8>, String> {
    let wrong = |error: image_webp::DecodingError| error.to_string();
    let mut decoder = image_webp::WebPDecoder::new(Cursor::new(bytes)).map_err(wrong)?;
    if decoder.dimensions() != size || decoder.is_animated() {
        let (width, height) = decoder.dimensions();
        return Err(format!("its WebP is {width} x {height}, the tile {} x {}", size.0, size.1));
    }
    decoder.set_memory_limit(usize::try_from(most).unwrap_or(usize::MAX));
    let length = decoder.output_buffer_size().ok_or("its WebP has no size")?;
    let mut pixels = vec![0; length];
    decoder.read_image(&mut pixels).map_err(wrong)?;
    if decoder.has_alpha() {
        pixels = pixels.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    }
    Ok(pixels)
}
