//! Chooses the tiles for a region: the same level, and the same part of it, as in `Slide::render`.

use std::ops::Range;

use seekwire_slides_image::{HALVINGS, Level};
use serde::Serialize;

use crate::render::work::TilePixels;

/// A part of level 0, wholly inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct BaseRegion {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// The pixels to read, and the part of them to scale.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Level of the slide.
    pub(crate) level: usize,
    /// How often the sides of its tiles are halved during decoding.
    pub(crate) halvings: u32,
    /// Left side of the pixels to read, in halved pixels of the level, like all following sizes.
    x: u32,
    y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Left, top, width and height of the part, within the pixels read.
    pub(crate) crop: (f64, f64, f64, f64),
    of: Level,
}

impl Plan {
    /// Plans `part`, scaled to `width` x `height`, from the smallest level that is large enough.
    /// There is at least one level.
    pub(crate) fn new(levels: &[Level], part: BaseRegion, width: u32, height: u32) -> Option<Self> {
        let main = levels.first()?;
        let wanted = (f64::from(part.width) / f64::from(width))
            .min(f64::from(part.height) / f64::from(height));
        let (level, of) = (levels.iter().enumerate())
            .take_while(|(number, level)| *number == 0 || level.downsample <= wanted + 1e-9)
            .last()?;
        let across = f64::from(of.width) / f64::from(main.width);
        let down = f64::from(of.height) / f64::from(main.height);
        let (left, top) = (f64::from(part.x) * across, f64::from(part.y) * down);
        let (wide, high) = (f64::from(part.width) * across, f64::from(part.height) * down);
        let (x, y) = (left.floor(), top.floor());
        let (left, top) = (left - x, top - y);
        let to = (width, height);
        let (width, height) = ((left + wide).ceil().max(1.0), (top + high).ceil().max(1.0));
        let crop = (left, top, wide.min(width - left), high.min(height - top));
        let [x, y, width, height] = [x, y, width, height].map(|number| number as u32);
        let plan = Self { level, halvings: 0, x, y, width, height, crop, of: *of };
        Some(plan.halved(to))
    }

    /// The same with tiles decoded as small as possible: if the result is smaller by whole factors,
    /// so that its pixels are means of others, none of which is in two tiles.
    fn halved(self, size: (u32, u32)) -> Self {
        let (width, height) = size;
        let factor = |crop: f64, side: u32, to: u32| {
            let is_whole = crop == f64::from(side) && side.checked_rem(to) == Some(0);
            if is_whole { side / to } else { 1 }
        };
        let (left, top, wide, high) = self.crop;
        let across = factor(wide, self.width, width);
        let down = factor(high, self.height, height);
        let (x, y, of) = (self.x, self.y, self.of);
        let all = across | down | x | y | of.tile_width | of.tile_height;
        let halvings = all.trailing_zeros().min(HALVINGS);
        if (left, top) != (0.0, 0.0) || halvings == 0 {
            return self;
        }
        let scale = f64::from(1 << halvings);
        let side = |side: u32| side.div_ceil(1 << halvings);
        let of = Level {
            width: side(of.width),
            height: side(of.height),
            tile_width: side(of.tile_width),
            tile_height: side(of.tile_height),
            ..of
        };
        let (x, y) = (side(x), side(y));
        let (width, height) = (side(self.width), side(self.height));
        let crop = (left, top, wide / scale, high / scale);
        Self { halvings, x, y, width, height, crop, of, ..self }
    }

    /// Number of pixels read.
    pub(crate) fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// The tiles needed, by column and row.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let of = self.of;
        let columns = range(self.x, self.width, of.tile_width, of.width);
        let rows = range(self.y, self.height, of.tile_height, of.height);
        rows.flat_map(move |row| columns.clone().map(move |column| (column, row)))
    }

    /// Bytes of the pixels of one tile.
    pub(crate) fn tile_bytes(&self) -> u64 {
        u64::from(self.of.tile_width) * u64::from(self.of.tile_height) * 3
    }

    /// White pixels for the area to read, with room for `more` bytes after them.
    pub(crate) fn white(&self, more: usize) -> Vec<u8> {
        let length = self.width as usize * self.height as usize * 3;
        let mut pixels = Vec::with_capacity(length + more);
        pixels.resize(length, 255);
        pixels
    }

    /// Copies the needed part of a tile to its position. The part of a tile beyond the border of
    /// the level is left out.
    pub(crate) fn paste(&self, into: &mut [u8], position: (u32, u32), tile: &TilePixels) {
        let (column, row) = position;
        let of = self.of;
        let (x, y) = (column * of.tile_width, row * of.tile_height);
        let (wide, high) = (tile.width.min(of.width - x), tile.height.min(of.height - y));
        let (left, right) = (x.max(self.x), (x + wide).min(self.x + self.width));
        let (top, bottom) = (y.max(self.y), (y + high).min(self.y + self.height));
        if left >= right {
            return;
        }
        let length = (right - left) as usize * 3;
        for line in top..bottom {
            let range = |line: u32, left: u32, width: u32| {
                (line as usize * width as usize + left as usize) * 3
            };
            let to = range(line - self.y, left - self.x, self.width);
            let from = range(line - y, left - x, tile.width);
            into[to..to + length].copy_from_slice(&tile.bytes[from..from + length]);
        }
    }
}

/// The tiles of length `side` that contain `length` pixels from `start` on, in `whole` pixels.
fn range(start: u32, length: u32, side: u32, whole: u32) -> Range<u32> {
    let end = start.saturating_add(length).min(whole);
    match start < end {
        true => start / side..(end - 1) / side + 1,
        false => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> Vec<Level> {
        let level = |width: u32, height: u32| Level {
            width,
            height,
            tile_width: 64,
            tile_height: 32,
            downsample: 1001.0 / f64::from(width),
        };
        vec![level(1001, 777), level(500, 388), level(125, 97)]
    }

    #[test]
    fn the_smallest_level_that_is_large_enough_is_taken() {
        let whole = BaseRegion { x: 0, y: 0, width: 1001, height: 777 };
        let level = |width, height| Plan::new(&levels(), whole, width, height).unwrap().level;
        assert_eq!(level(1001, 777), 0);
        assert_eq!(level(501, 389), 0);
        assert_eq!(level(500, 388), 1);
        assert_eq!(level(126, 98), 1);
        assert_eq!(level(125, 97), 2);
        assert_eq!(level(1, 1), 2);
        assert_eq!(level(1, 777), 0);
    }

    #[test]
    fn tiles_are_halved_where_no_pixel_is_in_two_of_them() {
        let halvings = |(x, y, width, height): (u32, u32, u32, u32), to: (u32, u32)| {
            let plan =
                Plan::new(&levels()[..1], BaseRegion { x, y, width, height }, to.0, to.1).unwrap();
            (plan.halvings, (plan.width, plan.height), plan.crop)
        };
        let whole = |width: u32, height: u32| (0.0, 0.0, f64::from(width), f64::from(height));
        // A half, a quarter, and the remaining factors of a sixteenth and of a sixth.
        let part = (64, 32, 192, 96);
        assert_eq!(halvings(part, (96, 48)), (1, (96, 48), whole(96, 48)));
        assert_eq!(halvings(part, (48, 24)), (2, (48, 24), whole(48, 24)));
        assert_eq!(halvings(part, (12, 6)), (3, (24, 12), whole(24, 12)));
        assert_eq!(halvings(part, (32, 16)), (1, (96, 48), whole(96, 48)));
        // No reduction, no integer factor, no aligned position, different factors down and across.
        for (part, to) in [
            (part, (192, 96)),
            (part, (100, 48)),
            ((63, 32, 192, 96), (96, 48)),
            ((64, 33, 192, 96), (96, 48)),
            (part, (96, 96)),
        ] {
            let read = (part.2, part.3);
            assert_eq!(halvings(part, to), (0, read, whole(read.0, read.1)), "{part:?} {to:?}");
        }
        let part = BaseRegion { x: 64, y: 32, width: 192, height: 96 };
        let plan = Plan::new(&levels()[..1], part, 96, 48).unwrap();
        let tiles: Vec<_> = plan.tiles().collect();
        assert_eq!((tiles.len(), tiles[0], tiles[8]), (9, (1, 1), (3, 3)));
    }

    #[test]
    fn tiles_cover_what_is_read_and_no_more() {
        let part = BaseRegion { x: 63, y: 31, width: 2, height: 2 };
        let plan = Plan::new(&levels(), part, 2, 2).unwrap();
        assert_eq!(plan.tiles().collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        let part = BaseRegion { x: 64, y: 32, width: 64, height: 32 };
        let plan = Plan::new(&levels(), part, 64, 32).unwrap();
        assert_eq!(plan.tiles().collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(plan.crop, (0.0, 0.0, 64.0, 32.0));
        let part = BaseRegion { x: 1000, y: 776, width: 1, height: 1 };
        let plan = Plan::new(&levels(), part, 1, 1).unwrap();
        assert_eq!(plan.tiles().collect::<Vec<_>>(), [(15, 24)]);
        let mut into = plan.white(0);
        let bytes = (0..64 * 32 * 3).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        let tile = TilePixels { width: 64, height: 32, bytes: bytes.clone().into() };
        plan.paste(&mut into, (15, 24), &tile);
        let at = (8 * 64 + 40) * 3;
        assert_eq!(into, bytes[at..at + 3]);
    }
}
