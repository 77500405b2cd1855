//! Finds out which processes hold the same socket.
//!
//! A socket that fork() copied may be used by a process that does not know of an upgrade: a plain
//! connection is only upgraded by the one process that still holds it. The holders are recorded in
//! memory shared with all children, created at the first fork.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seekwire_transport::mem::Common;
use seekwire_transport::queue;
use seekwire_transport::sys::host;

/// One line of the table: its use, forks pending, six processes.
const LINE: usize = 64;
const LINES: usize = 1024;
const PIDS: std::ops::Range<usize> = 2..8;

/// The first word of a line that is free, and of one in use. More is the number of programs that have
/// got the socket, of whose processes nobody keeps count.
const FREE: u64 = 0;
const COUNTS: u64 = 1;
/// Also set in the first word while a process takes the line or frees it.
const BUSY: u64 = 1 << 63;

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
        let begins = |line: &usize| {
            let begin = |word: &AtomicU64| {
                word.compare_exchange(FREE, BUSY | COUNTS, Ordering::AcqRel, Ordering::Relaxed)
            };
            Self::Line(*line).word(0).is_some_and(|word| begin(word).is_ok())
        };
        let search = || (0..LINES).find(begins);
        let line = search().or_else(|| if Self::free_dead() { search() } else { None });
        let Some(line) = line else { return Self::Unknown };
        let holders = Self::Line(line);
        holders.clear();
        holders.add(pid);
        holders.end_change();
        holders
    }

    /// Frees the lines whose processes have all ended; false if the last such search is too recent.
    /// It asks for the state of a process for each line, and a fork makes a line for each connection.
    fn free_dead() -> bool {
        const PAUSE: Duration = Duration::from_secs(1);
        static LAST: AtomicU64 = AtomicU64::new(0);
        let last = LAST.load(Ordering::Relaxed);
        if last != 0 && host::since(last).is_some_and(|pause| pause < PAUSE) {
            return false;
        }
        // A child that has not arrived yet, and whose parent is dead, enters a line that another
        // connection has by then: neither counts as alone.
        (0..LINES).for_each(|line| _ = Self::Line(line).free_if(|line| !line.has_others(0)));
        LAST.store(host::nanoseconds().max(1), Ordering::Relaxed);
        true
    }

    /// Keeps other processes from freeing the line; false if it is free, or another one changes it.
    fn begin_change(&self) -> bool {
        let change = |now: u64| (now != FREE && now & BUSY == 0).then_some(now | BUSY);
        self.word(0).is_some_and(|word| {
            word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change).is_ok()
        })
    }

    fn end_change(&self) {
        if let Some(word) = self.word(0) {
            word.fetch_and(!BUSY, Ordering::AcqRel);
        }
    }

    fn clear(&self) {
        self.set(1, 0);
        PIDS.for_each(|pid| self.set(pid, 0));
    }

    /// Frees the line if it `is_left`, also while nobody else changes it. Returns whether it did.
    fn free_if(&self, is_left: impl Fn(&Self) -> bool) -> bool {
        if !is_left(self) || !self.begin_change() {
            return false;
        }
        let is_free = is_left(self);
        if is_free {
            self.clear();
            self.set(0, FREE);
        } else {
            self.end_change();
        }
        is_free
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

    /// Another program gets the socket.
    pub(super) fn inherited(&self) {
        if let Some(programs) = self.word(0) {
            programs.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The program has not begun.
    pub(super) fn not_inherited(&self) {
        if let Some(programs) = self.word(0) {
            programs.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(super) fn is_alone(&self, pid: u32) -> bool {
        self.get(0) == COUNTS && self.is_last(pid)
    }

    fn has_others(&self, pid: u32) -> bool {
        PIDS.into_iter().any(|word| queue::is_other_process(self.get(word), pid))
    }

    /// Whether no other process counts on this.
    fn is_last(&self, pid: u32) -> bool {
        self.get(1) == 0 && !self.has_others(pid)
    }

    /// The process has closed its last descriptor. The last process frees the line. If it ends
    /// without a close, a process that finds no free line does so.
    pub(super) fn remove(&self, pid: u32) {
        if !self.free_if(|line| line.is_last(pid)) {
            queue::remove_process(PIDS.filter_map(|word| self.word(word)), pid);
        }
    }

    /// The process closes its last number for a file that lives on, in the C library for one.
    pub(super) fn leave_file(&self, pid: u32) {
        self.inherited();
        queue::remove_process(PIDS.filter_map(|word| self.word(word)), pid);
    }
}

#[cfg(test)]
mod tests {
    use seekwire_transport::sys::thread;

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
        holders.inherited();
        holders.not_inherited();
        assert!(holders.is_alone(me), "there is no program");
        holders.inherited();
        assert!(!holders.is_alone(me), "its processes may be any");
        let line = |holders: &Holders| match holders {
            Holders::Line(line) => Some(*line),
            Holders::Unknown => None,
        };
        holders.remove(me);
        assert_eq!(line(&Holders::new(me)), line(&holders), "the line is free again");
        assert!(!Holders::Unknown.is_alone(me));
    }

    #[test]
    fn lines_of_processes_that_have_ended_are_taken_again() {
        let me = thread::process_id();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        (0..LINES + 1).for_each(|_| _ = Holders::new(ended));
        let line = Holders::new(me);
        assert!(line.is_alone(me), "a line of the dead");
        line.remove(me);
    }
}
