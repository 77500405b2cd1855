//! Tiled TIFF and BigTIFF, and what Aperio and OME make of it.

mod aperio;
mod directory;
mod grid;
mod ome;
mod scanner;
mod small;

use crate::grid::{Parts, microns};
use crate::source::Source;
use crate::{Limits, Result};
use directory::{Directory, Reader};
pub(crate) use small::smaller_than_its_tiles;
use std::sync::Arc;

const DESCRIPTION: u16 = 270;
const ICC: u16 = 34675;

/// Reads what a file has; `None` if it is not a TIFF.
pub(crate) fn open(source: &Arc<dyn Source>, limits: &Limits) -> Result<Option<Parts>> {
    let Some(mut reader) = Reader::new(source, limits)? else { return Ok(None) };
    let chain = reader.chain()?;
    let Some(main) = chain.first() else {
        return Err(reader.malformed(0, "no image"));
    };
    let description = reader.text(main, DESCRIPTION)?.unwrap_or_default();
    if let Some(what) = scanner::of(&reader, &chain, &description)? {
        return Err(reader.unsupported(what));
    }
    let mut parts = Parts { icc: reader.profile(main, ICC)?, ..Parts::default() };
    for (tag, key) in [(271, "tiff.Make"), (272, "tiff.Model"), (305, "tiff.Software")] {
        if let Some(text) = reader.text(main, tag)? {
            parts.properties.insert(key.into(), text);
        }
    }
    if description.starts_with("Aperio") {
        aperio::fill(&mut parts, &mut reader, &chain, &description)?;
    } else if ome::is(&description) {
        ome::fill(&mut parts, &mut reader, &chain, &description)?;
    } else {
        plain(&mut parts, &mut reader, &chain, &description)?;
    }
    if parts.levels.is_empty() {
        return Err(reader.malformed(chain[0].at, "no level"));
    }
    parts.sort();
    Ok(Some(parts))
}

/// A pyramid in the chain, or below its first directory.
fn plain(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    chain: &[Directory],
    description: &str,
) -> Result<()> {
    parts.format = "tiff";
    if !description.is_empty() {
        parts.properties.insert("tiff.ImageDescription".into(), description.into());
    }
    parts.microns = resolution(reader, &chain[0])?;
    pyramid(parts, reader, &chain[0])?;
    let main = (parts.levels[0].width, parts.levels[0].height);
    for directory in &chain[1..] {
        if alike(main, grid::size(reader, directory)?) {
            parts.levels.push(grid::read(reader, directory)?);
        }
    }
    Ok(())
}

/// A directory and those below it as levels.
fn pyramid(parts: &mut Parts, reader: &mut Reader<'_>, main: &Directory) -> Result<()> {
    parts.levels.push(grid::read(reader, main)?);
    for directory in reader.below(main)? {
        parts.levels.push(grid::read(reader, &directory)?);
    }
    Ok(())
}

/// Whether the second is the first made smaller, up to rounding.
fn alike(main: (u32, u32), other: (u32, u32)) -> bool {
    let [width, height, wide, high] = [main.0, main.1, other.0, other.1].map(f64::from);
    let expected = height * wide / width;
    // One pixel of the smaller one, whichever side was rounded.
    wide < width && (expected - high).abs() <= 1.0 + height / width
}

/// Microns per pixel out of the resolution.
fn resolution(reader: &mut Reader<'_>, directory: &Directory) -> Result<Option<(f64, f64)>> {
    let unit = match reader.number(directory, 296)? {
        Some(2) => 25_400.0,
        Some(3) => 10_000.0,
        _ => return Ok(None),
    };
    let x = reader.ratio(directory, 282)?.unwrap_or(0.0);
    let y = reader.ratio(directory, 283)?.unwrap_or(0.0);
    Ok(microns(unit / x, unit / y))
}
