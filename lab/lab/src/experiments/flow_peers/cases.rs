//! Metrics, variants and cases of the results.

use super::programs::{Carrier, Runtime, Transport};
use crate::record::Metric;
use crate::text;

/// A runtime as tables name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuntimeVariant {
    pub(super) name: &'static str,
    pub(super) runtime: Runtime,
    /// Whether its memory can be bounded, so that a slow consumer is a meaningful test.
    pub(super) is_bounded: bool,
    /// Whether it deals blocks to copies, of which one may stand still.
    pub(super) has_copies: bool,
}

pub(super) const FLOW: &str = "flow, one process";
pub(super) const FLOW_RING: &str = "flow, ring";
pub(super) const FLOW_TCP: &str = "flow, TCP";
pub(super) const CROSSBEAM: &str = "crossbeam-channel";
pub(super) const TIMELY: &str = "timely";
pub(super) const TBB: &str = "oneTBB";
pub(super) const GSTREAMER: &str = "GStreamer";
pub(super) const ZEROMQ_TCP: &str = "ZeroMQ, tcp://";
pub(super) const ZEROMQ_IPC: &str = "ZeroMQ, ipc://";
pub(super) const DASK: &str = "Dask";

const fn variant(
    name: &'static str,
    runtime: Runtime,
    is_bounded: bool,
    has_copies: bool,
) -> RuntimeVariant {
    RuntimeVariant { name, runtime, is_bounded, has_copies }
}

pub(super) const VARIANTS: [RuntimeVariant; 10] = [
    variant(FLOW, Runtime::Role("local"), true, true),
    variant(CROSSBEAM, Runtime::Role("crossbeam"), true, true),
    variant(TIMELY, Runtime::Role("timely"), true, false),
    variant(TBB, Runtime::Tbb, true, false),
    variant(GSTREAMER, Runtime::Gstreamer, true, false),
    variant(FLOW_RING, Runtime::Flow(Carrier::Ring), true, true),
    variant(FLOW_TCP, Runtime::Flow(Carrier::Tcp), true, true),
    variant(ZEROMQ_TCP, Runtime::Zeromq(Transport::Tcp), true, true),
    variant(ZEROMQ_IPC, Runtime::Zeromq(Transport::Ipc), true, true),
    variant(DASK, Runtime::Dask, false, false),
];

pub(super) const RATE: Metric = Metric::higher("blocks", "1/s");
pub(super) const MEDIAN: Metric = Metric::lower("latency p50", "µs");
pub(super) const TAIL: Metric = Metric::lower("latency p99", "µs");
/// Growth of the process that grows most since before the first block, without the ring, over the
/// limits of the three streams together.
pub(super) const GROWTH: Metric = Metric::lower("memory over declared", "");
/// The most that a stream held over its limit, as the runtime counts it.
pub(super) const HELD: Metric = Metric::lower("held over declared", "");
/// Shared memory of a process.
pub(super) const RING: Metric = Metric::lower("ring", "MiB");
/// The larger of the first two.
pub(super) const PEAK: Metric = Metric::lower("peak over declared", "");
pub(super) const RECOVERY: Metric = Metric::lower("time to full share", "service times");
pub(super) const OTHERS: Metric = Metric::higher("work of the others meanwhile", "%");

pub(super) const SIZES: [u64; 4] = [64, 2 << 10, 16 << 10, 64 << 10];
/// The size that the goals name.
pub(super) const GOAL_SIZE: u64 = 2 << 10;

pub(super) const SLOW: &str = "slow consumer";
pub(super) const PAUSE: &str = "pause of 200 ms";

pub(super) fn case(size: u64) -> String {
    text::size(size)
}
