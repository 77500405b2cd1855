//! The work of the copies of both filters: they map blocks of bytes to blocks of bytes.
//!
//! ```text
//! decompress   a stored tile, or those of channels  -> pixels, width, height
//! finish       pixels of a region, profile, orders  -> an encoded image
//! ```
//!
//! The description of pixels follows them, so that a block becomes pixels without a copy. A tile that
//! is decoded in this process needs no block.

use bytes::Bytes;
use seekwire_slides_image::{Codec, Format, Limits, Raster, Tile};

use crate::render::colour::Conversions;
use crate::render::rotation::{self, CIRCLE, Quality, Turn};
use crate::workers::protocol::{MOST, Task};

/// Pixels of the largest stored tile: the default limit, and the largest limit allowed.
pub(crate) const TILE: u64 = 16 << 20;
pub(crate) const LARGEST_TILE: u64 = 64 << 20;

/// Limits on one slide, one tile and one region.
pub(crate) fn limits() -> Limits {
    limits_with(TILE)
}

/// The same for stored tiles of that many pixels, and of as many compressed bytes.
pub(crate) fn limits_with(tile: u64) -> Limits {
    Limits { tables: 64 << 20, stored: tile, tile_pixels: tile, ..Limits::default() }
}

/// The input of a task.
pub(crate) enum Input {
    /// For any process.
    Block(Bytes),
    /// To be decompressed in this one.
    Tile(Tile),
}

impl Input {
    pub(crate) fn into_block(self) -> Bytes {
        match self {
            Self::Block(block) => block,
            Self::Tile(tile) => tile.to_block().into(),
        }
    }
}

impl From<Bytes> for Input {
    fn from(block: Bytes) -> Self {
        Self::Block(block)
    }
}

impl From<Tile> for Input {
    fn from(tile: Tile) -> Self {
        Self::Tile(tile)
    }
}

/// Settings and state for the work.
pub(crate) struct Tools {
    conversions: Conversions,
    /// Whether libjpeg-turbo, if installed, decodes and encodes JPEG.
    turbojpeg: bool,
    /// Pixels of the largest stored tile.
    tile: u64,
}

impl Tools {
    pub(crate) fn new(turbojpeg: bool, tile: u64) -> Self {
        Self { conversions: Conversions::default(), turbojpeg, tile }
    }

    /// Does a task.
    pub(crate) fn work(&self, task: Task, input: Input) -> Result<Vec<u8>, String> {
        match (task, input) {
            (Task::Decompress, Input::Tile(tile)) => decompress(&tile, self),
            (Task::Decompress, Input::Block(block)) => {
                let tile = Tile::from_block(&block).map_err(|error| error.to_string())?;
                decompress(&tile, self)
            }
            (Task::Finish, input) => finish(input.into_block(), self),
        }
    }
}

/// Decompresses one tile.
fn decompress(tile: &Tile, tools: &Tools) -> Result<Vec<u8>, String> {
    let limits = Limits { turbojpeg: tools.turbojpeg, ..limits_with(tools.tile) };
    let raster = tile.decode(&limits).map_err(|error| error.to_string())?;
    let sides = [raster.width(), raster.height()];
    let mut answer = raster.into_pixels();
    sides.iter().for_each(|side| answer.extend_from_slice(&side.to_le_bytes()));
    Ok(answer)
}

/// The pixels of a tile.
#[derive(Debug, Clone)]
pub(crate) struct TilePixels {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Three bytes per pixel.
    pub(crate) bytes: Bytes,
}

impl TilePixels {
    /// Parses an answer of [`decompress`].
    pub(crate) fn of(mut answer: Bytes) -> Option<Self> {
        let mut fields = Fields { bytes: &answer };
        let (height, width) = (fields.word()?, fields.word()?);
        let length = fields.bytes.len();
        if length as u64 != u64::from(width) * u64::from(height) * 3 {
            return None;
        }
        answer.truncate(length);
        Some(Self { width, height, bytes: answer })
    }
}

/// True if sending a block elsewhere is worthwhile: it is not for uncompressed pixels, and some
/// tiles are too large when decompressed.
pub(crate) fn travels(task: Task, block: &Bytes) -> bool {
    if task == Task::Finish {
        return true;
    }
    Tile::from_block(block).is_ok_and(|tile| {
        let (width, height) = tile.size();
        let pixels = u64::from(width) * u64::from(height) * 3;
        let mut codecs = tile.stored().map(|stored| stored.layout().codec);
        codecs.any(|codec| !matches!(codec, Codec::Raw | Codec::Absent))
            && pixels <= (MOST / 2) as u64
    })
}

/// True if an answer from elsewhere is plausible for a block.
pub(crate) fn fits(task: Task, block: &Bytes, answer: &Bytes) -> bool {
    match task {
        Task::Decompress => {
            let Ok(tile) = Tile::from_block(block) else { return false };
            let (width, height) = tile.size();
            TilePixels::of(answer.clone()).is_some_and(|pixels| {
                (1..=width).contains(&pixels.width) && (1..=height).contains(&pixels.height)
            })
        }
        Task::Finish => match Orders::parse(block).map(|(orders, ..)| orders.format) {
            Some(Format::Jpeg { .. }) => answer.starts_with(b"\xff\xd8\xff"),
            Some(Format::Png) => answer.starts_with(b"\x89PNG\r\n\x1a\n"),
            Some(Format::WebP) => answer.starts_with(b"RIFF") && answer.get(8..12) == Some(b"WEBP"),
            None => false,
        },
    }
}

/// How to process the pixels of a region.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Orders {
    /// Width of the pixels.
    pub(crate) width: u32,
    /// Height of the pixels.
    pub(crate) height: u32,
    /// The part of them to use: left, top, width, height.
    pub(crate) part: (f64, f64, f64, f64),
    /// Size of the result, before it is turned.
    pub(crate) to: (u32, u32),
    pub(crate) turn: Turn,
    /// Whether to convert colours with the profile; otherwise it is embedded in the image.
    pub(crate) converts: bool,
    pub(crate) quality: Quality,
    pub(crate) format: Format,
}

/// Fields that are read from the end backwards.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (rest, field) = self.bytes.split_at(self.bytes.len().checked_sub(N)?);
        self.bytes = rest;
        field.try_into().ok()
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn number(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }
}

impl Orders {
    /// Bytes that follow the pixels, besides the profile.
    pub(crate) const LENGTH: usize = 4 * 6 + 8 * 4 + 5;

    /// Appends itself to pixels, which have room for it.
    pub(crate) fn append(&self, pixels: &mut Vec<u8>, icc: Option<&[u8]>) {
        let icc = icc.unwrap_or_default();
        pixels.extend_from_slice(icc);
        pixels.extend_from_slice(&(icc.len() as u32).to_le_bytes());
        let (format, level) = match self.format {
            Format::Jpeg { quality, full_colour: false } => (0, quality),
            Format::Jpeg { quality, full_colour: true } => (1, quality),
            Format::Png => (2, 0),
            Format::WebP => (3, 0),
        };
        let quality = match self.quality {
            Quality::Colour => 0,
            Quality::Grey => 1,
            Quality::Bitonal => 2,
        };
        let [converts, is_mirrored] = [self.converts, self.turn.is_mirrored].map(u8::from);
        pixels.extend_from_slice(&[format, level, converts, quality, is_mirrored]);
        let (left, top, width, height) = self.part;
        for number in [left, top, width, height] {
            pixels.extend_from_slice(&number.to_le_bytes());
        }
        for word in [self.turn.thousandths, self.to.0, self.to.1, self.width, self.height] {
            pixels.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Parses a block: the orders, the length of the pixels, and that of the profile.
    fn parse(block: &[u8]) -> Option<(Self, usize, usize)> {
        let mut fields = Fields { bytes: block };
        let (height, width) = (fields.word()?, fields.word()?);
        let (down, across) = (fields.word()?, fields.word()?);
        let thousandths = fields.word().filter(|thousandths| *thousandths < CIRCLE)?;
        let [bottom, right, top, left] =
            [fields.number()?, fields.number()?, fields.number()?, fields.number()?];
        let is_mirrored = fields.byte()? == 1;
        let quality = match fields.byte()? {
            0 => Quality::Colour,
            1 => Quality::Grey,
            2 => Quality::Bitonal,
            _ => return None,
        };
        let converts = fields.byte()? == 1;
        let level = fields.byte()?;
        let format = fields.byte()?;
        let format = match format {
            0 | 1 => Format::Jpeg { quality: level, full_colour: format == 1 },
            2 => Format::Png,
            3 => Format::WebP,
            _ => return None,
        };
        let icc = fields.word()? as usize;
        let pixels = fields.bytes.len().checked_sub(icc)?;
        let turn = Turn { is_mirrored, thousandths };
        let part = (left, top, right, bottom);
        let to = (across, down);
        let orders = Self { width, height, part, to, turn, converts, quality, format };
        Some((orders, pixels, icc))
    }
}

/// Clips, scales, converts, turns and encodes.
fn finish(block: Bytes, tools: &Tools) -> Result<Vec<u8>, String> {
    let (orders, pixels, icc) = Orders::parse(&block).ok_or("the block is not a region")?;
    if u64::from(orders.to.0) * u64::from(orders.to.1) > limits().region_pixels {
        return Err("the result would have too many pixels".to_owned());
    }
    let icc = (icc > 0).then(|| &block[pixels..pixels + icc]);
    // The block belongs to the job until that is done, so the result is a copy; after scaling, it
    // is smaller.
    let size = (orders.width, orders.height);
    let raster = Raster::scaled(size, &block[..pixels], orders.part, orders.to)
        .map_err(|error| error.to_string())?;
    // Conversion follows scaling, when there are fewer pixels.
    let (raster, icc) = match icc {
        Some(icc) if orders.converts => (tools.conversions.convert(icc, raster)?, None),
        icc => (raster, icc),
    };
    let raster = rotation::turned(raster, orders.turn).ok_or("the image cannot be turned")?;
    let raster =
        rotation::of_quality(raster, orders.quality).ok_or("the quality cannot be applied")?;
    raster.encode(orders.format, icc, tools.turbojpeg).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_back_out_of_a_block_and_broken_blocks_do_no_harm() {
        let tools = Tools::new(true, TILE);
        let orders = Orders {
            width: 3,
            height: 2,
            part: (0.5, 0.0, 2.0, 1.75),
            to: (5, 4),
            turn: Turn { is_mirrored: true, thousandths: 90_000 },
            converts: false,
            quality: Quality::Grey,
            format: Format::Png,
        };
        for icc in [None, Some(&b"profile"[..])] {
            let mut block = vec![7; 18];
            orders.append(&mut block, icc);
            let extra = icc.map_or(0, <[u8]>::len);
            assert_eq!(block.len(), 18 + extra + Orders::LENGTH);
            assert_eq!(Orders::parse(&block), Some((orders.clone(), 18, extra)));
            let image = finish(block.clone().into(), &tools).unwrap();
            let image = image::load_from_memory(&image).unwrap();
            assert_eq!((image.width(), image.height()), (4, 5));
            for length in 0..block.len() {
                let _ = finish(block[..length].to_vec().into(), &tools);
            }
            for at in 18..block.len() {
                let mut block = block.clone();
                // Not the sizes of the result, which the caller bounds.
                if !(block.len() - 16..block.len() - 8).contains(&at) {
                    block[at] ^= 0x15;
                    let _ = finish(block.into(), &tools);
                }
            }
        }
    }

    #[test]
    fn an_answer_that_is_no_tile_is_refused() {
        let mut answer = vec![1; 6];
        answer.extend_from_slice(&[2, 0, 0, 0, 1, 0, 0, 0]);
        let pixels = TilePixels::of(answer.clone().into()).unwrap();
        assert_eq!((pixels.width, pixels.height, &pixels.bytes[..]), (2, 1, &[1; 6][..]));
        answer[6] = 3;
        assert!(TilePixels::of(answer.into()).is_none());
        assert!(TilePixels::of(Bytes::from_static(b"1234567")).is_none());
        let none = Input::Block(Bytes::from_static(b"none"));
        assert!(Tools::new(false, TILE).work(Task::Decompress, none).is_err());
    }
}
