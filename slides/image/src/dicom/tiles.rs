//! Finds the frame of each tile: frames are in order, or each gives its position. In order, the
//! tiles of one focal plane come before those of the next, and all of one optical path before the
//! next path (PS3.3, C.7.6.17.3).

use super::header::{Header, OpticalPath};
use super::instance::Instance;
use super::series::Room;
use crate::channel_samples::Pick;
use crate::channels::{self, Plane};
use crate::codec::Codec;
use crate::grid::{Grid, Picked, Tiles, together};
use crate::samples::Layout;
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::sync::Arc;

/// An image, in one instance or in several that are concatenated.
pub(super) struct TiledImage {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) layout: Layout,
    columns: u32,
    parts: Vec<Part>,
    /// The frame of each tile of each plane, from 1; 0 if there is none. `None` if all frames exist
    /// and are in order.
    tile_frames: Option<Vec<u32>>,
    /// True if instances of its concatenation are missing.
    is_partial: bool,
    /// Focal planes.
    pub(super) depth: u32,
    /// Optical paths of the frames; empty if the file does not name them.
    pub(super) paths: Vec<OpticalPath>,
    /// Why some of its frames are not shown.
    pub(super) not_shown: Option<String>,
}

struct Part {
    /// Number of frames in the preceding parts.
    start: u32,
    instance: Arc<Instance>,
}

/// Assembles an image from its instances.
pub(super) fn image(
    mut instances: Vec<Arc<Instance>>,
    limits: &Limits,
    room: &mut Room,
) -> Result<TiledImage> {
    // If one instance states its position in the whole, all should.
    instances.sort_by_key(|instance| instance.header.first_frame);
    let first = Arc::clone(&instances[0]);
    let (width, height) = (first.header.total_columns, first.header.total_rows);
    let layout = first.layout;
    let malformed = |what: String| Error::Malformed { name: first.name().into(), at: 0, what };
    let mut parts = Vec::with_capacity(instances.len());
    let mut frames = 0_u32;
    let count = instances.len();
    let mut is_partial = false;
    for instance in instances {
        let of = &instance.header;
        if instance.layout != layout || (of.total_columns, of.total_rows) != (width, height) {
            return Err(malformed("concatenated instances that differ".into()));
        }
        let start = of.first_frame.unwrap_or(frames);
        is_partial |= start > frames || usize::from(of.concatenated) > count;
        let end = start.checked_add(of.frames).filter(|_| start >= frames);
        frames = end.ok_or_else(|| malformed("instances that overlap".into()))?;
        parts.push(Part { start, instance });
    }
    let columns = width.div_ceil(layout.width);
    let tiles = u64::from(columns) * u64::from(height.div_ceil(layout.height));
    if tiles > limits.tables / 4 {
        let what = format!("an image of {tiles} tiles");
        return Err(Error::Limit { name: first.name().into(), what });
    }
    let full = parts.iter().all(|part| {
        let of = &part.instance.header;
        // Files older than this attribute have no other order.
        of.full || of.positions.is_empty()
    });
    let (depth, paths, not_shown) = (1, Vec::new(), None);
    let mut image = TiledImage {
        width,
        height,
        layout,
        columns,
        parts,
        tile_frames: None,
        is_partial,
        depth,
        paths,
        not_shown,
    };
    match full {
        true => image.in_order(tiles, frames.into())?,
        false => image.by_position(limits, room, tiles)?,
    }
    Ok(image)
}

impl TiledImage {
    fn name(&self) -> &str {
        self.parts[0].instance.name()
    }

    /// Its first instance, for clients: these see no path, and a file's name may name a patient.
    fn instance(&self) -> String {
        format!("instance {}", self.header().instance)
    }

    /// The header of its first instance.
    pub(super) fn header(&self) -> &Header {
        &self.parts[0].instance.header
    }

    /// True if an instance is a part of it.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.parts.iter().any(|part| part.instance.uid() == uid)
    }

    fn malformed(&self, what: String) -> Error {
        Error::Malformed { name: self.name().into(), at: 0, what }
    }

    /// Checks that all frames exist, for frames in order.
    fn in_order(&mut self, tiles: u64, frames: u64) -> Result<()> {
        if tiles > frames {
            return Err(self.malformed(format!("{tiles} tiles, but only {frames} frames")));
        }
        let of = &self.parts[0].instance.header;
        let depth = of.focal_planes.max(1);
        let shared = of.shared.as_ref();
        let paths: Vec<OpticalPath> = match shared {
            Some(shared) => {
                let is_it = |path: &&OpticalPath| path.identifier == *shared;
                of.paths.iter().find(is_it).cloned().into_iter().collect()
            }
            None => of.paths.clone(),
        };
        let planes = tiles.checked_mul(depth.into());
        let count = |paths: usize| planes.and_then(|each| each.checked_mul(paths.max(1) as u64));
        if count(paths.len()) == Some(frames) {
            (self.depth, self.paths) = (depth, paths);
        } else if planes == Some(frames) {
            // The file has several paths, and the frames are of one that it does not name.
            self.depth = depth;
        } else if frames > tiles {
            let what = format!(
                "{frames} frames for {tiles} tiles, {depth} focal planes and {} optical \
                 paths",
                paths.len()
            );
            self.not_shown = Some(format!("{}: {what}: only the first are", self.instance()));
        }
        Ok(())
    }

    /// Builds the table for frames that state their positions.
    fn by_position(&mut self, limits: &Limits, room: &mut Room, tiles: u64) -> Result<()> {
        let headers = || self.parts.iter().map(|part| &part.instance.header);
        let depths = self.depths()?;
        let depth = depths.len().max(1);
        let all_paths = &headers().next().map(|of| of.paths.clone()).unwrap_or_default();
        let is_used = |number: usize| {
            headers().any(|of| of.used.iter().any(|used| usize::from(*used) == number + 1))
        };
        // The index of each path among those in use.
        let used: Vec<usize> = (0..all_paths.len()).filter(|number| is_used(*number)).collect();
        let mut paths: Vec<OpticalPath> =
            used.iter().map(|number| all_paths[*number].clone()).collect();
        if used.is_empty() {
            let shared = headers().next().and_then(|of| of.shared.as_ref());
            let is_it =
                |path: &&OpticalPath| shared.is_none_or(|shared| *shared == path.identifier);
            let alone =
                all_paths.iter().find(is_it).filter(|_| shared.is_some() || all_paths.len() == 1);
            paths = alone.cloned().into_iter().collect();
        }
        if headers().any(|of| of.paths != *all_paths) && used.len() > 1 {
            return Err(
                self.malformed("concatenated instances with different optical paths".into())
            );
        }
        let planes = (depth as u64).saturating_mul(used.len().max(1) as u64);
        let all = tiles.checked_mul(planes).filter(|all| *all <= limits.tables / 4);
        let all = all.ok_or_else(|| Error::Limit {
            name: self.name().into(),
            what: format!("{tiles} tiles in {planes} planes"),
        })?;
        room.take(4 * all, self.name())?;
        let mut tile_frames = vec![0; all as usize];
        let (wide, high) = (u64::from(self.layout.width), u64::from(self.layout.height));
        let (columns, rows) = (u64::from(self.columns), tiles / u64::from(self.columns));
        let mut twice = 0_u64;
        for part in &self.parts {
            let of = &part.instance.header;
            if of.positions.len() != of.frames as usize {
                let what = format!("{} positions of {} frames", of.positions.len(), of.frames);
                return Err(self.malformed(what));
            }
            for (number, position) in of.positions.iter().enumerate() {
                let from_zero = |coordinate: i32| u64::try_from(i64::from(coordinate) - 1);
                let (Ok(x), Ok(y)) = (from_zero(position.0), from_zero(position.1)) else {
                    return Err(self.malformed(format!("a frame at {position:?}")));
                };
                if x % wide != 0 || y % high != 0 {
                    let what = format!("frames that do not form a grid: one is at {position:?}");
                    return Err(Error::Unsupported { name: self.name().into(), what });
                }
                let (column, row) = (x / wide, y / high);
                if column >= columns || row >= rows {
                    return Err(self.malformed(format!("a frame at {position:?}")));
                }
                let z = of.depth(number);
                let z = depths.binary_search_by(|depth| depth.total_cmp(&z));
                let path = usize::from(of.used.get(number).copied().unwrap_or(0));
                let path = used.iter().position(|number| number + 1 == path);
                let (Some(path), Ok(z)) = (
                    path.or(used.is_empty().then_some(0)),
                    z.or(if depths.is_empty() { Ok(0) } else { Err(()) }),
                ) else {
                    twice += 1;
                    continue;
                };
                let plane = (path * depth + z) as u64;
                // The first one wins: nothing tells how the others differ.
                let frame = &mut tile_frames[(plane * tiles + row * columns + column) as usize];
                match *frame {
                    0 => *frame = part.start + number as u32 + 1,
                    _ => twice += 1,
                }
            }
        }
        if twice > 0 {
            let what = format!("{twice} frames at the position of another, or in no optical path");
            self.not_shown = Some(format!("{}: {what}", self.instance()));
        }
        (self.depth, self.paths, self.tile_frames) = (depth as u32, paths, Some(tile_frames));
        Ok(())
    }

    /// The depths of the focal planes of frames that state their positions, in order; empty if
    /// there is one plane, whose frames may each have a depth of their own, as a scanner focuses.
    fn depths(&self) -> Result<Vec<f32>> {
        let headers = || self.parts.iter().map(|part| &part.instance.header);
        if headers().all(|of| of.focal_planes == 1) {
            return Ok(Vec::new());
        }
        let mut depths: Vec<f32> = headers().flat_map(|of| &of.depths).map(|z| z + 0.0).collect();
        depths.sort_by(f32::total_cmp);
        depths.dedup();
        // Each frame's position, optical path, and depth.
        let mut places = Vec::new();
        for of in headers() {
            for (number, (x, y)) in of.positions.iter().enumerate() {
                let path = of.used.get(number).copied().unwrap_or(0);
                let z = of.depth(number);
                let z = depths.partition_point(|depth| depth.total_cmp(&z).is_lt());
                places.push((*y, *x, path, z));
            }
        }
        places.sort_unstable();
        places.dedup();
        let most =
            places.chunk_by(|one, other| (one.0, one.1, one.2) == (other.0, other.1, other.2));
        let most = most.map(<[_]>::len).max().unwrap_or(1);
        match most {
            1 => Ok(Vec::new()),
            _ if most == depths.len() => Ok(depths),
            _ => Err(Error::Unsupported {
                name: self.name().into(),
                what: format!("frames at {} depths, but at most {most} at one place", depths.len()),
            }),
        }
    }

    fn frame(&self, name: String, position: (u32, u32), path: u32, z: u32) -> Result<StoredTile> {
        let (column, row) = position;
        let (columns, rows) = (self.columns as usize, self.height.div_ceil(self.layout.height));
        let plane = path as usize * self.depth as usize + z as usize;
        let tile = (plane * rows as usize + row as usize) * columns + column as usize;
        let mut layout = self.layout;
        let frame = match &self.tile_frames {
            None => Some(tile as u32),
            Some(tile_frames) => tile_frames[tile].checked_sub(1),
        };
        let part = frame.and_then(|frame| {
            let after = self.parts.partition_point(|part| part.start <= frame);
            let part = &self.parts[after.checked_sub(1)?];
            let inside = frame - part.start;
            (inside < part.instance.frames()).then_some((&part.instance, inside + 1))
        });
        let bytes = match part {
            Some((instance, number)) => instance.frame(number)?,
            // Another instance may have a frame here.
            None if self.tile_frames.is_none() || self.is_partial => {
                return Err(Error::Tile { tile: name, what: "its instance is missing".into() });
            }
            None => {
                layout.codec = Codec::Absent;
                Bytes::new()
            }
        };
        Ok(StoredTile { name, layout, halvings: 0, tables: Bytes::new(), bytes })
    }
}

/// Optical paths of one level, each a channel: the image, and the index among its paths.
pub(super) struct Paths(Vec<(Arc<TiledImage>, u32)>);

impl Paths {
    /// The paths of a level in this order; `None` if one is missing or differs from the first.
    pub(super) fn of(images: &[Arc<TiledImage>], wanted: &[OpticalPath]) -> Option<Self> {
        let first = images.first()?;
        let find = |wanted: &OpticalPath| {
            images.iter().find_map(|image| {
                let is_it = |path: &OpticalPath| path.identifier == wanted.identifier;
                let number = image.paths.iter().position(is_it)?;
                let is_like = (image.layout, image.depth) == (first.layout, first.depth);
                is_like.then_some((Arc::clone(image), number as u32))
            })
        };
        Some(Self(wanted.iter().map(find).collect::<Option<_>>()?))
    }

    /// The first path of an image, shown in its own colours.
    pub(super) fn first(image: &Arc<TiledImage>) -> Self {
        Self(vec![(Arc::clone(image), 0)])
    }

    pub(super) fn grid(self) -> Grid {
        let first = &self.0[0].0;
        let (width, height, layout) = (first.width, first.height, first.layout);
        Grid { width, height, layout, empty: 0, tiles: Box::new(self) }
    }
}

impl Tiles for Paths {
    fn tile(
        &self,
        _: &Limits,
        name: String,
        position: (u32, u32),
        plane: Plane,
    ) -> Result<StoredTile> {
        let (image, path) = &self.0[0];
        image.frame(name, position, *path, plane.z)
    }

    fn sheets(
        &self,
        limits: &Limits,
        name: String,
        position: (u32, u32),
        plane: Plane,
        channels: &[u32],
    ) -> Result<Vec<Picked>> {
        let mut stored = 0;
        let mut sheets = Vec::with_capacity(channels.len());
        for channel in channels {
            let (image, path) = &self.0[*channel as usize];
            let mut tile = image.frame(name.clone(), position, *path, plane.z)?;
            // Areas that were not scanned have no signal.
            tile.layout.fill = 0.0;
            // The window covers all bits; a channel has its own.
            tile.layout.window = None;
            together(limits, &mut stored, &tile)?;
            let pick = Pick::alone(tile.layout.width);
            sheets.push(Picked { tile, picks: vec![(*channel, pick)] });
        }
        Ok(sheets)
    }
}

/// The optical paths of the images of the largest level, each once; paths in several images are
/// matched by identifier. `None` if there is only one, or more than can be shown.
pub(super) fn paths(images: &[Arc<TiledImage>]) -> Option<Vec<OpticalPath>> {
    let mut all: Vec<OpticalPath> = Vec::new();
    for path in images.iter().flat_map(|image| &image.paths) {
        if all.iter().all(|other| other.identifier != path.identifier) {
            all.push(path.clone());
        }
    }
    if images.len() > 1 {
        all.sort_by_key(|path| (path.identifier.parse::<u32>().ok(), path.identifier.clone()));
    }
    (2..=channels::MOST as usize).contains(&all.len()).then_some(all)
}
