//! Sleeping and waking: one thread, the leader, sleeps in the stream. The others sleep on a
//! condition variable each. The leader delivers to the others what it finds for them, and when it
//! leaves, another thread leads. No thread sleeps with the lock held.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::RecvError;
use super::inbox::Inbox;
use super::reader::Wait;
use super::state::Mailbox;
use super::waiting::{Sleeper, WaitTarget};
use crate::SeekError;
use crate::seek::{At, SeekSocket};

/// One in this many calls that find nothing and do not wait makes room for more bytes.
const POLLS: u32 = 16;

/// The lock, and the stream it belongs to.
pub(super) struct Session<'a, S: SeekSocket> {
    mailbox: &'a Mailbox<S>,
    /// `None` only while the thread sleeps.
    inbox: Option<MutexGuard<'a, Inbox>>,
}

impl<S: SeekSocket> Deref for Session<'_, S> {
    type Target = Inbox;

    fn deref(&self) -> &Inbox {
        self.inbox.as_ref().expect("nobody looks while the thread sleeps")
    }
}

impl<S: SeekSocket> DerefMut for Session<'_, S> {
    fn deref_mut(&mut self) -> &mut Inbox {
        self.inbox.as_mut().expect("nobody looks while the thread sleeps")
    }
}

impl<S: SeekSocket> Drop for Session<'_, S> {
    /// Wakes another thread to lead if there is no leader.
    fn drop(&mut self) {
        if let Some(inbox) = &self.inbox {
            if !inbox.waiting.leader {
                if let Some(first) = inbox.waiting.sleepers.first() {
                    first.condvar.notify_one();
                }
            }
        }
    }
}

impl<'a, S: SeekSocket> Session<'a, S> {
    pub(super) fn new(mailbox: &'a Mailbox<S>) -> Self {
        let inbox = mailbox.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        Self { mailbox, inbox: Some(inbox) }
    }

    pub(super) fn stream(&self) -> &'a S {
        &self.mailbox.stream
    }

    pub(super) fn is_led(&self) -> bool {
        self.waiting.leader
    }

    /// Sleeps until there may be more bytes. May return early.
    pub(super) fn block(&mut self, on: WaitTarget, wait: Wait) -> Result<(), RecvError> {
        if self.waiting.leader {
            self.follow(on, wait);
            Ok(())
        } else {
            self.lead(wait)
        }
    }

    fn follow(&mut self, on: WaitTarget, wait: Wait) {
        let Some(mut inbox) = self.inbox.take() else { return };
        let condvar = Arc::new(Condvar::new());
        let id = inbox.waiting.next;
        inbox.waiting.next += 1;
        inbox.waiting.sleepers.push(Sleeper { id, on, condvar: condvar.clone() });
        if matches!(on, WaitTarget::Bytes) {
            inbox.waiting.urgent = Some(wait);
        }
        inbox = condvar.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        inbox.waiting.sleepers.retain(|sleeper| sleeper.id != id);
        if matches!(on, WaitTarget::Bytes) {
            inbox.waiting.urgent = None;
        }
        self.inbox = Some(inbox);
    }

    fn lead(&mut self, wait: Wait) -> Result<(), RecvError> {
        let wait = self.waiting.urgent.unwrap_or(wait);
        if wait.starved {
            return self.waited(wait.at, Err(SeekError::NoRoom));
        }
        let len = if self.waiting.starved == Some(wait.at) { wait.least } else { wait.len };
        let stream = self.stream();
        // The peer may wait for the rest of a message before it sends anything.
        let unsent = self.mailbox.send_rest();
        if unsent {
            self.make_room()?;
        }
        self.waiting.leader = true;
        self.inbox = None;
        let waited = if unsent {
            stream.wait_send(None).map_err(SeekError::from)
        } else {
            stream.wait_seek(At::Position(wait.at), len, None)
        };
        self.inbox = Some(self.mailbox.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        self.waiting.leader = false;
        self.waiting.wake_if(|on| matches!(on, WaitTarget::Bytes));
        self.waited(wait.at, waited)
    }

    /// For calls that found nothing and do not wait: without this, they would find nothing for ever
    /// when other messages fill the stream.
    pub(super) fn nudge(&mut self, wait: Wait) -> Result<(), RecvError> {
        self.waiting.polls = self.waiting.polls.wrapping_add(1);
        if self.waiting.leader || self.waiting.polls % POLLS != 0 {
            return Ok(());
        }
        self.mailbox.send_rest();
        let waited = match wait.starved {
            true => Err(SeekError::NoRoom),
            false => self.stream().wait_seek(At::Position(wait.at), wait.len, Some(Duration::ZERO)),
        };
        self.waited(wait.at, waited)
    }

    fn waited(&mut self, at: u64, waited: Result<(), SeekError>) -> Result<(), RecvError> {
        match waited {
            Ok(()) => self.waiting.starved = None,
            Err(error) if error.is_passing() => {}
            Err(SeekError::NoRoom) => {
                let stream = self.stream();
                let again = self.waiting.starved.replace(at) == Some(at);
                if !self.flush(stream) && again {
                    return Err(if self.unexpected_count() > 0 {
                        self.full()
                    } else {
                        SeekError::NoRoom.into()
                    });
                }
            }
            // Another thread has taken these bytes in the meantime.
            Err(SeekError::Taken) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Lets the peer go on sending until it receives.
    pub(super) fn make_room(&mut self) -> Result<(), RecvError> {
        let stream = self.stream();
        match stream.make_room() {
            Err(SeekError::NoRoom) => {
                self.flush(stream);
                match stream.make_room() {
                    Err(SeekError::NoRoom) if self.unexpected_count() > 0 => Err(self.full()),
                    // Other errors are reported by the calls that send and receive.
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
