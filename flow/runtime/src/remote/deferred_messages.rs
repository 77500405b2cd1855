//! Collects messages to other processes about dropped blocks, until a copy has finished all blocks
//! that it took.
//!
//! A message for each block would cost more than a short block. So while a thread has several
//! blocks in its batch, which take no longer than `BATCH`, dropped blocks are noted here and
//! reported together at the end, or before the thread waits.

use std::cell::RefCell;
use std::sync::Arc;

use super::link::Link;
use super::message::{MOST_SEQUENCES, Message, Sequences, StreamEnd};
use crate::policy::priority::UnitId;

/// Messages to send, each with its link.
type Notes = Vec<(Arc<Link>, Message)>;

thread_local! {
    /// `Some` if this thread has blocks in its batch.
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Collects messages until it is dropped.
pub(crate) struct DeferredMessages;

impl DeferredMessages {
    pub(crate) fn begin() -> Self {
        NOTES.with_borrow_mut(|notes| {
            notes.get_or_insert_default();
        });
        Self
    }
}

impl Drop for DeferredMessages {
    fn drop(&mut self) {
        tell();
        NOTES.with_borrow_mut(|notes| *notes = None);
    }
}

/// Sends the collected messages: the thread is about to wait.
pub(crate) fn tell() {
    let notes = NOTES.with_borrow_mut(|notes| notes.as_mut().map(std::mem::take));
    for (link, message) in notes.into_iter().flatten() {
        link.send(message);
    }
}

/// Producers in the process at the other end get this much room back.
pub(crate) fn freed(link: &Arc<Link>, stream: u16, more: usize) {
    note(
        link,
        |last| match last {
            Message::Freed { stream: same, bytes } if *same == stream => {
                *bytes += more as u64;
                true
            }
            _ => false,
        },
        || Message::Freed { stream, bytes: more as u64 },
    );
}

/// The owner at the other end can forget a block.
pub(crate) fn dropped(
    link: &Arc<Link>,
    to: StreamEnd,
    unit: UnitId,
    sequence: u64,
    is_begun: bool,
) {
    note(
        link,
        |last| match last {
            Message::Dropped { to: same, unit: of, sequences, is_begun: begun }
                if (*same, *of, *begun) == (to, unit, is_begun)
                    && sequences.0.len() < MOST_SEQUENCES =>
            {
                sequences.0.push(sequence);
                true
            }
            _ => false,
        },
        || Message::Dropped { to, unit, sequences: Sequences(vec![sequence]), is_begun },
    );
}

fn note(link: &Arc<Link>, joins: impl FnOnce(&mut Message) -> bool, new: impl FnOnce() -> Message) {
    let mut new = Some(new);
    // When a thread ends, its thread-local blocks are also dropped.
    let is_noted = NOTES.try_with(|notes| {
        let mut notes = notes.borrow_mut();
        let Some(notes) = notes.as_mut() else { return false };
        let last = notes.last_mut().filter(|(other, _)| Arc::ptr_eq(other, link));
        if !last.is_some_and(|(_, message)| joins(message)) {
            notes.extend(new.take().map(|new| (Arc::clone(link), new())));
        }
        true
    });
    if let Some(new) = new.filter(|_| is_noted != Ok(true)) {
        link.send(new());
    }
}
