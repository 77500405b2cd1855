//! The plain phase: the kernel's socket alone, at the price of two atomic additions per call.

use std::sync::atomic::Ordering;

use super::gate::{CALLER, RECEIVER, Shut};
use super::state::Connection;
use crate::fork;
use crate::registry::RegistrySlot;

/// A bracket around system calls on the socket; left when dropped.
#[derive(Debug)]
pub struct Plain<'c> {
    connection: &'c Connection,
    who: u32,
}

impl Connection {
    /// Enters the bracket that a system call on a plain socket needs if it moves bytes, or sleeps
    /// until some can be moved. `None` once the connection is attached. May be held by several
    /// threads, and while asleep; the connection is not upgraded meanwhile.
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
            Err(Shut { is_awaited }) => {
                if is_awaited {
                    self.catch_up();
                }
                None
            }
        }
    }

    /// As [`Connection::enter_plain`] if nothing else is due; otherwise also `None`. Makes no
    /// system call and cannot fail.
    #[inline]
    #[must_use]
    pub fn enter_plain_at_once(&self) -> Option<Plain<'_>> {
        if self.gate.is_attached() || self.is_due() {
            return None;
        }
        self.gate.enter(CALLER).ok().map(|()| Plain { connection: self, who: CALLER })
    }

    /// As [`Connection::enter_plain_at_once`], for a call that receives. After `None`, call
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
        // Handles signals that came while the system call slept: answers must not pile up until the
        // next call.
        if self.is_signalled() {
            self.negotiate();
        }
    }

    #[inline]
    fn is_signalled(&self) -> bool {
        self.slot.get().is_some_and(RegistrySlot::is_signalled)
            || self.far.get().is_some_and(|far| far.entry.is_signalled())
    }

    /// Whether there is a reason to negotiate. Checked before every call, so the usual answer costs
    /// two loads.
    #[inline]
    fn is_due(&self) -> bool {
        let threshold = self.first_look();
        let traffic = self.gate.traffic(threshold, crate::config::Config::get().threshold_bytes);
        traffic >= threshold
            && (traffic >= self.gate.next_look.load(Ordering::Relaxed) || self.is_signalled())
    }

    /// The accepting side registers before the connecting side looks for it.
    fn first_look(&self) -> u32 {
        let threshold = crate::config::Config::get().threshold;
        match self.role {
            seekwire_protocol::Role::Accepted => threshold.div_ceil(2),
            seekwire_protocol::Role::Connected => threshold,
        }
    }

    /// Makes the traffic so far count as enough to look for the peer now.
    pub fn hurry(&self) {
        self.gate.hurry(crate::config::Config::get().threshold);
        drop(self.enter_plain());
    }

    /// Leaves the plain phase if both ends have agreed and no caller is inside.
    pub(super) fn try_attach(&self) {
        if !self.gate.may_attach() || self.is_closed() {
            return;
        }
        let Some(data_path) = self.data_path.get() else { return };
        // A forked process finds either all of it done, or nothing.
        let _inside = fork::enter();
        // Other threads use the ring as soon as the gate allows: until the ring knows the position
        // of TCP, they wait for its halves, which are locked here before. A signal handler that
        // interrupted this code leaves it to that.
        let (Ok(rx), Ok(tx)) = (self.rx(data_path), self.tx(data_path)) else { return };
        self.read_settings();
        self.share_messages(data_path);
        if self.gate.try_attach() {
            self.begin_attached(data_path);
            drop((rx, tx));
            self.watch_ring();
            // The peer may be asleep with something to send.
            data_path.ring.peer_doorbell.ring();
        }
    }
}

impl Plain<'_> {
    /// Notes that the system call received this many bytes.
    #[inline]
    pub fn received(&self, n: usize) {
        let before = self.connection.gate.received.fetch_add(n as u64, Ordering::Relaxed);
        self.count();
        if let Some(slot) = self.slot() {
            slot.show_received(before + n as u64, 0);
            self.connection.show_waiting();
        }
    }

    /// Notes that the system call sent this many bytes.
    #[inline]
    pub fn sent(&self, n: usize) {
        let before = self.connection.gate.sent.fetch_add(n as u64, Ordering::Relaxed);
        self.count();
        if let Some(slot) = self.slot() {
            slot.show_sent(before + n as u64, 0);
            self.connection.show_waiting();
        }
    }

    #[inline]
    fn slot(&self) -> Option<&RegistrySlot> {
        let shown = self.connection.gate.shown.load(Ordering::Relaxed);
        self.connection.slot.get().filter(|_| shown)
    }

    #[inline]
    fn count(&self) {
        self.connection.gate.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Plain<'_> {
    /// Leaves the bracket as a drop does, but leaves due work to the caller: if true, it has to
    /// call [`Connection::catch_up`]. Makes no system call and cannot fail.
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
