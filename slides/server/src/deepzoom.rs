//! Deep Zoom: a descriptor, and tiles of levels, each half as large as the next.
//!
//! Level 0 has one pixel, and the last level is the slide. The size of a level is that of the
//! slide, halved the corresponding number of times and rounded up.

use seekwire_slides_image::Level;

use crate::render::plan::BaseRegion;
use crate::render::rotation::{Quality, Turn};
use crate::render::{Appearance, ImageFormat, Picture, Shown};

/// Sides of stored tiles that are used as the tile size here.
const SIDES: std::ops::RangeInclusive<u32> = 64..=1024;
/// Side of tiles if those of the slide are not square, or too small or large for viewers.
const SIDE: u32 = 256;

/// The side of a slide's tiles: that of its stored ones, so that these can be sent unchanged.
pub(crate) fn side(levels: &[Level]) -> u32 {
    let stored = levels.first().map(|level| (level.tile_width, level.tile_height));
    match stored {
        Some((width, height)) if width == height && SIDES.contains(&width) => width,
        _ => SIDE,
    }
}

/// The descriptor, an XML document.
pub(crate) fn descriptor(size: (u32, u32), side: u32, kind: ImageFormat) -> String {
    let (width, height) = size;
    let format = kind.extension();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Image xmlns=\"http://schemas.microsoft.com/deepzoom/2008\" \
         Format=\"{format}\" Overlap=\"0\" TileSize=\"{side}\"><Size Width=\"{width}\" Height=\"{height}\"/></Image>\n"
    )
}

/// The number of the last level.
pub(crate) fn last(size: (u32, u32)) -> u32 {
    let (width, height) = size;
    let side = width.max(height).max(1);
    // The logarithm to base two, rounded up.
    u32::BITS - (side - 1).leading_zeros()
}

/// A tile; `None` if it does not exist.
pub(crate) fn tile(
    size: (u32, u32),
    side: u32,
    [level, column, row]: [u32; 3],
    kind: ImageFormat,
    look: &Appearance,
) -> Option<Picture> {
    let (width, height) = size;
    let halvings = last((width, height)).checked_sub(level)?;
    let extent = |number: u32, whole: u32| {
        let here = u64::from(whole).div_ceil(1 << halvings);
        let start = u64::from(number) * u64::from(side);
        let length = here.checked_sub(start).filter(|length| *length > 0)?.min(side.into());
        // The same in level 0, where the last pixel may extend beyond the slide.
        let from = start << halvings;
        let to = ((start + length) << halvings).min(whole.into());
        Some((from as u32, (to - from) as u32, length as u32))
    };
    let (x, wide, across) = extent(column, width)?;
    let (y, high, down) = extent(row, height)?;
    Some(Picture {
        shown: Shown::part(BaseRegion { x, y, width: wide, height: high }, look.rendering.as_ref()),
        width: across,
        height: down,
        turn: Turn::default(),
        quality: Quality::Colour,
        kind,
        colours: look.colours,
    })
}

/// The tiles around one; those that share a side come first.
pub(crate) fn neighbours(
    size: (u32, u32),
    side: u32,
    [level, column, row]: [u32; 3],
    kind: ImageFormat,
    look: &Appearance,
) -> impl Iterator<Item = Picture> {
    let around = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)];
    around.into_iter().filter_map(move |(across, down)| {
        let tile_index = [level, column.checked_add_signed(across)?, row.checked_add_signed(down)?];
        tile(size, side, tile_index, kind, look)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::colour::ColourMode;

    fn tile(size: (u32, u32), tile_index: [u32; 3]) -> Option<(BaseRegion, u32, u32)> {
        let look = Appearance { colours: ColourMode::Raw, rendering: None };
        let picture = super::tile(size, 240, tile_index, ImageFormat::Jpeg, &look)?;
        let (part, None) = picture.shown.parts()? else { return None };
        Some((part, picture.width, picture.height))
    }

    #[test]
    fn levels_are_halved_down_to_one_pixel() {
        assert_eq!(last((1, 1)), 0);
        assert_eq!(last((2, 1)), 1);
        assert_eq!(last((1024, 3)), 10);
        assert_eq!(last((1025, 3)), 11);
        assert_eq!(last((2220, 2967)), 12);
        assert_eq!(last((u32::MAX, 1)), 32);
        let part = |x, y, width, height| BaseRegion { x, y, width, height };
        let size = (2220, 2967);
        assert_eq!(tile(size, [12, 2, 1]), Some((part(480, 240, 240, 240), 240, 240)));
        assert_eq!(tile(size, [12, 9, 12]), Some((part(2160, 2880, 60, 87), 60, 87)));
        assert_eq!(tile(size, [11, 4, 6]), Some((part(1920, 2880, 300, 87), 150, 44)));
        assert_eq!(tile(size, [0, 0, 0]), Some((part(0, 0, 2220, 2967), 1, 1)));
        for tile_index in [[13, 0, 0], [12, 10, 0], [12, 0, 13], [0, 1, 0], [12, u32::MAX, 0]] {
            assert_eq!(tile(size, tile_index), None, "{tile_index:?}");
        }
        assert!(tile((u32::MAX, 1), [0, 0, 0]).is_some());
    }

    #[test]
    fn all_pixels_are_in_one_tile() {
        for size in [(1, 1), (241, 7), (480, 481), (2220, 2967)] {
            for level in 0..=last(size) {
                let mut area = 0;
                for row in 0.. {
                    let mut columns = 0;
                    while let Some((part, ..)) = tile(size, [level, columns, row]) {
                        area += u64::from(part.width) * u64::from(part.height);
                        columns += 1;
                    }
                    if columns == 0 {
                        break;
                    }
                }
                assert_eq!(area, u64::from(size.0) * u64::from(size.1), "{size:?}, {level}");
            }
        }
    }
}
