//! The claim of a process to a connection after a fork: the process that receives first goes on
//! with it.
//!
//! Each process has a copy of the stream's state. A process that changes the stream counts the
//! change in memory that all of them share, under a lock. By that count, a copy stays recognizable
//! as outdated for ever, whatever forks come later. A process that ends has nothing to give back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seekwire_transport::Errno;
use seekwire_transport::mem::Common;
use seekwire_transport::queue;
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::thread;

/// Offsets in the shared memory: the process that holds the claim, and the number of changes to the
/// stream.
const HOLDER: usize = 0;
const CHANGES: usize = 8;
const LEN: usize = 16;

/// How long to wait for a holder. A running one takes much less time, so this one is stopped.
const CLAIM_LIMIT: Duration = Duration::from_secs(1);
/// Looks between two checks whether the holder is alive.
const LOOKS: u32 = 1000;

#[derive(Debug)]
pub(super) struct Claim(Common);

/// While this exists, no other process changes the stream.
pub(super) struct ClaimGuard<'c> {
    claim: &'c Claim,
    me: u64,
}

impl Claim {
    /// A claim shared with all processes that are forked from now on.
    pub(super) fn new() -> Option<Self> {
        Common::with_forks(LEN).ok().map(Self)
    }

    fn holder(&self) -> &AtomicU64 {
        self.0.word(HOLDER)
    }

    fn changes(&self) -> &AtomicU64 {
        self.0.word(CHANGES)
    }

    /// Whether the stream is unchanged since the caller's count of changes was `seen_changes`.
    pub(super) fn is_current(&self, seen_changes: u64) -> bool {
        self.changes().load(Ordering::Acquire) == seen_changes
    }

    /// Takes the claim, for a caller that may change the stream.
    ///
    /// # Errors
    /// EBUSY when another process has changed it since.
    pub(super) fn hold(&self, seen_changes: u64) -> Result<ClaimGuard<'_>, Errno> {
        let pid = thread::process_id();
        let me = queue::process_word(pid);
        let mut until = None;
        let mut looks = 0;
        while let Err(holder) =
            self.holder().compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire)
        {
            looks += 1;
            if looks % LOOKS == 0 {
                if holder != me && !queue::is_other_process(holder, pid) {
                    // The dead process may have changed the stream, and not counted it yet.
                    self.changes().fetch_add(1, Ordering::AcqRel);
                    let _ = self.holder().compare_exchange(
                        holder,
                        0,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    return Err(Errno::BUSY);
                }
                if until.get_or_insert_with(|| Deadline::after(Some(CLAIM_LIMIT))).is_over() {
                    return Err(Errno::BUSY);
                }
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        let held = ClaimGuard { claim: self, me };
        if self.is_current(seen_changes) { Ok(held) } else { Err(Errno::BUSY) }
    }
}

impl ClaimGuard<'_> {
    /// Counts a change to the stream. Returns the number of changes.
    pub(super) fn changed(&self) -> u64 {
        self.claim.changes().fetch_add(1, Ordering::AcqRel) + 1
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        let _ =
            self.claim.holder().compare_exchange(self.me, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_receives_first_goes_on_whatever_forks_come_later() {
        let claim = Claim::new().unwrap();
        let (mut parent, older, mut younger) = (0, 0, 0);
        // The older child only looks.
        drop(claim.hold(older).unwrap());
        assert!(claim.hold(parent).is_ok());
        parent = claim.hold(parent).unwrap().changed();
        assert_eq!(claim.hold(older).map(drop), Err(Errno::BUSY));
        younger += parent;
        assert!(!claim.is_current(older) && claim.is_current(younger) && claim.is_current(parent));
        assert_eq!(
            claim.hold(older).map(drop),
            Err(Errno::BUSY),
            "a second fork makes no copy newer"
        );
        younger = claim.hold(younger).unwrap().changed();
        assert_eq!(claim.hold(parent).map(drop), Err(Errno::BUSY));
        assert!(claim.hold(younger).is_ok());
    }

    #[test]
    fn one_who_died_over_a_change_may_have_made_it() {
        let claim = Claim::new().unwrap();
        // No process has this number.
        claim.holder().store(u64::from(u32::MAX >> 1), Ordering::Relaxed);
        assert_eq!(claim.hold(0).map(drop), Err(Errno::BUSY));
        assert!(claim.hold(1).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no namespaces")]
    fn a_holder_in_another_pid_namespace_is_not_taken_for_dead() {
        let claim = Claim::new().unwrap();
        // No process here has this number.
        let here = queue::process_word(u32::MAX >> 1);
        claim.holder().store(here ^ 1 << 62, Ordering::Relaxed);
        assert_eq!(claim.hold(0).map(drop), Err(Errno::BUSY));
        assert!(claim.is_current(0), "its change counts");
    }
}
