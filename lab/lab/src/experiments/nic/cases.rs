//! Metrics, variants and cases of the results.

use std::time::Duration;

use serde_json::Value;

use crate::outcome::Recorded;
use crate::record::Metric;
use crate::text;

/// From this size on, a slow link is little work: CPU time, counted in ticks of 10 ms, takes longer
/// to measure.
pub(super) const LIGHT: u64 = 4 << 10;

/// Size of the messages at the ends of tables, with which streams are also compared.
pub(super) const LARGE: usize = 64 << 10;

/// CPU time of the weak receiver over its share, which is 100 %.
pub(super) const SHARE: Metric = Metric::lower("CPU of the receiver, of its share", "%");
/// Throughput over the capacity of the slow link for messages.
pub(super) const FULLNESS: Metric = Metric::higher("throughput, of the link", "%");

/// The ways in which messages go, as the cases are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// Requests and responses, as fast as they go.
    Latency,
    /// A stream over a link that is slower than the hosts.
    Link,
    /// A stream to a host that is slower than the link.
    Weak,
    /// The same, but the link is not much faster than that host: with less work it is full.
    Slow,
}

impl Setting {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Latency => "request/response",
            Self::Link => "stream",
            Self::Weak => "stream, weak receiver",
            Self::Slow => "stream, weak receiver, slow link",
        }
    }

    pub(super) fn case(self, size: u64) -> String {
        format!("{}, {}", self.name(), text::size(size))
    }
}

/// How long each test takes, by setting.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) latency: Duration,
    pub(super) link: Duration,
    /// The same for messages of at least [`LIGHT`] bytes.
    pub(super) light: Duration,
    pub(super) weak: Duration,
    pub(super) slow: Duration,
}

impl Times {
    /// The parameters that hold them, in milliseconds.
    pub(super) const NAMES: [&str; 5] = [
        "milliseconds of each test of latency",
        "milliseconds of each stream",
        "milliseconds of each stream, messages of 4 KiB and more",
        "milliseconds of each stream to the weak receiver",
        "milliseconds of each stream to the weak receiver over the slow link",
    ];

    pub(super) fn note(self, note: &mut impl FnMut(&str, Value)) {
        let Self { latency, link, light, weak, slow } = self;
        for (name, time) in Self::NAMES.into_iter().zip([latency, link, light, weak, slow]) {
            note(name, (time.as_millis() as u64).into());
        }
    }

    /// Those that [`Times::note`] has stored.
    pub(super) fn noted(recorded: Recorded<'_>) -> Self {
        let time = |name| Duration::from_millis(recorded.number(name).unwrap_or(0));
        let [latency, link, light, weak, slow] = Self::NAMES.map(time);
        Self { latency, link, light, weak, slow }
    }
}
