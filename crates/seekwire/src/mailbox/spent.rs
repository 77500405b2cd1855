//! Bytes of the stream that were copied from a view and that nobody needs any more. They are taken out of the
//! stream in large pieces.

use std::collections::BTreeMap;

use protocol::span::Span;

#[derive(Debug, Default)]
pub(super) struct Spent {
    /// The ends of the spans by their starts; none touches another.
    spans: BTreeMap<u64, u64>,
}

impl Spent {
    /// Adds a span and returns the one that it is a part of now.
    pub(super) fn add(&mut self, span: Span) -> Span {
        let mut whole = span;
        if let Some(end) = self.spans.remove(&span.end) {
            whole.end = end;
        }
        if let Some((&start, end)) = self.spans.range_mut(..span.start).next_back()
            && *end == span.start
        {
            *end = whole.end;
            whole.start = start;
        } else {
            self.spans.insert(whole.start, whole.end);
        }
        whole
    }

    /// The span that ends there; empty if none does.
    pub(super) fn before(&self, at: u64) -> Span {
        match self.spans.range(..at).next_back() {
            Some((&start, &end)) if end == at => Span { start, end },
            _ => Span { start: at, end: at },
        }
    }

    /// Forgets the first `len` bytes of the span that begins there: they are out of the stream.
    pub(super) fn taken(&mut self, start: u64, len: u64) {
        if let Some(end) = self.spans.remove(&start)
            && start + len < end
        {
            self.spans.insert(start + len, end);
        }
    }

    /// All of them, in order.
    pub(super) fn all(&self) -> Vec<Span> {
        self.spans.iter().map(|(&start, &end)| Span { start, end }).collect()
    }
}
