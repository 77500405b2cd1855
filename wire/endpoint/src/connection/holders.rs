//! Finds out which processes hold the same socket.
//!
//! A socket that fork() copied may be used by a process that does not know of an upgrade: a plain
//! connection is only upgraded by the one process that still holds it. The holders are recorded in
//! memory shared with all children, created at the first fork.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use seekwire_transport::mem::Common;
use seekwire_transport::queue;
use seekwire_transport::sys::thread;

/// One line of the table: in use, forks pending, six processes.
const LINE: usize = 64;
const LINES: usize = 1024;
const PIDS: std::ops::Range<usize> = 2..8;

/// The processes that may hold one plain connection.
#[derive(Debug)]
pub(super) enum Holders {
    Line(usize),
    /// There was no room to count the holders: never assume to be the only one.
    Unknown,
}

fn table() -> Option<&'static Common> {
    static TABLE: OnceLock<Option<Common>> = OnceLock::new();
    TABLE.get_or_init(|| Common::with_forks(LINE * LINES).ok()).as_ref()
}

impl Holders {
    pub(super) fn new(pid: u32) -> Self {
        let free = |line: &usize| {
            let in_use = table().map(|table| table.word(line * LINE));
            in_use.is_some_and(|word| {
                word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
        };
        let Some(line) = (0..LINES).find(free) else { return Self::Unknown };
        let holders = Self::Line(line);
        holders.set(1, 0);
        PIDS.for_each(|pid| holders.set(pid, 0));
        holders.add(pid);
        holders
    }

    fn word(&self, word: usize) -> Option<&'static AtomicU64> {
        let Self::Line(line) = self else { return None };
        Some(table()?.word(line * LINE + word * 8))
    }

    fn set(&self, word: usize, value: u64) {
        if let Some(word) = self.word(word) {
            word.store(value, Ordering::Release);
        }
    }

    fn get(&self, word: usize) -> u64 {
        self.word(word).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn add(&self, pid: u32) -> bool {
        queue::enter_process(|| PIDS.filter_map(|word| self.word(word)), pid)
    }

    pub(super) fn fork_pending(&self) {
        if let Some(pending) = self.word(1) {
            pending.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn fork_arrived(&self, pid: u32) {
        // If it has no place, the fork stays pending, and no process counts as the only holder.
        if self.add(pid) {
            if let Some(pending) = self.word(1) {
                pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    pub(super) fn fork_failed(&self) {
        if let Some(pending) = self.word(1) {
            let lower = |now: u64| now.checked_sub(1);
            let _ = pending.fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
        }
    }

    pub(super) fn is_alone(&self, pid: u32) -> bool {
        let others =
            || PIDS.map(|word| self.get(word) as u32).filter(|other| *other != 0 && *other != pid);
        matches!(self, Self::Line(_)) && self.get(1) == 0 && !others().any(thread::process_is_alive)
    }

    /// The process has closed its last descriptor. The last process frees the line.
    pub(super) fn remove(&self, pid: u32) {
        if self.is_alone(pid) {
            self.set(0, 0);
        }
        for word in PIDS {
            if self.get(word) == u64::from(pid) {
                self.set(word, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_until_a_fork_and_again_after_the_child_has_closed() {
        let me = thread::process_id();
        let holders = Holders::new(me);
        assert!(holders.is_alone(me));
        holders.fork_pending();
        assert!(!holders.is_alone(me), "the child may be anywhere");
        // Process 1 stands for a child that is alive.
        holders.fork_arrived(1);
        assert!(!holders.is_alone(me));
        holders.remove(1);
        assert!(holders.is_alone(me));
        holders.fork_pending();
        holders.fork_failed();
        assert!(holders.is_alone(me), "there is no child");
        assert!(!Holders::Unknown.is_alone(me));
    }
}
