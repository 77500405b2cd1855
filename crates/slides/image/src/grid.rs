//! What formats have in common: each makes a slide's images [`Grid`]s, by a way of its own to find
//! a tile.

use crate::channels::{Plane, Stack};
use crate::pick::Pick;
use crate::samples::Layout;
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use std::collections::BTreeMap;

/// What is found in a slide when it is opened.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) format: &'static str,
    pub(crate) levels: Vec<Grid>,
    pub(crate) associated: BTreeMap<String, Grid>,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) microns: Option<(f64, f64)>,
    pub(crate) icc: Option<Vec<u8>>,
    pub(crate) dicom: Option<crate::Dicom>,
    pub(crate) stack: Stack,
}

impl Parts {
    /// Puts the largest level first, and leaves out what is there twice.
    pub(crate) fn sort(&mut self) {
        self.levels.sort_by_key(|level| std::cmp::Reverse(level.width));
        self.levels.dedup_by_key(|level| level.width);
    }

    /// Has a property say what of the file is not shown.
    pub(crate) fn not_shown(&mut self, key: &str, what: &str) {
        let list = self.properties.entry(key.into()).or_default();
        if !list.is_empty() {
            list.push_str("; ");
        }
        list.push_str(what);
    }
}

/// An image in tiles of one size: a level, or an associated image.
pub(crate) struct Grid {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Of every tile, but that the codec of one may be [`Codec::Absent`](crate::Codec::Absent),
    /// and that the last row may be less high.
    pub(crate) layout: Layout,
    /// Tiles without bytes, which are drawn from the next larger level. None where the format says
    /// what such a tile looks like.
    pub(crate) empty: u64,
    pub(crate) tiles: Box<dyn Tiles>,
}

/// Where the tiles of a grid are.
pub(crate) trait Tiles: Send + Sync {
    /// Reads a tile of a slide that has no channels. Its column and row exist, and so does the
    /// plane. The name is for errors.
    fn tile(
        &self,
        limits: &Limits,
        name: String,
        column_and_row: (u32, u32),
        plane: Plane,
    ) -> Result<StoredTile>;

    /// Reads the tiles of a slide that has channels: each once, with the channels that are wanted
    /// of it. All of them exist.
    fn sheets(
        &self,
        _: &Limits,
        name: String,
        _: (u32, u32),
        _: Plane,
        _: &[u32],
    ) -> Result<Vec<Picked>> {
        Err(Error::Argument(format!("{name}: there are no channels")))
    }
}

/// A stored tile, and where its channels are among its samples.
pub(crate) struct Picked {
    pub(crate) tile: StoredTile,
    pub(crate) picks: Vec<(u32, Pick)>,
}

/// Counts the bytes of one more of the tiles that are read together.
pub(crate) fn together(limits: &Limits, sum: &mut u64, tile: &StoredTile) -> Result<()> {
    *sum += tile.bytes.len() as u64;
    if *sum <= limits.stored {
        return Ok(());
    }
    let what = format!("channels of {sum} bytes, of {} at most", limits.stored);
    Err(Error::Limit { name: tile.name.clone(), what: format!("{what}: show fewer at a time") })
}

impl Grid {
    pub(crate) fn columns(&self) -> u32 {
        self.width.div_ceil(self.layout.width)
    }

    pub(crate) fn rows(&self) -> u32 {
        self.height.div_ceil(self.layout.height)
    }
}

/// Microns per pixel of no scanner: where programs do not know better, they write a resolution of
/// one pixel a millimetre, as libvips does, or 72 an inch.
const COARSE: f64 = 100.0;

/// Microns per pixel, if that is what they can be.
pub(crate) fn microns(x: f64, y: f64) -> Option<(f64, f64)> {
    [x, y].iter().all(|side| *side > 0.0 && *side <= COARSE).then_some((x, y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_scanner_has_is_no_resolution() {
        for (side, is_one) in [
            (0.25, true),
            (99.0, true),
            (25_400.0 / 72.0, false),
            (1000.0, false),
            (0.0, false),
            (-1.0, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
        ] {
            assert_eq!(microns(0.5, side), is_one.then_some((0.5, side)));
            assert_eq!(microns(side, 0.5).is_some(), is_one, "{side}");
        }
    }
}
