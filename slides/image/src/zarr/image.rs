//! An array as a level: a tile is one chunk, or several for its channels.

use super::array::Array;
use super::omero::{self, Omero};
use super::store::{Store, malformed, unsupported};
use crate::channel_samples::Pick;
use crate::channels::{self, ChannelMetadata, Plane};
use crate::codec::Codec;
use crate::grid::{Grid, Picked, Tiles, together};
use crate::samples::{Colours, Layout, Number};
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// The indices of the axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes {
    pub(super) rank: usize,
    pub(super) x: usize,
    pub(super) y: usize,
    channel: Option<usize>,
    depth: Option<usize>,
    time: Option<usize>,
}

impl Axes {
    pub(super) fn new(store: &dyn Store, names: &[&str]) -> Result<Self> {
        let axis = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        let (Some(x), Some(y)) = (axis("x"), axis("y")) else {
            return Err(unsupported(store, format!("the axes {names:?}")));
        };
        let [channel, depth, time] = ["c", "z", "t"].map(axis);
        Ok(Self { rank: names.len(), x, y, channel, depth, time })
    }

    /// The numbers of channels, focal planes and times of an array.
    fn counts(&self, array: &Array) -> [u64; 3] {
        let count = |axis: Option<usize>| axis.map_or(1, |axis| array.shape[axis]);
        [self.channel, self.depth, self.time].map(count)
    }

    /// True if an axis has none of these names.
    fn is_other(&self, axis: usize) -> bool {
        let named = [Some(self.x), Some(self.y), self.channel, self.depth, self.time];
        !named.contains(&Some(axis))
    }
}

/// The properties common to the arrays of all levels.
pub(super) struct Look {
    axes: Axes,
    /// Numbers of channels, focal planes and times.
    counts: [u64; 3],
    sample: (Number, u8),
    /// The colours of the pixels; `None` if there are channels.
    colours: Option<Colours>,
    window: Option<(f64, f64)>,
    /// A description of each channel.
    pub(super) said: Vec<ChannelMetadata>,
}

impl Look {
    /// Takes them from the array of the largest level.
    pub(super) fn new(
        store: &dyn Store,
        axes: Axes,
        array: &Array,
        omero: Option<&Omero<'_>>,
    ) -> Result<Self> {
        let counts = axes.counts(array);
        let limit = |what: String| Error::Limit { name: store.name().into(), what };
        if counts[0] > channels::MOST {
            let what = format!("{} channels, of {} at most", counts[0], channels::MOST);
            return Err(limit(what));
        }
        if counts[1].max(counts[2]) > u64::from(u32::MAX) {
            return Err(limit(format!("{} focal planes at {} times", counts[1], counts[2])));
        }
        let count = counts[0] as usize;
        let (number, bits) = (array.number, array.bits);
        let is_whole = number == Number::Unsigned && matches!(bits, 8 | 16);
        let is_one_image = omero.is_none_or(|omero| omero.is_one_image(bits));
        let colours = match (count, omero.map_or(0, Omero::count)) {
            (1, 0) if is_whole && bits == 8 => Some(Colours::Grey),
            (3, 0 | 3..) if is_whole && is_one_image => Some(Colours::Rgb),
            // The fourth is alpha.
            (4, 3) if is_whole && is_one_image => Some(Colours::Rgb),
            // One window for all.
            (3, 1) if is_whole && is_one_image => Some(Colours::Rgb),
            _ => None,
        };
        let mut look =
            Self { axes, counts, sample: (number, bits), colours, window: None, said: Vec::new() };
        let applied = omero.filter(|omero| omero.count() == count);
        look.said = match look.colours {
            Some(Colours::Rgb) => omero::rgb(2_f64.powi(bits.into()) - 1.0),
            _ => (0..count)
                .map(|at| applied.map_or_else(ChannelMetadata::default, |of| of.said(at)))
                .collect(),
        };
        let window = omero.and_then(Omero::window).filter(|_| bits == 16);
        look.window = window.map(|window| (window.black(), window.white()));
        if look.colours.is_some() && look.plain(array).is_none() {
            look.colours = None;
        }
        Ok(look)
    }

    pub(super) fn has_channels(&self) -> bool {
        self.colours.is_none()
    }

    /// The numbers of focal planes and times.
    pub(super) fn planes(&self) -> (u32, u32) {
        (self.counts[1] as u32, self.counts[2] as u32)
    }

    /// The layout of a tile of coloured pixels; `None` if the order of samples in a chunk does not
    /// allow it.
    fn plain(&self, array: &Array) -> Option<(Layout, u64)> {
        let axes = self.axes;
        let is_flat =
            [axes.depth, axes.time].into_iter().flatten().all(|axis| array.chunk[axis] == 1);
        let each = axes.channel.map_or(1, |axis| array.chunk[axis]);
        let parts = self.counts[0].div_ceil(each);
        let samples = parts.saturating_mul(each);
        let planes = axes.channel.is_none_or(|axis| axis < axes.y);
        let beside = axes.channel.is_some_and(|axis| axis > axes.x) && parts == 1;
        let is_in_order = array.is_in_order() && axes.y < axes.x && is_flat;
        let layout = Layout {
            colours: self.colours?,
            samples: samples as u16,
            bits: array.bits,
            big_endian: array.big_endian,
            planes: planes && samples > 1,
            window: self.window,
            fill: array.fill,
            ..Layout::of_bytes(sides(&axes, array), array.codec)
        };
        (is_in_order && (planes || beside) && samples <= 16).then_some((layout, parts))
    }

    /// A level, or the reason why its channels or planes differ from those of the largest.
    pub(super) fn grid(
        &self,
        store: &Arc<dyn Store>,
        limits: &Limits,
        path: &str,
        array: Array,
    ) -> Result<std::result::Result<Grid, String>> {
        let axes = self.axes;
        let (width, height) = (array.shape[axes.x], array.shape[axes.y]);
        let limit = |what: String| Error::Limit { name: store.name().into(), what };
        if width.max(height) > u64::from(limits.side) {
            return Err(limit(format!("{path}: an image of {width} x {height} pixels")));
        }
        let (wide, high) = (array.chunk[axes.x], array.chunk[axes.y]);
        if wide.checked_mul(high).is_none_or(|pixels| pixels > limits.tile_pixels) {
            let what = format!("{path}: chunks of {wide} x {high}");
            let (name, most) = (store.name().into(), limits.tile_pixels);
            return Err(Error::LargeTiles { name, what, most });
        }
        if let Some(axis) =
            (0..axes.rank).find(|axis| axes.is_other(*axis) && array.shape[*axis] > 1)
        {
            let what = format!("{path}: an axis other than t, c, z, y and x");
            return Err(unsupported(
                &**store,
                format!("{what}, with {} entries", array.shape[axis]),
            ));
        }
        if axes.counts(&array) != self.counts || (array.number, array.bits) != self.sample {
            let [channels, depth, times] = axes.counts(&array);
            return Ok(Err(format!(
                "{path}: {channels} channels, {depth} focal planes and {times} times of samples of \
                 {} bits, unlike the largest level",
                array.bits
            )));
        }
        let wrong = |what: &str| {
            let what = format!("{path}: {what}, or chunks of {:?}", array.chunk);
            unsupported(&**store, what)
        };
        let (layout, parts, steps) = match self.colours {
            Some(_) => {
                let (layout, parts) =
                    self.plain(&array).ok_or_else(|| wrong("the order of the axes"))?;
                (layout, parts, Vec::new())
            }
            None => {
                let steps = array.steps().filter(|(_, count)| {
                    let bytes = count.checked_mul(u64::from(array.bits / 8));
                    bytes.is_some_and(|bytes| bytes <= limits.tile_pixels.saturating_mul(8))
                });
                let (steps, count) =
                    steps.ok_or_else(|| limit(format!("{path}: chunks of {:?}", array.chunk)))?;
                let samples = u16::try_from(count / (wide * high));
                let layout = Layout {
                    colours: Colours::Grey,
                    samples: samples.map_err(|_| wrong("too many samples for a pixel"))?,
                    number: array.number,
                    bits: array.bits,
                    big_endian: array.big_endian,
                    fill: array.fill,
                    ..Layout::of_bytes((wide as u32, high as u32), array.codec)
                };
                (layout, 1, steps)
            }
        };
        let (width, height) = (width as u32, height as u32);
        let store = Arc::clone(store);
        let chunks = Chunks { store, array, axes, layout, parts, steps };
        Ok(Ok(Grid { width, height, layout, empty: 0, tiles: Box::new(chunks) }))
    }
}

/// Width and height of a chunk.
fn sides(axes: &Axes, array: &Array) -> (u32, u32) {
    (array.chunk[axes.x] as u32, array.chunk[axes.y] as u32)
}

/// An array whose chunks are tiles.
struct Chunks {
    store: Arc<dyn Store>,
    array: Array,
    axes: Axes,
    layout: Layout,
    /// Chunks per tile in colours, each with some of the samples of a pixel.
    parts: u64,
    /// For channels: the distance of samples along each axis of a chunk.
    steps: Vec<u64>,
}

impl Chunks {
    /// The indices of the chunk with the first channel at a position in a plane.
    fn chunk_at(&self, position: (u32, u32), plane: Plane) -> Vec<u64> {
        let (column, row) = position;
        let (axes, chunk) = (&self.axes, &self.array.chunk);
        let mut at = vec![0; axes.rank];
        at[axes.x] = column.into();
        at[axes.y] = row.into();
        for (axis, number) in [(axes.depth, plane.z), (axes.time, plane.t)] {
            if let Some(axis) = axis {
                at[axis] = u64::from(number) / chunk[axis];
            }
        }
        at
    }

    /// A tile of chunks with these bytes; `None` if all are absent.
    fn stored(&self, name: &str, tables: Vec<u8>, bytes: Option<Bytes>) -> StoredTile {
        let mut layout = self.layout;
        if bytes.is_none() {
            layout.codec = Codec::Absent;
        }
        let (tables, bytes) = (tables.into(), bytes.unwrap_or_default());
        StoredTile { name: name.to_owned(), layout, halvings: 0, tables, bytes }
    }
}

impl Tiles for Chunks {
    fn tile(
        &self,
        limits: &Limits,
        name: String,
        position: (u32, u32),
        plane: Plane,
    ) -> Result<StoredTile> {
        let mut at = self.chunk_at(position, plane);
        let Some(channel) = self.axes.channel.filter(|_| self.parts > 1) else {
            let bytes = self.array.read(&*self.store, limits, &at)?;
            return Ok(self.stored(&name, Vec::new(), bytes));
        };
        let (mut tables, mut whole) = (Vec::new(), Vec::new());
        for part in 0..self.parts {
            at[channel] = part;
            let part = self.array.read(&*self.store, limits, &at)?.unwrap_or_default();
            tables.extend((part.len() as u32).to_le_bytes());
            whole.extend_from_slice(&part);
            if whole.len() as u64 > limits.stored {
                let what = format!("a tile of {} bytes", whole.len());
                return Err(Error::Limit { name, what });
            }
        }
        Ok(self.stored(&name, tables, (!whole.is_empty()).then(|| whole.into())))
    }

    fn stored_with(&self, channel: u32) -> Range<u32> {
        let Some(axis) = self.axes.channel else { return channel..channel + 1 };
        let (each, all) = (self.array.chunk[axis], self.array.shape[axis]);
        let first = u64::from(channel) / each * each;
        // There are at most as many as a slide may have.
        first as u32..first.saturating_add(each).min(all) as u32
    }

    fn sheets(
        &self,
        limits: &Limits,
        name: String,
        position: (u32, u32),
        plane: Plane,
        channels: &[u32],
    ) -> Result<Vec<Picked>> {
        let (axes, chunk) = (&self.axes, &self.array.chunk);
        let mut at = self.chunk_at(position, plane);
        let along = |axis: Option<usize>, number: u32| {
            axis.map_or(0, |axis| u64::from(number) % chunk[axis] * self.steps[axis])
        };
        let in_plane = along(axes.depth, plane.z) + along(axes.time, plane.t);
        let (across, down) = (self.steps[axes.x], self.steps[axes.y]);
        let mut sheets: Vec<(u64, Picked)> = Vec::new();
        let mut stored = 0;
        for channel in channels {
            let number = axes.channel.map_or(0, |axis| u64::from(*channel) / chunk[axis]);
            let first = in_plane + along(axes.channel, *channel);
            let pick = (*channel, Pick { first, across, down });
            if let Some((_, picked)) = sheets.iter_mut().find(|(other, _)| *other == number) {
                picked.picks.push(pick);
                continue;
            }
            if let Some(axis) = axes.channel {
                at[axis] = number;
            }
            let bytes = self.array.read(&*self.store, limits, &at)?;
            let tile = self.stored(&name, Vec::new(), bytes);
            together(limits, &mut stored, &tile)?;
            sheets.push((number, Picked { tile, picks: vec![pick] }));
        }
        Ok(sheets.into_iter().map(|(_, picked)| picked).collect())
    }
}

/// An associated image, without channels.
pub(super) fn beside(
    store: &Arc<dyn Store>,
    limits: &Limits,
    path: &str,
    axes: Axes,
    array: Array,
) -> Result<std::result::Result<Grid, String>> {
    let look = Look::new(&**store, axes, &array, None)?;
    if look.has_channels() {
        return Ok(Err(format!("{path}: {} channels", look.counts[0])));
    }
    look.grid(store, limits, path, array)
}

/// Opens an array with the axes of its image.
pub(super) fn array(store: &dyn Store, limits: &Limits, path: &str, axes: &Axes) -> Result<Array> {
    let array = Array::open(store, limits, path)?;
    if array.shape.len() != axes.rank {
        let what = format!("{path}: {} axes, but a shape of {:?}", axes.rank, array.shape);
        return Err(malformed(store, what));
    }
    Ok(array)
}
