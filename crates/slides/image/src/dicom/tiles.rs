//! Which frame is which tile: all in order, or by the position that each says.

use super::instance::Instance;
use super::series::Room;
use crate::codec::Codec;
use crate::grid::{Grid, Tiles};
use crate::samples::Layout;
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::sync::Arc;

/// An image, in one instance or in several that are concatenated.
struct Tiled {
    layout: Layout,
    columns: u32,
    parts: Vec<Part>,
    /// The frame of each tile, from 1; 0 where there is none. Without it all are there, in order.
    places: Option<Vec<u32>>,
}

struct Part {
    /// How many frames are in the parts before.
    start: u32,
    instance: Arc<Instance>,
}

/// Makes a grid of the instances of an image.
pub(super) fn grid(
    mut instances: Vec<Arc<Instance>>,
    limits: &Limits,
    room: &mut Room,
) -> Result<Grid> {
    // Where one says its place in the whole, all should.
    instances.sort_by_key(|instance| instance.header.first_frame);
    let first = Arc::clone(&instances[0]);
    let (width, height) = (first.header.total_columns, first.header.total_rows);
    let layout = first.layout;
    let malformed = |what: String| Error::Malformed { name: first.name().into(), at: 0, what };
    let mut parts = Vec::with_capacity(instances.len());
    let mut frames = 0_u32;
    for instance in instances {
        let of = &instance.header;
        if instance.layout != layout || (of.total_columns, of.total_rows) != (width, height) {
            return Err(malformed("instances that are concatenated, but not alike".into()));
        }
        let start = of.first_frame.unwrap_or(frames);
        let end = start.checked_add(of.frames).filter(|_| start >= frames);
        frames = end.ok_or_else(|| malformed("instances that overlap".into()))?;
        parts.push(Part { start, instance });
    }
    let (columns, rows) = (width.div_ceil(layout.width), height.div_ceil(layout.height));
    let tiles = u64::from(columns) * u64::from(rows);
    if tiles > limits.tables / 4 {
        let what = format!("an image of {tiles} tiles");
        return Err(Error::Limit { name: first.name().into(), what });
    }
    let full = parts.iter().all(|part| {
        let of = &part.instance.header;
        // Before there was a word for it, there was also no other order.
        of.full || of.positions.is_empty()
    });
    let places = if full {
        if tiles > u64::from(frames) {
            return Err(malformed(format!("{tiles} tiles, but only {frames} frames")));
        }
        None
    } else {
        room.take(4 * tiles, first.name())?;
        let mut places = vec![0; tiles as usize];
        for part in &parts {
            for (frame, position) in (part.start..).zip(&part.instance.header.positions) {
                let from_zero = |place: i32| u64::try_from(i64::from(place) - 1);
                let (Ok(x), Ok(y)) = (from_zero(position.0), from_zero(position.1)) else {
                    return Err(malformed(format!("a frame at {position:?}")));
                };
                let (wide, high) = (u64::from(layout.width), u64::from(layout.height));
                if x % wide != 0 || y % high != 0 {
                    let what = format!("frames that are no grid: one is at {position:?}");
                    return Err(Error::Unsupported { name: first.name().into(), what });
                }
                let (column, row) = (x / wide, y / high);
                if column >= u64::from(columns) || row >= u64::from(rows) {
                    return Err(malformed(format!("a frame at {position:?}")));
                }
                // The first one: others are of other focal planes and optical paths.
                let place = &mut places[(row * u64::from(columns) + column) as usize];
                if *place == 0 {
                    *place = frame + 1;
                }
            }
        }
        Some(places)
    };
    let tiled = Tiled { layout, columns, parts, places };
    Ok(Grid { width, height, layout, empty: 0, tiles: Box::new(tiled) })
}

impl Tiles for Tiled {
    fn tile(&self, _: &Limits, name: String, (column, row): (u32, u32)) -> Result<StoredTile> {
        let tile = row as usize * self.columns as usize + column as usize;
        let mut layout = self.layout;
        let frame = match &self.places {
            None => Some(tile as u32),
            Some(places) => places[tile].checked_sub(1),
        };
        let part = frame.and_then(|frame| {
            let after = self.parts.partition_point(|part| part.start <= frame);
            let part = &self.parts[after.checked_sub(1)?];
            let inside = frame - part.start;
            (inside < part.instance.frames()).then_some((&part.instance, inside + 1))
        });
        let bytes = match part {
            Some((instance, number)) => instance.frame(number)?,
            None if self.places.is_none() => {
                return Err(Error::Tile { tile: name, what: "its instance is missing".into() });
            }
            None => Bytes::new(),
        };
        if bytes.is_empty() {
            layout.codec = Codec::Absent;
        }
        Ok(StoredTile { name, layout, halvings: 0, tables: Bytes::new(), bytes })
    }
}
