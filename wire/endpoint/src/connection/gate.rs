//! The gate between the kernel's socket and the ring: it counts calls that are inside the kernel
//! and do not know about the ring.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Phase and number of callers inside a bracket, in one word so that the change of phase and the
/// last caller's leaving cannot miss each other; and the bytes that they moved.
#[derive(Debug, Default)]
pub(super) struct Gate {
    pub(super) word: AtomicU32,
    pub(super) calls: AtomicU32,
    /// Number of calls at which to look for a peer (again); 0 before the first.
    pub(super) next_look: AtomicU32,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// This process has a registry entry, which counts these bytes.
    pub(super) shown: AtomicBool,
}

const ATTACHED: u32 = 1 << 31;
const ATTACHING: u32 = 1 << 30;
/// Bytes are received out of order: no receiver may enter.
const SEEKING: u32 = 1 << 29;
/// One caller inside, and one that receives.
pub(super) const CALLER: u32 = 1;
pub(super) const RECEIVER: u32 = 1 << 15 | CALLER;
const RECEIVERS: u32 = (SEEKING - 1) & !((1 << 15) - 1);

/// The gate is shut to a caller.
pub(super) struct Shut {
    /// Another thread waited for the gate to be empty, and the caller was the last one to leave it.
    pub(super) is_awaited: bool,
}

impl Gate {
    #[inline]
    pub(super) fn is_attached(&self) -> bool {
        self.word.load(Ordering::Acquire) & ATTACHED != 0
    }

    /// Enters, unless the gate is shut to this caller.
    #[inline]
    pub(super) fn enter(&self, who: u32) -> Result<(), Shut> {
        let shut = if who == RECEIVER { ATTACHED | SEEKING } else { ATTACHED };
        if self.word.fetch_add(who, Ordering::Acquire) & shut == 0 {
            return Ok(());
        }
        Err(Shut { is_awaited: self.leave(who) })
    }

    /// Leaves. True if something waited for that: the connection, which can attach once nobody is
    /// inside, or a seek, which can begin once no receiver is.
    #[inline]
    pub(super) fn leave(&self, who: u32) -> bool {
        let before = self.word.fetch_sub(who, Ordering::AcqRel);
        before & !SEEKING == ATTACHING | who
            || (who == RECEIVER
                && before & SEEKING != 0
                && before & RECEIVERS == RECEIVER & RECEIVERS)
    }

    /// Whether receives go through the engine.
    #[inline]
    pub(super) fn is_seeking(&self) -> bool {
        self.word.load(Ordering::Acquire) & SEEKING != 0
    }

    /// Keeps receivers out from now on.
    pub(super) fn close_to_receivers(&self) {
        if !self.is_seeking() {
            self.word.fetch_or(SEEKING, Ordering::AcqRel);
        }
    }

    /// Whether a receiver that entered before is still inside.
    pub(super) fn has_receivers(&self) -> bool {
        self.word.load(Ordering::Acquire) & RECEIVERS != 0
    }

    /// The data path exists: attach as soon as nobody is inside.
    pub(super) fn attach(&self) {
        self.word.fetch_or(ATTACHING, Ordering::AcqRel);
    }

    /// Whether the data path exists and nobody is inside: only attaching is left.
    pub(super) fn may_attach(&self) -> bool {
        self.word.load(Ordering::Acquire) & !SEEKING == ATTACHING
    }

    /// Attaches if nobody is inside. True for the one caller that did it.
    pub(super) fn try_attach(&self) -> bool {
        [0, SEEKING].into_iter().any(|seeking| {
            let (from, to) = (ATTACHING | seeking, ATTACHED | seeking);
            self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Bytes sent and received by TCP.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    /// Calls so far; a large number of bytes counts as enough calls for everything.
    pub(super) fn traffic(&self, threshold: u32, bytes: u64) -> u32 {
        let calls = self.calls.load(Ordering::Relaxed);
        let (sent, received) = self.bytes();
        if sent + received >= bytes { calls.max(threshold) } else { calls }
    }

    pub(super) fn hurry(&self, threshold: u32) {
        self.calls.fetch_max(threshold, Ordering::Relaxed);
        // u32::MAX: an answer is awaited, or no peer can be found any more.
        let next = self.next_look.load(Ordering::Relaxed);
        if next != u32::MAX {
            self.next_look.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn look_again_after(&self, more: u32) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.next_look.store(calls.saturating_add(more), Ordering::Relaxed);
    }

    /// From now on every byte is counted in the registry.
    pub(super) fn show(&self) {
        self.shown.store(true, Ordering::Relaxed);
    }

    /// Restarts the caller's count of calls: in a child, which is another process to its peers.
    pub(super) fn begin_anew(&self) {
        self.shown.store(false, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.next_look.store(0, Ordering::Relaxed);
    }
}
