//! The levels of a slide: one image each, or several of one size, whose optical paths are channels.
//!
//! A series may have images of several regions of the glass, or several pyramids (PS3.3,
//! C.8.12.14). All levels are of the pyramid of the largest image.

use super::header::OpticalPath;
use super::tiles::{self, Paths, TiledImage};
use crate::auto_window::Measure;
use crate::channels::{ChannelMetadata, Stack};
use crate::grid::{Parts, factors};
use crate::samples::Colours;
use crate::{Limits, Result};
use std::cmp::Reverse;
use std::sync::Arc;

/// The property that lists images that are not shown.
const NOT_SHOWN: &str = "dicom.NotShown";

/// Distance on the glass, in millimetres, that is taken for none: files round lengths.
const SAME_PLACE: f64 = 0.02;

/// Turns images into levels. One of them is the largest image, of which the instance `main` is a
/// part.
pub(super) fn fill(
    parts: &mut Parts,
    mut images: Vec<Arc<TiledImage>>,
    main: &str,
    name: &str,
    limits: &Limits,
) -> Result<()> {
    images.sort_by_key(|image| (!image.has(main), Reverse((image.width, image.height))));
    let main = Arc::clone(&images[0]);
    images.retain(|image| match why_foreign(&main, image) {
        None => true,
        Some(why) => {
            let (width, height) = (image.width, image.height);
            parts.not_shown(NOT_SHOWN, &format!("{width} x {height} pixels: {why}"));
            false
        }
    });
    for why in images.iter().filter_map(|image| image.not_shown.as_ref()) {
        parts.not_shown(NOT_SHOWN, why);
    }
    let levels: Vec<&[Arc<TiledImage>]> = images
        .chunk_by(|one, other| (one.width, one.height) == (other.width, other.height))
        .collect();
    let (first, depth) = (levels[0], levels[0][0].depth);
    let is_grey = first.iter().all(|image| image.layout.colours == Colours::Grey);
    let paths = tiles::paths(first).filter(|_| is_grey);
    let paths = paths.filter(|paths| Paths::of(first, paths).is_some());
    let mut stack = Stack::of((depth, 1));
    for images in levels {
        let image = &images[0];
        let sized = format!("{} x {} pixels", image.width, image.height);
        match &paths {
            Some(paths) => match Paths::of(images, paths).filter(|_| image.depth == depth) {
                Some(level) => parts.levels.push(level.grid()),
                None => {
                    parts.not_shown(NOT_SHOWN, &format!("{sized}: without some of the channels"))
                }
            },
            None if image.depth != depth => {
                parts.not_shown(NOT_SHOWN, &format!("{sized}: {} focal planes", image.depth));
            }
            None => {
                if images.len() > 1 || image.paths.len() > 1 {
                    parts.not_shown(NOT_SHOWN, &format!("{sized}: other images or optical paths"));
                }
                let alone = Paths::first(image);
                parts.levels.push(alone.grid());
            }
        }
    }
    parts.sort(NOT_SHOWN);
    if let (Some(paths), Some(smallest)) = (paths, parts.levels.last()) {
        let mut measure = Measure::new(smallest, name, limits, stack.plane);
        let said = paths.iter().map(said).collect();
        stack = stack.with(said, &smallest.layout, |channel| measure.window(channel))?;
        if parts.icc.take().is_some() {
            let why = "not applied: the slide has channels".into();
            parts.properties.insert("dicom.ColourProfile".into(), why);
        }
    }
    parts.stack = stack;
    Ok(())
}

/// Why an image is not of the pyramid of the largest one; `None` if it is.
fn why_foreign(main: &TiledImage, image: &TiledImage) -> Option<&'static str> {
    let (of, own) = (main.header(), image.header());
    if !of.pyramid.is_empty() && !own.pyramid.is_empty() && of.pyramid != own.pyramid {
        return Some("of another pyramid");
    }
    let (main, image) = ((main.width, main.height), (image.width, image.height));
    let is_smaller = image.0 < main.0 && image.1 <= main.1;
    if image != main && (!is_smaller || factors(main, image).is_none()) {
        return Some("not the largest image at a smaller scale");
    }
    let is_given = |(wide, high): (f32, f32)| [wide, high].iter().all(|side| *side > 0.0);
    let is_far = |one: f64, other: f64, pixel: f64| (one - other).abs() > pixel + SAME_PLACE;
    // Levels are rounded to whole pixels of their own.
    let pixel = |volume: f32, pixels: u32| f64::from(volume) / f64::from(pixels);
    let pixel = (pixel(own.volume.0, image.0), pixel(own.volume.1, image.1));
    let is_other = |of: f32, own: f32, pixel| is_far(of.into(), own.into(), pixel);
    let is_other = is_other(of.volume.0, own.volume.0, pixel.0)
        || is_other(of.volume.1, own.volume.1, pixel.1);
    if is_given(of.volume) && is_given(own.volume) && is_other {
        return Some("of an area of another size");
    }
    // The image may be turned on the glass, so either side may lie along either axis.
    let pixel = own.spacing.unwrap_or(pixel);
    let pixel = pixel.0.max(pixel.1);
    let is_elsewhere = |of: Option<f64>, own: Option<f64>| {
        of.zip(own).is_some_and(|(of, own)| is_far(of, own, pixel))
    };
    let is_elsewhere =
        is_elsewhere(of.origin.0, own.origin.0) || is_elsewhere(of.origin.1, own.origin.1);
    is_elsewhere.then_some("of another place on the glass")
}

/// A channel is named by the path's description, or else by its identifier.
fn said(path: &OpticalPath) -> ChannelMetadata {
    let name = path.description.clone().filter(|text| !text.is_empty());
    ChannelMetadata {
        name: name.or_else(|| Some(path.identifier.clone())),
        ..ChannelMetadata::default()
    }
}
