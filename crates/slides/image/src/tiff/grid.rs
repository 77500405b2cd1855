//! The tiles of one directory. Strips are tiles as wide as the image.

use super::directory::{Directory, Reader};
use crate::codec::Codec;
use crate::grid::{Grid, Tiles};
use crate::source::{self, Source};
use crate::tile::{Colours, Layout, StoredTile};
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::sync::Arc;

/// Where the tiles of an image are.
struct Table {
    source: Arc<dyn Source>,
    height: u32,
    columns: u32,
    layout: Layout,
    strips: bool,
    offsets: Vec<u64>,
    counts: Vec<u64>,
    tables: Bytes,
}

/// Reads the image of a directory.
pub(super) fn read(reader: &mut Reader<'_>, directory: &Directory) -> Result<Grid> {
    let at = directory.at;
    let (width, height) = size(reader, directory)?;
    let strips = !directory.has(322);
    let (tile_width, tile_height, places, lengths) = if strips {
        let rows = reader.number(directory, 278)?.unwrap_or(u64::MAX);
        (u64::from(width), rows.min(height.into()), 273, 279)
    } else {
        let wide = reader.number(directory, 322)?.unwrap_or(0);
        (wide, reader.number(directory, 323)?.unwrap_or(0), 324, 325)
    };
    let pixels = tile_width.checked_mul(tile_height);
    if pixels.is_none_or(|pixels| pixels > reader.limits.tile_pixels) {
        return Err(reader.limit(format!("tiles of {tile_width} x {tile_height} pixels")));
    }
    if pixels == Some(0) {
        return Err(reader.malformed(at, "tiles without pixels"));
    }
    let layout = layout(reader, directory, tile_width as u32, tile_height as u32)?;
    let missing = "no table of where the tiles are";
    let offsets = reader.numbers(directory, places)?;
    let offsets = offsets.ok_or_else(|| reader.malformed(at, missing))?;
    let counts = reader.numbers(directory, lengths)?;
    let counts = counts.ok_or_else(|| reader.malformed(at, missing))?;
    let tables = match layout.codec {
        Codec::Jpeg => reader.shared(directory, 347)?,
        _ => Bytes::new(),
    };
    let (columns, rows) = (width.div_ceil(layout.width), height.div_ceil(layout.height));
    let tiles = u64::from(columns) * u64::from(rows);
    if tiles > offsets.len() as u64 || tiles > counts.len() as u64 {
        let what = format!("{tiles} tiles, but places of only {}", offsets.len());
        return Err(reader.malformed(at, what));
    }
    let source = Arc::clone(reader.source);
    let table = Table { source, height, columns, layout, strips, offsets, counts, tables };
    Ok(Grid { width, height, layout, tiles: Box::new(table) })
}

impl Tiles for Table {
    fn tile(&self, limits: &Limits, name: String, (column, row): (u32, u32)) -> Result<StoredTile> {
        let number = row as usize * self.columns as usize + column as usize;
        let (at, length) = (self.offsets[number], self.counts[number]);
        let mut layout = self.layout;
        if self.strips {
            layout.height = layout.height.min(self.height - row * layout.height);
        }
        if length > limits.stored {
            return Err(Error::Limit { name, what: format!("a tile of {length} bytes") });
        }
        if length == 0 {
            layout.codec = Codec::Absent;
        }
        let bytes = if length == 0 { Vec::new() } else { source::read(&*self.source, at, length)? };
        Ok(StoredTile {
            name,
            layout,
            halvings: 0,
            tables: self.tables.clone(),
            bytes: bytes.into(),
        })
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

fn layout(reader: &mut Reader<'_>, of: &Directory, width: u32, height: u32) -> Result<Layout> {
    let codec = match reader.number(of, 259)?.unwrap_or(1) {
        1 => Codec::Raw,
        5 => Codec::Lzw,
        7 => Codec::Jpeg,
        8 | 32946 => Codec::Deflate,
        33003 | 33005 | 34712 => return Err(reader.unsupported("compression by JPEG 2000")),
        other => return Err(reader.unsupported(format!("compression {other}"))),
    };
    let colours = match reader.number(of, 262)?.unwrap_or(1) {
        0 => Colours::Inverted,
        1 => Colours::Grey,
        2 => Colours::Rgb,
        6 if codec == Codec::Jpeg => Colours::YCbCr,
        other => return Err(reader.unsupported(format!("photometric interpretation {other}"))),
    };
    let samples = reader.number(of, 277)?.unwrap_or(1);
    let needed = if matches!(colours, Colours::Rgb | Colours::YCbCr) { 3 } else { 1 };
    if !(needed..=16).contains(&samples) {
        return Err(reader.unsupported(format!("{samples} samples of a pixel")));
    }
    if samples > 1 && reader.number(of, 284)?.unwrap_or(1) != 1 {
        return Err(reader.unsupported("samples in planes of their own"));
    }
    let bits = reader.numbers(of, 258)?.unwrap_or_else(|| vec![1]);
    let same = bits.iter().all(|each| Some(each) == bits.first());
    let bits = match bits.first() {
        Some(8) if same => 8,
        Some(16) if same && codec != Codec::Jpeg => 16,
        _ => return Err(reader.unsupported(format!("samples of {:?} bits", bits.first()))),
    };
    if reader.number(of, 339)?.unwrap_or(1) != 1 {
        return Err(reader.unsupported("samples that are not whole numbers without sign"));
    }
    let differences = match reader.number(of, 317)?.unwrap_or(1) {
        1 => false,
        2 => matches!(codec, Codec::Lzw | Codec::Deflate),
        other => return Err(reader.unsupported(format!("predictor {other}"))),
    };
    Ok(Layout {
        width,
        height,
        codec,
        colours,
        samples: samples as u8,
        bits,
        differences,
        big_endian: reader.numbers.big_endian,
        planes: false,
        window: None,
        fill: if colours == Colours::Inverted { 0 } else { u16::MAX },
    })
}
