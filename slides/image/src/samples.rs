//! Samples as they are stored, and their appearance.

use crate::raster::Raster;

/// The colours that samples stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Grey, white is zero.
    Inverted,
    /// Grey, black is zero.
    Grey,
    /// Red, green, blue.
    Rgb,
    /// Luminance and two differences, as in JPEG.
    YCbCr,
    /// The same without JPEG (TIFF 6.0, section 21): units of `across` x `down` values of luminance
    /// and one of each difference.
    Units {
        /// From 1 to 4.
        across: u8,
        /// From 1 to 4.
        down: u8,
    },
    /// Indices into a table of colours, which is in the tables of the tile: three bytes each.
    Palette,
    /// Cyan, magenta, yellow, black; zero is no ink.
    Cmyk,
}

impl Colours {
    /// Number of samples per pixel that are shown.
    pub(crate) fn needed(self) -> u16 {
        match self {
            Self::Inverted | Self::Grey | Self::Palette => 1,
            Self::Rgb | Self::YCbCr | Self::Units { .. } => 3,
            Self::Cmyk => 4,
        }
    }

    /// The encoding in a stored tile.
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Inverted => 0,
            Self::Grey => 1,
            Self::Rgb => 2,
            Self::YCbCr => 3,
            Self::Palette => 4,
            Self::Cmyk => 5,
            Self::Units { across, down } => 0x80 | across << 3 | down,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Inverted,
            1 => Self::Grey,
            2 => Self::Rgb,
            3 => Self::YCbCr,
            4 => Self::Palette,
            5 => Self::Cmyk,
            0x80.. => {
                let (across, down) = (byte >> 3 & 7, byte & 7);
                let is_one = |side| matches!(side, 1 | 2 | 4);
                (is_one(across) && is_one(down) && byte & 0x40 == 0)
                    .then_some(Self::Units { across, down })?
            }
            _ => return None,
        })
    }
}

/// The number type of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// An unsigned integer of 1, 2, 4, 8, 16, 32 or 64 bits.
    Unsigned,
    /// An integer in two's complement, of 8, 16, 32 or 64 bits.
    Signed,
    /// IEEE 754, of 16, 32 or 64 bits.
    Float,
}

impl Number {
    pub(crate) const ALL: [Self; 3] = [Self::Unsigned, Self::Signed, Self::Float];

    /// True if the type exists with so many bits.
    pub(crate) fn has(self, bits: u8) -> bool {
        match self {
            Self::Unsigned => matches!(bits, 1 | 2 | 4 | 8 | 16 | 32 | 64),
            Self::Signed => matches!(bits, 8 | 16 | 32 | 64),
            Self::Float => matches!(bits, 16 | 32 | 64),
        }
    }
}

/// A transformation of samples before they are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predictor {
    /// Nothing.
    None,
    /// Differences from the previous sample.
    Horizontal,
    /// Bytes of equal significance are adjacent, and differences of these are stored (Adobe
    /// Photoshop TIFF Technical Note 3).
    Float,
}

impl Predictor {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Horizontal, Self::Float];
}

/// How a tile is laid out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// Width in pixels, including the part beyond the border of the level.
    pub width: u32,
    /// Height in pixels, likewise.
    pub height: u32,
    /// Its compression.
    pub codec: crate::Codec,
    /// Its colours.
    pub colours: Colours,
    /// Samples per pixel; those that the colours do not need are ignored.
    pub samples: u16,
    /// The number type of a sample.
    pub number: Number,
    /// Bits per sample.
    pub bits: u8,
    /// The transformation to undo after decompression.
    pub predictor: Predictor,
    /// True if samples are big endian.
    pub big_endian: bool,
    /// True if the lowest bit of each compressed byte comes first.
    pub reversed: bool,
    /// True if samples are in consecutive planes, and not interleaved.
    pub planes: bool,
    /// The values shown as black and as white, if they are not the smallest and largest that the
    /// bits can express. The first is less than the second, and both are finite.
    pub window: Option<(f64, f64)>,
    /// The value of all samples of an absent tile. Infinity means the largest value.
    pub fill: f64,
}

impl Layout {
    /// A layout of unsigned bytes.
    pub(crate) fn of_bytes(size: (u32, u32), codec: crate::Codec) -> Self {
        let (width, height) = size;
        Self {
            width,
            height,
            codec,
            colours: Colours::Rgb,
            samples: 3,
            number: Number::Unsigned,
            bits: 8,
            predictor: Predictor::None,
            big_endian: false,
            reversed: false,
            planes: false,
            window: None,
            fill: f64::INFINITY,
        }
    }

    /// Bytes of a row of samples; of one plane, if they are in planes.
    fn row(&self) -> u64 {
        let each = if self.planes { 1 } else { u64::from(self.samples) };
        (u64::from(self.width) * each * u64::from(self.bits)).div_ceil(8)
    }

    /// Bytes of all samples after decompression.
    pub(crate) fn packed(&self) -> Option<u64> {
        let (width, height) = (u64::from(self.width), u64::from(self.height));
        if let Colours::Units { across, down } = self.colours {
            let (across, down) = (u64::from(across), u64::from(down));
            let units = width.div_ceil(across).checked_mul(height.div_ceil(down))?;
            return units.checked_mul(across * down + 2);
        }
        let planes = if self.planes { u64::from(self.samples) } else { 1 };
        self.row().checked_mul(height)?.checked_mul(planes)
    }

    /// The layout of the samples once decompressed: JPEG 2000 yields red, green and blue.
    pub(crate) fn unpacked(self) -> Self {
        match (self.codec, self.colours) {
            (crate::Codec::Jpeg2000, Colours::YCbCr) => Self { colours: Colours::Rgb, ..self },
            _ => self,
        }
    }

    /// Encodes a value as a sample, as the nearest one that exists.
    pub(crate) fn bytes(&self, value: f64) -> Vec<u8> {
        let mut bytes = match (self.number, self.bits) {
            (Number::Unsigned, ..=8) => vec![value as u8],
            (Number::Unsigned, 16) => (value as u16).to_le_bytes().to_vec(),
            (Number::Unsigned, 32) => (value as u32).to_le_bytes().to_vec(),
            (Number::Unsigned, _) => (value as u64).to_le_bytes().to_vec(),
            (Number::Signed, 8) => (value as i8).to_le_bytes().to_vec(),
            (Number::Signed, 16) => (value as i16).to_le_bytes().to_vec(),
            (Number::Signed, 32) => (value as i32).to_le_bytes().to_vec(),
            (Number::Signed, _) => (value as i64).to_le_bytes().to_vec(),
            (Number::Float, 16) => to_half(value).to_le_bytes().to_vec(),
            (Number::Float, 32) => (value as f32).to_le_bytes().to_vec(),
            (Number::Float, _) => value.to_le_bytes().to_vec(),
        };
        if self.big_endian {
            bytes.reverse();
        }
        bytes
    }

    /// Decodes a sample.
    pub(crate) fn value(&self, bytes: &[u8]) -> f64 {
        let mut word = [0; 8];
        for (at, byte) in bytes.iter().enumerate() {
            word[if self.big_endian { bytes.len() - 1 - at } else { at }] = *byte;
        }
        let word = u64::from_le_bytes(word);
        match (self.number, self.bits) {
            (Number::Unsigned, _) => word as f64,
            (Number::Signed, 8) => f64::from(word as i8),
            (Number::Signed, 16) => f64::from(word as i16),
            (Number::Signed, 32) => f64::from(word as i32),
            (Number::Signed, _) => word as i64 as f64,
            (Number::Float, 16) => half(word as u16),
            (Number::Float, 32) => f64::from(f32::from_bits(word as u32)),
            (Number::Float, _) => f64::from_bits(word),
        }
    }

    /// The smallest and largest values, shown as black and white if there is no window.
    fn range(&self) -> (f64, f64) {
        let bits = i32::from(self.bits);
        match self.number {
            Number::Unsigned => (0.0, 2_f64.powi(bits) - 1.0),
            Number::Signed => (-2_f64.powi(bits - 1), 2_f64.powi(bits - 1) - 1.0),
            Number::Float => (0.0, 1.0),
        }
    }

    /// Maps a value to 0 to 255.
    fn brightness(&self, value: f64) -> u8 {
        let (black, white) = self.window.unwrap_or_else(|| self.range());
        let seen = match self.window.is_none() && self.number != Number::Float && self.bits >= 8 {
            // The upper 8 bits.
            true => {
                ((value.clamp(black, white) - black) / 2_f64.powi(i32::from(self.bits) - 8)) as u8
            }
            false => ((value.clamp(black, white) - black) * 255.0 / (white - black) + 0.5) as u8,
        };
        if self.colours == Colours::Inverted { 255 - seen } else { seen }
    }

    /// The brightness of an absent tile.
    pub(crate) fn absent(&self) -> u8 {
        match self.colours {
            // White as paper.
            Colours::Palette | Colours::Cmyk | Colours::Units { .. } => 255,
            _ => self.brightness(self.fill),
        }
    }

    /// Undoes the predictor of decompressed samples, of at least a byte each.
    pub(crate) fn restored(&self, mut samples: Vec<u8>) -> Vec<u8> {
        let each = if self.planes { 1 } else { usize::from(self.samples) };
        let row = self.row() as usize;
        if self.bits < 8 {
            let across = self.width as usize * each;
            let per = usize::from(8 / self.bits);
            let mask = (1_u8 << self.bits) - 1;
            let mut whole = Vec::with_capacity(samples.len() / row.max(1) * across);
            for row in samples.chunks_exact(row) {
                let of = |at: usize| {
                    let shift = 8 - self.bits as usize * (at % per + 1);
                    row[at / per] >> shift & mask
                };
                whole.extend((0..across).map(of));
            }
            return whole;
        }
        let wide = usize::from(self.bits / 8);
        match self.predictor {
            Predictor::None => {}
            Predictor::Horizontal => {
                for row in samples.chunks_exact_mut(row) {
                    sum(row, each, wide, self.big_endian);
                }
            }
            Predictor::Float => {
                let mut before = vec![0; row];
                for row in samples.chunks_exact_mut(row) {
                    sum(row, each, 1, false);
                    before.copy_from_slice(row);
                    let count = row.len() / wide;
                    for (at, sample) in row.chunks_exact_mut(wide).enumerate() {
                        // The most significant bytes come first, whatever the byte order of the
                        // file.
                        for (weight, byte) in sample.iter_mut().enumerate() {
                            let weight = if self.big_endian { weight } else { wide - 1 - weight };
                            *byte = before[weight * count + at];
                        }
                    }
                }
            }
        }
        samples
    }

    /// The smallest and largest finite value of the samples shown, among pixels to the left of and
    /// above `inside`; `None` if there are none.
    pub(crate) fn extremes(&self, samples: &[u8], inside: (u32, u32)) -> Option<(f64, f64)> {
        let wide = usize::from(self.bits.max(8) / 8);
        let each = if self.planes { 1 } else { usize::from(self.samples) };
        let shown = usize::from(self.colours.needed()).min(each);
        let (across, down) = (self.width as usize, self.height as usize);
        let rows = samples.chunks_exact(across * each * wide).enumerate();
        let rows = rows.filter(|(row, _)| row % down < inside.1 as usize);
        let values = rows.flat_map(|(_, row)| {
            let pixels = row.chunks_exact(each * wide).take(inside.0 as usize);
            pixels.flat_map(|pixel| pixel.chunks_exact(wide).take(shown))
        });
        let values = values.map(|bytes| self.value(bytes)).filter(|value| value.is_finite());
        values.fold(None, |range, value| {
            let (least, most) = range.unwrap_or((value, value));
            Some((f64::min(least, value), f64::max(most, value)))
        })
    }

    /// Turns samples that are [`restored`](Self::restored) into pixels, through the palette if
    /// there is one; `None` if the layout contradicts itself.
    pub(crate) fn pixels(&self, samples: Vec<u8>, palette: &[u8]) -> Option<Raster> {
        let (width, height) = (self.width, self.height);
        let each = usize::from(self.samples);
        let wide = usize::from(self.bits.max(8) / 8);
        let needed = usize::from(self.colours.needed());
        if each < needed || self.colours == Colours::YCbCr {
            return None;
        }
        if let Colours::Units { across, down } = self.colours {
            let size = (width as usize, height as usize);
            return Raster::new(
                width,
                height,
                units(&samples, size, (across.into(), down.into()))?,
            );
        }
        let plain = self.number == Number::Unsigned && self.window.is_none();
        if plain && self.colours == Colours::Rgb && !self.planes && (each, wide) == (3, 1) {
            return Raster::new(width, height, samples);
        }
        let all = width as usize * height as usize;
        // The distance to the next pixel, and to the next sample.
        let (next, across) = if self.planes { (wide, all * wide) } else { (each * wide, wide) };
        if samples.len() < all * each * wide {
            return None;
        }
        let inverted = self.colours == Colours::Inverted;
        let value = |at: usize| match (wide, self.big_endian) {
            // The usual ones, for speed.
            (1, _) if plain && self.bits == 8 && !inverted => samples[at],
            (2, true) if plain && !inverted => samples[at],
            (2, false) if plain && !inverted => samples[at + 1],
            _ => self.brightness(self.value(&samples[at..at + wide])),
        };
        let mut pixels = Vec::with_capacity(all * 3);
        for at in (0..all).map(|pixel| pixel * next) {
            pixels.extend_from_slice(&match self.colours {
                Colours::Palette => {
                    let number = self.value(&samples[at..at + wide]) as usize;
                    palette.get(number * 3..number * 3 + 3)?.try_into().ok()?
                }
                Colours::Cmyk => {
                    let paper = |at: usize| 255 - u32::from(value(at));
                    let key = paper(at + 3 * across);
                    [0, 1, 2].map(|ink| ((paper(at + ink * across) * key + 127) / 255) as u8)
                }
                Colours::Rgb => [value(at), value(at + across), value(at + 2 * across)],
                _ => [value(at); 3],
            });
        }
        Raster::new(width, height, pixels)
    }
}

/// Converts a number of 16 bits (IEEE 754 binary16).
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Converts to a number of 16 bits, truncating the mantissa.
fn to_half(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 1 << 15 } else { 0 };
    let size = value.abs();
    sign | match size {
        _ if size.is_nan() => 0x7e00,
        65_536.0.. => 0x7c00,
        _ if size < 2_f64.powi(-14) => (size * 2_f64.powi(24)) as u16,
        _ => {
            let exponent = (size.to_bits() >> 52) as u16 - 1008;
            exponent << 10 | (size.to_bits() >> 42) as u16 & 1023
        }
    }
}

/// Undoes the differences in a row, with `each` samples of `wide` bytes per pixel.
fn sum(row: &mut [u8], each: usize, wide: usize, big_endian: bool) {
    let step = each * wide;
    for at in (step..row.len()).step_by(wide) {
        if wide == 1 {
            row[at] = row[at].wrapping_add(row[at - step]);
            continue;
        }
        let mut carry = 0;
        for byte in 0..wide {
            let byte = if big_endian { wide - 1 - byte } else { byte };
            carry += u16::from(row[at + byte]) + u16::from(row[at - step + byte]);
            row[at + byte] = carry as u8;
            carry >>= 8;
        }
    }
}

/// Converts units of luminance and colour differences to pixels (ITU-R BT.601, full range).
fn units(samples: &[u8], size: (usize, usize), subsampling: (usize, usize)) -> Option<Vec<u8>> {
    let (across, down) = subsampling;
    let (width, height) = size;
    let each = across * down + 2;
    let row = width.div_ceil(across);
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            let start = (y / down * row + x / across) * each;
            let unit = samples.get(start..start + each)?;
            let luminance = f32::from(unit[y % down * across + x % across]);
            let (blue, red) =
                (f32::from(unit[each - 2]) - 128.0, f32::from(unit[each - 1]) - 128.0);
            let green = luminance - 0.344_136 * blue - 0.714_136 * red;
            let colours = [luminance + 1.402 * red, green, luminance + 1.772 * blue];
            // Values out of range are clamped.
            pixels.extend(colours.map(|colour| (colour + 0.5) as u8));
        }
    }
    Some(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_16_bits_come_back() {
        for bits in (0..0x7c01).chain(0x8000..0xfc01) {
            assert_eq!(to_half(half(bits)), bits, "{bits:x}");
        }
        assert!(half(to_half(f64::NAN)).is_nan());
        assert_eq!(
            (half(to_half(1e9)), half(to_half(-0.1))),
            (f64::INFINITY, -0.099_975_585_937_5)
        );
    }
}
