//! The pipeline of the experiment `flow-peers`: its four stages treat a block the same in every
//! runtime, so that the runtimes differ in how the blocks get from one stage to the next.
//!
//! ```text
//! source ──> first step, copies ──> second step, copies ──> sink
//! makes       reads all              reads all               reads all, counts, measures
//! ```
//!
//! Programs in C and C++ have the same in `peer/pipeline.h`, and one in Python has it in
//! `peer/pipeline_dask.py`. Orders are numbers on the command line ([`PipelineOrder::arguments`]), reports
//! a line of JSON ([`PipelineReport`]). A block consists of 8-byte words of the machine: its number, the
//! moment at which it was made or 0, and words that follow from the number.

mod order;
mod report;
mod stages;

pub use order::{LEAST, PipelineOrder, now};
pub use report::{CopyOfStep, PipelineReport, Resident};
pub use stages::{BlockSource, Copies, Sink, StepWork, is_block, total};

#[cfg(test)]
mod tests {
    use super::order::tests::ORDER;
    use super::*;

    #[test]
    fn the_sums_are_known_beforehand() {
        let mut source = BlockSource::new(ORDER);
        let mut sink = Sink::new(ORDER);
        let mut step = StepWork::new(ORDER, false);
        while let Some(block) = source.next() {
            step.work(&block);
            sink.take(&block);
        }
        let mut report = step.report(1);
        report.join(sink.report());
        assert!(report.blocks > 0);
        let sum = ORDER.expected(report.blocks);
        assert_eq!((report.sums[0], report.sums[2]), (0, sum));
        assert_eq!(report.sums[1], sum);
    }
}
