//! Decompression without loss, into a bounded number of bytes.

use crate::blosc;
use std::io::Read;

/// How a tile is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// There are no bytes: the tile was not scanned, and has one colour.
    Absent,
    /// Not at all.
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
}

impl Codec {
    /// All of them; each has the number of its place in the bytes of a stored tile.
    pub(crate) const ALL: [Self; 9] = [
        Self::Absent,
        Self::Raw,
        Self::Lzw,
        Self::Deflate,
        Self::Jpeg,
        Self::Gzip,
        Self::Zstd,
        Self::Lz4,
        Self::Blosc,
    ];

    /// The first `length` bytes of what is compressed. More are not unpacked, or are an error.
    pub(crate) fn unpack(self, bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
        let unpacked = match self {
            Self::Absent | Self::Jpeg => return Err("it is no sequence of samples".into()),
            Self::Raw => bytes[..length.min(bytes.len())].to_vec(),
            Self::Deflate => all(flate2::read::ZlibDecoder::new(bytes), length)?,
            Self::Gzip => all(flate2::read::MultiGzDecoder::new(bytes), length)?,
            Self::Lzw => lzw(bytes, length)?,
            Self::Zstd => {
                zstd::bulk::decompress(bytes, length).map_err(|error| error.to_string())?
            }
            Self::Lz4 => lz4(bytes.get(4..).ok_or("it has no length")?, length)?,
            Self::Blosc => blosc::unpack(bytes, length)?,
        };
        if unpacked.len() < length {
            return Err(format!("{} bytes of {length}", unpacked.len()));
        }
        Ok(unpacked)
    }
}

fn all(decoder: impl Read, length: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    decoder.take(length as u64).read_to_end(&mut unpacked).map_err(|error| error.to_string())?;
    Ok(unpacked)
}

/// One block of at most `length` bytes.
pub(crate) fn lz4(bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
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
