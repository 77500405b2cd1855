//! Measures the windows of channels for which the file has none, by percentiles.

use crate::channels::{Plane, Window};
use crate::grid::Grid;
use crate::pick::Samples;
use crate::{Error, Limits, Result};

/// Maximum pixels of a channel to look at, but at least one tile.
const PIXELS: u64 = 1 << 20;
/// Maximum pixels of all channels together. Further channels get the full range of their type.
const ALL: u64 = 64 << 20;
/// Values per thousand that lie below the window, and as many lie above.
const OUTSIDE: usize = 1;

/// Measures channels of one plane.
pub(crate) struct Measure<'a> {
    /// The smallest level.
    grid: &'a Grid,
    name: &'a str,
    limits: &'a Limits,
    plane: Plane,
    left: u64,
}

impl<'a> Measure<'a> {
    pub(crate) fn new(grid: &'a Grid, name: &'a str, limits: &'a Limits, plane: Plane) -> Self {
        Self { grid, name, limits, plane, left: ALL }
    }

    /// The window of a channel; `None` if it has no values, or the budget of pixels is used up.
    ///
    /// # Errors
    /// Read errors. Broken tiles are skipped: a request for one gets the error.
    pub(crate) fn window(&mut self, channel: u32) -> Result<Option<Window>> {
        let grid = self.grid;
        let each = u64::from(grid.layout.width) * u64::from(grid.layout.height);
        let columns = u64::from(grid.columns());
        let tiles = columns * u64::from(grid.rows());
        let step = tiles.div_ceil((PIXELS / each).max(1));
        let mut values = Vec::new();
        for number in (0..tiles).step_by(step as usize) {
            let Some(left) = self.left.checked_sub(each) else { break };
            self.left = left;
            let place = ((number % columns) as u32, (number / columns) as u32);
            match self.look(place, channel, &mut values) {
                Ok(()) | Err(Error::Tile { .. } | Error::Malformed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(between(values))
    }

    fn look(&self, place: (u32, u32), channel: u32, values: &mut Vec<f64>) -> Result<()> {
        let (grid, name) = (self.grid, self.name.to_owned());
        let found = grid.tiles.sheets(self.limits, name, place, self.plane, &[channel])?;
        for picked in &found {
            let layout = picked.tile.layout;
            let width = layout.width.min(grid.width - place.0 * grid.layout.width) as usize;
            let height = layout.height.min(grid.height - place.1 * grid.layout.height);
            // Of a large tile, only some rows are read.
            let step = (u64::from(layout.width) * u64::from(height)).div_ceil(PIXELS).max(1);
            if layout.codec == crate::Codec::Absent {
                continue;
            }
            let samples = Samples::of(&picked.tile, self.limits)?;
            let mut row = vec![0.0; layout.width as usize];
            for (_, pick) in &picked.picks {
                samples.check(*pick)?;
                for y in (0..height).step_by(step as usize) {
                    samples.row(*pick, y, &mut row);
                    values.extend(row[..width].iter().filter(|value| value.is_finite()));
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
