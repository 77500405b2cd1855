//! The tiles of one directory. Strips count as tiles that are as wide as the image.

use super::directory::{Directory, Reader};
use super::layout;
use crate::channel_samples::Pick;
use crate::channels::Plane;
use crate::codec::Codec;
use crate::grid::{Grid, Picked, Tiles};
use crate::samples::{Colours, Layout};
use crate::source::{self, Source};
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::iter;
use std::sync::Arc;

/// Number of slices of an image, and of a tile, in a volume (from SGI).
const IMAGE_DEPTH: u16 = 32997;
const TILE_DEPTH: u16 = 32998;

/// Where the tiles of an image are.
struct Table {
    source: Arc<dyn Source>,
    height: u32,
    columns: u32,
    layout: Layout,
    strips: bool,
    /// True if each sample of a pixel is in a plane of its own.
    apart: bool,
    /// Distance between the parts of a tile, which are in separate planes.
    plane: usize,
    offsets: Vec<u64>,
    counts: Vec<u64>,
    tables: Bytes,
}

/// Reads the image of a directory.
pub(super) fn read(reader: &mut Reader<'_>, directory: &Directory) -> Result<Grid> {
    let at = directory.at;
    let (width, height) = size(reader, directory)?;
    // A tile has several slices, and nothing tells which of them is the picture.
    for tag in [IMAGE_DEPTH, TILE_DEPTH] {
        if reader.number(directory, tag)?.unwrap_or(1) != 1 {
            return Err(reader.unsupported("a volume in one directory (ImageDepth, TileDepth)"));
        }
    }
    let strips = !directory.has(322);
    let (tile_width, tile_height) = if strips {
        let rows = reader.number(directory, 278)?.unwrap_or(u64::MAX);
        (u64::from(width), rows.min(height.into()))
    } else {
        let wide = reader.number(directory, 322)?.unwrap_or(0);
        (wide, reader.number(directory, 323)?.unwrap_or(0))
    };
    // Some programs put the offsets of tiles into the tags for strips.
    let (offsets_tag, counts_tag) =
        if strips || !directory.has(324) { (273, 279) } else { (324, 325) };
    let pixels = tile_width.checked_mul(tile_height);
    if pixels.is_none_or(|pixels| pixels > reader.limits.tile_pixels) {
        let what = format!("tiles of {tile_width} x {tile_height}");
        let (name, most) = (reader.source.name().into(), reader.limits.tile_pixels);
        return Err(Error::LargeTiles { name, what, most });
    }
    if pixels == Some(0) {
        return Err(reader.malformed(at, "tiles without pixels"));
    }
    let layout = layout::read(reader, directory, tile_width as u32, tile_height as u32)?;
    let missing = "no table of where the tiles are";
    let offsets = reader.numbers(directory, offsets_tag)?;
    let offsets = offsets.ok_or_else(|| reader.malformed(at, missing))?;
    let counts = reader.numbers(directory, counts_tag)?;
    let counts = counts.ok_or_else(|| reader.malformed(at, missing))?;
    let tables = match (layout.codec, layout.colours) {
        (Codec::Jpeg, _) => reader.shared(directory, 347)?,
        (_, Colours::Palette) => layout::palette(reader, directory, layout.bits)?,
        _ => Bytes::new(),
    };
    let (columns, rows) = (width.div_ceil(layout.width), height.div_ceil(layout.height));
    let tiles = u64::from(columns) * u64::from(rows);
    let parts = tiles * if layout.planes { u64::from(layout.samples) } else { 1 };
    if parts > offsets.len() as u64 || parts > counts.len() as u64 {
        let what =
            format!("{parts} tiles, but offsets of only {}", offsets.len().min(counts.len()));
        return Err(reader.malformed(at, what));
    }
    let source = Arc::clone(reader.source);
    let plane = tiles as usize;
    let apart = reader.number(directory, 277)?.unwrap_or(1) > 1
        && reader.number(directory, 284)?.unwrap_or(1) != 1;
    let table =
        Table { source, height, columns, layout, strips, apart, plane, offsets, counts, tables };
    let empty = (0..plane).filter(|number| table.is_empty(*number)).count() as u64;
    let dense = (0..plane).take_while(|number| !table.is_empty(*number)).count() as u64;
    // Complete up to some tile, then empty for at least one row.
    if dense + empty == tiles && empty >= u64::from(columns) {
        let what = match dense {
            0 => format!("an image of {width} x {height} pixels has nothing but empty tiles"),
            _ => format!(
                "an image of {width} x {height} pixels ends after {dense} of {tiles} tiles: it was \
                 not written to its end"
            ),
        };
        return Err(reader.malformed(at, what));
    }
    Ok(Grid { width, height, layout, empty, tiles: Box::new(table) })
}

impl Table {
    /// Indices of the parts of a tile.
    fn parts(&self, number: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let parts = if self.layout.planes { usize::from(self.layout.samples) } else { 1 };
        let plane = self.plane;
        (0..parts).map(move |part| number + part * plane)
    }

    fn is_empty(&self, number: usize) -> bool {
        self.parts(number).all(|part| self.counts[part] == 0)
    }
}

impl Table {
    /// A tile made of these parts.
    fn read(
        &self,
        limits: &Limits,
        name: String,
        row: u32,
        mut layout: Layout,
        parts: impl Iterator<Item = usize> + Clone,
    ) -> Result<StoredTile> {
        if self.strips {
            layout.height = layout.height.min(self.height - row * layout.height);
        }
        let length = parts.clone().fold(0_u64, |sum, at| sum.saturating_add(self.counts[at]));
        if length > limits.stored {
            return Err(Error::Limit { name, what: format!("a tile of {length} bytes") });
        }
        if length == 0 {
            layout.codec = Codec::Absent;
        } else if parts.clone().any(|at| self.counts[at] == 0) {
            let what = "some of its samples have no bytes".into();
            return Err(Error::Tile { tile: name, what });
        }
        let (mut tables, mut bytes) = (self.tables.clone(), Vec::new());
        let mut lengths = Vec::new();
        for number in parts {
            let (at, length) = (self.offsets[number], self.counts[number]);
            // The header is at 0.
            if length > 0 && at == 0 {
                return Err(Error::Tile {
                    tile: name,
                    what: "the file does not say where it is".into(),
                });
            }
            if length > 0 {
                let part = source::read(&*self.source, at, length)?;
                bytes = if bytes.is_empty() { part } else { [bytes, part].concat() };
            }
            // At most as much as a tile may have.
            lengths.extend((length as u32).to_le_bytes());
        }
        if layout.planes {
            tables = lengths.into();
        }
        Ok(StoredTile { name, layout, halvings: 0, tables, bytes: bytes.into() })
    }
}

impl Tiles for Table {
    fn tile(
        &self,
        limits: &Limits,
        name: String,
        position: (u32, u32),
        _: Plane,
    ) -> Result<StoredTile> {
        let (column, row) = position;
        let number = row as usize * self.columns as usize + column as usize;
        self.read(limits, name, row, self.layout, self.parts(number))
    }

    /// Channels are the samples of a pixel.
    fn sheets(
        &self,
        limits: &Limits,
        name: String,
        position: (u32, u32),
        _: Plane,
        channels: &[u32],
    ) -> Result<Vec<Picked>> {
        let (column, row) = position;
        let number = row as usize * self.columns as usize + column as usize;
        // Areas that were not scanned have no signal.
        let layout = Layout { fill: 0.0, ..self.layout };
        let width = layout.width;
        if !self.apart {
            let tile = self.read(limits, name, row, layout, iter::once(number))?;
            let pick = |sample: &u32| {
                (*sample, Pick::beside((*sample).into(), layout.samples.into(), width))
            };
            return Ok(vec![Picked { tile, picks: channels.iter().map(pick).collect() }]);
        }
        let layout = Layout { samples: 1, planes: false, ..layout };
        let mut sheets = Vec::with_capacity(channels.len());
        for sample in channels {
            let part = number + *sample as usize * self.plane;
            if part >= self.offsets.len().min(self.counts.len()) {
                let what = format!("the file does not say where sample {sample} is");
                return Err(Error::Tile { tile: name, what });
            }
            let tile = self.read(limits, name.clone(), row, layout, iter::once(part))?;
            sheets.push(Picked { tile, picks: vec![(*sample, Pick::alone(width))] });
        }
        Ok(sheets)
    }
}

/// Width and height.
pub(super) fn size(reader: &mut Reader<'_>, directory: &Directory) -> Result<(u32, u32)> {
    let width = reader.number(directory, 256)?.unwrap_or(0);
    let height = reader.number(directory, 257)?.unwrap_or(0);
    if width == 0 || height == 0 {
        return Err(reader.malformed(directory.at, "an image without pixels"));
    }
    if width.max(height) > u64::from(reader.limits.side) {
        return Err(reader.limit(format!("an image of {width} x {height} pixels")));
    }
    Ok((width as u32, height as u32))
}
