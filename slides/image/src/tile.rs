//! A stored tile: compressed bytes, and everything needed to decode them elsewhere.

use crate::codec::Codec;
use crate::raster::Raster;
use crate::samples::{Colours, Layout, Number, Predictor};
use crate::{Error, Limits, Result, jpeg, jpeg2000};
use bytes::Bytes;
use seekwire_turbojpeg::Library;

/// A stored tile. [`to_block`](Self::to_block) serialises it, so that a process without the file
/// can decode it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTile {
    pub(crate) name: String,
    pub(crate) layout: Layout,
    /// How often both sides are halved during decoding, at most [`HALVINGS`] times.
    pub(crate) halvings: u32,
    /// The tables of a JPEG, or the colours of a palette. If a tile of another kind is compressed
    /// in several parts, with equally many samples each: the length of each part, in four bytes; a
    /// part of length zero is absent.
    pub(crate) tables: Bytes,
    pub(crate) bytes: Bytes,
}

const MAGIC: [u8; 4] = *b"SwT\x04";
const HEADER: usize = 64;
/// Offset of the lengths of name, tables and bytes in the header.
const LENGTHS: usize = 52;

/// Maximum halvings of a tile's sides during decoding: to an eighth.
pub const HALVINGS: u32 = 3;

impl StoredTile {
    /// Its layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The same tile, to be decoded with both sides halved so many times, at most [`HALVINGS`]:
    /// pixels are means of 2 x 2, 4 x 4 or 8 x 8 others. Sides that are not a multiple of that lose
    /// the remainder, or get an extra pixel.
    #[must_use]
    pub fn halved(self, halvings: u32) -> Self {
        Self { halvings: halvings.min(HALVINGS), ..self }
    }

    /// Its compressed bytes, as in the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The tile as a complete JPEG file, without decoding it; `None` if it is not stored as JPEG.
    ///
    /// # Errors
    /// Bytes that are not a JPEG, and a JPEG that is larger, or without its end or one of its
    /// colours. Whether its data suffice for all pixels shows only if it is decoded.
    pub fn jpeg(&self) -> Result<Option<Vec<u8>>> {
        if self.layout.codec != Codec::Jpeg {
            return Ok(None);
        }
        let is_rgb = self.layout.colours == Colours::Rgb;
        let whole = jpeg::merged(&self.bytes, &self.tables, is_rgb);
        let whole = whole.map_err(|what| self.broken(what))?;
        let header =
            jpeg::header(&whole).ok_or_else(|| self.broken("its JPEG header is broken"))?;
        let jpeg::JpegHeader { width, height, components, precision, .. } = header;
        if width > self.layout.width || height > self.layout.height {
            return Err(self.broken(format!("its JPEG is {width} x {height}")));
        }
        let needed = self.layout.colours.needed();
        if u16::from(components) != needed || precision != 8 {
            let what = format!("{components} components of {precision} bits");
            return Err(self.broken(format!("its JPEG has {what}, not {needed} of 8")));
        }
        match jpeg::missing(&whole) {
            Some(what) => Err(self.broken(what)),
            None => Ok(Some(whole)),
        }
    }

    /// Decodes the tile. The memory used is bounded by `limits` and the layout, whatever the bytes
    /// are.
    ///
    /// # Errors
    /// A tile beyond the limits, and bytes that cannot be decoded.
    pub fn decode(&self, limits: &Limits) -> Result<Raster> {
        let Layout { width, height, codec, .. } = self.layout;
        self.area(limits)?;
        let raster = match codec {
            Codec::Absent => Raster::filled(width, height, self.layout.absent()),
            Codec::Jpeg => {
                let whole = self.jpeg()?.unwrap_or_default();
                let library = limits.turbojpeg.then(Library::get).and_then(std::result::Result::ok);
                let raster = match library {
                    Some(library) => {
                        jpeg::decode_by(library, &whole, (width, height), self.halvings)
                    }
                    None => jpeg::decode(&whole, width, height)
                        .and_then(|raster| raster.halved(self.halvings).map_err(|e| e.to_string())),
                };
                let raster = raster.map_err(|what| self.broken(what))?;
                return Ok(match self.layout.colours {
                    Colours::Inverted => raster.inverted(),
                    _ => raster,
                });
            }
            Codec::WebP => {
                let most = limits.tile_pixels.saturating_mul(8);
                let pixels = crate::codec::webp(&self.bytes, (width, height), most);
                let pixels = pixels.map_err(|what| self.broken(what))?;
                let wrong = || self.broken("its WebP does not have the expected size");
                Raster::new(width, height, pixels).ok_or_else(wrong)?
            }
            _ => {
                let samples = self.samples(limits)?;
                let wrong = || self.broken(format!("an unsupported layout: {:?}", self.layout));
                self.layout.unpacked().pixels(samples, &self.tables).ok_or_else(wrong)?
            }
        };
        raster.halved(self.halvings)
    }

    /// The smallest and largest finite value among the pixels to the left of and above `inside`;
    /// `None` if there are none.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub(crate) fn extremes(
        &self,
        limits: &Limits,
        inside: (u32, u32),
    ) -> Result<Option<(f64, f64)>> {
        self.area(limits)?;
        match self.layout.codec {
            Codec::Absent => Ok(None),
            _ => Ok(self.layout.extremes(&self.samples(limits)?, inside)),
        }
    }

    /// The samples of all its channels, of at least a byte each. A JPEG has one of 8 bits per
    /// pixel.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); also compression that stores colours.
    pub(crate) fn values(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.area(limits)?;
        match self.layout.codec {
            Codec::Jpeg => {
                let raster = Self { halvings: 0, ..self.clone() }.decode(limits)?;
                Ok(raster.pixels().iter().step_by(3).copied().collect())
            }
            _ => self.samples(limits),
        }
    }

    /// Checks the number of pixels.
    fn area(&self, limits: &Limits) -> Result<()> {
        let Layout { width, height, .. } = self.layout;
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > limits.tile_pixels {
            let what = format!("a tile of {width} x {height} pixels");
            return Err(Error::Limit { name: self.name.clone(), what });
        }
        Ok(())
    }

    /// Samples as they were before compression, of at least a byte each.
    fn samples(&self, limits: &Limits) -> Result<Vec<u8>> {
        let Layout { samples, bits, .. } = self.layout;
        let packed = self.layout.packed().filter(|packed| {
            let whole = packed.saturating_mul(if bits < 8 { u64::from(8 / bits) } else { 1 });
            whole <= limits.tile_pixels.saturating_mul(8)
        });
        let packed = packed.ok_or_else(|| Error::Limit {
            name: self.name.clone(),
            what: format!("{samples} samples of {bits} bits"),
        })?;
        let unpacked = self.unpacked(packed as usize, limits).map_err(|what| self.broken(what))?;
        Ok(self.layout.restored(unpacked))
    }

    /// Decompresses all parts.
    fn unpacked(&self, packed: usize, limits: &Limits) -> std::result::Result<Vec<u8>, String> {
        let codec = self.layout.codec;
        if codec == Codec::Jpeg2000 {
            let most = limits.tile_pixels.saturating_mul(8);
            return jpeg2000::decode(&self.bytes, &self.layout, most)
                .map_err(|what| format!("its JPEG 2000: {what}"));
        }
        if codec == Codec::Rle {
            let Layout { samples, bits, .. } = self.layout;
            return crate::codec::rle(&self.bytes, samples.into(), usize::from(bits / 8), packed);
        }
        let unpack = |bytes: &[u8], length: usize| match self.layout.reversed {
            true => {
                let bytes: Vec<u8> = bytes.iter().map(|byte| byte.reverse_bits()).collect();
                codec.unpack(&bytes, length)
            }
            false => codec.unpack(bytes, length),
        };
        if self.tables.is_empty() || self.layout.colours == Colours::Palette {
            return unpack(&self.bytes, packed);
        }
        let each = packed / (self.tables.len() / 4).max(1);
        let mut samples = Vec::with_capacity(packed);
        let mut at = 0_usize;
        for length in self.tables.chunks_exact(4) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let part = at.checked_add(length).and_then(|end| self.bytes.get(at..end));
            let part = part.ok_or("a part of it is missing")?;
            at += length;
            match length {
                0 => {
                    let fill = self.layout.bytes(self.layout.fill);
                    samples.extend(fill.iter().cycle().take(each));
                }
                _ => samples.extend(unpack(part, each)?),
            }
        }
        if samples.len() != packed {
            return Err(format!("{} bytes of {packed}", samples.len()));
        }
        Ok(samples)
    }

    fn broken(&self, what: impl Into<String>) -> Error {
        Error::Tile { tile: self.name.clone(), what: what.into() }
    }

    /// Serialises the tile for [`from_block`](Self::from_block) of the same version.
    pub fn to_block(&self) -> Vec<u8> {
        let layout = &self.layout;
        let mut block = Vec::with_capacity(HEADER + self.tables.len() + self.bytes.len() + 64);
        block.extend_from_slice(&MAGIC);
        block.extend_from_slice(&layout.width.to_le_bytes());
        block.extend_from_slice(&layout.height.to_le_bytes());
        let index = |position: Option<usize>| position.unwrap_or(0) as u8;
        block.extend([
            index(Codec::ALL.iter().position(|codec| *codec == layout.codec)),
            layout.colours.to_byte(),
            index(Number::ALL.iter().position(|number| *number == layout.number)),
            layout.bits,
            index(Predictor::ALL.iter().position(|predictor| *predictor == layout.predictor)),
            self.halvings as u8,
        ]);
        block.extend(layout.samples.to_le_bytes());
        let flags = [layout.big_endian, layout.reversed, layout.planes, layout.window.is_some()];
        block.extend(flags.map(u8::from));
        let (black, white) = layout.window.unwrap_or_default();
        block.extend([layout.fill, black, white].map(f64::to_le_bytes).concat());
        block.resize(LENGTHS, 0);
        for part in [self.name.as_bytes(), &self.tables, &self.bytes] {
            block.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        block.extend_from_slice(self.name.as_bytes());
        block.extend_from_slice(&self.tables);
        block.extend_from_slice(&self.bytes);
        block
    }

    /// Parses the bytes from [`to_block`](Self::to_block), and shares their memory.
    ///
    /// # Errors
    /// Bytes that are not such a block.
    pub fn from_block(block: &Bytes) -> Result<Self> {
        Self::parse(block).ok_or_else(|| Error::Argument("the block is not a stored tile".into()))
    }

    fn parse(block: &Bytes) -> Option<Self> {
        let header = block.get(..HEADER)?;
        let word = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let number = |at: usize| Some(f64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let flag = |at: usize| (header[at] < 2).then_some(header[at] == 1);
        let layout = Layout {
            width: word(4)?,
            height: word(8)?,
            codec: *Codec::ALL.get(usize::from(header[12]))?,
            colours: Colours::from_byte(header[13])?,
            number: *Number::ALL.get(usize::from(header[14]))?,
            bits: header[15],
            predictor: *Predictor::ALL.get(usize::from(header[16]))?,
            samples: u16::from_le_bytes([header[18], header[19]]),
            big_endian: flag(20)?,
            reversed: flag(21)?,
            planes: flag(22)?,
            window: if flag(23)? { Some((number(32)?, number(40)?)) } else { None },
            fill: number(24)?,
        };
        let halvings = u32::from(header[17]);
        let is_window = |(black, white): (f64, f64)| black < white && (white - black).is_finite();
        let broken = halvings > HALVINGS
            || !layout.number.has(layout.bits)
            || layout.samples == 0
            || !layout.window.is_none_or(is_window);
        if header[..4] != MAGIC || broken {
            return None;
        }
        let name = HEADER + word(LENGTHS)? as usize;
        let tables = name.checked_add(word(LENGTHS + 4)? as usize)?;
        let end = tables.checked_add(word(LENGTHS + 8)? as usize)?;
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
