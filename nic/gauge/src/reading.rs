//! The result of a test.

use hdrhistogram::Histogram;

use crate::cpu_load::Load;
use crate::test::Test;

/// The measured values.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The test.
    pub test: Test,
    /// TCP congestion control that this end used.
    pub congestion: String,
    /// Duration of the measurement by the clock of the end that counted: the receiver of a stream,
    /// the sender of requests.
    pub seconds: f64,
    /// Bytes of messages received in that time, in one direction.
    pub bytes: u64,
    /// `bytes` per second.
    pub bytes_per_second: f64,
    /// Messages per second: answered requests, or `bytes_per_second` divided by the size of a
    /// message.
    pub rate: f64,
    /// Time from each request to its response, in nanoseconds, to three digits. `None` for a
    /// stream.
    pub histogram: Option<Histogram<u64>>,
    /// Bytes that this end sent and the other received on the connection, including the warm-up.
    pub sent: u64,
    /// Bytes that the other end sent and this one received on the connection, including the
    /// warm-up.
    pub received: u64,
    /// Load of this host.
    pub local: Load,
    /// Load of the other host.
    pub remote: Load,
}

impl Reading {
    /// Latency in one direction, in seconds, from the rate of requests: 1 / (2 x rate), as with
    /// netperf's TCP_RR. `None` for a stream.
    #[must_use]
    pub fn one_way_seconds(&self) -> Option<f64> {
        self.histogram.as_ref().map(|_| 1.0 / (2.0 * self.rate))
    }

    /// Half of a quantile (0 to 1) of the times from request to response, in seconds. `None` for a
    /// stream.
    #[must_use]
    pub fn one_way_quantile(&self, quantile: f64) -> Option<f64> {
        self.histogram.as_ref().map(|histogram| histogram.value_at_quantile(quantile) as f64 / 2e9)
    }
}
