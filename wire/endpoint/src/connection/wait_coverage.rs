//! Whether the library sees how the program waits for a connection.
//!
//! A program that makes its own system calls, past the C library, is asleep in the kernel while
//! bytes come by the ring, which wakes nobody there. So a connection comes to the ring only if a
//! wait that the library saw has covered it, or if its receives and sends themselves sleep.

use std::sync::atomic::Ordering;

use seekwire_protocol::Reason;
use seekwire_transport::sys::socket;

use super::state::Connection;

/// The program makes its own waits, some of which may be unseen.
const HAS_OWN_WAITS: u8 = 1;
/// It is in an epoll set, and waits were seen on every set that it is in.
const IN_SEEN_SETS: u8 = 2;
/// It is in an epoll set on which no wait was seen.
const IN_UNSEEN_SET: u8 = 4;

/// After this many of them, a program that finds nothing is taken not to sleep in between.
const AWAKE: u32 = 3;

impl Connection {
    /// The program waits for the socket itself, and seen waits are reported through
    /// [`Connection::note_poll`] and [`Connection::note_sets`]. Without this, all waits are this
    /// connection's.
    pub fn expect_own_waits(&self) {
        self.wait_coverage.flags.fetch_or(HAS_OWN_WAITS, Ordering::Relaxed);
    }

    /// Notes that poll or select is about to cover it.
    #[inline]
    pub fn note_poll(&self) {
        let calls = self.gate.calls.load(Ordering::Relaxed);
        self.wait_coverage.polled.store(calls.saturating_add(1), Ordering::Relaxed);
    }

    /// Notes that a receive has found nothing. A program that looks again and again spins, and sees
    /// bytes that come by the ring.
    pub fn note_empty_receive(&self) {
        let calls = self.gate.calls.load(Ordering::Relaxed);
        if self.wait_coverage.looks_since.swap(calls, Ordering::Relaxed) != calls {
            self.wait_coverage.looks.store(0, Ordering::Relaxed);
        }
        if self.wait_coverage.looks.fetch_add(1, Ordering::Relaxed) + 1 >= AWAKE {
            self.note_poll();
        }
    }

    /// Restarts the count of calls, in the child of a fork.
    pub(super) fn forget_polls(&self) {
        self.wait_coverage.polled.store(0, Ordering::Relaxed);
    }

    /// Notes that it is in epoll sets now: for each, whether a wait on it was seen.
    pub fn note_sets(&self, sets: impl Iterator<Item = bool>) {
        let flags = sets
            .fold(0, |flags, is_seen| flags | if is_seen { IN_SEEN_SETS } else { IN_UNSEEN_SET });
        let before = self.wait_coverage.flags.load(Ordering::Relaxed);
        if before & IN_SEEN_SETS != 0 && before & IN_UNSEEN_SET == 0 {
            // Some programs put a socket into a set for one wait.
            self.note_poll();
        }
        self.wait_coverage.flags.store(before & HAS_OWN_WAITS | flags, Ordering::Relaxed);
    }

    /// Whether the program may wait for it unseen.
    #[must_use]
    pub fn may_be_waited_for_unseen(&self) -> bool {
        let flags = self.wait_coverage.flags.load(Ordering::Relaxed);
        if flags & HAS_OWN_WAITS == 0 {
            return false;
        }
        if flags & (IN_SEEN_SETS | IN_UNSEEN_SET) != 0 {
            return flags & IN_UNSEEN_SET != 0;
        }
        // A poll at the beginning means nothing for later waits: libraries implement connect with a
        // timeout by one, and their other waits are unseen.
        let calls = self.gate.calls.load(Ordering::Relaxed);
        let polled = self.wait_coverage.polled.load(Ordering::Relaxed);
        let is_polled = polled > 0 && (polled - 1).saturating_mul(2) >= calls;
        !is_polled && self.settings.is_nonblocking()
    }

    /// Notes that a call has returned EAGAIN: if the program may wait unseen now, the connection
    /// goes back to TCP, with all unreceived bytes. True if it did.
    pub fn note_would_block(&self) -> bool {
        let leaves = self.is_attached()
            && self.settings.is_nonblocking()
            && self.may_be_waited_for_unseen()
            && self.reason().is_none();
        // If the peer has not agreed yet, it retransmits the bytes that it has put on the ring
        // meanwhile.
        leaves && self.fall_back(Reason::UnseenWait).is_ok()
    }

    /// Whether no unseen action of another process or of the program forbids the ring.
    pub(super) fn may_join(&self) -> Result<(), Reason> {
        if !self.is_sole_holder() {
            return Err(Reason::Shared);
        }
        if let Ok(nonblocking) = socket::is_nonblocking(self.fd()) {
            self.settings.set_nonblocking(nonblocking);
        }
        if self.may_be_waited_for_unseen() { Err(Reason::UnseenWait) } else { Ok(()) }
    }
}
