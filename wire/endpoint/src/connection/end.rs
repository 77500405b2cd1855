//! The end of a connection: shutdown, close, and numbers that no longer exist.

use std::net::Shutdown;
use std::sync::atomic::{Ordering, fence};

use seekwire_transport::Errno;
use seekwire_transport::sys::{Fd, socket, thread};

use super::link::Link;
use super::state::Connection;
use crate::fork::patient_lock;

impl Connection {
    /// shutdown(2) of either direction, on the ring and in the kernel.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        // If TCP has ended with an error, the kernel returns it, and the ring needs nothing.
        if let Some(link) = self.attached() {
            if socket::names(self.fd()) == Err(Errno::NOTCONN) {
                self.note_end(link);
                return socket::shutdown(self.fd(), how);
            }
        }
        if read {
            self.receive_shut.store(true, Ordering::Relaxed);
            if let Some(link) = self.attached() {
                link.ring.queue.set_receive_shut();
            }
        }
        // In a bracket, like a send: when the connection attaches, it asks the kernel whether the
        // stream was ended.
        let bracket = self.enter_plain();
        let mut now = Some(how);
        if let Some(link) = self.attached() {
            if write {
                link.ring.queue.begin_last_look();
                self.attend();
                link.shut();
                // The end of the stream follows the bytes still to be retransmitted.
                if link.ring.queue.to_retransmit() > 0 {
                    now = read.then_some(Shutdown::Read);
                }
                // Wakes the waiters for room. A waiter that has not armed yet sees the shutdown
                // when it looks once more after arming. Waiters for bytes are not woken, as in the
                // kernel: a signal that came while they were awake would not end their call.
                fence(Ordering::SeqCst);
                let queue = &link.ring.queue;
                if queue.has_writers() || queue.to_retransmit() > 0 || !queue.tx_on_ring() {
                    link.ring.doorbell.ring();
                }
            }
            if read {
                link.ring.doorbell.ring();
            }
        }
        let result = now.map_or(Ok(()), |how| socket::shutdown(self.fd(), how));
        if let Some(link) = self.attached() {
            let q = &link.ring.queue;
            // TCP resets a connection when bytes arrive at an end that is shut down both ways. So
            // the peer is asked to send by TCP from now on, but not while TCP has yet to bring
            // retransmitted bytes.
            if result.is_ok() && self.is_receive_shut() && q.is_shut() && q.to_retransmit() == 0 {
                q.set_refuses();
                link.ring.peer_doorbell.ring();
            }
        }
        drop(bracket);
        result
    }

    /// The caller is about to close its last descriptor of the socket in this process. A call that
    /// sleeps on it goes on, and the connection ends with that.
    pub fn close(&self) {
        if !self.leave_to_holders() {
            self.end();
        }
    }

    /// The end of the connection in this process.
    pub(super) fn end(&self) {
        if let Some(slot) = self.slot.get() {
            crate::rendezvous::forget(slot.slot());
        }
        if let Some(holders) = self.holders.get() {
            holders.remove(thread::process_id());
        }
        if self.attached().is_none() && self.is_sole_holder() {
            self.close_seeking();
            self.leave_meeting();
        }
        if let Some(link) = self.attached() {
            // Others may hold it and never make a call.
            self.finish_retransmission();
            self.remove_successors(link);
            if link.ring.queue.remove_holder(thread::process_id()) {
                self.close_seeking();
                self.begin_last_look();
                self.finish_retransmission();
                link.close(self.fd(), self.has_rest());
                link.leave_entry();
            }
        }
    }

    /// Gives back what the connection has prepared for a link: at once, or if another thread uses
    /// it for long, with the last call that does.
    fn leave_meeting(&self) {
        let mut negotiation = patient_lock(&self.negotiation);
        if let Some(negotiation) = negotiation.as_mut().and_then(|it| it.as_mut()) {
            negotiation.over = true;
            negotiation.meeting = None;
            negotiation.granted = None;
        }
        let Some(far) = self.far.get() else { return };
        far.leave();
        if negotiation.is_some() && self.link.get().is_none() {
            far.entry.clear();
        }
    }

    /// The last descriptor of the socket in this process was closed unseen: the number now belongs
    /// to another file, or to none. Makes no system call on it.
    pub fn was_closed(&self) {
        if let Some(slot) = self.slot.get() {
            crate::rendezvous::forget(slot.slot());
        }
        if let Some(holders) = self.holders.get() {
            holders.remove(thread::process_id());
        }
        if let Some(link) = self.attached() {
            if link.ring.queue.remove_holder(thread::process_id()) {
                link.ring.queue.set_closed();
                link.ring.peer_doorbell.ring();
                link.leave_entry();
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.get() {
            crate::rendezvous::forget(slot.slot());
        }
        if let Some(far) = self.far.get() {
            crate::across::forget(far.entry.nonce());
            crate::across::leave_link(&far.link);
        }
    }
}

impl Link {
    /// Ends the sending direction on the ring; the kernel's shutdown follows.
    pub(super) fn shut(&self) {
        match self.ring.sending() {
            Some(tx) => {
                // If the record does not fit, the end of TCP tells the peer.
                let _ = tx.shutdown();
                tx.calls().peer();
            }
            None => {
                self.ring.queue.set_shut();
                self.ring.peer_doorbell.ring();
            }
        }
    }

    /// The last holder closes. Unread data must reach the peer as a reset, as with TCP (RFC 1122,
    /// 4.2.2.13), and so must a linger time of zero and bytes lost on the way. Otherwise the stream
    /// ends in order, unless TCP has ended before: then the peer's kernel knows how.
    fn close(&self, fd: Fd, has_rest: bool) {
        let unread =
            has_rest || self.ring.queue.unread() > 0 || socket::unread(fd).unwrap_or(0) > 0;
        // The peer can no longer take the bytes left for it: its stream has no end.
        let is_lost = self.is_across() && self.ring.queue.is_untaken() && !self.is_intact();
        if unread || is_lost || socket::resets_on_close(fd) {
            socket::reset_on_close(fd);
        } else if !socket::ends(fd).both {
            if let Some(tx) = self.ring.sending() {
                let _ = tx.shutdown();
            }
        }
        self.ring.queue.set_closed();
        self.ring.peer_doorbell.ring();
    }
}
