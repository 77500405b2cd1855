//! How a copy that stood still regained its share, by the times at which the copies began blocks.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::pipeline::CopyOfStep;
use crate::stats;

/// This many blocks in a row, without a gap, are the full share.
const IN_A_ROW: usize = 4;
/// A longer time between two begins is a gap, in service times.
const GAP: f64 = 1.5;

/// After a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Recovery {
    /// From the end of the pause until the copy began with the first block of those that it then
    /// took without a gap, in service times.
    pub(super) service_times: f64,
    /// Work of the others while it stood still, in percent of their capacity.
    pub(super) others: f64,
}

/// Recovery of the copies of a step, one of which has paused. The service time is the usual time
/// between two begins of another copy: a busy machine slows all of them down.
pub(super) fn of(copies: &[CopyOfStep], pause: Duration) -> Result<Recovery> {
    let paused = copies.iter().find(|copy| copy.resumed.is_some()).context("no copy has paused")?;
    let resumed = paused.resumed.context("no copy has paused")?;
    let others = copies.iter().filter(|copy| copy.resumed.is_none());
    let between = |copy: &CopyOfStep| -> Vec<f64> {
        copy.starts.windows(2).map(|two| (two[1] - two[0]) as f64).collect()
    };
    let all: Vec<f64> = others.clone().flat_map(between).collect();
    let service = stats::median(&all).context("there are no other copies")?;

    let after: Vec<u64> = paused.starts.iter().copied().filter(|start| *start >= resumed).collect();
    let is_full =
        |row: &&[u64]| row.windows(2).all(|two| ((two[1] - two[0]) as f64) < GAP * service);
    let full = after.windows(IN_A_ROW).find(is_full);
    let first = full.context("the copy has not regained its full share")?[0];

    let begun = resumed - pause.as_nanos() as u64;
    let can = others.clone().count() as f64 * pause.as_nanos() as f64 / service;
    let did = others.flat_map(|copy| &copy.starts);
    let did = did.filter(|start| (begun..resumed).contains(start)).count();
    Ok(Recovery {
        service_times: (first - resumed) as f64 / service,
        others: 100.0 * did as f64 / can,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_nanos(100);

    fn copy(starts: &[u64], resumed: Option<u64>) -> CopyOfStep {
        CopyOfStep { starts: starts.to_vec(), resumed }
    }

    #[test]
    fn a_share_is_full_when_there_are_no_gaps() {
        // Two blocks with gaps, and from 260 on none.
        let paused = copy(&[0, 10, 205, 230, 260, 270, 280, 290, 300], Some(200));
        let busy: Vec<u64> = (0..40).map(|at| at * 10).collect();
        let idle = copy(&[0, 10, 250], None);
        let recovery = of(&[paused, copy(&busy, None), idle], PAUSE).unwrap();
        assert_eq!(recovery, Recovery { service_times: 6.0, others: 50.0 });
    }

    #[test]
    fn one_that_gets_nothing_any_more_is_an_error() {
        let copies = [copy(&[0, 205, 240], Some(200)), copy(&[0, 10, 20], None)];
        assert!(of(&copies, PAUSE).is_err());
        assert!(of(&copies[..1], PAUSE).is_err() && of(&copies[1..], PAUSE).is_err());
    }
}
