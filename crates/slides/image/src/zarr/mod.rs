//! OME-Zarr (<https://ngff.openmicroscopy.org>), 0.1 to 0.5: a group says which arrays are the
//! levels of an image and what their axes are. A tile is a chunk, or one for each channel of it.
//!
//! Of time and depth the first plane is shown. Own code and not the crate `zarrs`, because tiles
//! are wanted as they are stored, to be decoded elsewhere, and little of what arrays can be is an
//! image.

mod array;
mod store;

pub(crate) use store::inside;
pub use store::{DirectoryStore, Store};

use crate::codec::Codec;
use crate::grid::{Grid, Parts, Tiles, microns};
use crate::samples::{Colours, Layout};
use crate::source;
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use array::Array;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;

/// Whether a directory has what a group of Zarr has.
pub(crate) fn is(directory: &Path) -> bool {
    ["zarr.json", ".zattrs", ".zgroup"].iter().any(|name| directory.join(name).is_file())
}

#[derive(Deserialize, Default)]
struct Attributes {
    #[serde(default)]
    multiscales: Vec<Multiscale>,
    omero: Option<Omero>,
    /// Of version 0.5, in which all of this is in here.
    ome: Option<Box<Attributes>>,
    /// Images are in groups below, which are numbered.
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
    path: String,
    #[serde(default)]
    coordinate_transformations: Vec<Transformation>,
}

#[derive(Deserialize)]
struct Transformation {
    scale: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct Omero {
    #[serde(default)]
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    color: Option<String>,
    window: Option<Window>,
}

#[derive(Deserialize)]
struct Window {
    start: Option<f64>,
    end: Option<f64>,
}

/// A file of JSON.
struct Text<'a> {
    store: &'a dyn Store,
    key: String,
    bytes: Vec<u8>,
}

impl<'a> Text<'a> {
    fn read(store: &'a dyn Store, limits: &Limits, key: &str) -> Result<Option<Self>> {
        let Some(source) = store.open(key)? else { return Ok(None) };
        if source.length() > limits.value {
            let what = format!("{key} of {} bytes", source.length());
            return Err(Error::Limit { name: store.name().into(), what });
        }
        let bytes = source::read(&*source, 0, source.length())?;
        Ok(Some(Self { store, key: key.into(), bytes }))
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.bytes)
            .map_err(|error| malformed(self.store, format!("{}: {error}", self.key)))
    }
}

/// Opens the image of a store.
pub(crate) fn open(store: Arc<dyn Store>, limits: &Limits) -> Result<Parts> {
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
        let known = ["label", "macro", "thumbnail"].into_iter().find(|known| name.contains(known));
        if let (Some(known), Some(first)) = (known, image.datasets.first()) {
            let grid = grid(&store, limits, &format!("{prefix}{}", first.path), image, &group)?;
            parts.associated.insert(known.into(), grid);
        }
    }
    if parts.levels.is_empty() {
        return Err(malformed(&*store, "there is no image 0".into()));
    }
    Ok(parts)
}

/// Those of a group, of both versions of the format.
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
    for dataset in &image.datasets {
        let path = format!("{prefix}{}", dataset.path);
        parts.levels.push(grid(store, limits, &path, image, group)?);
    }
    parts.sort();
    if let Some(name) = &image.name {
        parts.properties.insert("ome.Name".into(), name.clone());
    }
    let axes = axes(&**store, image)?;
    let pixel = |place: usize| {
        let unit = match image.axes.as_ref()?.get(place)? {
            Axis::Full { unit, .. } => in_microns(unit.as_deref()?)?,
            Axis::Name(_) => return None,
        };
        let first = &image.datasets[0].coordinate_transformations;
        let scales = first.iter().chain(&image.coordinate_transformations);
        let scales = scales.filter_map(|step| step.scale.as_ref()?.get(place));
        Some(unit * scales.copied().reduce(|one, other| one * other)?)
    };
    parts.microns = pixel(axes.x).zip(pixel(axes.y)).and_then(|(x, y)| microns(x, y));
    Ok(())
}

/// The places of the axes.
#[derive(Debug, Clone, Copy)]
struct Axes {
    rank: usize,
    x: usize,
    y: usize,
    channel: Option<usize>,
}

fn axes(store: &dyn Store, image: &Multiscale) -> Result<Axes> {
    // The first versions knew no others.
    let mut names = vec!["t", "c", "z", "y", "x"];
    if let Some(axes) = &image.axes {
        names = axes
            .iter()
            .map(|axis| match axis {
                Axis::Name(name) | Axis::Full { name, .. } => name.as_str(),
            })
            .collect();
    }
    let place = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
    let (Some(x), Some(y)) = (place("x"), place("y")) else {
        return Err(unsupported(store, format!("the axes {names:?}")));
    };
    Ok(Axes { rank: names.len(), x, y, channel: place("c") })
}

/// One array as an image.
fn grid(
    store: &Arc<dyn Store>,
    limits: &Limits,
    path: &str,
    image: &Multiscale,
    group: &Attributes,
) -> Result<Grid> {
    let axes = axes(&**store, image)?;
    let array = Array::open(&**store, limits, path)?;
    if array.shape.len() != axes.rank {
        let what = format!("{path}: {} axes, but a shape of {:?}", axes.rank, array.shape);
        return Err(malformed(&**store, what));
    }
    let (width, height) = (array.shape[axes.x], array.shape[axes.y]);
    let limit = |what: String| Error::Limit { name: store.name().into(), what };
    if width.max(height) > u64::from(limits.side) {
        return Err(limit(format!("{path}: an image of {width} x {height} pixels")));
    }
    let (wide, high) = (array.chunk[axes.x], array.chunk[axes.y]);
    if wide.checked_mul(high).is_none_or(|pixels| pixels > limits.tile_pixels) {
        return Err(limit(format!("{path}: chunks of {wide} x {high} pixels")));
    }
    let deep = (0..axes.rank)
        .filter(|axis| ![Some(axes.x), Some(axes.y), axes.channel].contains(&Some(*axis)))
        .any(|axis| array.chunk[axis] != 1);
    if deep {
        let what = format!("{path}: chunks of several planes, {:?}", array.chunk);
        return Err(unsupported(&**store, what));
    }
    let (channels, each) = match axes.channel {
        Some(axis) => (array.shape[axis], array.chunk[axis]),
        None => (1, 1),
    };
    let colours = match channels {
        1 => Colours::Grey,
        3 => Colours::Rgb,
        4 if group.omero.as_ref().is_some_and(is_rgb) => Colours::Rgb,
        _ => {
            let what = format!("{path}: {channels} channels that are not red, green and blue");
            return Err(unsupported(&**store, what));
        }
    };
    let parts = channels.div_ceil(each);
    let samples = parts.saturating_mul(each);
    let planes = axes.channel.is_none_or(|axis| axis < axes.y);
    let beside = axes.channel.is_some_and(|axis| axis > axes.x) && parts == 1;
    if axes.y > axes.x || !(planes || beside) || samples > 16 {
        let what = format!("{path}: the order of the axes, or chunks of {:?}", array.chunk);
        return Err(unsupported(&**store, what));
    }
    let layout = Layout {
        colours,
        samples: samples as u16,
        bits: array.bits,
        big_endian: array.big_endian,
        planes: planes && samples > 1,
        window: window(group.omero.as_ref()).filter(|_| array.bits == 16),
        fill: array.fill.into(),
        ..Layout::of_bytes((wide as u32, high as u32), array.codec)
    };
    let (width, height) = (width as u32, height as u32);
    let chunks = Chunks { store: Arc::clone(store), array, axes, layout, parts };
    Ok(Grid { width, height, layout, empty: 0, tiles: Box::new(chunks) })
}

fn is_rgb(omero: &Omero) -> bool {
    let wanted = ["FF0000", "00FF00", "0000FF"];
    omero.channels.len() >= 3
        && omero.channels.iter().zip(wanted).all(|(channel, wanted)| {
            let colour = channel.color.as_deref().unwrap_or_default();
            colour.trim_start_matches('#').eq_ignore_ascii_case(wanted)
        })
}

/// From the darkest to the brightest value that a channel is to be shown with.
fn window(omero: Option<&Omero>) -> Option<(f64, f64)> {
    let windows = omero?.channels.iter().map(|channel| channel.window.as_ref());
    let windows = windows.collect::<Option<Vec<&Window>>>()?;
    let start = windows.iter().filter_map(|window| window.start).reduce(f64::min)?;
    let end = windows.iter().filter_map(|window| window.end).reduce(f64::max)?;
    // What is too small or too large becomes the nearest number.
    let (start, end) = (start as u16, end as u16);
    (start < end).then_some((start.into(), end.into()))
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

/// An array whose chunks are tiles.
struct Chunks {
    store: Arc<dyn Store>,
    array: Array,
    axes: Axes,
    layout: Layout,
    /// Chunks of one tile, each of some of its channels.
    parts: u64,
}

impl Tiles for Chunks {
    fn tile(&self, limits: &Limits, name: String, (column, row): (u32, u32)) -> Result<StoredTile> {
        let mut layout = self.layout;
        let mut at = vec![0; self.axes.rank];
        at[self.axes.x] = column.into();
        at[self.axes.y] = row.into();
        let mut tables = Vec::new();
        let bytes = match self.axes.channel.filter(|_| self.parts > 1) {
            None => self.array.read(&*self.store, limits, &at)?,
            Some(channel) => {
                let mut whole = Vec::new();
                for part in 0..self.parts {
                    at[channel] = part;
                    let part = self.array.read(&*self.store, limits, &at)?;
                    tables.extend((part.len() as u32).to_le_bytes());
                    whole.extend_from_slice(&part);
                    if whole.len() as u64 > limits.stored {
                        let what = format!("a tile of {} bytes", whole.len());
                        return Err(Error::Limit { name, what });
                    }
                }
                whole.into()
            }
        };
        if bytes.is_empty() {
            layout.codec = Codec::Absent;
        }
        Ok(StoredTile { name, layout, halvings: 0, tables: tables.into(), bytes })
    }
}

fn malformed(store: &dyn Store, what: String) -> Error {
    Error::Malformed { name: store.name().into(), at: 0, what }
}

fn unsupported(store: &dyn Store, what: String) -> Error {
    Error::Unsupported { name: store.name().into(), what }
}
