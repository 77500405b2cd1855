//! A status in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Libraries for it have counters of their own, which a pipeline would have to keep beside its own;
//! the format itself takes a few lines.

use std::fmt::Write;

use crate::watch::status::{CopyStatus, Status, StreamStatus};

type Count<T> = fn(&T) -> u64;

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) fn text(status: &Status) -> String {
    let mut text = Text(String::new());
    let units = &status.units;
    text.family("units_total", "counter", "Units of work that have ended.", |metric| {
        metric.sample(&[("outcome", "done")], units.done as f64);
        metric.sample(&[("outcome", "failed")], units.failed as f64);
    });
    text.family("uptime_seconds", "gauge", "Time since the pipeline began.", |metric| {
        metric.sample(&[], status.seconds);
    });
    let about = "Where the time of a copy of a filter went: busy, starved (nothing to do) or \
                 blocked (no room in the next stream).";
    text.family("copy_seconds_total", "counter", about, |metric| {
        for copy in &status.copies {
            let number = copy.copy.to_string();
            let states = [
                ("busy", copy.busy_seconds),
                ("starved", copy.starved_seconds),
                ("blocked", copy.blocked_seconds),
            ];
            for (state, seconds) in states {
                let labels = [("filter", &*copy.filter), ("copy", &number), ("state", state)];
                metric.sample(&labels, seconds);
            }
        }
    });
    let copies: [(&str, &str, Count<CopyStatus>); 3] = [
        ("copy_blocks_total", "Blocks that a copy of a filter has taken.", |copy| copy.blocks),
        ("copy_bytes_total", "Bytes of these.", |copy| copy.bytes),
        ("copy_rejected_total", "Blocks and other input that it has rejected.", |copy| {
            copy.rejected
        }),
    ];
    for (name, about, of) in copies {
        text.family(name, "counter", about, |metric| {
            for copy in &status.copies {
                let labels = [("filter", &*copy.filter), ("copy", &copy.copy.to_string())];
                metric.sample(&labels, of(copy) as f64);
            }
        });
    }
    let streams: [(&str, &str, &str, Count<StreamStatus>); 7] = [
        ("stream_blocks_total", "counter", "Blocks sent to a stream.", |stream| stream.blocks),
        ("stream_bytes_total", "counter", "Bytes of these.", |stream| stream.bytes),
        ("stream_held_bytes", "gauge", "Bytes that a stream holds.", |stream| stream.held_bytes),
        ("stream_peak_bytes", "gauge", "The most it has held.", |stream| stream.peak_bytes),
        (
            "stream_hedged_blocks_total",
            "counter",
            "Blocks also given to a second copy because the first was late.",
            |stream| stream.hedged,
        ),
        (
            "stream_hedges_won_total",
            "counter",
            "Blocks of these that the second copy finished first.",
            |stream| stream.hedges_won,
        ),
        ("stream_limit_bytes", "gauge", "The most it may hold.", |stream| stream.limit_bytes),
    ];
    for (name, kind, about, of) in streams {
        text.family(name, kind, about, |metric| {
            for stream in &status.streams {
                metric.sample(&[("stream", &stream.stream)], of(stream) as f64);
            }
        });
    }
    text.family("stream_block_bytes", "gauge", "The block size that it has chosen.", |metric| {
        for stream in &status.streams {
            if let Some(block) = &stream.block {
                metric.sample(&[("stream", &stream.stream)], block.size as f64);
            }
        }
    });
    if let Some(report) = &status.guarantee {
        let about = "Units of work that kept or broke the guarantee.";
        text.family("guarantee_units_total", "counter", about, |metric| {
            let broken = report.units.saturating_sub(report.kept);
            metric.sample(&[("kept", "yes")], report.kept as f64);
            metric.sample(&[("kept", "no")], broken as f64);
        });
        let about = "Guaranteed maximum time for a unit, or between two completed units.";
        text.family("guarantee_allowed_seconds", "gauge", about, |metric| {
            metric.sample(&[], report.allowed().as_secs_f64());
        });
        let about = "The mean of that time over the last units.";
        text.family("guarantee_recent_seconds", "gauge", about, |metric| {
            metric.sample(&[], report.recent.as_secs_f64());
        });
    }
    text.0
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, about: &str, samples: impl Fn(&mut Metric<'_>)) {
        let name = format!("seekwire_flow_{name}");
        let _ = writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}");
        samples(&mut Metric { name: &name, text: &mut self.0 });
    }
}

struct Metric<'a> {
    name: &'a str,
    text: &'a mut String,
}

impl Metric<'_> {
    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let escaped =
            |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = String::new();
        let mut metric = Metric { name: "x", text: &mut text };
        metric.sample(&[("a", "q\"b\\n\n"), ("c", "d")], 1.5);
        metric.sample(&[], 3.0);
        assert_eq!(text, "x{a=\"q\\\"b\\\\n\\n\",c=\"d\"} 1.5\nx 3\n");
    }
}
