//! The levels of a slide: one image each, or several of one size, whose optical paths are channels.

use super::header::OpticalPath;
use super::tiles::{self, Image, Paths};
use crate::channels::{Said, Stack};
use crate::grid::Parts;
use crate::measure::Measure;
use crate::samples::Colours;
use crate::{Limits, Result};
use std::cmp::Reverse;
use std::sync::Arc;

/// The property that lists images that are not shown.
const NOT_SHOWN: &str = "dicom.NotShown";

/// Turns images into levels. There is at least one image.
pub(super) fn fill(
    parts: &mut Parts,
    mut images: Vec<Arc<Image>>,
    name: &str,
    limits: &Limits,
) -> Result<()> {
    images.sort_by_key(|image| Reverse((image.width, image.height)));
    for why in images.iter().filter_map(|image| image.not_shown.as_ref()) {
        parts.not_shown(NOT_SHOWN, why);
    }
    let levels: Vec<&[Arc<Image>]> = images
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
    parts.sort();
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

/// A channel is named by the path's description, or else by its identifier.
fn said(path: &OpticalPath) -> Said {
    let name = path.description.clone().filter(|text| !text.is_empty());
    Said { name: name.or_else(|| Some(path.identifier.clone())), ..Said::default() }
}
