//! A child's output, collected by a thread so that the child never waits for us.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Maximum output kept for each stream: more than any program here prints, but limited.
const LIMIT: usize = 8 << 20;

/// One output stream of a child.
#[derive(Debug)]
pub(super) struct Lines {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    text: String,
    ended: bool,
}

/// Result of waiting for a line.
pub(super) enum Awaited {
    Line(String),
    Ended,
    TimedOut,
}

impl Lines {
    pub(super) fn collect(stream: impl Read + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let writer = shared.clone();
        let reader = std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(stream.read_until(b'\n', &mut line), Ok(1..)) {
                let mut state = writer.lock();
                if state.text.len() < LIMIT {
                    state.text.push_str(&String::from_utf8_lossy(&line));
                }
                writer.changed.notify_all();
                line.clear();
            }
            writer.lock().ended = true;
            writer.changed.notify_all();
        });
        Self { shared, reader: Some(reader) }
    }

    /// The first whole line that satisfies `wanted`, of those printed before as well as after the
    /// call.
    pub(super) fn wait_for(&self, wanted: impl Fn(&str) -> bool, deadline: Instant) -> Awaited {
        let mut state = self.shared.lock();
        let mut seen = 0;
        loop {
            while let Some(length) = state.text[seen..].find('\n') {
                let line = &state.text[seen..seen + length];
                if wanted(line) {
                    return Awaited::Line(line.to_owned());
                }
                seen += length + 1;
            }
            if state.ended {
                return Awaited::Ended;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Awaited::TimedOut;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The output so far.
    pub(super) fn so_far(&self) -> String {
        self.shared.lock().text.clone()
    }

    /// The whole output; call it when no process holds the other end any more.
    pub(super) fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            // The reader cannot panic, and if it did there would be nothing more to read.
            let _ = reader.join();
        }
        std::mem::take(&mut self.shared.lock().text)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
