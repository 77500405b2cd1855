//! The values shown as black and white, if they are not the ends of the range of the bits.

use super::directory::{Directory, Reader};
use crate::channels::Plane;
use crate::grid::Grid;
use crate::samples::Number;
use crate::{Error, Result};

const LEAST: u16 = 340;
const MOST: u16 = 341;
/// Maximum pixels that are examined, but at least one tile.
const PIXELS: u64 = 4 << 20;
/// Maximum bytes that are read or decompressed for them.
const BYTES: u64 = 256 << 20;
/// Keeps scale factors from overflowing.
const FINITE: f64 = 1e300;

/// The window of an image: `None` for integers of up to 16 bits. For others, the values in the
/// file, or else the smallest and largest value in the image; in a large image, in evenly spaced
/// tiles.
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
    let affordable = BYTES / layout.packed().unwrap_or(u64::MAX).max(1);
    let step = tiles.div_ceil((PIXELS / each).min(affordable).max(1));
    let mut left = BYTES;
    let mut range: Option<(f64, f64)> = None;
    for number in (0..tiles).step_by(step as usize) {
        let position = ((number % columns) as u32, (number / columns) as u32);
        let inside =
            (grid.width - position.0 * layout.width, grid.height - position.1 * layout.height);
        let tile = grid.tiles.tile(
            reader.limits,
            reader.source.name().to_owned(),
            position,
            Plane::default(),
        );
        if let Ok(tile) = &tile {
            let cost = layout.packed().unwrap_or(u64::MAX).max(tile.bytes().len() as u64);
            let Some(rest) = left.checked_sub(cost) else { break };
            left = rest;
        }
        let extremes = match tile.and_then(|tile| tile.extremes(reader.limits, inside)) {
            Ok(extremes) => extremes,
            // A request for such a tile gets the error.
            Err(Error::Tile { .. } | Error::Malformed { .. }) => continue,
            Err(error) => return Err(error),
        };
        if let Some((least, most)) = extremes {
            let (low, high) = range.unwrap_or((least, most));
            range = Some((low.min(least), high.max(most)));
        }
    }
    let (least, most) = range.unwrap_or((0.0, 1.0));
    let (least, most) = (least.max(-FINITE), most.min(FINITE));
    // If all values are equal, they are black.
    Ok(Some((least, if most > least { most } else { least + least.abs().max(1.0) })))
}
