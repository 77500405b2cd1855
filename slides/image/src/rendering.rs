//! Access to the channels and planes of a slide.

use crate::blend::{Blend, Sheet};
use crate::channel_samples::Samples;
use crate::channels::{Channel, Plane, Rendering};
use crate::grid::Grid;
use crate::samples::Number;
use crate::slide::Slide;
use crate::{Error, Result};

/// Samples of one channel, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// Width in pixels, within the border of the level.
    pub width: u32,
    /// Height in pixels, within the border of the level.
    pub height: u32,
    /// Row by row, each sample little endian.
    pub bytes: Vec<u8>,
}

impl Slide {
    /// The channels; empty if the pixels have their own colours.
    pub fn channels(&self) -> &[Channel] {
        &self.parts.stack.channels
    }

    /// The numbers of focal planes and times, at least one each.
    pub fn planes(&self) -> (u32, u32) {
        let (depth, times) = self.parts.stack.planes;
        (depth.max(1), times.max(1))
    }

    /// The default rendering.
    pub fn rendering(&self) -> Rendering {
        self.parts.stack.rendering()
    }

    /// The number type of a channel's samples, and their bits.
    pub fn sample(&self) -> (Number, u8) {
        let layout = &self.parts.levels[0].layout;
        (layout.number, layout.bits)
    }

    /// The samples of one channel in a tile.
    ///
    /// # Errors
    /// A level, tile, channel or plane that does not exist, and read or decode errors.
    pub fn raw(
        &self,
        level: usize,
        position: (u32, u32),
        channel: u32,
        plane: Plane,
    ) -> Result<Raw> {
        let (column, row) = position;
        let grid = self.grid(level)?;
        if column >= grid.columns() || row >= grid.rows() {
            return Err(Error::Argument(format!("level {level} has no tile {column}, {row}")));
        }
        self.exist(&[channel], plane)?;
        let name = format!("{}: level {level}, tile {column}, {row}", self.name);
        let sheets = grid.tiles.sheets(&self.limits, name, (column, row), plane, &[channel])?;
        let picked = sheets.iter().find_map(|of| Some((&of.tile, of.picks.first()?.1)));
        let none = || Error::Argument(format!("no tile has channel {channel}"));
        let (tile, pick) = picked.ok_or_else(none)?;
        let samples = Samples::of(tile, &self.limits)?;
        samples.check(pick)?;
        let width = tile.layout.width.min(grid.width - column * grid.layout.width);
        let height = tile.layout.height.min(grid.height - row * grid.layout.height);
        Ok(Raw { width, height, bytes: samples.bytes(pick, (width, height)) })
    }

    /// Checks that every part of a rendering exists.
    pub(crate) fn check(&self, rendering: &Rendering) -> Result<()> {
        let channels: Vec<u32> = rendering.layers.iter().map(|layer| layer.channel).collect();
        if !channels.is_sorted_by(|one, next| one < next) {
            return Err(Error::Argument("channels out of order, or given twice".into()));
        }
        self.exist(&channels, rendering.plane)
    }

    fn exist(&self, channels: &[u32], plane: Plane) -> Result<()> {
        let (count, (depth, times)) = (self.channels().len(), self.planes());
        if let Some(channel) = channels.iter().find(|channel| **channel as usize >= count) {
            return Err(Error::Argument(format!("no channel {channel}: there are {count}")));
        }
        if plane.z >= depth || plane.t >= times {
            let what =
                format!("no plane {}, {}: there are {depth} at {times} times", plane.z, plane.t);
            return Err(Error::Argument(what));
        }
        Ok(())
    }

    /// The tiles at a position of a level, with the colours of their channels.
    pub(crate) fn blend(
        &self,
        grid: &Grid,
        part: &str,
        position: (u32, u32),
        rendering: &Rendering,
    ) -> Result<Blend> {
        let (column, row) = position;
        let name = format!("{}: {part}, tile {column}, {row}", self.name);
        let channels: Vec<u32> = rendering.layers.iter().map(|layer| layer.channel).collect();
        let position = (column, row);
        let stored =
            grid.tiles.sheets(&self.limits, name.clone(), position, rendering.plane, &channels)?;
        let mut size = (grid.layout.width, grid.layout.height);
        let mut sheets = Vec::with_capacity(stored.len());
        for picked in stored {
            size = (picked.tile.layout.width, picked.tile.layout.height);
            let ink = |channel: u32| rendering.layers.iter().find(|layer| layer.channel == channel);
            let layers = picked.picks.into_iter();
            let layers = layers.filter_map(|(channel, pick)| Some((pick, ink(channel)?.ink)));
            sheets.push(Sheet { tile: picked.tile, layers: layers.collect() });
        }
        Ok(Blend { name, size, halvings: 0, sheets })
    }
}
