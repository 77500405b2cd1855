//! Roles of the pages of a TIFF: the slide, a smaller level of it, an associated image, or
//! something else. A label mistaken for a level would show a patient's name instead of tissue, so a
//! page is a level only if everything in the file that concerns it agrees.

use super::directory::{DESCRIPTION, Directory, ICC, Reader, SUB_IFDS};
use super::{grid, window};
use crate::grid::{Parts, factors};
use crate::{Error, Result};
use std::cmp::Reverse;

/// The property that lists pages that are not shown.
pub(super) const NOT_SHOWN: &str = "tiff.NotShown";

const NEW_SUBFILE_TYPE: u16 = 254;
/// Its bits: a smaller version of another image, one page of several, a mask.
const REDUCED: u64 = 1;
const PAGE: u64 = 2;
const MASK: u64 = 4;
/// Aperio's value for a macro image.
const MACRO: u64 = 9;
const SUBFILE_TYPE: u16 = 255;
const TILE_WIDTH: u16 = 322;
const ORIENTATION: u16 = 274;

/// Tags whose values a level shares with the slide: bits, compression, photometric interpretation,
/// samples per pixel, planes and sample format, with their default values.
const COMMON: [(u16, u64); 6] = [(258, 1), (259, 1), (262, 1), (277, 1), (284, 1), (339, 1)];

/// Bytes of a description that may contain the name of an associated image. Longer ones describe
/// the slide.
const NAMING: u64 = 1024;

/// Words in descriptions of pages that are not levels, and the names of these pages as associated
/// images.
const WORDS: [(&str, Option<&str>); 6] = [
    ("label", Some("label")),
    ("barcode", Some("label")),
    ("macro", Some("macro")),
    ("overview", Some("macro")),
    ("thumbnail", Some("thumbnail")),
    ("mask", None),
];

/// A page, in the chain of directories or below one of them.
pub(super) struct Page<'a> {
    pub(super) directory: &'a Directory,
    pub(super) size: (u32, u32),
    tiled: bool,
    /// The bits of its NewSubfileType.
    kind: u64,
    /// The beginning of its description.
    description: String,
    common: [Vec<u64>; COMMON.len()],
}

/// The evidence that makes a page of the right size and kind a level although it is not marked as a
/// smaller version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unmarked {
    /// Nothing.
    Never,
    /// A description as Aperio writes it for levels.
    Aperio,
    /// OME-XML defines the directories below an image as its levels.
    Always,
}

impl<'a> Page<'a> {
    pub(super) fn read(reader: &mut Reader<'_>, directory: &'a Directory) -> Result<Self> {
        let kind = reader.number(directory, NEW_SUBFILE_TYPE)?;
        let old = reader.number(directory, SUBFILE_TYPE)?;
        let mut common = <[Vec<u64>; COMMON.len()]>::default();
        for ((tag, default), values) in COMMON.iter().zip(&mut common) {
            *values = reader.numbers(directory, *tag)?.unwrap_or_else(|| vec![*default]);
            values.dedup();
        }
        Ok(Self {
            directory,
            size: grid::size(reader, directory)?,
            tiled: directory.has(TILE_WIDTH),
            kind: kind.unwrap_or(if old == Some(2) { REDUCED } else { 0 }),
            description: reader.start(directory, DESCRIPTION, NAMING + 1)?,
            common,
        })
    }

    /// Reads all pages of a chain of directories.
    pub(super) fn all(reader: &mut Reader<'_>, chain: &'a [Directory]) -> Result<Vec<Self>> {
        chain.iter().map(|directory| Self::read(reader, directory)).collect()
    }

    /// The word in the description that shows that this is not a level, and the name that it
    /// implies.
    fn word(&self) -> Option<(&'static str, Option<&'static str>)> {
        let text = match self.description.starts_with("Aperio") {
            // The properties that follow may contain any word.
            true => self.second_line().split_whitespace().next().unwrap_or_default(),
            false if self.description.len() as u64 > NAMING => return None,
            false => &self.description,
        };
        word(text)
    }

    /// Its name as an associated image, from the description.
    pub(super) fn name(&self) -> Option<&'static str> {
        self.word()?.1
    }

    /// True if the file marks it as a smaller version of another image, and as nothing else.
    fn is_reduced(&self) -> bool {
        self.kind & !PAGE == REDUCED
    }

    fn is_mask(&self) -> bool {
        self.kind & MASK != 0
    }

    fn second_line(&self) -> &str {
        self.description.lines().nth(1).unwrap_or_default()
    }

    pub(super) fn pixels(&self) -> u64 {
        u64::from(self.size.0) * u64::from(self.size.1)
    }

    /// The values of one of the tags that levels and planes share.
    pub(super) fn common(&self, tag: u16) -> &[u64] {
        let index = COMMON.iter().position(|(other, _)| *other == tag);
        index.map_or(&[], |index| &self.common[index])
    }

    /// True if the other page has the same values of these tags, and both are tiled or both in
    /// strips.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.common == other.common && self.tiled == other.tiled
    }

    /// True if this is certainly a smaller level of `main`.
    pub(super) fn is_level_of(&self, main: &Self, unmarked: Unmarked) -> bool {
        let is_marked = self.is_reduced()
            || match unmarked {
                Unmarked::Never => false,
                Unmarked::Aperio => {
                    self.description.starts_with("Aperio")
                        && self.second_line().starts_with(|first: char| first.is_ascii_digit())
                }
                Unmarked::Always => true,
            };
        let is_named = self.word().is_some() && self.description != main.description;
        is_marked
            && !self.is_mask()
            && !is_named
            && (self.tiled || !main.tiled)
            && self.common == main.common
            && is_reduced_from(main.size, self.size)
    }

    /// A description for the list of pages that are not shown.
    fn says(&self, number: &str) -> String {
        let mask = if self.is_mask() { ", a mask" } else { "" };
        format!("{number}: {} x {} pixels{mask}", self.size.0, self.size.1)
    }
}

/// The word in a name or description that shows that an image is not a level, and the name that it
/// implies.
pub(super) fn word(text: &str) -> Option<(&'static str, Option<&'static str>)> {
    let text = text.to_lowercase();
    WORDS.into_iter().find(|(word, _)| text.contains(word))
}

/// True if `other` is `main` reduced by a whole factor, up to a rounding error of one pixel.
fn is_reduced_from(main: (u32, u32), other: (u32, u32)) -> bool {
    let is_whole = |(least, most): (f64, f64)| least.ceil().max(2.0) <= most;
    other.0 < main.0 && factors(main, other).is_some_and(is_whole)
}

/// The index of the page that is the slide: among those that are not masks, full images are
/// preferred to smaller versions, images without a name to others, tiles to strips, and then the
/// largest.
pub(super) fn main(reader: &Reader<'_>, pages: &[Page<'_>]) -> Result<usize> {
    let shown = pages.iter().enumerate().filter(|(_, page)| !page.is_mask());
    let key = |(number, page): &(usize, &Page<'_>)| {
        (!page.is_reduced(), page.word().is_none(), page.tiled, page.pixels(), Reverse(*number))
    };
    let number = shown.max_by_key(key).map(|(number, _)| number);
    number.ok_or_else(|| reader.unsupported("a file of nothing but masks"))
}

/// Reads the slide, its levels among all pages and below it, and associated images.
pub(super) fn fill(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    pages: &[Page<'_>],
    main: usize,
    unmarked: Unmarked,
) -> Result<()> {
    let slide = &pages[main];
    main_level(parts, reader, slide)?;
    for (number, page) in pages.iter().enumerate().filter(|(number, _)| *number != main) {
        if page.is_level_of(slide, unmarked) {
            level(parts, reader, page)?;
        } else {
            let name = page.name().or_else(|| match unmarked {
                Unmarked::Aperio => aperio(slide, page, number),
                _ => None,
            });
            aside(parts, reader, page, name, &format!("page {number}"))?;
        }
    }
    below(parts, reader, slide, unmarked)
}

/// Reads the slide at its full size.
pub(super) fn main_level(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    slide: &Page<'_>,
) -> Result<()> {
    beside(parts, reader, slide)?;
    let mut grid = grid::read(reader, slide.directory)?;
    grid.layout.window = window::of(reader, slide.directory, &grid)?;
    parts.levels.push(grid);
    Ok(())
}

/// Reads the entries of a directory other than its pixels.
pub(super) fn beside(parts: &mut Parts, reader: &mut Reader<'_>, slide: &Page<'_>) -> Result<()> {
    match reader.limits.refuse_profile(reader.length(slide.directory, ICC)) {
        Some(why) => _ = parts.properties.insert("tiff.ColourProfile".into(), why),
        None => parts.icc = reader.bytes(slide.directory, ICC)?,
    }
    let orientation = reader.number(slide.directory, ORIENTATION)?.unwrap_or(1);
    if orientation != 1 {
        let what = format!("{orientation}: not applied, the image is shown as it is stored");
        parts.properties.insert("tiff.Orientation".into(), what);
    }
    Ok(())
}

/// Reads a smaller level, with the same values for black and white.
fn level(parts: &mut Parts, reader: &mut Reader<'_>, page: &Page<'_>) -> Result<()> {
    let mut grid = grid::read(reader, page.directory)?;
    grid.layout.window = parts.levels.first().and_then(|main| main.layout.window);
    parts.levels.push(grid);
    Ok(())
}

/// Reads the levels below the directory of the slide.
pub(super) fn below(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    slide: &Page<'_>,
    unmarked: Unmarked,
) -> Result<()> {
    if !slide.directory.has(SUB_IFDS) {
        return Ok(());
    }
    for (number, directory) in reader.below(slide.directory)?.iter().enumerate() {
        let page = Page::read(reader, directory)?;
        if page.is_level_of(slide, unmarked) {
            level(parts, reader, &page)?;
        } else {
            aside(parts, reader, &page, page.name(), &format!("sub-image {number}"))?;
        }
    }
    Ok(())
}

/// Keeps a page as an associated image if it has a name; otherwise a property records that it is
/// not shown.
pub(super) fn aside(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    page: &Page<'_>,
    name: Option<&str>,
    number: &str,
) -> Result<()> {
    let mut what = page.says(number);
    if let Some(name) = name.filter(|name| !parts.associated.contains_key(*name)) {
        match grid::read(reader, page.directory) {
            Ok(mut grid) => {
                grid.layout.window = window::of(reader, page.directory, &grid)?;
                parts.associated.insert(name.into(), grid);
                return Ok(());
            }
            Err(Error::Unsupported { what: why, .. }) => {
                what = format!("{what} ({name}: {why})");
            }
            Err(error) => return Err(error),
        }
    }
    parts.not_shown(NOT_SHOWN, &what);
    Ok(())
}

/// The name of an unnamed image in strips in an Aperio file.
fn aperio(slide: &Page<'_>, page: &Page<'_>, number: usize) -> Option<&'static str> {
    let [wide, high, width, height] =
        [slide.size.0, slide.size.1, page.size.0, page.size.1].map(f64::from);
    let is_alike = (high * width / wide - height).abs() <= 1.0 + high / wide;
    match page.kind {
        _ if page.tiled => None,
        REDUCED => Some("label"),
        MACRO => Some("macro"),
        0 if number == 1 && is_alike => Some("thumbnail"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_reduced_from;

    #[test]
    fn a_level_has_a_whole_factor_up_to_rounding() {
        let main = (46_000, 32_914);
        for (size, is_level) in [
            ((11_500, 8_228), true),
            ((11_500, 8_229), true),
            ((2_875, 2_057), true),
            ((23_000, 16_457), true),
            // The slide's shape reduced by a fraction, and another shape.
            ((1_024, 732), false),
            ((18_400, 13_166), false),
            ((11_500, 8_231), false),
            ((600, 600), false),
            ((46_000, 32_914), false),
        ] {
            assert_eq!(is_reduced_from(main, size), is_level, "{size:?}");
        }
        assert!(is_reduced_from((1111, 777), (1, 1)));
        assert!(is_reduced_from((1111, 777), (69, 48)));
    }
}
