//! OME-Zarr (<https://ngff.openmicroscopy.org>), 0.1 to 0.5: a group names the arrays that are the
//! levels of an image and their axes ([array.rs](array), [image.rs](image)), and optionally how it
//! is shown ([omero.rs](omero)).
//!
//! The crate `zarrs` is not used: tiles are needed as they are stored, to be decoded elsewhere, and
//! only a small subset of arrays are images.

mod array;
mod image;
mod omero;
mod store;

pub(crate) use store::inside;
pub use store::{DirectoryStore, Store};

use crate::auto_window::Measure;
use crate::channels::Stack;
use crate::grid::{Parts, microns};
use crate::{Error, Limits, Result};
use image::{Axes, Look};
use omero::Omero;
use serde::{Deserialize, Deserializer};
use std::path::Path;
use std::sync::Arc;
use store::{Described, Text, malformed, unsupported};

/// The property that lists parts of an image that are not shown.
const NOT_SHOWN: &str = "zarr.NotShown";

/// True if a directory has the files of a Zarr group.
pub(crate) fn is(directory: &Path) -> bool {
    ["zarr.json", ".zattrs", ".zgroup"].iter().any(|name| directory.join(name).is_file())
}

#[derive(Deserialize, Default)]
struct Attributes {
    #[serde(default)]
    multiscales: Vec<Multiscale>,
    omero: Option<serde_json::Value>,
    /// Version 0.5 nests all of these attributes here.
    ome: Option<Box<Attributes>>,
    /// Images are in numbered subgroups.
    #[serde(rename = "bioformats2raw.layout")]
    below: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Multiscale {
    name: Option<String>,
    axes: Option<Vec<Axis>>,
    datasets: Vec<Dataset>,
    #[serde(default)]
    coordinate_transformations: Vec<Transformation>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Axis {
    Name(String),
    Full { name: String, unit: Option<String> },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dataset {
    #[serde(deserialize_with = "path")]
    path: String,
    #[serde(default)]
    coordinate_transformations: Vec<Transformation>,
}

/// Some programs write the name of an array as a number.
fn path<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Path {
        Text(String),
        Number(u64),
    }
    Ok(match Path::deserialize(from)? {
        Path::Text(text) => text,
        Path::Number(number) => number.to_string(),
    })
}

#[derive(Deserialize)]
struct Transformation {
    scale: Option<Vec<f64>>,
}

/// Opens the image of a store.
pub(crate) fn open(store: Arc<dyn Store>, limits: &Limits) -> Result<Parts> {
    let described = Arc::new(Described::new(store));
    let parts = parts(Arc::<Described>::clone(&described), limits)?;
    Ok(Parts { state: described.finish(), ..parts })
}

fn parts(store: Arc<dyn Store>, limits: &Limits) -> Result<Parts> {
    let root = attributes(&*store, limits, "")?.unwrap_or_default();
    let mut parts = Parts { format: "ome-zarr", ..Parts::default() };
    if root.below.is_none() || !root.multiscales.is_empty() {
        levels(&mut parts, &store, limits, "", &root)?;
        return Ok(parts);
    }
    for number in 0..limits.files {
        let prefix = format!("{number}/");
        let Some(group) = attributes(&*store, limits, &prefix)? else { break };
        if number == 0 {
            levels(&mut parts, &store, limits, &prefix, &group)?;
            continue;
        }
        let Some(image) = group.multiscales.first() else { continue };
        let name = image.name.as_deref().unwrap_or_default().to_lowercase();
        let role = ["label", "macro", "thumbnail"].into_iter().find(|role| name.contains(role));
        if let (Some(role), Some(first)) = (role, image.datasets.first()) {
            let path = format!("{prefix}{}", first.path);
            let axes = Axes::new(&*store, &names(image))?;
            let array = image::array(&*store, limits, &path, &axes)?;
            match image::beside(&store, limits, &path, axes, array)? {
                Ok(grid) => _ = parts.associated.insert(role.into(), grid),
                Err(why) => parts.not_shown(NOT_SHOWN, &why),
            }
        }
    }
    if parts.levels.is_empty() {
        return Err(malformed(&*store, "there is no image 0".into()));
    }
    Ok(parts)
}

/// The attributes of a group, in either version of the format.
fn attributes(store: &dyn Store, limits: &Limits, prefix: &str) -> Result<Option<Attributes>> {
    if let Some(text) = Text::read(store, limits, &format!("{prefix}zarr.json"))? {
        let attributes = text.parse::<Node>()?.attributes;
        return Ok(Some(match attributes.ome {
            Some(inner) => Attributes { below: inner.below.or(attributes.below), ..*inner },
            None => attributes,
        }));
    }
    match Text::read(store, limits, &format!("{prefix}.zattrs"))? {
        Some(text) => text.parse().map(Some),
        None => Ok(None),
    }
}

/// The levels of a group's first image.
fn levels(
    parts: &mut Parts,
    store: &Arc<dyn Store>,
    limits: &Limits,
    prefix: &str,
    group: &Attributes,
) -> Result<()> {
    let Some(image) = group.multiscales.first().filter(|image| !image.datasets.is_empty()) else {
        let what = format!("Zarr without an image: there is no \"multiscales\" in {prefix:?}");
        return Err(unsupported(&**store, what));
    };
    if image.datasets.len() > limits.directories {
        let what = format!("{} levels", image.datasets.len());
        return Err(Error::Limit { name: store.name().into(), what });
    }
    let axes = Axes::new(&**store, &names(image))?;
    let path = |dataset: &Dataset| format!("{prefix}{}", dataset.path);
    let open = |path: &str| image::array(&**store, limits, path, &axes);
    let omero = group.omero.as_ref().map(Omero);
    let mut first = Some(open(&path(&image.datasets[0]))?);
    let look = match &first {
        Some(array) => Look::new(&**store, axes, array, omero.as_ref())?,
        None => return Ok(()),
    };
    let mut largest = (0, &image.datasets[0]);
    for dataset in &image.datasets {
        let path = path(dataset);
        let array = first.take().map_or_else(|| open(&path), Ok)?;
        match look.grid(store, limits, &path, array)? {
            Ok(grid) => {
                if grid.width > largest.0 {
                    largest = (grid.width, dataset);
                }
                parts.levels.push(grid);
            }
            Err(why) => parts.not_shown(NOT_SHOWN, &why),
        }
    }
    parts.sort(NOT_SHOWN);
    stack(parts, &**store, limits, look, omero.as_ref())?;
    if let Some(name) = &image.name {
        parts.properties.insert("ome.Name".into(), name.clone());
    }
    let pixel = |axis: usize| {
        let unit = match image.axes.as_ref()?.get(axis)? {
            Axis::Full { unit, .. } => in_microns(unit.as_deref()?)?,
            Axis::Name(_) => return None,
        };
        let own = &largest.1.coordinate_transformations;
        let scales = own.iter().chain(&image.coordinate_transformations);
        let scales = scales.filter_map(|step| step.scale.as_ref()?.get(axis));
        Some(unit * scales.copied().reduce(|one, other| one * other)?)
    };
    parts.microns = pixel(axes.x).zip(pixel(axes.y)).and_then(|(x, y)| microns(x, y));
    Ok(())
}

/// Sets the channels and planes of the slide, and the default rendering.
fn stack(
    parts: &mut Parts,
    store: &dyn Store,
    limits: &Limits,
    look: Look,
    omero: Option<&Omero<'_>>,
) -> Result<()> {
    let (depth, times) = look.planes();
    let mut stack = Stack::of((depth, times));
    if let Some(omero) = omero {
        stack.plane = omero.plane(depth, times, stack.plane);
    }
    if let Some(smallest) = parts.levels.last().filter(|_| look.has_channels()) {
        let described = omero.map_or(0, Omero::count);
        if ![0, look.said.len()].contains(&described) {
            let what = format!(
                "not applied: it describes {described} channels, but there are {}",
                look.said.len()
            );
            parts.properties.insert("zarr.Rendering".into(), what);
        }
        let mut measure = Measure::new(smallest, store.name(), limits, stack.plane);
        stack = stack.with(look.said, &smallest.layout, |channel| measure.window(channel))?;
    }
    parts.stack = stack;
    Ok(())
}

/// The names of the axes.
fn names(image: &Multiscale) -> Vec<&str> {
    // The first versions had fixed axes.
    let Some(axes) = &image.axes else { return vec!["t", "c", "z", "y", "x"] };
    axes.iter()
        .map(|axis| match axis {
            Axis::Name(name) | Axis::Full { name, .. } => name.as_str(),
        })
        .collect()
}

fn in_microns(unit: &str) -> Option<f64> {
    match unit {
        "micrometer" => Some(1.0),
        "nanometer" => Some(1e-3),
        "angstrom" => Some(1e-4),
        "millimeter" => Some(1e3),
        "centimeter" => Some(1e4),
        "meter" => Some(1e6),
        _ => None,
    }
}
