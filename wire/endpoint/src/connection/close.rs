//! The end of a connection: shutdown, close, and numbers that no longer exist.

use std::net::Shutdown;
use std::sync::atomic::{Ordering, fence};

use seekwire_protocol::Reason;
use seekwire_transport::Errno;
use seekwire_transport::layout::given;
use seekwire_transport::sys::{Fd, socket, thread};

use super::data_path::DataPath;
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
        if let Some(data_path) = self.attached() {
            if socket::names(self.fd()) == Err(Errno::NOTCONN) {
                self.note_end(data_path);
                return socket::shutdown(self.fd(), how);
            }
        }
        if read {
            self.receive_shut.store(true, Ordering::Relaxed);
            if let Some(data_path) = self.attached() {
                data_path.ring.queue.set_receive_shut();
            }
        }
        // In a bracket, like a send: when the connection attaches, it asks the kernel whether the
        // stream was ended.
        let bracket = self.enter_plain();
        let mut now = Some(how);
        if let Some(data_path) = self.attached() {
            if write {
                data_path.ring.queue.begin_last_look();
                self.service_peer();
                data_path.shut();
                // The end of the stream follows the bytes still to be retransmitted.
                if data_path.ring.queue.to_retransmit() > 0 {
                    now = read.then_some(Shutdown::Read);
                }
                // Wakes the waiters for room. A waiter that has not armed yet sees the shutdown
                // when it looks once more after arming. Waiters for bytes are not woken, as in the
                // kernel: a signal that came while they were awake would not end their call.
                fence(Ordering::SeqCst);
                let queue = &data_path.ring.queue;
                if queue.has_writers() || queue.to_retransmit() > 0 || !queue.tx_on_ring() {
                    data_path.ring.doorbell.ring();
                }
            }
            if read {
                data_path.ring.doorbell.ring();
            }
        }
        let result = now.map_or(Ok(()), |how| socket::shutdown(self.fd(), how));
        if let Some(data_path) = self.attached() {
            let q = &data_path.ring.queue;
            // TCP resets a connection when bytes arrive at an end that is shut down both ways. So
            // the peer is asked to send by TCP from now on, but not while TCP has yet to bring
            // retransmitted bytes.
            if result.is_ok() && self.is_receive_shut() && q.is_shut() && q.to_retransmit() == 0 {
                q.set_refuses();
                data_path.ring.peer_doorbell.ring();
            }
        }
        drop(bracket);
        result
    }

    /// The caller is about to close its last descriptor of the socket in this process. A call that
    /// sleeps on it goes on, and the connection ends with that.
    pub fn close(&self) {
        if self.is_given() {
            self.close_beside();
        } else {
            self.close_alone();
        }
    }

    fn close_alone(&self) {
        if !self.leave_to_holders() {
            self.end();
        }
    }

    /// As [`Self::close`], where another program has got the socket as well. It ends with this number
    /// if something is unread, nobody has it any more, this process included, and it is not on its
    /// way to somebody in a message, where nobody can see it.
    pub fn close_beside(&self) {
        let Some(data_path) = self.attached() else {
            self.forget_number();
            return;
        };
        if data_path.ring.queue.given() & given::IN_MESSAGE == 0
            && self.has_unread(data_path)
            && !self.is_open_here_too()
            && !self.is_open_elsewhere()
        {
            self.close_alone();
        } else {
            self.finish_retransmission();
        }
    }

    /// Notes that another program gets the socket, for all processes that share the connection.
    /// Returns true if one of them did so before.
    pub fn note_given(&self, why: Reason) -> bool {
        let how = match why {
            Reason::FdPassed => given::TO_PROGRAM | given::IN_MESSAGE,
            _ => given::TO_PROGRAM,
        };
        self.attached().is_some_and(|data_path| data_path.ring.queue.note_given(how) != 0)
    }

    /// Notes that no other program gets it after all.
    pub fn note_kept(&self) {
        if let Some(data_path) = self.attached() {
            data_path.ring.queue.note_kept(given::TO_PROGRAM);
        }
    }

    /// Whether this process or one that shares the connection has given the socket to another
    /// program, which goes on with it after they have closed it.
    pub(super) fn is_given(&self) -> bool {
        self.attached()
            .is_some_and(|data_path| data_path.ring.queue.given() & given::TO_PROGRAM != 0)
    }

    /// Whether something was not received that the kernel does not know of.
    pub(super) fn has_unread(&self, data_path: &DataPath) -> bool {
        let q = &data_path.ring.queue;
        self.has_spill() || q.unread() > 0 || q.peer_retransmits()
    }

    /// This process has no number for the socket any more.
    fn forget_number(&self) {
        if let Some(slot) = self.slot.get() {
            crate::rendezvous::forget(slot.slot());
        }
        if let Some(holders) = self.holders.get() {
            holders.remove(thread::process_id());
        }
    }

    /// The end of the connection in this process.
    pub(super) fn end(&self) {
        // Looked at before it leaves the holders, who count no more once the last one has left.
        let was_alone = self.is_sole_holder();
        self.forget_number();
        if self.attached().is_none() && was_alone {
            self.close_seeking();
            self.leave_negotiation();
        }
        if let Some(data_path) = self.attached() {
            // Others may hold it and never make a call.
            self.finish_retransmission();
            if self.is_only_holder(data_path) {
                self.close_seeking();
                self.begin_last_look();
                self.finish_retransmission();
                data_path.close(self.fd(), self.has_unread(data_path));
                data_path.leave_entry();
            }
            // Last: a peer whose request is being served must not take this end for dead.
            data_path.ring.queue.remove_holder(thread::process_id());
        }
    }

    /// Gives back what the connection has prepared for a link: at once, or if another thread uses
    /// it for long, with the last call that does.
    fn leave_negotiation(&self) {
        let mut negotiation = patient_lock(&self.negotiation);
        if let Some(negotiation) = negotiation.as_mut().and_then(|it| it.as_mut()) {
            negotiation.over = true;
            negotiation.over_link = None;
            negotiation.granted = None;
        }
        let Some(far) = self.far.get() else { return };
        far.leave();
        if negotiation.is_some() && self.data_path.get().is_none() {
            far.entry.clear();
        }
    }

    /// The last number of the socket in this process goes to something that the library does not
    /// follow, such as a stream of the C library.
    pub fn leave_file(&self) {
        if let (None, Some(holders)) = (self.attached(), self.holders.get()) {
            holders.leave_file(thread::process_id());
        }
    }

    /// The last descriptor of the socket in this process was closed unseen: the number now belongs
    /// to another file, or to none. Makes no system call on it.
    pub fn was_closed(&self) {
        self.forget_number();
        if let Some(data_path) = self.attached() {
            // A program that has got the socket goes on with it.
            if data_path.ring.queue.remove_holder(thread::process_id()) && !self.is_given() {
                data_path.ring.queue.set_closed();
                data_path.ring.peer_doorbell.ring();
                data_path.leave_entry();
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
            crate::machine_links::forget(far.entry.nonce());
            crate::machine_links::leave_link(&far.link);
        }
    }
}

impl DataPath {
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
    fn close(&self, fd: Fd, has_unread: bool) {
        let unread = has_unread || socket::unread(fd).unwrap_or(0) > 0;
        // The peer can no longer take the bytes left for it: its stream has no end.
        let is_lost = self.is_remote() && self.ring.queue.has_undelivered() && !self.is_intact();
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
