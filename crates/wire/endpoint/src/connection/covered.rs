//! Whether the library sees how the program waits for a connection.
//!
//! A program that makes its system calls itself, past the C library, is asleep in the kernel while
//! bytes come by the ring, which wakes nobody there. So a connection comes to the ring only where a
//! wait of the library's has covered it, or where receives and sends sleep themselves.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use seekwire_protocol::Reason;
use seekwire_transport::sys::socket;

use super::state::Connection;

/// The program makes its own waits, of which some may be unseen.
const HAS_OWN_WAITS: u8 = 1;
/// It is in an epoll set, and every set that it is in is waited on by calls that are seen.
const IN_SEEN_SETS: u8 = 2;
/// It is in an epoll set on which no wait was seen.
const IN_UNSEEN_SET: u8 = 4;

/// The waits that were seen.
#[derive(Debug, Default)]
pub(super) struct Covered {
    flags: AtomicU8,
    /// Calls that had moved bytes when poll or select covered it last, and one; 0: never.
    polled: AtomicU32,
    /// Receives in a row that found nothing, since so many calls had moved bytes.
    looks: AtomicU32,
    looks_since: AtomicU32,
}

/// After so many of them, a program that finds nothing does not sleep in between.
const AWAKE: u32 = 3;

impl Connection {
    /// The program waits for the socket itself, and says so by [`Connection::note_poll`] and
    /// [`Connection::note_sets`] where that is seen. Otherwise all waits are this connection's.
    pub fn expect_own_waits(&self) {
        self.covered.flags.fetch_or(HAS_OWN_WAITS, Ordering::Relaxed);
    }

    /// poll or select is about to cover it.
    #[inline]
    pub fn note_poll(&self) {
        let calls = self.gate.calls.load(Ordering::Relaxed);
        self.covered.polled.store(calls.saturating_add(1), Ordering::Relaxed);
    }

    /// A receive has found nothing. A program that looks again and again waits awake, and sees what
    /// comes by the ring.
    pub fn note_look_in_vain(&self) {
        let calls = self.gate.calls.load(Ordering::Relaxed);
        if self.covered.looks_since.swap(calls, Ordering::Relaxed) != calls {
            self.covered.looks.store(0, Ordering::Relaxed);
        }
        if self.covered.looks.fetch_add(1, Ordering::Relaxed) + 1 >= AWAKE {
            self.note_poll();
        }
    }

    /// The calls are counted anew, in the child of a fork.
    pub(super) fn forget_polls(&self) {
        self.covered.polled.store(0, Ordering::Relaxed);
    }

    /// It is in epoll sets now: for each, whether a wait on it was seen.
    pub fn note_sets(&self, sets: impl Iterator<Item = bool>) {
        let flags = sets
            .fold(0, |flags, is_seen| flags | if is_seen { IN_SEEN_SETS } else { IN_UNSEEN_SET });
        let before = self.covered.flags.load(Ordering::Relaxed);
        if before & IN_SEEN_SETS != 0 && before & IN_UNSEEN_SET == 0 {
            // Some programs put a socket into a set for one wait.
            self.note_poll();
        }
        self.covered.flags.store(before & HAS_OWN_WAITS | flags, Ordering::Relaxed);
    }

    /// Whether the program may wait for it unseen.
    #[must_use]
    pub fn may_be_waited_for_unseen(&self) -> bool {
        let flags = self.covered.flags.load(Ordering::Relaxed);
        if flags & HAS_OWN_WAITS == 0 {
            return false;
        }
        if flags & (IN_SEEN_SETS | IN_UNSEEN_SET) != 0 {
            return flags & IN_UNSEEN_SET != 0;
        }
        // A poll at the beginning says nothing of what came later: connect with a time limit has
        // one inside libraries whose other waits are unseen.
        let calls = self.gate.calls.load(Ordering::Relaxed);
        let polled = self.covered.polled.load(Ordering::Relaxed);
        let is_polled = polled > 0 && (polled - 1).saturating_mul(2) >= calls;
        !is_polled && self.settings.is_nonblocking()
    }

    /// A call has said that it would block: if the program is to wait unseen now, the connection
    /// goes back to TCP, with all that is to be received. True if it did.
    pub fn note_would_block(&self) -> bool {
        let leaves = self.is_attached()
            && self.settings.is_nonblocking()
            && self.may_be_waited_for_unseen()
            && self.reason().is_none();
        // Where the peer has not agreed yet, it sends again what it has put on the ring meanwhile.
        leaves && self.fall_back(Reason::UnseenWait).is_ok()
    }

    /// Whether nothing speaks against the ring that another process or the program does unseen.
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
