//! A status as metrics of Prometheus.

use seekwire_program::metrics::Metrics;

use crate::monitor::status::{CopyStatus, Status, StreamStatus};

type Count<T> = fn(&T) -> u64;

pub(crate) fn text(status: &Status) -> String {
    let mut text = Metrics::new("seekwire_flow_");
    let units = &status.units;
    text.family("units_total", "counter", "Units of work that have ended.");
    text.sample("units_total", &[("outcome", "done")], units.done as f64);
    text.sample("units_total", &[("outcome", "failed")], units.failed as f64);
    text.family("uptime_seconds", "gauge", "Time since the pipeline began.");
    text.sample("uptime_seconds", &[], status.seconds);
    let about = "Where the time of a copy of a filter went: busy, starved (nothing to do) or \
                 blocked (no room in the next stream).";
    text.family("copy_seconds_total", "counter", about);
    for copy in &status.copies {
        let number = copy.copy.to_string();
        let states = [
            ("busy", copy.busy_seconds),
            ("starved", copy.starved_seconds),
            ("blocked", copy.blocked_seconds),
        ];
        for (state, seconds) in states {
            let labels = [("filter", &*copy.filter), ("copy", &number), ("state", state)];
            text.sample("copy_seconds_total", &labels, seconds);
        }
    }
    let copies: [(&str, &str, Count<CopyStatus>); 3] = [
        ("copy_blocks_total", "Blocks that a copy of a filter has taken.", |copy| copy.blocks),
        ("copy_bytes_total", "Bytes of these.", |copy| copy.bytes),
        ("copy_rejected_total", "Blocks and other input that it has rejected.", |copy| {
            copy.rejected
        }),
    ];
    for (name, about, of) in copies {
        text.family(name, "counter", about);
        for copy in &status.copies {
            let labels = [("filter", &*copy.filter), ("copy", &copy.copy.to_string())];
            text.sample(name, &labels, of(copy) as f64);
        }
    }
    let streams: [(&str, &str, &str, Count<StreamStatus>); 5] = [
        ("stream_blocks_total", "counter", "Blocks sent to a stream.", |stream| stream.blocks),
        ("stream_bytes_total", "counter", "Bytes of these.", |stream| stream.bytes),
        ("stream_held_bytes", "gauge", "Bytes that a stream holds.", |stream| stream.held_bytes),
        ("stream_peak_bytes", "gauge", "The most it has held.", |stream| stream.peak_bytes),
        ("stream_limit_bytes", "gauge", "The most it may hold.", |stream| stream.limit_bytes),
    ];
    for (name, kind, about, of) in streams {
        text.family(name, kind, about);
        for stream in &status.streams {
            text.sample(name, &[("stream", &stream.stream)], of(stream) as f64);
        }
    }
    text.family("stream_block_bytes", "gauge", "The block size that it has chosen.");
    for stream in &status.streams {
        if let Some(block) = &stream.block {
            text.sample("stream_block_bytes", &[("stream", &stream.stream)], block.size as f64);
        }
    }
    if let Some(report) = &status.guarantee {
        let about = "Units of work that kept or broke the guarantee.";
        text.family("guarantee_units_total", "counter", about);
        let broken = report.units.saturating_sub(report.kept);
        text.sample("guarantee_units_total", &[("kept", "yes")], report.kept as f64);
        text.sample("guarantee_units_total", &[("kept", "no")], broken as f64);
        let about = "Guaranteed maximum time for a unit, or between two completed units.";
        text.family("guarantee_allowed_seconds", "gauge", about);
        text.sample("guarantee_allowed_seconds", &[], report.allowed().as_secs_f64());
        let about = "The mean of that time over the last units.";
        text.family("guarantee_recent_seconds", "gauge", about);
        text.sample("guarantee_recent_seconds", &[], report.recent.as_secs_f64());
    }
    text.into_text()
}
