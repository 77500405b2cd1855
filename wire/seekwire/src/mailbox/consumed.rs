//! Bytes that were copied from a view and are no longer needed in the stream. They are taken out of
//! the stream many at a time.

use std::collections::BTreeMap;

use seekwire_protocol::span::Span;

#[derive(Debug, Default)]
pub(super) struct Consumed {
    /// The end of each span by its start. No two spans touch.
    spans: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Consumed {
    /// Adds a span.
    pub(super) fn add(&mut self, span: Span) {
        self.bytes += span.len();
        let end = self.spans.remove(&span.end).unwrap_or(span.end);
        match self.spans.range_mut(..span.start).next_back() {
            Some((_, before)) if *before == span.start => *before = end,
            _ => {
                self.spans.insert(span.start, end);
            }
        }
    }

    /// Total number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The span that ends at `at`, or an empty one.
    pub(super) fn before(&self, at: u64) -> Span {
        match self.spans.range(..at).next_back() {
            Some((&start, &end)) if end == at => Span { start, end },
            _ => Span { start: at, end: at },
        }
    }

    /// Removes the span that begins at `start`, because it has been taken out of the stream.
    pub(super) fn taken(&mut self, start: u64) {
        if let Some(end) = self.spans.remove(&start) {
            self.bytes -= end - start;
        }
    }

    /// All spans, in order.
    pub(super) fn all(&self) -> Vec<Span> {
        self.spans.iter().map(|(&start, &end)| Span { start, end }).collect()
    }
}
