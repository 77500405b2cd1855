//! Blends channels: the colours of all are added up to one picture.

use crate::channel_samples::{Pick, Sample, Samples};
use crate::channels::{Ink, Window};
use crate::raster::Raster;
use crate::tile::{HALVINGS, StoredTile};
use crate::{Error, Limits, Result};
use bytes::Bytes;

/// Most values blended for one tile, over all of its channels.
const VALUES: u64 = 256 << 20;

const MAGIC: [u8; 4] = *b"SwB\x01";
/// Bytes of one layer in a block.
const LAYER: usize = 3 * 8 + 2 * 8 + 3;

/// A stored tile, and the channels shown from it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sheet {
    pub(crate) tile: StoredTile,
    pub(crate) layers: Vec<(Pick, Ink)>,
}

/// Stored tiles of channels at one position, which form one picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Blend {
    pub(crate) name: String,
    pub(crate) size: (u32, u32),
    pub(crate) halvings: u32,
    pub(crate) sheets: Vec<Sheet>,
}

/// A tile before decoding: in its own colours, or blended from channels.
#[derive(Debug, Clone, PartialEq)]
pub enum Tile {
    /// Of a slide without channels.
    Stored(StoredTile),
    /// Of a slide with channels.
    Blend(Blend),
}

impl Tile {
    /// Width and height before any halving, including the part beyond the border of the level.
    pub fn size(&self) -> (u32, u32) {
        match self {
            Self::Stored(tile) => (tile.layout.width, tile.layout.height),
            Self::Blend(blend) => blend.size,
        }
    }

    /// The stored tiles that form it.
    pub fn stored(&self) -> impl Iterator<Item = &StoredTile> {
        let (one, sheets) = match self {
            Self::Stored(tile) => (Some(tile), &[][..]),
            Self::Blend(blend) => (None, &blend.sheets[..]),
        };
        one.into_iter().chain(sheets.iter().map(|sheet| &sheet.tile))
    }

    /// Halves both sides so many times, as [`StoredTile::halved`] does.
    #[must_use]
    pub fn halved(self, halvings: u32) -> Self {
        match self {
            Self::Stored(tile) => Self::Stored(tile.halved(halvings)),
            Self::Blend(blend) => Self::Blend(Blend { halvings: halvings.min(HALVINGS), ..blend }),
        }
    }

    /// Decodes it.
    ///
    /// # Errors
    /// As [`StoredTile::decode`]; also too many values to blend at once.
    pub fn decode(&self, limits: &Limits) -> Result<Raster> {
        match self {
            Self::Stored(tile) => tile.decode(limits),
            Self::Blend(blend) => blend.decode(limits),
        }
    }

    /// Serialises the tile for [`from_block`](Self::from_block) of the same version.
    pub fn to_block(&self) -> Vec<u8> {
        match self {
            Self::Stored(tile) => tile.to_block(),
            Self::Blend(blend) => blend.to_block(),
        }
    }

    /// Parses the bytes from [`to_block`](Self::to_block), and shares their memory.
    ///
    /// # Errors
    /// Bytes that are not such a block.
    pub fn from_block(block: &Bytes) -> Result<Self> {
        if !block.starts_with(&MAGIC) {
            return StoredTile::from_block(block).map(Self::Stored);
        }
        let wrong = || Error::Argument("the block is not a blend of channels".into());
        Blend::parse(block).map(Self::Blend).ok_or_else(wrong)
    }
}

impl Blend {
    fn decode(&self, limits: &Limits) -> Result<Raster> {
        let (width, height) = self.size;
        let pixels = u64::from(width) * u64::from(height);
        let limit = |what: String| Error::Limit { name: self.name.clone(), what };
        if pixels == 0 || pixels > limits.tile_pixels {
            return Err(limit(format!("a tile of {width} x {height} pixels")));
        }
        let layers = self.sheets.iter().map(|sheet| sheet.layers.len()).sum::<usize>();
        if pixels.saturating_mul(layers as u64) > VALUES {
            let what = format!("{layers} channels in tiles of {width} x {height} pixels");
            return Err(limit(format!("{what}: show fewer of them at a time")));
        }
        // Separate planes of red, green and blue: each loop writes to one, so the compiler
        // vectorises it.
        let mut planes = [(); 3].map(|()| vec![0; pixels as usize]);
        for sheet in &self.sheets {
            let samples = Samples::of(&sheet.tile, limits)?;
            for (pick, ink) in &sheet.layers {
                samples.check(*pick)?;
                match samples.are_narrow() && ink.window.is_narrow() {
                    true => add_layer::<f32>(&samples, *pick, *ink, self.size, &mut planes),
                    false => add_layer::<f64>(&samples, *pick, *ink, self.size, &mut planes),
                }
            }
        }
        let [red, green, blue] = &planes;
        let mut together = vec![0; 3 * pixels as usize];
        let colours = red.iter().zip(green).zip(blue);
        for (pixel, ((red, green), blue)) in together.chunks_exact_mut(3).zip(colours) {
            pixel.copy_from_slice(&[*red, *green, *blue]);
        }
        let wrong = || limit("its pixels".into());
        Raster::new(width, height, together).ok_or_else(wrong)?.halved(self.halvings)
    }

    fn to_block(&self) -> Vec<u8> {
        let mut block = MAGIC.to_vec();
        let words = [self.size.0, self.size.1, self.halvings, self.sheets.len() as u32];
        words.iter().for_each(|word| block.extend(word.to_le_bytes()));
        put(&mut block, self.name.as_bytes());
        for sheet in &self.sheets {
            block.extend((sheet.layers.len() as u32).to_le_bytes());
            for (pick, ink) in &sheet.layers {
                for number in [pick.first, pick.across, pick.down] {
                    block.extend(number.to_le_bytes());
                }
                block.extend(ink.window.black().to_le_bytes());
                block.extend(ink.window.white().to_le_bytes());
                block.extend(ink.colour);
            }
            put(&mut block, &sheet.tile.to_block());
        }
        block
    }

    fn parse(block: &Bytes) -> Option<Self> {
        let mut rest = block.slice(MAGIC.len()..);
        let size = (word(&mut rest)?, word(&mut rest)?);
        let halvings = word(&mut rest).filter(|halvings| *halvings <= HALVINGS)?;
        let count = word(&mut rest)?;
        let name = String::from_utf8(part(&mut rest)?.to_vec()).ok()?;
        let mut sheets = Vec::new();
        for _ in 0..count {
            let length = (word(&mut rest)? as usize).checked_mul(LAYER)?;
            let layers = take(&mut rest, length)?;
            let layers = layers.chunks_exact(LAYER).map(layer).collect::<Option<Vec<_>>>()?;
            let tile = StoredTile::from_block(&part(&mut rest)?).ok()?;
            let is_like = (tile.layout.width, tile.layout.height) == size && tile.halvings == 0;
            sheets.push(Some(Sheet { tile, layers }).filter(|_| is_like)?);
        }
        rest.is_empty().then_some(Self { name, size, halvings, sheets })
    }
}

/// Appends bytes after their length.
fn put(block: &mut Vec<u8>, bytes: &[u8]) {
    block.extend((bytes.len() as u32).to_le_bytes());
    block.extend_from_slice(bytes);
}

fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}

fn word(rest: &mut Bytes) -> Option<u32> {
    let bytes = take(rest, 4)?;
    Some(u32::from_le_bytes(bytes.as_ref().try_into().ok()?))
}

fn part(rest: &mut Bytes) -> Option<Bytes> {
    let length = word(rest)?;
    take(rest, length as usize)
}

fn layer(bytes: &[u8]) -> Option<(Pick, Ink)> {
    let eight = |at: usize| <[u8; 8]>::try_from(bytes.get(at..at + 8)?).ok();
    let whole = |at: usize| eight(at).map(u64::from_le_bytes);
    let number = |at: usize| eight(at).map(f64::from_le_bytes);
    let pick = Pick { first: whole(0)?, across: whole(8)?, down: whole(16)? };
    let window = Window::new(number(24)?, number(32)?)?;
    let colour = bytes.get(40..43)?.try_into().ok()?;
    Some((pick, Ink { colour, window }))
}

/// Adds a channel to red, green and blue.
fn add_layer<T: Real>(
    samples: &Samples<'_>,
    pick: Pick,
    ink: Ink,
    (width, height): (u32, u32),
    planes: &mut [Vec<u8>; 3],
) {
    let (mut row, mut shares) = (vec![T::of(0.0); width as usize], vec![0; width as usize]);
    for y in 0..height {
        samples.row(pick, y, &mut row);
        let start = y as usize * row.len();
        let mut of = 0;
        for (plane, colour) in planes.iter_mut().zip(ink.colour).filter(|(_, colour)| *colour > 0) {
            if colour != of {
                T::shares(&mut shares, &row, ink.window, colour);
                of = colour;
            }
            add(&mut plane[start..start + shares.len()], &shares);
        }
    }
}

/// Adds shares to red, green or blue. Sums saturate at 255.
fn add(into: &mut [u8], shares: &[u8]) {
    into.iter_mut().zip(shares).for_each(|(sum, share)| *sum = sum.saturating_add(*share));
}

/// The type of a channel's values.
trait Real: Sample {
    /// Writes the share of `colour` that corresponds to the position of each value in the window,
    /// rounded to the nearest integer. That of NaN is 0.
    fn shares(into: &mut [u8], values: &[Self], window: Window, colour: u8);
}

macro_rules! real {
    ($float:ty) => {
        impl Real for $float {
            fn shares(into: &mut [u8], values: &[Self], window: Window, colour: u8) {
                /// From here to its double, the type has integers only: a sum is rounded to one,
                /// and its last bits are that integer. Unlike a conversion, this is vectorised.
                const INTEGERS: $float = (1_u64 << (<$float>::MANTISSA_DIGITS - 1)) as $float;
                let span = (window.white() - window.black()) as $float;
                let (black, colour) = (window.black() as $float, <$float>::from(colour));
                for (to, value) in into.iter_mut().zip(values) {
                    let share = (value - black).max(0.0).min(span) * colour / span + 0.5;
                    let nearest = share + INTEGERS - INTEGERS;
                    let whole = if nearest > share { nearest - 1.0 } else { nearest };
                    *to = (whole + INTEGERS).to_bits() as u8;
                }
            }
        }
    };
}
real!(f32);
real!(f64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Codec, Layout};

    fn window(black: f64, white: f64) -> Window {
        Window::new(black, white).unwrap()
    }

    #[test]
    fn colours_are_added_up_to_white() {
        let values = [f64::NAN, f64::NEG_INFINITY, 99.0, 100.0, 149.9, 151.0, 200.0, 1e300];
        let (mut sums, mut shares) = ([0; 8], [0; 8]);
        f64::shares(&mut shares, &values, window(100.0, 200.0), 255);
        assert_eq!(shares, [0, 0, 0, 0, 127, 130, 255, 255]);
        add(&mut sums, &shares);
        add(&mut sums, &shares);
        assert_eq!(sums, [0, 0, 0, 0, 254, 255, 255, 255]);
        f64::shares(&mut shares, &values, window(-1e300, 1e300), 10);
        assert_eq!(shares, [0, 0, 5, 5, 5, 5, 5, 10]);
        // Halves are rounded up.
        let mut shares = [0; 2];
        f64::shares(&mut shares, &[1.0, 3.0], window(0.0, 4.0), 2);
        assert_eq!(shares, [1, 2]);
        assert_eq!(Window::new(0.0, 1e307), None, "no share can be computed");
    }

    #[test]
    fn narrow_values_have_exactly_the_same_share() {
        for (black, white, colour) in [
            (0.0, 65535.0, 255),
            (200.0, 12000.0, 255),
            (-32768.0, 32767.0, 3),
            (-1.0, 65535.0, 255),
            (7.0, 8.0, 254),
            (0.0, 4.0, 2),
            (30_000.0, 30_999.0, 77),
        ] {
            let values: Vec<f32> = (-32768..65536).map(|value| value as f32).collect();
            let mut shares = vec![0; values.len()];
            f32::shares(&mut shares, &values, window(black, white), colour);
            for (value, found) in values.into_iter().zip(shares) {
                let seen = (f64::from(value) - black).clamp(0.0, white - black);
                let share = (seen * f64::from(colour) / (white - black) + 0.5) as u8;
                assert_eq!(found, share, "{value} in {black}-{white}");
            }
        }
    }

    /// 3 x 2 pixels of two samples, of 16 bits.
    fn blend() -> Blend {
        let layout = Layout { samples: 2, bits: 16, ..Layout::of_bytes((3, 2), Codec::Raw) };
        let samples = [0_u16, 9, 100, 8, 200, 7, 300, 6, 400, 5, 500, 4];
        let bytes = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<_>>();
        let (name, tables, bytes) = ("tile".to_owned(), Bytes::new(), bytes.into());
        let tile = StoredTile { name: name.clone(), layout, halvings: 0, tables, bytes };
        let ink = |colour, white| Ink { colour, window: window(0.0, white) };
        let layers = vec![
            (Pick::beside(0, 2, 3), ink([255, 0, 0], 510.0)),
            (Pick::beside(1, 2, 3), ink([10, 0, 200], 10.0)),
        ];
        Blend { name, size: (3, 2), halvings: 0, sheets: vec![Sheet { tile, layers }] }
    }

    #[test]
    fn samples_of_one_tile_become_one_picture() {
        let raster = blend().decode(&Limits::default()).unwrap();
        let expected = [9, 0, 180, 58, 0, 160, 107, 0, 140, 156, 0, 120, 205, 0, 100, 254, 0, 80];
        assert_eq!(raster.pixels(), expected);
        let none = Blend { sheets: Vec::new(), ..blend() };
        assert_eq!(none.decode(&Limits::default()).unwrap().pixels(), [0; 18]);
    }

    #[test]
    fn blocks_come_back_and_broken_ones_do_no_harm() {
        let tile = Tile::Blend(blend()).halved(1);
        let block = tile.to_block();
        assert_eq!(Tile::from_block(&block.clone().into()).unwrap(), tile);
        for length in 0..block.len() {
            assert!(Tile::from_block(&block[..length].to_vec().into()).is_err(), "{length}");
        }
        for at in 0..block.len() {
            for change in [1, 0x80, 0xff] {
                let mut block = block.clone();
                block[at] ^= change;
                if let Ok(tile) = Tile::from_block(&block.into()) {
                    let _ = tile.decode(&Limits { tile_pixels: 1 << 12, ..Limits::default() });
                }
            }
        }
    }

    #[test]
    fn what_a_tile_does_not_have_is_an_error() {
        for pick in [
            Pick { first: 1, across: 2, down: 7 },
            Pick { first: u64::MAX, across: 2, down: 6 },
            Pick { first: 0, across: u64::MAX, down: 6 },
            Pick { first: 0, across: 2, down: u64::MAX },
        ] {
            let mut of = blend();
            of.sheets[0].layers[0].0 = pick;
            let error = of.decode(&Limits::default()).unwrap_err().to_string();
            assert!(error.contains("12 samples"), "{error}");
        }
        let mut of = Blend { size: (4096, 4096), ..blend() };
        let layer = of.sheets[0].layers[0];
        of.sheets[0].layers = vec![layer; 17];
        let error = of.decode(&Limits::default()).unwrap_err().to_string();
        assert!(error.contains("show fewer"), "{error}");
    }
}
