//! Images that are smaller than their tiles, which not every reader decodes safely.
//!
//! OpenSlide 3.4 asks libtiff (`TIFFRGBAImageGet`) for a whole tile, regardless of the image's
//! size. Since libtiff fixed CVE-2025-9900, it writes only the pixels of the image, to another part
//! of the buffer, and OpenSlide uses the rest as pixels although it is uninitialised.

use super::directory::{Directory, Reader};
use super::grid;
use crate::source::Source;
use crate::{Limits, Result};
use std::sync::Arc;

/// The sizes of the first image in the chain that is smaller than its tiles and that OpenSlide
/// decodes with libtiff; `None` if there is none, or the file is not a TIFF.
pub(crate) fn smaller_than_its_tiles(
    source: &Arc<dyn Source>,
    limits: &Limits,
) -> Result<Option<String>> {
    let Some(mut reader) = Reader::new(source, limits)? else { return Ok(None) };
    for directory in reader.chain()? {
        if !directory.has(322) || is_decoded_without_libtiff(&mut reader, &directory)? {
            continue;
        }
        let (width, height) = grid::size(&mut reader, &directory)?;
        let wide = reader.number(&directory, 322)?.unwrap_or(0);
        let high = reader.number(&directory, 323)?.unwrap_or(0);
        if u64::from(width) < wide || u64::from(height) < high {
            let tiles = format!("in tiles of {wide} x {high}");
            return Ok(Some(format!("an image of {width} x {height} pixels {tiles}")));
        }
    }
    Ok(None)
}

/// True if OpenSlide decodes the tiles without libtiff, or not at all: libtiff does not support
/// JPEG 2000.
fn is_decoded_without_libtiff(reader: &mut Reader<'_>, of: &Directory) -> Result<bool> {
    Ok(match reader.number(of, 259)?.unwrap_or(1) {
        // The same decision as in `_openslide_tiff_level_init`.
        7 => {
            matches!(reader.number(of, 262)?, Some(2 | 6))
                && reader.number(of, 258)? == Some(8)
                && reader.number(of, 277)? == Some(3)
                && reader.number(of, 284)?.unwrap_or(1) == 1
        }
        33003 | 33005 | 34712 => true,
        _ => false,
    })
}
