//! Planes of one image: channels, focal planes and times, each in its own directory. Channels may
//! also be the samples of a pixel. Pages that are not certainly planes of the same image are left
//! out.

use super::directory::{Directory, Reader, SUB_IFDS};
use super::page::{self, NOT_SHOWN, Page, Unmarked};
use super::{grid, window};
use crate::auto_window::Measure;
use crate::channels::{self, ChannelMetadata, Plane, Stack};
use crate::grid::{Grid, Parts, Picked, Tiles, together};
use crate::samples::Number;
use crate::tile::StoredTile;
use crate::{Limits, Result};
use std::ops::Range;

/// Further tags that must agree between planes of one image: sizes of tiles and strips.
const ALIKE: [u16; 3] = [322, 323, 278];

/// An image as the file describes it.
#[derive(Debug)]
pub(super) struct Described {
    /// The channels; each page has [`samples`](Self::samples) of them.
    pub(super) said: Vec<ChannelMetadata>,
    pub(super) samples: usize,
    /// True if the pixels have their own colours, so there are no channels.
    pub(super) has_colours: bool,
    /// Focal planes and times.
    pub(super) planes: (u32, u32),
}

impl Described {
    /// Planes per channel.
    fn each(&self) -> usize {
        self.planes.0 as usize * self.planes.1 as usize
    }
}

/// The index of a plane among those of its channel.
pub(super) fn number(plane: Plane, times: u32) -> usize {
    plane.z as usize * times as usize + plane.t as usize
}

/// True if the pixels of a page have their own colours, or are grey with white as zero.
pub(super) fn has_colours(page: &Page<'_>) -> bool {
    *page.common(262) != [1]
}

/// True if a single channel needs no window: integers of up to 8 bits, shown in white.
pub(super) fn is_grey(page: &Page<'_>, said: &[ChannelMetadata]) -> bool {
    let [said] = said else { return false };
    matches!(page.common(258)[..], [1..=8])
        && page.common(339)[..] == [1]
        && said.window.is_none()
        && said.colour.is_none_or(|colour| colour == [255; 3])
}

/// True if the samples of a page have this type and size.
pub(super) fn is_of(page: &Page<'_>, number: Number, bits: u64) -> bool {
    let format = match number {
        Number::Unsigned => 1,
        Number::Signed => 2,
        Number::Float => 3,
    };
    *page.common(258) == [bits] && *page.common(339) == [format]
}

/// The reason why a page is not a plane of the same image as `first`; `None` if it is one.
pub(super) fn unlike(
    reader: &mut Reader<'_>,
    first: &Page<'_>,
    page: &Page<'_>,
) -> Result<Option<String>> {
    if page.size != first.size {
        return Ok(Some(format!("its size is {} x {} pixels", page.size.0, page.size.1)));
    }
    if !page.is_like(first) {
        return Ok(Some("its samples or its compression differ".into()));
    }
    for tag in ALIKE {
        if reader.number(page.directory, tag)? != reader.number(first.directory, tag)? {
            return Ok(Some("its tiles have another size".into()));
        }
    }
    Ok(None)
}

/// Makes a slide from the planes of an image, channel by channel in the order of their
/// [numbers](number), and from smaller levels in the same order.
pub(super) fn fill(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    of: Described,
    pages: &[Page<'_>],
    smaller: &[Vec<Page<'_>>],
) -> Result<()> {
    let limit = format!("{} channels, of {} at most", of.said.len(), channels::MOST);
    if of.said.len() as u64 > channels::MOST {
        return Err(reader.limit(limit));
    }
    let stack = Stack::of(of.planes);
    let first = &pages[number(stack.plane, of.planes.1)];
    page::beside(parts, reader, first)?;
    let main = level(reader, &of, pages)?;
    let mut main = main.map_err(|why| reader.unsupported(format!("planes of one image: {why}")))?;
    if of.has_colours {
        main.layout.window = window::of(reader, first.directory, &main)?;
    } else if parts.icc.take().is_some() {
        let why = "not applied: the slide has channels".into();
        parts.properties.insert("tiff.ColourProfile".into(), why);
    }
    let layout = main.layout;
    parts.levels.push(main);
    for pages in smaller {
        match level(reader, &of, pages)? {
            Ok(grid) if !of.has_colours && grid.empty > 0 => {
                parts.not_shown(NOT_SHOWN, &format!("{}: tiles are missing", sized(&grid)));
            }
            Ok(mut grid) => {
                grid.layout.window = layout.window;
                parts.levels.push(grid);
            }
            Err(why) => parts.not_shown(NOT_SHOWN, &why),
        }
    }
    parts.sort(NOT_SHOWN);
    parts.stack = stack;
    if let Some(smallest) = parts.levels.last().filter(|_| !of.has_colours) {
        let name = reader.source.name();
        let mut measure = Measure::new(smallest, name, reader.limits, parts.stack.plane);
        let stack = Stack::of(of.planes);
        parts.stack = stack.with(of.said, &layout, |channel| measure.window(channel))?;
    }
    Ok(())
}

fn sized(grid: &Grid) -> String {
    format!("a level of {} x {} pixels", grid.width, grid.height)
}

/// The levels below the directories of planes, if every plane has them.
pub(super) fn below<'a>(
    reader: &mut Reader<'_>,
    pages: &[Page<'_>],
    directories: &'a [Vec<Directory>],
) -> Result<Vec<Vec<Page<'a>>>> {
    let mut levels: Vec<Vec<Page<'a>>> = Vec::new();
    for (at, (page, directories)) in pages.iter().zip(directories).enumerate() {
        for directory in directories {
            let smaller = Page::read(reader, directory)?;
            if !smaller.is_level_of(page, Unmarked::Always) {
                continue;
            }
            let level = levels.iter_mut().find(|level| level[0].size == smaller.size);
            match level {
                // Each plane has one directory of this size.
                Some(level)
                    if level.len() == at && unlike(reader, &level[0], &smaller)?.is_none() =>
                {
                    level.push(smaller);
                }
                None if at == 0 => levels.push(vec![smaller]),
                _ => {}
            }
        }
    }
    levels.retain(|level| level.len() == pages.len());
    Ok(levels)
}

/// The directories below each of these pages.
pub(super) fn directories(
    reader: &mut Reader<'_>,
    pages: &[Page<'_>],
) -> Result<Vec<Vec<Directory>>> {
    let of = |page: &Page<'_>| match page.directory.has(SUB_IFDS) {
        true => reader.below(page.directory),
        false => Ok(Vec::new()),
    };
    pages.iter().map(of).collect()
}

/// One level of all planes, or the reason why there is none.
fn level(
    reader: &mut Reader<'_>,
    of: &Described,
    pages: &[Page<'_>],
) -> Result<std::result::Result<Grid, String>> {
    let mut grids = Vec::with_capacity(pages.len());
    for page in pages {
        grids.push(grid::read(reader, page.directory)?);
    }
    let Some(first) = grids.first() else { return Ok(Err("there are none".into())) };
    let (size, layout) = ((first.width, first.height), first.layout);
    if grids.iter().any(|grid| (grid.width, grid.height) != size || grid.layout != layout) {
        return Ok(Err(format!("{}: its planes are not alike", sized(first))));
    }
    let empty = grids.iter().map(|grid| grid.empty).max().unwrap_or(0);
    let (each, times) = (of.each(), of.planes.1);
    let samples = if of.has_colours { 1 } else { of.samples as u32 };
    let pages = grids.into_iter().map(|grid| grid.tiles).collect();
    let tiles = Box::new(Stacked { pages, each, times, samples });
    Ok(Ok(Grid { width: size.0, height: size.1, layout, empty, tiles }))
}

/// Planes of one image, channel by channel.
struct Stacked {
    pages: Vec<Box<dyn Tiles>>,
    /// Pages of each channel, or of each group of channels that share a page.
    each: usize,
    times: u32,
    samples: u32,
}

impl Tiles for Stacked {
    fn tile(
        &self,
        limits: &Limits,
        name: String,
        position: (u32, u32),
        plane: Plane,
    ) -> Result<StoredTile> {
        self.pages[number(plane, self.times)].tile(limits, name, position, Plane::default())
    }

    fn stored_with(&self, channel: u32) -> Range<u32> {
        let first = channel / self.samples * self.samples;
        first..first + self.samples
    }

    fn sheets(
        &self,
        limits: &Limits,
        name: String,
        position: (u32, u32),
        plane: Plane,
        channels: &[u32],
    ) -> Result<Vec<Picked>> {
        let mut all = Vec::new();
        let mut stored = 0;
        for group in channels.chunk_by(|one, other| one / self.samples == other / self.samples) {
            let page = (group[0] / self.samples) as usize;
            let samples: Vec<u32> = group.iter().map(|channel| channel % self.samples).collect();
            let tiles = &self.pages[page * self.each + number(plane, self.times)];
            let sheets =
                tiles.sheets(limits, name.clone(), position, Plane::default(), &samples)?;
            for mut picked in sheets {
                together(limits, &mut stored, &picked.tile)?;
                let first = page as u32 * self.samples;
                picked.picks.iter_mut().for_each(|(channel, _)| *channel += first);
                all.push(picked);
            }
        }
        Ok(all)
    }
}

/// The type and bits of a sample from its name in OME-XML.
pub(super) fn sample(name: &str) -> Option<(Number, u64)> {
    Some(match name {
        "bit" => (Number::Unsigned, 1),
        "uint8" => (Number::Unsigned, 8),
        "uint16" => (Number::Unsigned, 16),
        "uint32" => (Number::Unsigned, 32),
        "int8" => (Number::Signed, 8),
        "int16" => (Number::Signed, 16),
        "int32" => (Number::Signed, 32),
        "float" => (Number::Float, 32),
        "double" => (Number::Float, 64),
        _ => return None,
    })
}
