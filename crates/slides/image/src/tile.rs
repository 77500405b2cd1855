//! A stored tile: compressed bytes, and all that is needed to decode them elsewhere.

use crate::codec::Codec;
use crate::raster::Raster;
use crate::{Error, Limits, Result, jpeg};
use bytes::Bytes;
use seekwire_turbojpeg::Library;

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
    /// Bits of a sample: 8 or 16, of which the upper 8 count if there is no `window`.
    pub bits: u8,
    /// Whether each sample is stored as the difference from the one before.
    pub differences: bool,
    /// Whether the upper byte of 16 bits comes first.
    pub big_endian: bool,
    /// Whether the samples are in planes, one after the other, and not beside each other.
    pub planes: bool,
    /// The values that are shown as black and as white, where these are not the least and the
    /// largest ones that the bits can have. The first is less than the second.
    pub window: Option<(u16, u16)>,
    /// The value of all samples of what is absent.
    pub fill: u16,
}

impl Layout {
    /// A value on the scale from 0 to 255.
    fn brightness(&self, value: u16) -> u8 {
        let seen = match (self.window, self.bits) {
            (Some((black, white)), _) => {
                let (range, above) = (u32::from(white - black), value.clamp(black, white) - black);
                ((u32::from(above) * 255 + range / 2) / range) as u8
            }
            (None, 8) => value as u8,
            (None, _) => (value >> 8) as u8,
        };
        if self.colours == Colours::Inverted { 255 - seen } else { seen }
    }
}

/// A stored tile. [`to_block`](Self::to_block) makes it a block of bytes, from which a process that
/// does not have the file decodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTile {
    pub(crate) name: String,
    pub(crate) layout: Layout,
    /// How often both sides are halved when it is decoded, [`HALVINGS`] times at most.
    pub(crate) halvings: u32,
    /// The tables of a JPEG. Of what is no JPEG and is compressed in several parts, of as many
    /// samples each: the length of each part, in four bytes; a part of no bytes is absent.
    pub(crate) tables: Bytes,
    pub(crate) bytes: Bytes,
}

const MAGIC: [u8; 4] = *b"SwT\x03";
const HEADER: usize = 4 + 8 + 8 + 6 + 12 + 1;

/// The most that the sides of a tile can be halved when it is decoded: to an eighth.
pub const HALVINGS: u32 = 3;

impl StoredTile {
    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The same tile, of which both sides are halved so many times when it is decoded, [`HALVINGS`] at
    /// most: pixels are means of 2 x 2, 4 x 4 or 8 x 8 others. Sides that are no multiple of that
    /// lose what is over, or get a pixel more.
    #[must_use]
    pub fn halved(self, halvings: u32) -> Self {
        Self { halvings: halvings.min(HALVINGS), ..self }
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
        let raster = match codec {
            Codec::Absent => {
                let fill = self.layout.brightness(self.layout.fill);
                Raster::filled(width, height, fill)
            }
            Codec::Jpeg => {
                let whole = self.jpeg()?.unwrap_or_default();
                if let Some(library) =
                    limits.turbojpeg.then(Library::get).and_then(std::result::Result::ok)
                {
                    let raster = jpeg::decode_by(library, &whole, (width, height), self.halvings);
                    return raster.map_err(|what| self.broken(what));
                }
                jpeg::decode(&whole, width, height).map_err(|what| self.broken(what))?
            }
            _ => {
                let samples = self.samples(packed).map_err(|what| self.broken(what))?;
                let wrong = || self.broken(format!("a layout that is not read: {:?}", self.layout));
                self.pixels(samples).ok_or_else(wrong)?
            }
        };
        raster.halved(self.halvings)
    }

    /// Decompresses all parts.
    fn samples(&self, packed: usize) -> std::result::Result<Vec<u8>, String> {
        let codec = self.layout.codec;
        if self.tables.is_empty() {
            return codec.unpack(&self.bytes, packed);
        }
        let each = packed / (self.tables.len() / 4).max(1);
        let mut samples = Vec::with_capacity(packed);
        let mut at = 0;
        for length in self.tables.chunks_exact(4) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let part = self.bytes.get(at..at + length).ok_or("a part of it is missing")?;
            at += length;
            if length > 0 {
                samples.extend(codec.unpack(part, each)?);
            } else if self.layout.bits == 8 {
                samples.resize(samples.len() + each, self.layout.fill as u8);
            } else {
                let fill = self.layout.fill;
                let fill =
                    if self.layout.big_endian { fill.to_be_bytes() } else { fill.to_le_bytes() };
                samples.extend(fill.iter().cycle().take(each));
            }
        }
        if samples.len() != packed {
            return Err(format!("{} bytes of {packed}", samples.len()));
        }
        Ok(samples)
    }

    fn pixels(&self, mut samples: Vec<u8>) -> Option<Raster> {
        let layout = &self.layout;
        let Layout { width, height, samples: each, .. } = *layout;
        let each = usize::from(each);
        let wide = usize::from(layout.bits / 8);
        if layout.differences {
            for row in samples.chunks_exact_mut(width as usize * each * wide) {
                sum(row, each, wide, layout.big_endian);
            }
        }
        let needed = if layout.colours == Colours::Rgb { 3 } else { 1 };
        if each < needed || layout.colours == Colours::YCbCr {
            return None;
        }
        let plain = layout.window.is_none() && !layout.planes;
        if plain && needed == 3 && (each, wide) == (3, 1) {
            return Raster::new(width, height, samples);
        }
        let all = width as usize * height as usize;
        // From a pixel to the next, and from a sample to the next.
        let (next, across) = if layout.planes { (wide, all * wide) } else { (each * wide, wide) };
        let value = |at: usize| {
            layout.brightness(match (wide, layout.big_endian) {
                (1, _) => samples[at].into(),
                (_, true) => u16::from_be_bytes([samples[at], samples[at + 1]]),
                (_, false) => u16::from_le_bytes([samples[at], samples[at + 1]]),
            })
        };
        let mut pixels = Vec::with_capacity(all * 3);
        for at in (0..all).map(|pixel| pixel * next) {
            pixels.extend_from_slice(&if needed == 3 {
                [value(at), value(at + across), value(at + 2 * across)]
            } else {
                [value(at); 3]
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
        let codec = Codec::ALL.iter().position(|codec| *codec == layout.codec).unwrap_or(0) as u8;
        let colours = match layout.colours {
            Colours::Inverted => 0,
            Colours::Grey => 1,
            Colours::Rgb => 2,
            Colours::YCbCr => 3,
        };
        block.extend_from_slice(&[codec, colours, layout.samples, layout.bits]);
        let flags = [layout.differences, layout.big_endian, layout.planes, layout.window.is_some()];
        block.extend(flags.map(u8::from));
        let (black, white) = layout.window.unwrap_or_default();
        block.extend([layout.fill, black, white].map(u16::to_le_bytes).concat());
        block.push(self.halvings as u8);
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
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let flag = |at: usize| (header[at] < 2).then_some(header[at] == 1);
        let layout = Layout {
            width: word(4)?,
            height: word(8)?,
            codec: *Codec::ALL.get(usize::from(header[12]))?,
            colours: *[Colours::Inverted, Colours::Grey, Colours::Rgb, Colours::YCbCr]
                .get(usize::from(header[13]))?,
            samples: header[14],
            bits: header[15],
            differences: flag(16)?,
            big_endian: flag(17)?,
            planes: flag(18)?,
            window: flag(19)?.then_some((half(22), half(24))),
            fill: half(20),
        };
        let halvings = u32::from(header[26]);
        let broken = halvings > HALVINGS
            || !matches!(layout.bits, 8 | 16)
            || layout.samples == 0
            || layout.window.is_some_and(|(black, white)| black >= white);
        if header[..4] != MAGIC || broken {
            return None;
        }
        let name = HEADER + word(27)? as usize;
        let tables = name.checked_add(word(31)? as usize)?;
        let end = tables.checked_add(word(35)? as usize)?;
        if end != block.len() {
            return None;
        }
        Some(Self {
            name: std::str::from_utf8(&block[HEADER..name]).ok()?.to_owned(),
            layout,
            halvings,
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
