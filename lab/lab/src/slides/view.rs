//! Requests to servers: the same pixels from all, under addresses of their own.

use super::trace::Grid;

/// A slide that servers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slide {
    /// Name of the file in [`Material::directory`](super::test_slides::Material::directory).
    pub(crate) file: String,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Side of the stored tiles.
    pub(crate) tile: u32,
    /// Images in the file, of which the slide itself is the first one.
    pub(crate) images: u32,
    /// The visible channels of a slide with channels, as in addresses: number, colour, and the
    /// values that are shown black and in that colour.
    pub(crate) channels: Option<&'static str>,
}

/// A part of a slide as a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlideView {
    /// A tile of the slide itself, as large as stored ones and at the same place: column and row.
    Tile(u32, u32),
    /// A tile of a level that is half as large as the slide.
    Half(u32, u32),
    /// Any part, scaled.
    Region(Region),
}

/// A part of a slide in pixels, and the size of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) to: (u32, u32),
}

/// The kind of all views of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ViewKind {
    Stored,
    Decoded,
    Regions,
    Channels,
}

impl SlideView {
    /// The part of the slide that it shows.
    pub(crate) fn region(self, slide: &Slide) -> Region {
        let tile = slide.tile;
        match self {
            Self::Tile(column, row) => Region {
                x: column * tile,
                y: row * tile,
                width: tile,
                height: tile,
                to: (tile, tile),
            },
            Self::Half(column, row) => Region {
                x: column * 2 * tile,
                y: row * 2 * tile,
                width: 2 * tile,
                height: 2 * tile,
                to: (tile, tile),
            },
            Self::Region(region) => region,
        }
    }
}

impl ViewKind {
    /// The name in cases.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored tiles",
            Self::Decoded => "decoded tiles",
            Self::Regions => "regions",
            Self::Channels => "tiles of five channels",
        }
    }

    /// The tiles that are not cut off by the border of the slide, where servers differ.
    pub(crate) fn grid(self, slide: &Slide) -> Grid {
        let side = match self {
            Self::Decoded => 2 * slide.tile,
            Self::Stored | Self::Regions | Self::Channels => slide.tile,
        };
        Grid { columns: slide.width / side, rows: slide.height / side }
    }

    /// One tile of the grid.
    pub(crate) fn tile(self, column: u32, row: u32) -> SlideView {
        match self {
            Self::Decoded => SlideView::Half(column, row),
            Self::Stored | Self::Regions | Self::Channels => SlideView::Tile(column, row),
        }
    }

    /// All tiles, or `most` regions, in a random order that is the same every time.
    pub(crate) fn views(self, slide: &Slide, most: usize) -> Vec<SlideView> {
        let mut random = fastrand::Rng::with_seed(11);
        if self == Self::Regions {
            return (0..most).map(|_| SlideView::Region(region(slide, &mut random))).collect();
        }
        let Grid { columns, rows } = self.grid(slide);
        let tiles = (0..rows).flat_map(|row| (0..columns).map(move |column| (column, row)));
        let mut views: Vec<SlideView> = tiles.map(|(column, row)| self.tile(column, row)).collect();
        random.shuffle(&mut views);
        views
    }
}

/// Sides of pictures, as views for reports and thumbnails have them.
const SIDES: std::ops::RangeInclusive<u32> = 200..=600;
/// Largest scale, in quarters.
const SCALES: std::ops::RangeInclusive<u32> = 5..=20;

fn region(slide: &Slide, random: &mut fastrand::Rng) -> Region {
    let scale = random.u32(SCALES);
    let side = |random: &mut fastrand::Rng, whole: u32| {
        // A multiple of four, so that the region is of whole pixels.
        let to = (random.u32(SIDES) / 4 * 4).min(whole / scale * 4).max(4);
        let length = to / 4 * scale;
        (random.u32(0..=whole.saturating_sub(length)), length, to)
    };
    let (x, width, across) = side(random, slide.width);
    let (y, height, down) = side(random, slide.height);
    Region { x, y, width, height, to: (across, down) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn slide() -> Slide {
        Slide {
            file: "a.tif".to_owned(),
            width: 2600,
            height: 1800,
            tile: 256,
            images: 1,
            channels: None,
        }
    }

    #[test]
    fn all_whole_tiles_are_asked_for_once() {
        let slide = slide();
        for (what, count) in [(ViewKind::Stored, 10 * 7), (ViewKind::Decoded, 5 * 3)] {
            let views = what.views(&slide, 0);
            let positions: HashSet<_> = views.iter().map(|view| view.region(&slide).x).collect();
            assert_eq!((views.len(), views.clone()), (count, what.views(&slide, 0)));
            assert!(positions.len() > 3);
            for view in views {
                let Region { x, y, width, height, to } = view.region(&slide);
                assert!(x + width <= 2600 && y + height <= 1800 && to == (256, 256));
                assert_eq!(width / to.0, if what == ViewKind::Decoded { 2 } else { 1 });
            }
        }
    }

    #[test]
    fn regions_are_within_the_slide_and_scaled_alike_both_ways() {
        let slide = slide();
        for view in ViewKind::Regions.views(&slide, 500) {
            let Region { x, y, width, height, to } = view.region(&slide);
            assert!(x + width <= 2600 && y + height <= 1800, "{view:?}");
            assert_eq!(width * to.1, height * to.0, "{view:?}");
            assert!(to.0 >= 4 && width > to.0, "{view:?}");
        }
    }
}
