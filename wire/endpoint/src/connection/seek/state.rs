//! The state of a connection that seeks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use seekwire_transport::queue::Violation;
use seekwire_transport::seek::{
    Engine, KernelCursor, KernelWaits, SeekLock, SegmentLoans, Sleepers,
};
use seekwire_transport::sys::doorbell::{Doorbell, Doorbells};

use super::claim::Claim;

/// The additional state of a connection once it seeks.
#[derive(Debug)]
pub(in super::super) struct Seeking {
    /// `None` while a receive that began before the first seek is under way: it takes bytes unseen.
    pub(super) state: SeekLock<Option<SeekState>>,
    /// Rung at the end of the last such receive, for seeks that wait for that.
    pub(super) door: OnceLock<Doorbell>,
    /// Changes when bytes have moved from the ring or the kernel to library memory, where a sleeper
    /// may find those for which it waits.
    pub(super) moves: AtomicU32,
    /// This process, not the peer, has rung the ring's doorbell for the leader, the seek that
    /// sleeps on it, and the leader has not looked again since.
    pub(super) leader_called: AtomicBool,
    /// The next byte is in library memory.
    pub(super) head_drained: AtomicBool,
    /// For poll, select and epoll, once one of them has asked. They watch the set of doorbells: the
    /// ring's, if there is a ring, and the one here, which is rung while the next byte is in
    /// library memory.
    pub(super) watch: OnceLock<(Doorbells, Doorbell)>,
    /// A caller watches for the next byte and may ask only the kernel for it. So a seek may not
    /// raise SO_RCVLOWAT, which would keep the kernel from reporting it.
    pub(super) is_watched: AtomicBool,
    /// Bytes that were taken out of the kernel's socket after the front.
    pub(super) taken_ahead: AtomicU64,
    pub(super) is_ring_watched: AtomicBool,
    /// The claim of the process that goes on, once a fork has happened.
    pub(super) claim: OnceLock<Claim>,
    /// This process has changed the stream since the fork: no other one can go on with it.
    pub(super) is_sole: AtomicBool,
    /// When this process was forked, another thread was changing this state, which is half changed.
    pub(super) is_torn: AtomicBool,
}

#[derive(Debug)]
pub(super) struct SeekState {
    pub(super) engine: Engine,
    pub(super) cursor: KernelCursor,
    pub(super) loans: SegmentLoans,
    pub(super) waits: KernelWaits,
    pub(super) sleepers: Sleepers,
    /// Whether the doorbell in [`Seeking::watch`] is rung.
    pub(super) shown: bool,
    /// Set if the peer has violated the protocol.
    pub(super) violation: Option<Violation>,
    /// The count of changes ([`Claim`]) that this state has seen.
    pub(super) seen_changes: u64,
}

/// The purpose of a call.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Purpose {
    /// It may change the stream. If it does, no other process that has inherited the connection can
    /// go on.
    Receive,
    /// It changes nothing that other processes rely on.
    Look,
}

impl Seeking {
    /// Whether no other process can go on: then bytes that were taken may be discarded at any time.
    pub(super) fn is_ours(&self) -> bool {
        self.claim.get().is_none() || self.is_sole.load(Ordering::Relaxed)
    }

    /// Makes the leader, the seek that sleeps on the ring's doorbell, look again. The caller rings
    /// the doorbell.
    pub(super) fn call_leader(&self, state: &SeekState) {
        self.moves.fetch_add(1, Ordering::Release);
        if state.sleepers.leader(u64::MAX).is_some() {
            self.leader_called.store(true, Ordering::SeqCst);
        }
    }

    pub(in super::super) fn leader_is_called(&self) -> bool {
        self.leader_called.load(Ordering::SeqCst)
    }

    pub(in super::super) fn head_is_drained(&self) -> bool {
        self.head_drained.load(Ordering::SeqCst)
    }
}

impl SeekState {
    /// A summary that changes with the stream.
    pub(super) fn progress(&self) -> (u64, u64, u64, usize) {
        let engine = &self.engine;
        (engine.front(), engine.head(), engine.taken(), self.loans.count())
    }
}
