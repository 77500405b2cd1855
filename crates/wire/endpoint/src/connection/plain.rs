//! The plain phase: the kernel's socket alone, at the price of two atomic additions per call.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::Connection;
use crate::fork;
use crate::registry::Slot;

/// Phase and number of callers inside a bracket, in one word so that the change of phase and the
/// last caller's leaving cannot miss each other; and what went by meanwhile.
#[derive(Debug, Default)]
pub(super) struct Gate {
    word: AtomicU32,
    calls: AtomicU32,
    /// Number of calls at which to look for a peer (again); 0 before the first.
    next_look: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
    /// This process has an entry in the registry that tells of these bytes.
    shown: AtomicBool,
}

const ATTACHED: u32 = 1 << 31;
const ATTACHING: u32 = 1 << 30;
/// Bytes are received out of order: no receiver may enter.
const SEEKING: u32 = 1 << 29;
/// One caller inside, and one that receives.
const CALLER: u32 = 1;
const RECEIVER: u32 = 1 << 15 | CALLER;
const RECEIVERS: u32 = (SEEKING - 1) & !((1 << 15) - 1);

impl Gate {
    #[inline]
    pub(super) fn is_attached(&self) -> bool {
        self.word.load(Ordering::Acquire) & ATTACHED != 0
    }

    /// Enters, unless the gate is shut to this caller. The error says whether somebody waited for
    /// the gate to be empty, and the caller was the last one to leave it.
    #[inline]
    fn enter(&self, who: u32) -> Result<(), bool> {
        let shut = if who == RECEIVER { ATTACHED | SEEKING } else { ATTACHED };
        if self.word.fetch_add(who, Ordering::Acquire) & shut == 0 {
            return Ok(());
        }
        Err(self.leave(who))
    }

    /// Leaves. True if somebody waited for that: the connection, which can attach once nobody is
    /// inside, or a seek, which can begin once no receiver is.
    #[inline]
    fn leave(&self, who: u32) -> bool {
        let before = self.word.fetch_sub(who, Ordering::AcqRel);
        before & !SEEKING == ATTACHING | who
            || (who == RECEIVER
                && before & SEEKING != 0
                && before & RECEIVERS == RECEIVER & RECEIVERS)
    }

    /// Whether receives go through the engine.
    #[inline]
    fn is_seeking(&self) -> bool {
        self.word.load(Ordering::Acquire) & SEEKING != 0
    }

    /// From now on no receiver enters.
    pub(super) fn close_to_receivers(&self) {
        if !self.is_seeking() {
            self.word.fetch_or(SEEKING, Ordering::AcqRel);
        }
    }

    /// Whether one that entered before is still inside.
    pub(super) fn has_receivers(&self) -> bool {
        self.word.load(Ordering::Acquire) & RECEIVERS != 0
    }

    /// The link is there: attach as soon as nobody is inside.
    pub(super) fn attach(&self) {
        self.word.fetch_or(ATTACHING, Ordering::AcqRel);
    }

    /// Whether the link is there and nobody is inside: nothing is left to do but to attach.
    fn may_attach(&self) -> bool {
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

    /// Calls so far, with a large number of bytes counting as enough calls for everything.
    fn traffic(&self, threshold: u32, bytes: u64) -> u32 {
        let calls = self.calls.load(Ordering::Relaxed);
        let (sent, received) = self.bytes();
        if sent + received >= bytes { calls.max(threshold) } else { calls }
    }

    fn hurry(&self, threshold: u32) {
        self.calls.fetch_max(threshold, Ordering::Relaxed);
        // u32::MAX: an answer is awaited, or nothing is to be had any more.
        let next = self.next_look.load(Ordering::Relaxed);
        if next != u32::MAX {
            self.next_look.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn look_again_after(&self, more: u32) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.next_look.store(calls.saturating_add(more), Ordering::Relaxed);
    }

    /// The registry is told of every byte from now on.
    pub(super) fn show(&self) {
        self.shown.store(true, Ordering::Relaxed);
    }

    /// The caller's number of calls begins anew: in a child, which is another process to its peers.
    pub(super) fn begin_anew(&self) {
        self.shown.store(false, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.next_look.store(0, Ordering::Relaxed);
    }
}

/// A bracket around system calls on the socket; left when dropped.
#[derive(Debug)]
pub struct Plain<'c> {
    connection: &'c Connection,
    who: u32,
}

impl Connection {
    /// Enters the bracket that every system call on a plain socket needs that moves bytes, or
    /// sleeps until some can be moved. `None` once the connection is attached. May be held by
    /// several threads, and while asleep; the connection is not upgraded meanwhile.
    #[inline]
    #[must_use]
    pub fn enter_plain(&self) -> Option<Plain<'_>> {
        if self.gate.is_attached() {
            return None;
        }
        if self.is_due() {
            self.negotiate();
        }
        self.enter_as(CALLER)
    }

    /// As [`Connection::enter_plain`], for a call that receives; `None` also once bytes are
    /// received out of order.
    #[inline]
    #[must_use]
    pub fn enter_plain_to_receive(&self) -> Option<Plain<'_>> {
        if self.gate.is_attached() {
            return None;
        }
        if self.is_due() {
            self.negotiate();
        }
        self.enter_as(RECEIVER)
    }

    #[inline]
    fn enter_as(&self, who: u32) -> Option<Plain<'_>> {
        match self.gate.enter(who) {
            Ok(()) => Some(Plain { connection: self, who }),
            Err(is_awaited) => {
                if is_awaited {
                    self.catch_up();
                }
                None
            }
        }
    }

    /// As [`Connection::enter_plain`] where there is nothing else to do; `None` also where there
    /// is. Makes no system call and cannot fail.
    #[inline]
    #[must_use]
    pub fn enter_plain_at_once(&self) -> Option<Plain<'_>> {
        if self.gate.is_attached() || self.is_due() {
            return None;
        }
        self.gate.enter(CALLER).ok().map(|()| Plain { connection: self, who: CALLER })
    }

    /// As [`Connection::enter_plain_at_once`], for a call that receives. After `None` ask
    /// [`Connection::enter_plain_to_receive`], which also does what became due.
    #[inline]
    #[must_use]
    pub fn enter_plain_to_receive_at_once(&self) -> Option<Plain<'_>> {
        if self.gate.is_attached() || self.is_due() {
            return None;
        }
        self.gate.enter(RECEIVER).ok().map(|()| Plain { connection: self, who: RECEIVER })
    }

    /// Does what became due while a bracket was held that [`Plain::leave`] left.
    #[cold]
    pub fn catch_up(&self) {
        self.try_attach();
        if !self.gate.has_receivers() {
            self.open_door();
        }
        // What came while the system call slept: answers must not pile up until the next call.
        if self.is_signalled() {
            self.negotiate();
        }
    }

    #[inline]
    fn is_signalled(&self) -> bool {
        self.slot.get().is_some_and(Slot::is_signalled)
    }

    /// Whether there is a reason to negotiate. Looked at before every call, so the usual answer is
    /// two loads away.
    #[inline]
    fn is_due(&self) -> bool {
        let threshold = self.first_look();
        let traffic = self.gate.traffic(threshold, crate::Config::get().threshold_bytes);
        traffic >= threshold
            && (traffic >= self.gate.next_look.load(Ordering::Relaxed) || self.is_signalled())
    }

    /// The accepting side registers before the connecting side looks for it.
    fn first_look(&self) -> u32 {
        let threshold = crate::Config::get().threshold;
        match self.role {
            seekwire_protocol::Role::Accepted => threshold.div_ceil(2),
            seekwire_protocol::Role::Connected => threshold,
        }
    }

    /// Counts as traffic enough to look for the peer now.
    pub fn hurry(&self) {
        self.gate.hurry(crate::Config::get().threshold);
        drop(self.enter_plain());
    }

    /// Leaves the plain phase if both ends have agreed and no caller is inside.
    pub(super) fn try_attach(&self) {
        if !self.gate.may_attach() || self.is_closed() {
            return;
        }
        let Some(link) = self.link.get() else { return };
        // A process that is forked finds all of it done, or nothing.
        let _inside = fork::enter();
        // Others use the ring as soon as the gate says so: until the ring knows where TCP stands
        // they wait for its halves, which are taken before. A signal handler that interrupted this
        // leaves it to whom it interrupted.
        let (Ok(rx), Ok(tx)) = (self.rx(link), self.tx(link)) else { return };
        self.read_settings();
        if self.gate.try_attach() {
            self.begin_attached(link);
            drop((rx, tx));
            self.watch_ring();
            // The peer may be asleep with something to send.
            link.ring.peer_doorbell.ring();
        }
    }
}

impl Plain<'_> {
    /// The system call received this many bytes.
    #[inline]
    pub fn received(&self, n: usize) {
        let before = self.connection.gate.received.fetch_add(n as u64, Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            slot.show_received(before + n as u64, 0);
        }
        self.count();
    }

    /// The system call sent this many bytes.
    #[inline]
    pub fn sent(&self, n: usize) {
        let before = self.connection.gate.sent.fetch_add(n as u64, Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            slot.show_sent(before + n as u64, 0);
        }
        self.count();
    }

    #[inline]
    fn slot(&self) -> Option<&Slot> {
        let shown = self.connection.gate.shown.load(Ordering::Relaxed);
        self.connection.slot.get().filter(|_| shown)
    }

    #[inline]
    fn count(&self) {
        self.connection.gate.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Plain<'_> {
    /// Leaves the bracket as a drop does, but leaves what is due then to the caller: if true,
    /// [`Connection::catch_up`] is to be called. Makes no system call and cannot fail.
    #[inline]
    #[must_use]
    pub fn leave(self) -> bool {
        let (connection, who) = (self.connection, self.who);
        std::mem::forget(self);
        connection.gate.leave(who) || connection.is_signalled()
    }
}

impl Drop for Plain<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.connection.gate.leave(self.who) || self.connection.is_signalled() {
            self.connection.catch_up();
        }
    }
}
