//! Tiled TIFF and BigTIFF, and the variants of Aperio, ImageJ, OME and QPTIFF.

mod aperio;
mod directory;
mod grid;
mod imagej;
mod layout;
mod ome;
mod page;
mod planes;
mod qptiff;
mod scanner;
mod small_images;
mod window;

use crate::grid::Parts;
use crate::source::Source;
use crate::{Limits, Result};
use directory::{DESCRIPTION, Reader, resolution};
use page::{Page, Unmarked};
pub(crate) use small_images::smaller_than_its_tiles;
use std::sync::Arc;

/// Reads the contents of a file; `None` if it is not a TIFF.
pub(crate) fn open(source: &Arc<dyn Source>, limits: &Limits) -> Result<Option<Parts>> {
    let Some(mut reader) = Reader::new(source, limits)? else { return Ok(None) };
    let chain = reader.chain()?;
    let Some(main) = chain.first() else {
        return Err(reader.malformed(0, "no image"));
    };
    let description = reader.text(main, DESCRIPTION)?.unwrap_or_default();
    reader.is_aperio = description.starts_with("Aperio");
    if let Some(what) = scanner::of(&reader, &chain, &description)? {
        return Err(reader.unsupported(what));
    }
    let mut parts = Parts::default();
    for (tag, key) in [(271, "tiff.Make"), (272, "tiff.Model"), (305, "tiff.Software")] {
        if let Some(text) = reader.text(main, tag)? {
            parts.properties.insert(key.into(), text);
        }
    }
    if ome::is(&description) {
        ome::fill(&mut parts, &mut reader, &chain, &description)?;
    } else {
        let pages = Page::all(&mut reader, &chain)?;
        if reader.is_aperio {
            aperio::fill(&mut parts, &mut reader, &pages, &description)?;
        } else {
            let is_stack = if imagej::is(&description) {
                imagej::fill(&mut parts, &mut reader, &chain, &pages, &description)?
            } else if qptiff::is(&description) {
                qptiff::fill(&mut parts, &mut reader, &chain, &pages)?
            } else {
                false
            };
            if !is_stack {
                plain(&mut parts, &mut reader, &pages, &description)?;
            }
        }
    }
    if parts.levels.is_empty() {
        return Err(reader.malformed(chain[0].at, "no level"));
    }
    parts.sort(page::NOT_SHOWN);
    Ok(Some(parts))
}

/// A pyramid in the chain, or below its main image.
fn plain(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    pages: &[Page<'_>],
    description: &str,
) -> Result<()> {
    parts.format = "tiff";
    if !description.is_empty() {
        parts.properties.insert("tiff.ImageDescription".into(), description.into());
    }
    let main = page::main(reader, pages)?;
    parts.microns = resolution(reader, pages[main].directory)?;
    page::fill(parts, reader, pages, main, Unmarked::Never)
}
