//! Requests of a viewer that pans over a level of tiles: all tiles of its screen when it comes to a
//! place, and those that come into sight while it moves.

use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;

/// Tiles of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) columns: u32,
    pub(crate) rows: u32,
}

/// A tile to request, and when; the browser requests no tile twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileRequest {
    pub(crate) at: Duration,
    pub(crate) column: u32,
    pub(crate) row: u32,
}

/// Tiles that a screen shows: 1280 x 1024 pixels, where tiles have 256.
const SCREEN: (u32, u32) = (5, 4);
/// Time between two steps, each of a tile's width.
pub(crate) const STEP: Duration = Duration::from_millis(500);
/// Steps until the viewer goes elsewhere, where it requests the whole new view.
const STEPS: u32 = 10;

/// The requests of viewer `number` within `time`, which are the same every time.
pub(crate) fn viewer(grid: Grid, number: u64, time: Duration) -> Vec<TileRequest> {
    let mut random = Rng::with_seed(number);
    let screen = (SCREEN.0.min(grid.columns), SCREEN.1.min(grid.rows));
    // Where the upper left corner of the screen can be.
    let room = (grid.columns - screen.0, grid.rows - screen.1);
    let mut seen = HashSet::new();
    let mut requests = Vec::new();
    let (mut corner, mut heading) = ((0, 0), (1, 0));
    // Not all viewers move at the same time, nor go elsewhere.
    let mut at = STEP.mul_f64(random.f64());
    let first = random.u32(0..STEPS);
    for step in first.. {
        if at >= time {
            break;
        }
        if step == first || step % STEPS == 0 {
            corner = (random.u32(0..=room.0), random.u32(0..=room.1));
            heading = headings(&mut random);
        } else {
            // A viewer that follows something continues in the same direction for a while.
            if random.u32(0..4) == 0 || moved(corner, heading, room).is_none() {
                heading = headings(&mut random);
            }
            corner = moved(corner, heading, room).unwrap_or(corner);
        }
        for row in corner.1..corner.1 + screen.1 {
            for column in corner.0..corner.0 + screen.0 {
                if seen.insert((column, row)) {
                    requests.push(TileRequest { at, column, row });
                }
            }
        }
        at += STEP;
    }
    requests
}

fn headings(random: &mut Rng) -> (i64, i64) {
    [(1, 0), (-1, 0), (0, 1), (0, -1)][random.usize(0..4)]
}

/// A step further, unless the slide ends there.
fn moved(corner: (u32, u32), heading: (i64, i64), room: (u32, u32)) -> Option<(u32, u32)> {
    let (column, row) = corner;
    let (columns, rows) = room;
    let column = u32::try_from(i64::from(column) + heading.0).ok()?;
    let row = u32::try_from(i64::from(row) + heading.1).ok()?;
    (column <= columns && row <= rows).then_some((column, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_asks_for_a_screen_and_then_for_what_comes_into_sight() {
        let grid = Grid { columns: 50, rows: 40 };
        let requests = viewer(grid, 7, Duration::from_secs(4));
        assert_eq!(requests, viewer(grid, 7, Duration::from_secs(4)), "it can be repeated");
        assert_ne!(requests, viewer(grid, 8, Duration::from_secs(4)));
        let first = requests[0].at;
        assert!(first < STEP);
        assert_eq!(requests.iter().take_while(|request| request.at == first).count(), 20);
        let tiles: HashSet<_> =
            requests.iter().map(|request| (request.column, request.row)).collect();
        assert_eq!(tiles.len(), requests.len(), "no tile twice");
        assert!(tiles.iter().all(|(column, row)| *column < 50 && *row < 40));
        assert!(requests.is_sorted_by_key(|request| request.at));
        // Then a column or a row at a time, but for one new view in ten steps.
        let later = requests.iter().filter(|request| request.at > first);
        let mut steps: Vec<(Duration, usize)> = Vec::new();
        for request in later {
            match steps.last_mut().filter(|(at, _)| *at == request.at) {
                Some((_, count)) => *count += 1,
                None => steps.push((request.at, 1)),
            }
        }
        let views = steps.iter().filter(|(_, count)| *count > 5).count();
        assert!(steps.len() >= 5 && views <= 1, "{steps:?}");
    }

    #[test]
    fn a_slide_may_be_smaller_than_the_screen() {
        let requests = viewer(Grid { columns: 2, rows: 1 }, 1, Duration::from_secs(20));
        assert_eq!(requests.len(), 2);
        assert_eq!(viewer(Grid { columns: 9, rows: 9 }, 1, Duration::ZERO), []);
    }
}
