//! Published measurements, from the experiment's file. Columns are in the order of the steps, of
//! which the thesis has the first three.

use crate::experiment_file::ExperimentFile;
use crate::experiments::by_size::SIZES;
use crate::view::Column;

/// Capacity in Mb/s of the link of the weak hosts.
pub(super) const FULL_LINK: f64 = 938.95;

/// The step with everything that the thesis had over everything off, for one of [`SIZES`].
pub(super) fn ratio(columns: &[Column], index: usize) -> f64 {
    columns[2].values[index] / columns[0].values[index]
}

/// The same for the largest size.
pub(super) fn last_ratio(file: &ExperimentFile, name: &str) -> f64 {
    ratio(&file.published[name], SIZES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::super::Nic;
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn the_ends_of_the_columns_are_where_they_belong() {
        let published = &Nic.file().published;
        let last = |name| {
            let [off, _, segmentation] = &published[name][..] else { panic!("{name}") };
            (off.values[SIZES.len() - 1], segmentation.values[SIZES.len() - 1])
        };
        assert_eq!(last("latency"), (859.55, 727.87));
        assert_eq!(last("weak_throughput"), (566.82, 938.95));
        assert_eq!(last("weak_cpu"), (99.9, 37.74));
        assert!(published["fast_throughput"].iter().all(|column| column.values[16] == 949.21));
    }
}
