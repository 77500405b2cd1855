//! Allocation of the entries and pages of this machine's half.
//!
//! All decisions are made under one lock, from the state file, the leases, and the places that the
//! other machine's entries name. The other machine can lie in these; the worst it can do is deny
//! room.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::ofd_lock::{self, LockMode};
use seekwire_transport::sys::{host, thread};

use crate::error::EnterError;
use crate::layout::header;
use crate::pages::first_fit;
use crate::region::Inner;
use crate::state::ALLOCATOR;

/// How long to wait for others that choose or attach: a process may be stopped while it does.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(10);
/// Dead processes' entries are cleared once per this many new connections.
const SWEEP_EACH: u64 = 64;
/// Maximum number of leases that a sweep checks: for each, the kernel searches all of them while
/// the lock is held. The next sweep continues with others.
const ASKED_AT_MOST: usize = 512;
/// Minimum time between two sweeps that the other machine asks for.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(100);

/// The lock, held by a file description.
pub(crate) struct Table<'l> {
    link: &'l Inner,
    file: &'l PrivateFd,
}

impl<'l> Table<'l> {
    /// Takes the lock with `file`, a description of the state file that nobody else has.
    pub(crate) fn lock(link: &'l Inner, file: &'l PrivateFd) -> Result<Self, EnterError> {
        let since = host::nanoseconds();
        while !ofd_lock::try_lock(file, ALLOCATOR, LockMode::Exclusive)? {
            if host::since(since).is_none_or(|waited| waited > LOCK_TIMEOUT) {
                return Err(EnterError::Busy);
            }
            std::thread::yield_now();
        }
        Ok(Self { link, file })
    }

    /// Takes a free entry for a connection with this digest, and leases it to the description.
    /// Returns its index, and the number of connections that entered before.
    pub(crate) fn take(&self, digest: u64) -> Result<(usize, u64), EnterError> {
        let state = &self.link.state;
        self.sweep_if_asked();
        let order = state.count_entered();
        if order % SWEEP_EACH == SWEEP_EACH - 1 {
            self.sweep();
        }
        for index in (0..state.used()).filter(|index| state.digest(*index) == digest) {
            self.clear_if_stale(index);
        }
        let index = match self.lease_free()? {
            Some(index) => index,
            None => {
                self.sweep();
                self.lease_free()?.ok_or(EnterError::Full)?
            }
        };
        let highest = state.note_used(index + 1);
        self.link.own.set_highest(highest);
        Ok((index, order))
    }

    fn lease_free(&self) -> io::Result<Option<usize>> {
        for index in 0..self.link.layout.entries() {
            // A process that has just cleared an entry may still have its lease.
            if self.link.state.digest(index) == 0
                && ofd_lock::try_lock(self.file, index as u64, LockMode::Exclusive)?
            {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Finds pages for a leased entry, and records them.
    pub(crate) fn place(&self, index: usize, bytes: usize) -> Option<Range<usize>> {
        let pages = self.free_pages(bytes).or_else(|| {
            self.sweep();
            self.free_pages(bytes)
        });
        let Some(pages) = pages else {
            self.link.peer.header(header::WANTS_ROOM).fetch_add(1, Ordering::SeqCst);
            return None;
        };
        self.link.state.set_place(index, pages.start, pages.len());
        self.link.own.set_place(index, pages.start, pages.len());
        Some(pages)
    }

    fn free_pages(&self, bytes: usize) -> Option<Range<usize>> {
        let Inner { layout, own, peer, state, .. } = self.link;
        let pages = |(at, length)| at..at + length;
        let entered = (0..state.used()).map(|index| state.place(index));
        let entered = entered.filter_map(|(at, length)| layout.place(own.side(), at, length));
        let mut used: Vec<_> = entered.map(pages).collect();
        // If an entry was freed before this, either its place's name is visible here, or the end
        // that named it sees that the entry is free: see HalfMemory::name.
        fence(Ordering::SeqCst);
        // Reads all of them, because their number in use is that machine's claim.
        used.extend((0..layout.entries()).filter_map(|index| peer.named(index)).map(pages));
        first_fit(layout.places(own.side()), used, bytes)
    }

    /// True if an entry has words, but no lease.
    fn is_stale(&self, index: usize) -> bool {
        let bytes = index as u64..index as u64 + 1;
        // An entry counts as in use if this cannot be determined.
        !ofd_lock::is_locked(self.file, bytes).unwrap_or(true)
    }

    fn clear_if_stale(&self, index: usize) {
        if self.is_stale(index) {
            self.link.own.clear(index);
            self.link.state.clear(index);
        }
    }

    /// Clears entries of dead processes; in a large directory, a part of them. Returns the number
    /// of leases that it checked.
    pub(crate) fn sweep(&self) -> usize {
        let state = &self.link.state;
        let (used, first) = (state.used(), state.next_swept());
        let in_turn = (0..used).map(|index| (first + index) % used);
        let entered: Vec<usize> = in_turn.filter(|index| state.digest(*index) != 0).collect();
        // Entries of processes that do not seem to live are likely to be stale. In a container with
        // another PID namespace no process seems to live, so these entries do not get the whole
        // quota.
        let mut alive = BTreeMap::new();
        let mut lives = |index: &usize| {
            let pid = state.pid(*index);
            *alive.entry(pid).or_insert_with(|| thread::process_is_alive(pid))
        };
        let (others, likely): (Vec<usize>, Vec<usize>) = entered.into_iter().partition(&mut lives);
        let of_likely =
            likely.len().min(ASKED_AT_MOST.saturating_sub(others.len()).max(ASKED_AT_MOST / 2));
        let of_others = others.len().min(ASKED_AT_MOST - of_likely);
        likely[..of_likely].iter().chain(&others[..of_others]).for_each(|index| {
            self.clear_if_stale(*index);
        });
        // The next sweep begins with the first entry that was not checked.
        let rest = [likely.get(of_likely), others.get(of_others)].into_iter().flatten();
        let distance = |index: &usize| (index + used - first % used.max(1)) % used;
        if let Some(next) = rest.copied().min_by_key(distance) {
            state.set_next_swept(next);
        }
        of_likely + of_others
    }

    /// Sweeps if the other machine has found no room since the last time.
    pub(crate) fn sweep_if_asked(&self) {
        if let Some(wanted) = asked(self.link) {
            self.link.state.set_swept(wanted, host::nanoseconds());
            self.sweep();
        }
    }
}

/// The other machine's count of wanted room, if a sweep for it is due now.
pub(crate) fn asked(link: &Inner) -> Option<u64> {
    let wanted = link.own.header(header::WANTS_ROOM).load(Ordering::Acquire);
    let (swept_for, at) = link.state.swept();
    let is_time = || host::since(at).is_none_or(|since| since > BETWEEN_SWEEPS);
    (wanted != swept_for && (at == 0 || is_time())).then_some(wanted)
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        // Explicit, because a forked child may also have the description.
        let _ = ofd_lock::unlock(self.file, ALLOCATOR);
    }
}

#[cfg(test)]
mod tests;
