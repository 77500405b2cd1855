//! Measures the windows of channels for which the file has none, by percentiles.

use crate::channel_samples::Samples;
use crate::channels::{Plane, Window};
use crate::grid::Grid;
use crate::{Error, Limits, Result};
use std::collections::BTreeMap;

/// Maximum pixels of a channel to look at, but at least one tile.
const PIXELS: u64 = 1 << 20;
/// Maximum pixels of channels that are measured together, as one tile has them.
const VALUES: u64 = 4 << 20;
/// Maximum bytes that are decompressed for all channels. Further channels get the full range of
/// their type.
const ALL: u64 = 256 << 20;
/// Values per thousand that lie below the window, and as many lie above.
const OUTSIDE: usize = 1;

/// Measures channels of one plane.
pub(crate) struct Measure<'a> {
    /// The smallest level.
    grid: &'a Grid,
    name: &'a str,
    limits: &'a Limits,
    plane: Plane,
    /// Bytes that may still be decompressed.
    left: u64,
    /// Windows of channels that were measured together with others.
    found: BTreeMap<u32, Option<Window>>,
}

impl<'a> Measure<'a> {
    pub(crate) fn new(grid: &'a Grid, name: &'a str, limits: &'a Limits, plane: Plane) -> Self {
        Self { grid, name, limits, plane, left: ALL, found: BTreeMap::new() }
    }

    /// The window of a channel; `None` if it has no values, or the budget is used up.
    ///
    /// # Errors
    /// Read errors. Broken tiles are skipped: a request for one gets the error.
    pub(crate) fn window(&mut self, channel: u32) -> Result<Option<Window>> {
        if let Some(window) = self.found.get(&channel) {
            return Ok(*window);
        }
        let grid = self.grid;
        // A tile may have all channels, and is decompressed once for all of them.
        let channels: Vec<u32> = grid.tiles.stored_with(channel).collect();
        let mut values: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        let most = PIXELS.min(VALUES / channels.len().max(1) as u64).max(1);
        let each = u64::from(grid.layout.width) * u64::from(grid.layout.height);
        let columns = u64::from(grid.columns());
        let affordable = self.left / grid.layout.packed().unwrap_or(u64::MAX).max(1);
        let tiles = if affordable > 0 { columns * u64::from(grid.rows()) } else { 0 };
        let step = tiles.div_ceil((most / each).min(affordable).max(1)).max(1);
        for number in (0..tiles).step_by(step as usize) {
            let position = ((number % columns) as u32, (number / columns) as u32);
            match self.look(position, &channels, most, &mut values) {
                Ok(()) | Err(Error::Tile { .. } | Error::Malformed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let found = channels.iter().map(|channel| {
            let values = values.remove(channel).unwrap_or_default();
            (*channel, between(values))
        });
        self.found.extend(found);
        Ok(self.found.get(&channel).copied().flatten())
    }

    fn look(
        &mut self,
        position: (u32, u32),
        channels: &[u32],
        most: u64,
        values: &mut BTreeMap<u32, Vec<f64>>,
    ) -> Result<()> {
        let (grid, name) = (self.grid, self.name.to_owned());
        let sheets = match grid.tiles.sheets(self.limits, name, position, self.plane, channels) {
            // Together they are too long to be read at once.
            Err(Error::Limit { .. }) if channels.len() > 1 => {
                let (some, others) = channels.split_at(channels.len() / 2);
                self.look(position, some, most, values)?;
                return self.look(position, others, most, values);
            }
            sheets => sheets?,
        };
        for picked in &sheets {
            let layout = picked.tile.layout;
            if layout.codec == crate::Codec::Absent {
                continue;
            }
            let cost = layout.packed().unwrap_or(u64::MAX).max(picked.tile.bytes.len() as u64);
            let Some(left) = self.left.checked_sub(cost) else { return Ok(()) };
            self.left = left;
            let width = layout.width.min(grid.width - position.0 * grid.layout.width) as usize;
            let height = layout.height.min(grid.height - position.1 * grid.layout.height);
            // Of a large tile, only some rows are read.
            let step = (u64::from(layout.width) * u64::from(height)).div_ceil(most).max(1);
            let samples = Samples::of(&picked.tile, self.limits)?;
            let mut row = vec![0.0; layout.width as usize];
            for (channel, pick) in &picked.picks {
                samples.check(*pick)?;
                let values = values.entry(*channel).or_default();
                for y in (0..height).step_by(step as usize) {
                    samples.row(*pick, y, &mut row);
                    values.extend(row[..width].iter().filter(|value: &&f64| value.is_finite()));
                }
            }
        }
        Ok(())
    }
}

/// The window that leaves out a few values at either end.
fn between(mut values: Vec<f64>) -> Option<Window> {
    let last = values.len().checked_sub(1)?;
    let rank = last * OUTSIDE / 1000;
    let mut at = |rank: usize| *values.select_nth_unstable_by(rank, f64::total_cmp).1;
    let (black, white) = (at(rank), at(last - rank));
    // If all values are equal, they are black.
    Window::new(black, white).or_else(|| Window::new(black, black + black.abs().max(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_outside_of_the_window() {
        let values = (0..10_001).map(|value| f64::from(value * 7919 % 10_001)).collect();
        assert_eq!(between(values), Window::new(10.0, 9990.0));
        assert_eq!(between(vec![5.0, 3.0]), Window::new(3.0, 5.0));
        assert_eq!(between(vec![7.0; 9]), Window::new(7.0, 14.0));
        assert_eq!(between(vec![0.0; 9]), Window::new(0.0, 1.0));
        assert_eq!(between(Vec::new()), None);
    }
}
