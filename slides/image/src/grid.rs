//! The common part of all formats: each turns a slide's images into [`Grid`]s, with its own way to
//! find a tile.

use crate::channel_samples::Pick;
use crate::channels::{Plane, Stack};
use crate::samples::Layout;
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// The contents of a slide, found when it is opened.
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
    /// As [`Slide::state`](crate::Slide::state).
    pub(crate) state: Option<String>,
}

impl Parts {
    /// Puts the largest level first. Of levels of equal width only the first is shown, and the
    /// property `key` records the others.
    pub(crate) fn sort(&mut self, key: &str) {
        self.levels.sort_by_key(|level| std::cmp::Reverse(level.width));
        let mut others = Vec::new();
        self.levels.dedup_by(|level, first| {
            let is_other = level.width == first.width;
            if is_other {
                others.push(format!("{} x {} pixels", level.width, level.height));
            }
            is_other
        });
        for size in others {
            self.not_shown(key, &format!("{size}: as wide as another level"));
        }
    }

    /// Records in a property which parts of the file are not shown.
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
    /// The layout of every tile, except that a tile's codec may be
    /// [`Codec::Absent`](crate::Codec::Absent), and that the last row may be lower.
    pub(crate) layout: Layout,
    /// Number of tiles without bytes, which are drawn from the next larger level. Zero if the
    /// format defines how such a tile looks.
    pub(crate) empty: u64,
    pub(crate) tiles: Box<dyn Tiles>,
}

/// Where the tiles of a grid are.
pub(crate) trait Tiles: Send + Sync {
    /// Reads a tile of a slide without channels. The caller has checked column, row and plane. The
    /// name is for errors.
    fn tile(
        &self,
        limits: &Limits,
        name: String,
        column_and_row: (u32, u32),
        plane: Plane,
    ) -> Result<StoredTile>;

    /// The channels whose samples may be in the same stored tile as those of one channel.
    fn stored_with(&self, channel: u32) -> Range<u32> {
        channel..channel + 1
    }

    /// Reads the tiles of a slide with channels: each tile once, with the channels needed from it.
    /// The caller has checked that all of them exist.
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

/// A stored tile, and the positions of its channels among its samples.
pub(crate) struct Picked {
    pub(crate) tile: StoredTile,
    pub(crate) picks: Vec<(u32, Pick)>,
}

/// Adds the bytes of one more tile to those that are read together.
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

    /// Maximum bytes of memory for the samples and the pixels of a tile while it is decoded.
    pub(crate) fn decoding(&self) -> u64 {
        let layout = &self.layout;
        let packed = layout.packed().unwrap_or(u64::MAX);
        // Samples of less than a byte get one.
        let whole = if layout.bits < 8 { packed.saturating_mul(8) } else { 0 };
        let pixels = 3 * u64::from(layout.width) * u64::from(layout.height);
        packed.saturating_add(whole).saturating_add(pixels)
    }
}

/// The smallest and the largest factor by which `main` may have been reduced to `other`, the same
/// across and down, up to a rounding error of one pixel; `None` if the shapes differ.
pub(crate) fn factors(main: (u32, u32), other: (u32, u32)) -> Option<(f64, f64)> {
    let range = |main: u32, other: u32| {
        let (main, other) = (f64::from(main), f64::from(other));
        let most = if other > 1.0 { main / (other - 1.0) } else { f64::INFINITY };
        (main / (other + 1.0), most)
    };
    let (across, down) = (range(main.0, other.0), range(main.1, other.1));
    let (least, most) = (across.0.max(down.0), across.1.min(down.1));
    (least <= most).then_some((least, most))
}

/// A resolution that no scanner has: programs that do not know it write one pixel per millimetre,
/// as libvips does, or 72 per inch.
const COARSE: f64 = 100.0;

/// Microns per pixel, if the values are plausible.
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
