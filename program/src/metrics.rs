//! Metrics in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Libraries for it have counters of their own, which programs would have to keep beside theirs; the
//! format itself takes a few lines.

use std::fmt::Write;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of one program.
#[derive(Debug)]
pub struct Metrics {
    prefix: &'static str,
    text: String,
}

impl Metrics {
    /// None yet; each will have a name that begins with `prefix`.
    #[must_use]
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Begins a metric: a `counter`, a `gauge` or a `histogram`. Its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, about: &str) {
        let (text, prefix) = (&mut self.text, self.prefix);
        let _ = writeln!(text, "# HELP {prefix}{name} {about}\n# TYPE {prefix}{name} {kind}");
    }

    /// A value of the last metric, or of a part of it, such as its `_sum`.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{name}", self.prefix);
        for (at, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if at == 0 { "{" } else { "," };
            let _ = write!(self.text, "{before}{label}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    /// A metric with one value.
    pub fn single(&mut self, name: &str, kind: &str, about: &str, value: f64) {
        self.family(name, kind, about);
        self.sample(name, &[], value);
    }

    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut metrics = Metrics::new("x_");
        metrics.family("a", "gauge", "An example.");
        metrics.sample("a", &[("a", "q\"b\\n\n"), ("c", "d")], 1.5);
        metrics.single("b_total", "counter", "Another.", 3.0);
        let text = "# HELP x_a An example.\n# TYPE x_a gauge\nx_a{a=\"q\\\"b\\\\n\\n\",c=\"d\"} 1.5\n\
                    # HELP x_b_total Another.\n# TYPE x_b_total counter\nx_b_total 3\n";
        assert_eq!(metrics.into_text(), text);
    }
}
