//! A stored tile: compressed bytes, and all that is needed to decode them elsewhere.

use crate::raster::Raster;
use crate::{Error, Limits, Result, jpeg};
use bytes::Bytes;
use std::io::Read;

/// How a tile is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// There are no bytes: the tile was not scanned, and is white.
    Absent,
    /// Not at all.
    Raw,
    /// LZW as in TIFF 6.0.
    Lzw,
    /// zlib.
    Deflate,
    /// JPEG.
    Jpeg,
}

/// What the samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Grey, white is zero.
    Inverted,
    /// Grey, black is zero.
    Grey,
    /// Red, green, blue.
    Rgb,
    /// Luminance and two differences; in JPEG only.
    YCbCr,
}

/// How a tile is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// In pixels, with what lies beyond the border of the level.
    pub width: u32,
    /// In pixels, as `width`.
    pub height: u32,
    /// Its compression.
    pub codec: Codec,
    /// Its colours.
    pub colours: Colours,
    /// Samples of a pixel; more than the colours have are left out.
    pub samples: u8,
    /// Bits of a sample: 8 or 16, of which the upper 8 count.
    pub bits: u8,
    /// Whether each sample is stored as the difference from the one before.
    pub differences: bool,
    /// Whether the upper byte of 16 bits comes first.
    pub big_endian: bool,
}

/// A stored tile. [`to_block`](Self::to_block) makes it a block of bytes, from which a process that
/// does not have the file decodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTile {
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) tables: Bytes,
    pub(crate) bytes: Bytes,
}

const MAGIC: [u8; 4] = *b"SwT\x01";
const HEADER: usize = 4 + 8 + 6 + 12;

impl StoredTile {
    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Its compressed bytes, as they are in the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The tile as a complete JPEG file, without decoding it; `None` if it is not stored as JPEG.
    ///
    /// # Errors
    /// Bytes that are no JPEG, or are one of another size.
    pub fn jpeg(&self) -> Result<Option<Vec<u8>>> {
        if self.layout.codec != Codec::Jpeg {
            return Ok(None);
        }
        let rgb = self.layout.colours == Colours::Rgb
            && !jpeg::header(&self.bytes).is_some_and(|(_, _, adobe)| adobe);
        let whole =
            jpeg::merged(&self.bytes, &self.tables, rgb).map_err(|what| self.broken(what))?;
        match jpeg::header(&whole) {
            Some((width, height, _))
                if width <= self.layout.width && height <= self.layout.height =>
            {
                Ok(Some(whole))
            }
            Some((width, height, _)) => Err(self.broken(format!("its JPEG is {width} x {height}"))),
            None => Err(self.broken("its JPEG header is broken".into())),
        }
    }

    /// Decodes it. The memory that this takes is bounded by `limits` and the layout, whatever the
    /// bytes are.
    ///
    /// # Errors
    /// A tile beyond the limits, and bytes that cannot be decoded.
    pub fn decode(&self, limits: &Limits) -> Result<Raster> {
        let Layout { width, height, codec, samples, bits, .. } = self.layout;
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > limits.tile_pixels {
            let what = format!("a tile of {width} x {height} pixels");
            return Err(Error::Limit { name: self.name.clone(), what });
        }
        let packed = pixels
            .checked_mul(u64::from(samples) * u64::from(bits / 8))
            .filter(|packed| *packed <= limits.tile_pixels.saturating_mul(8))
            .ok_or_else(|| Error::Limit {
                name: self.name.clone(),
                what: format!("{samples} samples of {bits} bits"),
            })? as usize;
        let samples = match codec {
            Codec::Absent => return Ok(Raster::white(width, height)),
            Codec::Jpeg => {
                let whole = self.jpeg()?.unwrap_or_default();
                return jpeg::decode(&whole, width, height).map_err(|what| self.broken(what));
            }
            Codec::Raw => self.bytes[..packed.min(self.bytes.len())].to_vec(),
            Codec::Deflate => {
                let mut samples = Vec::new();
                flate2::read::ZlibDecoder::new(&self.bytes[..])
                    .take(packed as u64)
                    .read_to_end(&mut samples)
                    .map_err(|error| self.broken(error.to_string()))?;
                samples
            }
            Codec::Lzw => {
                let mut samples = vec![0; packed];
                let mut decoder =
                    weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
                let mut done = (0, 0);
                while done.1 < packed {
                    let step = decoder.decode_bytes(&self.bytes[done.0..], &mut samples[done.1..]);
                    done = (done.0 + step.consumed_in, done.1 + step.consumed_out);
                    match step.status.map_err(|error| self.broken(error.to_string()))? {
                        weezl::LzwStatus::Ok if step.consumed_in + step.consumed_out > 0 => {}
                        _ => break,
                    }
                }
                samples.truncate(done.1);
                samples
            }
        };
        if samples.len() < packed {
            return Err(self.broken(format!("{} bytes of {packed}", samples.len())));
        }
        self.unpack(samples)
            .ok_or_else(|| self.broken(format!("a layout that is not read: {:?}", self.layout)))
    }

    fn unpack(&self, mut samples: Vec<u8>) -> Option<Raster> {
        let Layout { width, height, colours, samples: each, bits, big_endian, .. } = self.layout;
        let each = usize::from(each);
        let wide = usize::from(bits / 8);
        if self.layout.differences {
            for row in samples.chunks_exact_mut(width as usize * each * wide) {
                sum(row, each, wide, big_endian);
            }
        }
        let needed = if colours == Colours::Rgb { 3 } else { 1 };
        if each < needed || colours == Colours::YCbCr {
            return None;
        }
        let high = if wide == 2 && !big_endian { 1 } else { 0 };
        let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
        for pixel in samples.chunks_exact(each * wide) {
            let sample = |number: usize| pixel[number * wide + high];
            pixels.extend_from_slice(&match colours {
                Colours::Rgb => [sample(0), sample(1), sample(2)],
                Colours::Inverted => [255 - sample(0); 3],
                _ => [sample(0); 3],
            });
        }
        Raster::new(width, height, pixels)
    }

    fn broken(&self, what: String) -> Error {
        Error::Tile { tile: self.name.clone(), what }
    }

    /// All of it as bytes, for [`from_block`](Self::from_block) of the same version.
    pub fn to_block(&self) -> Vec<u8> {
        let layout = &self.layout;
        let mut block = Vec::with_capacity(HEADER + self.tables.len() + self.bytes.len() + 64);
        block.extend_from_slice(&MAGIC);
        block.extend_from_slice(&layout.width.to_le_bytes());
        block.extend_from_slice(&layout.height.to_le_bytes());
        let codec = match layout.codec {
            Codec::Absent => 0,
            Codec::Raw => 1,
            Codec::Lzw => 2,
            Codec::Deflate => 3,
            Codec::Jpeg => 4,
        };
        let colours = match layout.colours {
            Colours::Inverted => 0,
            Colours::Grey => 1,
            Colours::Rgb => 2,
            Colours::YCbCr => 3,
        };
        block.extend_from_slice(&[codec, colours, layout.samples, layout.bits]);
        block.extend_from_slice(&[u8::from(layout.differences), u8::from(layout.big_endian)]);
        for part in [self.name.as_bytes(), &self.tables, &self.bytes] {
            block.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        block.extend_from_slice(self.name.as_bytes());
        block.extend_from_slice(&self.tables);
        block.extend_from_slice(&self.bytes);
        block
    }

    /// Out of the bytes of [`to_block`](Self::to_block), whose memory the tile shares.
    ///
    /// # Errors
    /// Bytes that are something else.
    pub fn from_block(block: &Bytes) -> Result<Self> {
        Self::parse(block).ok_or_else(|| Error::Argument("the block is not a stored tile".into()))
    }

    fn parse(block: &Bytes) -> Option<Self> {
        let header = block.get(..HEADER)?;
        let word = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let flag = |at: usize| (header[at] < 2).then_some(header[at] == 1);
        let layout = Layout {
            width: word(4)?,
            height: word(8)?,
            codec: *[Codec::Absent, Codec::Raw, Codec::Lzw, Codec::Deflate, Codec::Jpeg]
                .get(usize::from(header[12]))?,
            colours: *[Colours::Inverted, Colours::Grey, Colours::Rgb, Colours::YCbCr]
                .get(usize::from(header[13]))?,
            samples: header[14],
            bits: header[15],
            differences: flag(16)?,
            big_endian: flag(17)?,
        };
        if header[..4] != MAGIC || !matches!(layout.bits, 8 | 16) || layout.samples == 0 {
            return None;
        }
        let name = HEADER + word(18)? as usize;
        let tables = name.checked_add(word(22)? as usize)?;
        let end = tables.checked_add(word(26)? as usize)?;
        if end != block.len() {
            return None;
        }
        Some(Self {
            name: std::str::from_utf8(&block[HEADER..name]).ok()?.to_owned(),
            layout,
            tables: block.slice(name..tables),
            bytes: block.slice(tables..end),
        })
    }
}

/// Undoes the differences of a row.
fn sum(row: &mut [u8], each: usize, wide: usize, big_endian: bool) {
    let step = each * wide;
    for at in (step..row.len()).step_by(wide) {
        if wide == 1 {
            row[at] = row[at].wrapping_add(row[at - step]);
            continue;
        }
        let pair = |at: usize| [row[at], row[at + 1]];
        let sum = if big_endian {
            u16::from_be_bytes(pair(at)).wrapping_add(u16::from_be_bytes(pair(at - step)))
        } else {
            u16::from_le_bytes(pair(at)).wrapping_add(u16::from_le_bytes(pair(at - step)))
        };
        let bytes = if big_endian { sum.to_be_bytes() } else { sum.to_le_bytes() };
        row[at..at + 2].copy_from_slice(&bytes);
    }
}
