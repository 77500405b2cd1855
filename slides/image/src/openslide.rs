//! Slides read by OpenSlide: formats without a reader here, and files that the readers here refuse.
//! OpenSlide 3.4 returns uninitialised memory, which may hold pixels of another slide, for an image
//! in TIFF that is smaller than its tiles and is decoded by libtiff. So it is never used for TIFF
//! files that are not from a scanner, nor for scanner files that have such an image.
//!
//! OpenSlide decodes what it reads, so a tile is its pixels.

use crate::channels::Plane;
use crate::codec::Codec;
use crate::grid::{Grid, Parts, Tiles, microns};
use crate::samples::Layout;
use crate::source::{FileSource, Source};
use crate::tile::StoredTile;
use crate::{Error, Limits, Result, tiff};
use bytes::Bytes;
use seekwire_openslide::{self as openslide, Library};
use std::path::Path;
use std::sync::Arc;

/// Sides of tiles if OpenSlide does not report how they are stored.
const SIDE: u32 = 512;

/// Prefix of messages about tiles for which there is no decoder.
const COMPRESSION: &str = "compression by ";

/// Opens a file that the readers here have refused, or reports why not.
pub(crate) fn instead(path: &Path, limits: &Limits, name: String, what: String) -> Result<Parts> {
    // Opening a FIFO might wait forever for a writer.
    if !path.is_file() {
        return Err(Error::Unsupported { name, what });
    }
    if !limits.openslide {
        let what = format!("{what} (OpenSlide, which may read it, is not allowed)");
        return Err(Error::Unsupported { name, what });
    }
    open(path, limits).map_err(|why| match why {
        OpenslideRefusal::OpenSlide(openslide::Error::Generic) => Error::Unsupported { name, what },
        OpenslideRefusal::Small(small) => {
            Error::Unsupported { name, what: format!("{what}; {small}") }
        }
        OpenslideRefusal::OpenSlide(openslide::Error::Unknown) => {
            Error::Unsupported { name, what: format!("{what}; OpenSlide does not read it either") }
        }
        OpenslideRefusal::OpenSlide(error @ openslide::Error::Missing(_)) => {
            let install = "install OpenSlide (on Debian: libopenslide0), which may read it";
            Error::Unsupported { name, what: format!("{what}; {install}. {error}") }
        }
        // The file is valid, as the readers here have found: it is just not supported.
        OpenslideRefusal::OpenSlide(error) if what.starts_with(COMPRESSION) => Error::Unsupported {
            name,
            what: format!("{what}; OpenSlide does not read it: {error}"),
        },
        why => why.error(name),
    })
}

/// Why OpenSlide does not read a file.
pub(crate) enum OpenslideRefusal {
    OpenSlide(openslide::Error),
    Limit(String),
    /// An image is smaller than its tiles.
    Small(String),
    Own(Error),
}

impl From<openslide::Error> for OpenslideRefusal {
    fn from(error: openslide::Error) -> Self {
        Self::OpenSlide(error)
    }
}

impl OpenslideRefusal {
    /// The error for a file.
    pub(crate) fn error(self, name: String) -> Error {
        match self {
            Self::Limit(what) => Error::Limit { name, what },
            Self::Small(what) => Error::Unsupported { name, what },
            Self::Own(error) => error,
            Self::OpenSlide(
                error @ (openslide::Error::Missing(_)
                | openslide::Error::Unknown
                | openslide::Error::Generic),
            ) => Error::Unsupported { name, what: error.to_string() },
            Self::OpenSlide(error) => {
                // Other files of the slide appear with their paths.
                let parent = Path::new(&name).parent().unwrap_or(Path::new(""));
                let what = error.to_string().replace(&format!("{}/", parent.display()), "");
                Error::OpenSlide { name, what }
            }
        }
    }
}

/// Opens a file.
pub(crate) fn open(path: &Path, limits: &Limits) -> std::result::Result<Parts, OpenslideRefusal> {
    let slide = Arc::new(openslide::Slide::open(Library::get()?, path)?);
    let source: Arc<dyn Source> = Arc::new(FileSource::open(path).map_err(OpenslideRefusal::Own)?);
    if let Some(size) =
        tiff::smaller_than_its_tiles(&source, limits).map_err(OpenslideRefusal::Own)?
    {
        let what = "OpenSlide is not used because it may fill tiles with memory of other slides";
        return Err(OpenslideRefusal::Small(format!("{what}: {size}")));
    }
    if slide.levels().len() > limits.directories {
        return Err(OpenslideRefusal::Limit(format!("{} levels", slide.levels().len())));
    }
    let properties = slide.properties(limits.value as usize)?;
    let number = |name: &str| properties.get(name).and_then(|text| text.parse().ok());
    let pixel = number("openslide.mpp-x").zip(number("openslide.mpp-y"));
    let mut parts = Parts {
        format: "openslide",
        microns: pixel.and_then(|(x, y)| microns(x, y)),
        icc: slide.icc(limits.profile as usize)?,
        ..Parts::default()
    };
    for (number, level) in slide.levels().iter().enumerate() {
        let side = |side: u64| {
            u32::try_from(side).ok().filter(|side| *side <= limits.side).ok_or_else(|| {
                OpenslideRefusal::Limit(format!(
                    "a level of {} x {} pixels",
                    level.width, level.height
                ))
            })
        };
        let (width, height) = (side(level.width)?, side(level.height)?);
        let is_usable = |(width, height): &(u32, u32)| {
            (64..=2048).contains(width)
                && (64..=2048).contains(height)
                && u64::from(*width) * u64::from(*height) <= limits.tile_pixels
        };
        let layout =
            Layout::of_bytes(level.tile.filter(is_usable).unwrap_or((SIDE, SIDE)), Codec::Raw);
        let tiles = Box::new(Level { slide: Arc::clone(&slide), number, layout });
        parts.levels.push(Grid { width, height, layout, empty: 0, tiles });
    }
    for (name, (width, height)) in slide.associated()? {
        let pixels = u64::from(width) * u64::from(height);
        let is_known = ["label", "macro", "thumbnail"].contains(&name.as_str());
        if is_known && (1..=limits.tile_pixels.min(limits.region_pixels)).contains(&pixels) {
            let layout = Layout::of_bytes((width, height), Codec::Raw);
            let slide = Arc::clone(&slide);
            let tiles = Box::new(Associated { slide, name: name.clone(), layout });
            parts.associated.insert(name, Grid { width, height, layout, empty: 0, tiles });
        }
    }
    parts.properties = properties;
    parts.sort("openslide.NotShown");
    Ok(parts)
}

struct Level {
    slide: Arc<openslide::Slide>,
    number: usize,
    layout: Layout,
}

struct Associated {
    slide: Arc<openslide::Slide>,
    name: String,
    layout: Layout,
}

impl Tiles for Level {
    fn tile(&self, _: &Limits, name: String, position: (u32, u32), _: Plane) -> Result<StoredTile> {
        let (column, row) = position;
        let Layout { width, height, .. } = self.layout;
        // The sides were checked when the slide was opened.
        let (x, y) = (u64::from(column) * u64::from(width), u64::from(row) * u64::from(height));
        let pixels = self.slide.read(self.number, x, y, width, height);
        stored(name, self.layout, pixels)
    }
}

impl Tiles for Associated {
    fn tile(&self, _: &Limits, name: String, _: (u32, u32), _: Plane) -> Result<StoredTile> {
        let Layout { width, height, .. } = self.layout;
        let most = u64::from(width) * u64::from(height);
        let read = self.slide.read_associated(&self.name, most);
        let same = read.and_then(|(wide, high, pixels)| match (wide, high) == (width, height) {
            true => Ok(pixels),
            false => Err(openslide::Error::Broken("an image has changed".into())),
        });
        stored(name, self.layout, same)
    }
}

fn stored(name: String, layout: Layout, pixels: openslide::Result<Vec<u8>>) -> Result<StoredTile> {
    match pixels {
        Ok(pixels) => {
            let (tables, bytes) = (Bytes::new(), pixels.into());
            Ok(StoredTile { name, layout, halvings: 0, tables, bytes })
        }
        Err(error) => Err(Error::Tile { tile: name, what: error.to_string() }),
    }
}
