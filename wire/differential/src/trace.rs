//! The outcome of a program of calls, step by step.

use std::collections::BTreeMap;

use crate::program::{CallResult, Step};
use crate::streams::{ByteCounters, Streams};

/// Outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fate {
    Done(CallResult),
    /// Asleep in the call.
    Blocked,
    /// Neither asleep nor done.
    Spins,
    /// The process ended in it unexpectedly.
    Died,
    /// The process replaced itself by exec.
    Replaced,
    /// No thread was there to make the call.
    Skipped,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) step: Step,
    /// Bytes sent and received by direction when the step began.
    pub(crate) before: Vec<ByteCounters>,
    pub(crate) fate: Fate,
    pub(crate) beside: Option<Fate>,
    /// Earlier steps that came to their end in this one.
    pub(crate) ended: BTreeMap<usize, Fate>,
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) events: Vec<Event>,
    pub(crate) streams: Streams,
    /// Bytes that went through shared memory.
    pub(crate) ring: u64,
    pub(crate) calls: u64,
}

/// A difference that a program could notice.
#[derive(Clone, Debug)]
pub(crate) struct Divergence {
    /// Equal for failures that are probably the same.
    pub(crate) kind: String,
    /// Number of the step, in the program and the epilogue.
    pub(crate) step: usize,
    pub(crate) text: String,
}

pub(crate) fn blocks(fate: &Fate) -> bool {
    matches!(fate, Fate::Blocked | Fate::Spins)
}

pub(crate) fn errno(errno: i32) -> String {
    let known = [
        (libc::EAGAIN, "EAGAIN"),
        (libc::EINTR, "EINTR"),
        (libc::EBADF, "EBADF"),
        (libc::EFAULT, "EFAULT"),
        (libc::EINVAL, "EINVAL"),
        (libc::EPIPE, "EPIPE"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::ENOTSOCK, "ENOTSOCK"),
    ];
    known
        .iter()
        .find(|(number, _)| *number == errno)
        .map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

pub(crate) fn show_event(event: &Event) -> String {
    let mut text = show(&event.fate);
    if let Some(fate) = &event.beside {
        text += &format!(", beside it {}", show(fate));
    }
    for (step, fate) in &event.ended {
        text += &format!("; step {} ended: {}", step / 2, show(fate));
    }
    text
}

fn show(fate: &Fate) -> String {
    let Fate::Done(answer) = fate else { return format!("{fate:?}").to_lowercase() };
    let mut text = if answer.value == -1 { errno(answer.errno) } else { answer.value.to_string() };
    if !answer.bytes.is_empty() {
        let start: Vec<_> = answer.bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        text += &format!(" ({} bytes: {})", answer.bytes.len(), start.join(" "));
    }
    if !answer.seen.is_empty() {
        let parts: Vec<_> =
            answer.seen.iter().map(|(name, value)| format!("{name}={value:#x}")).collect();
        text += &format!(" [{}]", parts.join(", "));
    }
    if let Some(changed) = answer.changed_errno {
        text += &format!(" errno became {}", errno(changed));
    }
    if answer.signals != [0; 3] {
        text += &format!(" signals {:?}", answer.signals);
    }
    text
}
