//! A slide: levels, tiles and regions.

use crate::blend::Tile;
use crate::channels::{Plane, Rendering};
use crate::codec::Codec;
use crate::grid::{Grid, Parts};
use crate::http::{HttpSource, HttpStore};
use crate::raster::Raster;
use crate::samples::{Colours, Layout};
use crate::source::Source;
use crate::tile::StoredTile;
use crate::zarr::Store;
use crate::{CachedSource, Dicom, Error, Limits, Result, formats, openslide};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Memory for cached blocks of a file on a web server.
const REMOTE: u64 = 32 << 20;

/// Maximum pixels of larger levels that are read to draw the empty tiles of one region.
const DRAWN: u64 = 32 << 20;

/// A rendering in progress.
struct Drawing<'a> {
    rendering: &'a Rendering,
    /// How many pixels of larger levels may still be read to draw empty tiles.
    left: u64,
}

impl<'a> Drawing<'a> {
    fn new(rendering: &'a Rendering) -> Self {
        Self { rendering, left: DRAWN }
    }
}

/// One level of a slide. Sizes are in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
    /// A tile's width.
    pub tile_width: u32,
    /// A tile's height.
    pub tile_height: u32,
    /// Pixels of level 0 per pixel of this level, along a side.
    pub downsample: f64,
}

/// A part of a level. It may extend beyond the level, where everything is white.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The left side, in pixels of the level.
    pub x: i64,
    /// The upper side, in pixels of the level.
    pub y: i64,
    /// In pixels of the level.
    pub width: u32,
    /// In pixels of the level.
    pub height: u32,
}

/// An open slide. Any number of threads may use it at once.
pub struct Slide {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) parts: Parts,
}

impl Slide {
    /// Opens a file, a directory, or an address that begins with `http://` or `https://`. A
    /// directory holds an OME-Zarr image, or the files of one DICOM series. A DICOM file is opened
    /// together with the others of its series in the same directory. An address is that of a file,
    /// or of an OME-Zarr image if its path ends in `.zarr`. If the limits allow it, OpenSlide tries
    /// files that the readers here do not support, except TIFF files that are not from a scanner.
    ///
    /// Symbolic links in a directory, or beside a DICOM file, are followed only to targets inside
    /// that directory.
    ///
    /// # Errors
    /// A location that cannot be read, has no known format, is malformed, or exceeds the limits.
    pub fn open(location: &str, limits: Limits) -> Result<Self> {
        let schemes = ["http://", "https://", "s3://"];
        if schemes.iter().any(|scheme| location.starts_with(scheme)) {
            let store = HttpStore::new(location)?;
            if store.name().ends_with(".zarr") {
                return Self::from_store(store, limits);
            }
            return Self::from_source(
                CachedSource::new(HttpSource::open(location)?, REMOTE),
                limits,
            );
        }
        let parts = formats::at(Path::new(location), None, &limits)?;
        Ok(Self { name: location.into(), limits, parts })
    }

    /// Opens a file or a directory, and follows symbolic links only to targets inside the directory
    /// `root`.
    ///
    /// # Errors
    /// As [`open`](Self::open); also a location outside `root`.
    pub fn open_within(location: &str, root: &Path, limits: Limits) -> Result<Self> {
        let parts = formats::at(Path::new(location), Some(root), &limits)?;
        Ok(Self { name: location.into(), limits, parts })
    }

    /// Opens a scanner's file with OpenSlide, even if its format is supported here.
    ///
    /// # Errors
    /// As [`open`](Self::open); also if OpenSlide is not installed, or the file is a TIFF that is
    /// not from a scanner.
    pub fn through_openslide(path: &Path, limits: Limits) -> Result<Self> {
        let name = path.display().to_string();
        match openslide::open(path, &limits) {
            Ok(parts) => Ok(Self { name, limits, parts }),
            Err(why) => Err(why.error(name)),
        }
    }

    /// Opens a slide in a custom source, in a format that uses one file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_source(source: impl Source + 'static, limits: Limits) -> Result<Self> {
        let name = source.name().to_owned();
        let parts = formats::of(&(Arc::new(source) as Arc<dyn Source>), &limits)?;
        Ok(Self { name, limits, parts })
    }

    /// Opens an OME-Zarr image in a custom store.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_store(store: impl Store + 'static, limits: Limits) -> Result<Self> {
        let name = store.name().to_owned();
        let parts = crate::zarr::open(Arc::new(store), &limits)?;
        Ok(Self { name, limits, parts })
    }

    /// `tiff`, `aperio`, `imagej`, `ome-tiff`, `qptiff`, `dicom` or `ome-zarr`; `openslide` for
    /// files that OpenSlide reads, whose property `openslide.vendor` names the format.
    pub fn format(&self) -> &'static str {
        self.parts.format
    }

    /// Identifies the files that the slide consists of, and their states when it was opened: an equal
    /// text means the same slide. The chunks of an OME-Zarr image are not examined, only the files
    /// that describe it. `None` if that is not known: OpenSlide has the files, or the web server
    /// names no versions of its own.
    pub fn state(&self) -> Option<&str> {
        self.parts.state.as_deref()
    }

    /// The DICOM series, for DICOMweb; `None` for other formats.
    pub fn dicom(&self) -> Option<&Dicom> {
        self.parts.dicom.as_ref()
    }

    /// The levels, the largest first; there is at least one.
    pub fn levels(&self) -> Vec<Level> {
        let main = self.parts.levels[0].width;
        let level = |grid: &Grid| Level {
            width: grid.width,
            height: grid.height,
            tile_width: grid.layout.width,
            tile_height: grid.layout.height,
            downsample: f64::from(main) / f64::from(grid.width),
        };
        self.parts.levels.iter().map(level).collect()
    }

    /// For each level, the number of tiles without bytes in the file. Such a tile is drawn from the
    /// next larger level; in level 0 it is white.
    pub fn empty_tiles(&self) -> Vec<u64> {
        self.parts.levels.iter().map(|level| level.empty).collect()
    }

    /// True if tiles of a level may have to be drawn when they are read, from tiles of larger
    /// levels.
    pub fn draws(&self, level: usize) -> bool {
        level > 0 && self.parts.levels.get(level).is_some_and(|grid| grid.empty > 0)
    }

    /// Maximum bytes of memory for a stored tile of a level while it is decoded. A tile may have
    /// far more samples than are shown.
    pub fn decoding(&self, level: usize) -> u64 {
        self.parts.levels.get(level).map_or(0, Grid::decoding)
    }

    /// The same for an associated image.
    pub fn associated_decoding(&self, name: &str) -> u64 {
        self.parts.associated.get(name).map_or(0, Grid::decoding)
    }

    /// Microns per pixel of level 0, along x and y.
    pub fn microns_per_pixel(&self) -> Option<(f64, f64)> {
        self.parts.microns
    }

    /// The properties in the file; keys begin with the format, as in `aperio.AppMag`.
    pub fn properties(&self) -> &BTreeMap<String, String> {
        &self.parts.properties
    }

    /// The colour profile of the levels.
    pub fn icc(&self) -> Option<&[u8]> {
        self.parts.icc.as_deref()
    }

    /// The names of the associated images: those of `label`, `macro` and `thumbnail` that exist.
    pub fn associated_names(&self) -> impl Iterator<Item = &str> {
        self.parts.associated.keys().map(String::as_str)
    }

    /// Width and height of an associated image, without reading it.
    pub fn associated_size(&self, name: &str) -> Option<(u32, u32)> {
        self.parts.associated.get(name).map(|grid| (grid.width, grid.height))
    }

    /// An associated image; `None` if none has that name.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn associated(&self, name: &str) -> Result<Option<Raster>> {
        let Some(grid) = self.parts.associated.get(name) else { return Ok(None) };
        let whole = Region { x: 0, y: 0, width: grid.width, height: grid.height };
        let mut drawing = Drawing { rendering: &Rendering::default(), left: 0 };
        self.assemble(grid, None, name, whole, &mut drawing).map(Some)
    }

    /// A tile as stored, of a slide without channels, in the default plane.
    ///
    /// # Errors
    /// A level or tile that does not exist, and read errors.
    pub fn tile(&self, level: usize, column: u32, row: u32) -> Result<StoredTile> {
        match self.tile_of(level, (column, row), &self.rendering())? {
            Tile::Stored(tile) => Ok(tile),
            Tile::Blend(_) => Err(Error::Argument("a tile of channels is not stored".into())),
        }
    }

    /// A tile in a rendering.
    ///
    /// # Errors
    /// A level, tile, plane or channel that does not exist, and read errors.
    pub fn tile_of(
        &self,
        level: usize,
        position: (u32, u32),
        rendering: &Rendering,
    ) -> Result<Tile> {
        let (column, row) = position;
        let grid = self.grid(level)?;
        if column >= grid.columns() || row >= grid.rows() {
            return Err(Error::Argument(format!("level {level} has no tile {column}, {row}")));
        }
        self.check(rendering)?;
        let part = format!("level {level}");
        self.drawn(grid, Some(level), &part, position, &mut Drawing::new(rendering))
    }

    /// The complete JPEG stored for exactly this region, if there is one: if the region is one tile
    /// that does not extend beyond the level.
    ///
    /// # Errors
    /// As [`tile`](Self::tile).
    pub fn stored_jpeg(&self, level: usize, region: Region) -> Result<Option<Vec<u8>>> {
        let grid = self.grid(level)?;
        let (wide, high) = (i64::from(grid.layout.width), i64::from(grid.layout.height));
        let fits = grid.layout.codec == Codec::Jpeg
            && self.parts.stack.channels.is_empty()
            // Black and white would be swapped.
            && grid.layout.colours != Colours::Inverted
            && (region.width, region.height) == (grid.layout.width, grid.layout.height)
            && region.x >= 0
            && region.y >= 0
            && region.x <= i64::from(grid.width) - wide
            && region.y <= i64::from(grid.height) - high
            && region.x % wide == 0
            && region.y % high == 0;
        if !fits {
            return Ok(None);
        }
        let (column, row) = ((region.x / wide) as u32, (region.y / high) as u32);
        let plane = self.parts.stack.plane;
        let jpeg = self.stored(grid, &format!("level {level}"), (column, row), plane)?.jpeg()?;
        let is_whole = |jpeg: &Vec<u8>| {
            crate::jpeg::header(jpeg).is_some_and(|header| {
                (header.width, header.height) == (region.width, region.height) && header.is_common
            })
        };
        Ok(jpeg.filter(is_whole))
    }

    /// The pixels of a region.
    ///
    /// # Errors
    /// A level that does not exist, a region that is empty or exceeds the limits, and read or
    /// decode errors of its tiles.
    pub fn read(&self, level: usize, region: Region) -> Result<Raster> {
        self.read_as(level, region, &self.rendering())
    }

    /// The pixels of a region in a rendering.
    ///
    /// # Errors
    /// As [`read`](Self::read); also a plane or channel that does not exist.
    pub fn read_as(&self, level: usize, region: Region, rendering: &Rendering) -> Result<Raster> {
        self.check(rendering)?;
        self.level(level, region, &mut Drawing::new(rendering))
    }

    fn level(&self, level: usize, region: Region, drawing: &mut Drawing<'_>) -> Result<Raster> {
        self.assemble(self.grid(level)?, Some(level), &format!("level {level}"), region, drawing)
    }

    /// A region of level 0, scaled to `width` x `height` from the smallest level that is large
    /// enough.
    ///
    /// # Errors
    /// As [`read`](Self::read); also a size of zero or beyond the limits.
    pub fn render(&self, region: Region, width: u32, height: u32) -> Result<Raster> {
        self.area(width, height)?;
        let wanted = (f64::from(region.width) / f64::from(width))
            .min(f64::from(region.height) / f64::from(height));
        let main = &self.parts.levels[0];
        let (level, grid) = (self.parts.levels.iter().enumerate())
            .take_while(|(level, grid)| {
                *level == 0 || f64::from(main.width) / f64::from(grid.width) <= wanted + 1e-9
            })
            .last()
            .unwrap_or((0, main));
        let across = f64::from(grid.width) / f64::from(main.width);
        let down = f64::from(grid.height) / f64::from(main.height);
        let (left, top) = (region.x as f64 * across, region.y as f64 * down);
        let (wide, high) = (f64::from(region.width) * across, f64::from(region.height) * down);
        let rendering = self.rendering();
        let mut drawing = Drawing::new(&rendering);
        self.scaled(level, (left, top, wide, high), (width, height), &mut drawing)
    }

    /// A part of a level, from `left`, `top` on, scaled.
    fn scaled(
        &self,
        level: usize,
        part: (f64, f64, f64, f64),
        size: (u32, u32),
        drawing: &mut Drawing<'_>,
    ) -> Result<Raster> {
        let (left, top, wide, high) = part;
        let (width, height) = size;
        let whole = Region {
            x: left.floor() as i64,
            y: top.floor() as i64,
            width: (left - left.floor() + wide).ceil().max(1.0) as u32,
            height: (top - top.floor() + high).ceil().max(1.0) as u32,
        };
        let raster = self.level(level, whole, drawing)?;
        let (left, top) = (left - left.floor(), top - top.floor());
        let wide = wide.min(f64::from(whole.width) - left);
        let high = high.min(f64::from(whole.height) - top);
        raster.scale((left, top, wide, high), width, height)
    }

    pub(crate) fn grid(&self, level: usize) -> Result<&Grid> {
        let none = || Error::Argument(format!("{}: no level {level}", self.name));
        self.parts.levels.get(level).ok_or_else(none)
    }

    fn stored(
        &self,
        grid: &Grid,
        part: &str,
        position: (u32, u32),
        plane: Plane,
    ) -> Result<StoredTile> {
        let (column, row) = position;
        let name = format!("{}: {part}, tile {column}, {row}", self.name);
        let mut tile = grid.tiles.tile(&self.limits, name, (column, row), plane)?;
        tile.layout.window = grid.layout.window;
        Ok(tile)
    }

    /// A tile of a level or of an associated image, without channels.
    fn drawn(
        &self,
        grid: &Grid,
        level: Option<usize>,
        part: &str,
        position: (u32, u32),
        drawing: &mut Drawing<'_>,
    ) -> Result<Tile> {
        match level {
            Some(_) if !self.parts.stack.channels.is_empty() => {
                self.blend(grid, part, position, drawing.rendering).map(Tile::Blend)
            }
            _ => self.filled(grid, level, part, position, drawing).map(Tile::Stored),
        }
    }

    /// A tile, drawn from the next larger level if it is empty.
    fn filled(
        &self,
        grid: &Grid,
        level: Option<usize>,
        part: &str,
        position: (u32, u32),
        drawing: &mut Drawing<'_>,
    ) -> Result<StoredTile> {
        let tile = self.stored(grid, part, position, drawing.rendering.plane)?;
        let (column, row) = position;
        let larger = level.and_then(|level| level.checked_sub(1));
        let Some(larger) = larger.filter(|_| tile.layout.codec == Codec::Absent && grid.empty > 0)
        else {
            return Ok(tile);
        };
        let from = self.grid(larger)?;
        let (x, y) = (column * grid.layout.width, row * grid.layout.height);
        let width = tile.layout.width.min(grid.width - x);
        let height = tile.layout.height.min(grid.height - y);
        let across = f64::from(from.width) / f64::from(grid.width);
        let down = f64::from(from.height) / f64::from(grid.height);
        let position = (f64::from(x) * across, f64::from(y) * down);
        let size = (f64::from(width) * across, f64::from(height) * down);
        // The larger level may have empty tiles as well, and so on: all pixels read count.
        let left = drawing.left.checked_sub((size.0.ceil() * size.1.ceil()) as u64);
        drawing.left = left.ok_or_else(|| Error::Limit {
            name: tile.name.clone(),
            what: "it is empty, and so are too many tiles of larger levels".into(),
        })?;
        let part = (position.0, position.1, size.0, size.1);
        let pixels = self.scaled(larger, part, (width, height), drawing)?;
        let layout = Layout::of_bytes((tile.layout.width, tile.layout.height), Codec::Raw);
        let mut whole = Raster::white(layout.width, layout.height);
        whole.paste(&pixels, (width, height), 0, 0);
        Ok(StoredTile { layout, tables: Bytes::new(), bytes: whole.into_pixels().into(), ..tile })
    }

    fn area(&self, width: u32, height: u32) -> Result<()> {
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 {
            return Err(Error::Argument("a region without pixels".into()));
        }
        if pixels > self.limits.region_pixels {
            let what = format!("a region of {width} x {height} pixels");
            return Err(Error::Limit { name: self.name.clone(), what });
        }
        Ok(())
    }

    fn assemble(
        &self,
        grid: &Grid,
        level: Option<usize>,
        part: &str,
        region: Region,
        drawing: &mut Drawing<'_>,
    ) -> Result<Raster> {
        self.area(region.width, region.height)?;
        let mut raster = Raster::white(region.width, region.height);
        let tiles = |start: i64, length: u32, side: u32, whole: u32| {
            let end = start.saturating_add(i64::from(length)).clamp(0, i64::from(whole));
            let start = start.clamp(0, i64::from(whole));
            let side = i64::from(side);
            let end = if end > start { (end - 1) / side + 1 } else { start / side };
            (start / side) as u32..end as u32
        };
        let layout = grid.layout;
        for row in tiles(region.y, region.height, layout.height, grid.height) {
            for column in tiles(region.x, region.width, layout.width, grid.width) {
                let tile = self.drawn(grid, level, part, (column, row), drawing)?;
                let tile = tile.decode(&self.limits)?;
                let (x, y) = (column * layout.width, row * layout.height);
                let inside = (grid.width - x, grid.height - y);
                // Beyond the border of the level it may end.
                if tile.width() < layout.width.min(inside.0)
                    || tile.height() < layout.height.min(inside.1)
                {
                    let what = format!("it has only {} x {} pixels", tile.width(), tile.height());
                    let tile = format!("{}: {part}, tile {column}, {row}", self.name);
                    return Err(Error::Tile { tile, what });
                }
                // The ranges above ensure that the tile and the region overlap, so nothing
                // overflows.
                raster.paste(&tile, inside, i64::from(x) - region.x, i64::from(y) - region.y);
            }
        }
        Ok(raster)
    }
}
