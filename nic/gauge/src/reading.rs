//! The result of a test.

use hdrhistogram::Histogram;

use crate::load::Load;
use crate::test::Test;

/// What was measured.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What was asked for.
    pub test: Test,
    /// TCP congestion control of this end.
    pub congestion: String,
    /// For how long it was measured, by the clock of the end that counted: the receiver of a
    /// stream, the sender of requests.
    pub seconds: f64,
    /// Bytes of messages received in that time, in one direction.
    pub bytes: u64,
    /// `bytes` per second.
    pub bytes_per_second: f64,
    /// Messages per second: requests that were answered, or `bytes_per_second` over the size of a
    /// message.
    pub rate: f64,
    /// Time from each request to its response, in nanoseconds, to three digits; none of a stream.
    pub histogram: Option<Histogram<u64>>,
    /// Bytes that this end has sent on the connection, and the other received; with those of the
    /// warm-up.
    pub sent: u64,
    /// Bytes that the other end has sent on the connection, and this one received; with those of
    /// the warm-up.
    pub received: u64,
    /// What it cost this host.
    pub local: Load,
    /// What it cost the other host.
    pub remote: Load,
}

impl Reading {
    /// Latency in one direction, in seconds, from the rate of requests: 1 / (2 x rate), as with
    /// netperf's TCP_RR. None of a stream.
    #[must_use]
    pub fn one_way_seconds(&self) -> Option<f64> {
        self.histogram.as_ref().map(|_| 1.0 / (2.0 * self.rate))
    }

    /// Half of a quantile (0 to 1) of the times from request to response, in seconds. None of a
    /// stream.
    #[must_use]
    pub fn one_way_quantile(&self, quantile: f64) -> Option<f64> {
        self.histogram.as_ref().map(|histogram| histogram.value_at_quantile(quantile) as f64 / 2e9)
    }
}
