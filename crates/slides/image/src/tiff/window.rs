//! The values that are black and white, where these are not the ends of what the bits can have.

use super::directory::{Directory, Reader};
use crate::channels::Plane;
use crate::grid::Grid;
use crate::samples::Number;
use crate::{Error, Result};

const LEAST: u16 = 340;
const MOST: u16 = 341;
/// Pixels that are looked at. One tile at least is.
const PIXELS: u64 = 4 << 20;
/// So that no scale overflows.
const FINITE: f64 = 1e300;

/// The window of an image: none of whole numbers of up to 16 bits. Of others, what the file says,
/// or the least and the largest value in the image, or in an even choice of its tiles if it is large.
pub(super) fn of(
    reader: &mut Reader<'_>,
    directory: &Directory,
    grid: &Grid,
) -> Result<Option<(f64, f64)>> {
    let layout = grid.layout;
    if layout.number != Number::Float && layout.bits <= 16 {
        return Ok(None);
    }
    let said = reader.real(directory, LEAST)?.zip(reader.real(directory, MOST)?);
    if let Some((least, most)) = said.filter(|(least, most)| least < most) {
        return Ok(Some((least.max(-FINITE), most.min(FINITE))));
    }
    let each = u64::from(layout.width) * u64::from(layout.height);
    let (columns, tiles) =
        (u64::from(grid.columns()), u64::from(grid.columns()) * u64::from(grid.rows()));
    let step = tiles.div_ceil((PIXELS / each).max(1));
    let mut found: Option<(f64, f64)> = None;
    for number in (0..tiles).step_by(step as usize) {
        let place = ((number % columns) as u32, (number / columns) as u32);
        let inside = (grid.width - place.0 * layout.width, grid.height - place.1 * layout.height);
        let tile = grid.tiles.tile(
            reader.limits,
            reader.source.name().to_owned(),
            place,
            Plane::default(),
        );
        let extremes = match tile.and_then(|tile| tile.extremes(reader.limits, inside)) {
            Ok(extremes) => extremes,
            // A request for such a tile gets the error.
            Err(Error::Tile { .. } | Error::Malformed { .. }) => continue,
            Err(error) => return Err(error),
        };
        if let Some((least, most)) = extremes {
            let (low, high) = found.unwrap_or((least, most));
            found = Some((low.min(least), high.max(most)));
        }
    }
    let (least, most) = found.unwrap_or((0.0, 1.0));
    let (least, most) = (least.max(-FINITE), most.min(FINITE));
    // Of one value: it is black.
    Ok(Some((least, if most > least { most } else { least + least.abs().max(1.0) })))
}
