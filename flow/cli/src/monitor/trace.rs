//! A trace of the actions of each copy, as trace events in JSON, which ui.perfetto.dev and others
//! show ("Trace Event Format", N. Duca and D. Sinclair).
//!
//! Events are written as they happen, through a buffer. A copy begins and ends its spans itself, so
//! a span that never ends shows where a pipeline hung.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use seekwire_flow::{Deal, Graph, Observer, SizeDecision, Span};
use serde_json::json;

use crate::builtin::file_uses;
use crate::monitor::screen;

/// The first bytes of a trace.
const BEGINNING: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

/// Bytes to write at once.
const BUFFER: usize = 256 << 10;

pub(crate) struct Trace {
    path: PathBuf,
    began: Instant,
    /// For each copy: the input ports of its filter.
    inputs: Vec<Vec<String>>,
    /// The names of the streams, as JSON strings.
    streams: Vec<String>,
    state: Mutex<State>,
}

struct State {
    /// `None`: nothing more is written.
    file: Option<File>,
    buffer: String,
    /// Bytes of the file, all of whole events.
    len: u64,
    /// For each copy: number of open spans.
    open: Vec<usize>,
    /// For each stream: how many bytes it held last.
    held: Vec<Option<usize>>,
}

impl Trace {
    /// Creates the file, in place of an earlier trace.
    pub(crate) fn create(path: &Path, pipeline: &str, graph: &Graph) -> Result<Self> {
        let file = open(path);
        let file = file.with_context(|| format!("cannot write the trace {}", path.display()))?;
        let mut buffer = BEGINNING.to_owned();
        let named = |what: &str, of: usize, name: &str| {
            let name = json!({"name": name});
            json!({"ph": "M", "pid": 1, "tid": of, "name": what, "args": name})
        };
        let _ = write!(buffer, "\n{}", named("process_name", 0, pipeline));
        let mut inputs = Vec::new();
        for (filter, copies, ports) in graph.filters() {
            for copy in 0..copies {
                let at = inputs.len();
                let name = format!("{filter} {copy}");
                let order = json!({
                    "ph": "M", "pid": 1, "tid": at + 1, "name": "thread_sort_index",
                    "args": {"sort_index": at}
                });
                let name = named("thread_name", at + 1, &name);
                let _ = write!(buffer, ",\n{name},\n{order}");
                inputs.push(ports.inputs.clone());
            }
        }
        let streams: Vec<String> =
            graph.streams().map(|stream| json!(stream).to_string()).collect();
        let state = State {
            file: Some(file),
            buffer,
            len: 0,
            open: vec![0; inputs.len()],
            held: vec![None; streams.len()],
        };
        Ok(Self {
            path: path.to_owned(),
            began: Instant::now(),
            inputs,
            streams,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In microseconds, with three decimals.
    fn time(&self, at: Instant) -> String {
        let nanoseconds = at.saturating_duration_since(self.began).as_nanos();
        format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
    }

    /// Writes the rest, and completes the file.
    pub(crate) fn finish(&self) {
        self.finish_with(&mut self.state());
    }

    /// The same for a process that a signal ends, which does not wait for a file that takes
    /// nothing.
    pub(crate) fn finish_soon(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            match self.state.try_lock() {
                Ok(mut state) => return self.finish_with(&mut state),
                Err(TryLockError::Poisoned(state)) => {
                    return self.finish_with(&mut state.into_inner());
                }
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
    }

    fn finish_with(&self, state: &mut State) {
        let now = self.time(Instant::now());
        for copy in 0..state.open.len() {
            for _ in 0..std::mem::take(&mut state.open[copy]) {
                state.end(copy, &now);
            }
        }
        state.buffer.push_str("\n]}\n");
        self.write(state);
        state.file = None;
    }

    fn write_if_full(&self, state: &mut State) {
        if state.buffer.len() >= BUFFER {
            self.write(state);
        }
    }

    /// Writes the buffer; gives up if that fails.
    fn write(&self, state: &mut State) {
        let Some(file) = &mut state.file else { return };
        let written = file.write_all(state.buffer.as_bytes());
        state.len += state.buffer.len() as u64;
        if let Err(error) = written {
            let whole = state.len - state.buffer.len() as u64;
            // Works only for a regular file, and only if truncating it frees enough room.
            let _ = make_whole(file, whole);
            state.file = None;
            let path = self.path.display();
            screen::tell(format_args!(
                "seekwire: cannot write the trace {path}: {error}; it ends here, the pipeline \
                 goes on"
            ));
        }
        state.buffer.clear();
    }
}

/// Opens the file, and truncates it if it has an earlier trace. Other content may be the input of a
/// filter, or anything else that somebody needs.
fn open(path: &Path) -> Result<File> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    let identity = file_uses::identity(&file)?;
    if identity.is_some() {
        ensure!(
            !file_uses::is_written_throughout(identity),
            "it is standard output; choose another file"
        );
        let mut beginning = Vec::new();
        File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
        let is_trace = beginning.is_empty() || beginning == BEGINNING.as_bytes();
        ensure!(is_trace, "the file has something other than a trace; choose another file");
        file.set_len(0)?;
    }
    file_uses::written_throughout(identity);
    Ok(file)
}

/// Truncates the file to that length, and completes it as JSON.
fn make_whole(file: &mut File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    file.seek(SeekFrom::Start(len))?;
    file.write_all(b"\n]}\n")
}

impl State {
    fn end(&mut self, copy: usize, at: &str) {
        let tid = copy + 1;
        let _ = write!(self.buffer, ",\n{{\"ph\":\"E\",\"pid\":1,\"tid\":{tid},\"ts\":{at}}}");
    }
}

impl Observer for Trace {
    fn began(&self, copy: usize, span: Span, at: Instant) {
        let mut state = self.state();
        if state.file.is_none() {
            return;
        }
        let (name, arguments) = match span {
            Span::Init { unit } => ("init", format!("\"unit\":{unit}")),
            Span::Generate { unit } => ("generate", format!("\"unit\":{unit}")),
            Span::Finalize { unit } => ("finalize", format!("\"unit\":{unit}")),
            Span::Process { unit, sequence, bytes, port } => {
                // Names of ports need no escaping.
                let port = &self.inputs[copy][port];
                let block =
                    format!("\"sequence\":{sequence},\"bytes\":{bytes},\"port\":\"{port}\"");
                ("process", format!("\"unit\":{unit},{block}"))
            }
            Span::Blocked { stream } => ("blocked", format!("\"stream\":{}", self.streams[stream])),
            Span::Starved | _ => ("starved", String::new()),
        };
        state.open[copy] += 1;
        let (tid, at) = (copy + 1, self.time(at));
        let _ = write!(
            state.buffer,
            ",\n{{\"ph\":\"B\",\"pid\":1,\"tid\":{tid},\"ts\":{at},\"name\":\"{name}\",\
             \"args\":{{{arguments}}}}}"
        );
        self.write_if_full(&mut state);
    }

    fn ended(&self, copy: usize, at: Instant) {
        let mut state = self.state();
        if state.file.is_some() {
            state.open[copy] -= 1;
            state.end(copy, &self.time(at));
            self.write_if_full(&mut state);
        }
    }

    fn held(&self, stream: usize, bytes: usize, at: Instant) {
        let mut state = self.state();
        if state.file.is_none() || state.held[stream].replace(bytes) == Some(bytes) {
            return;
        }
        let (name, at) = (&self.streams[stream], self.time(at));
        let _ = write!(
            state.buffer,
            ",\n{{\"ph\":\"C\",\"pid\":1,\"ts\":{at},\"name\":{name},\
             \"args\":{{\"held\":{bytes}}}}}"
        );
        self.write_if_full(&mut state);
    }

    fn dealt(&self, stream: usize, deal: &Deal, at: Instant) {
        let mut state = self.state();
        if state.file.is_none() {
            return;
        }
        let nanoseconds = |time: Option<Duration>| time.map(|time| time.as_nanos() as u64);
        let copies: Vec<_> = deal
            .copies
            .iter()
            .map(|copy| {
                json!([copy.outstanding, nanoseconds(copy.service), nanoseconds(copy.round_trip)])
            })
            .collect();
        let Deal { unit, sequence, blocks, copy, backlog, .. } = deal;
        let (stream, copies, at) = (&self.streams[stream], json!(copies), self.time(at));
        let _ = write!(
            state.buffer,
            ",\n{{\"ph\":\"i\",\"s\":\"p\",\"pid\":1,\"tid\":0,\"ts\":{at},\"name\":\"deal\",\
             \"args\":{{\"stream\":{stream},\"unit\":{unit},\"sequence\":{sequence},\
             \"blocks\":{blocks},\"copy\":{copy},\"backlog\":{backlog},\
             \"outstanding, service and way in ns\":{copies}}}}}"
        );
        self.write_if_full(&mut state);
    }

    fn sized(&self, stream: usize, decision: &SizeDecision, at: Instant) {
        let mut state = self.state();
        if state.file.is_none() {
            return;
        }
        let (stream, decision, at) = (&self.streams[stream], json!(decision), self.time(at));
        let _ = write!(
            state.buffer,
            ",\n{{\"ph\":\"i\",\"s\":\"p\",\"pid\":1,\"tid\":0,\"ts\":{at},\
             \"name\":\"size of blocks\",\"args\":{{\"stream\":{stream},\"decision\":{decision}}}}}"
        );
        self.write_if_full(&mut state);
    }
}
