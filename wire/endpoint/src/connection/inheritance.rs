//! A connection that goes on in other processes: in those that relay it to a program that knows
//! nothing of the ring, and alongside programs that inherit the socket and most likely never use
//! it.

use std::ffi::CStr;
use std::time::Duration;

use seekwire_protocol::Reason;
use seekwire_transport::Errno;
use seekwire_transport::queue::RecallOutcome;
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::spill::SpillFile;
use seekwire_transport::sys::{Fd, process, socket};

use super::data_path::DataPath;
use super::fallback::HandedOver;
use super::state::Connection;

/// How long a peer that has begun a recall may take: it needs microseconds.
const AT_WORK: Duration = Duration::from_millis(2);

impl Connection {
    /// As [`Connection::hand_over`], but does not wait: the request stands, and the peer serves it
    /// in its next call. For a socket that another program inherits, perhaps unknowingly.
    ///
    /// # Errors
    /// EBUSY as for [`Connection::hand_over`]; EAGAIN if bytes lie on the ring and the peer's
    /// direction has ended, so that it does not retransmit them; or if the process `is_ending`
    /// without having closed the socket.
    pub fn hand_over_later(
        &self,
        why: Reason,
        is_ending: impl Fn(u32) -> bool,
    ) -> Result<HandedOver, Errno> {
        self.set_shared();
        let _in_order = self.hand_over_seeking()?;
        let Some(data_path) = self.attached() else {
            self.inherited();
            self.stay_plain(why);
            return self.without_spill();
        };
        self.set_reason(Some(why));
        let handed_over = self.request_tcp_for_all(data_path, is_ending);
        self.expect_others_to_send(data_path, why);
        handed_over.and_then(|handed_over| self.without_spill().map(|_| handed_over))
    }

    /// Asks the peer to retransmit the unread bytes, and does not wait.
    pub(super) fn request_tcp_for_all(
        &self,
        data_path: &DataPath,
        is_ending: impl Fn(u32) -> bool,
    ) -> Result<HandedOver, Errno> {
        let q = &data_path.ring.queue;
        let rx = self.rx(data_path)?;
        let mut answer = Ok(RecallOutcome::Taken);
        if q.refuses() {
            rx.stop_asking();
        } else {
            rx.ask_standing_recall();
            let until = Deadline::after(Some(AT_WORK));
            loop {
                answer = rx.keep_asking();
                if answer != Ok(RecallOutcome::AtWork) || until.is_over() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        drop(rx);
        self.service_peer();
        data_path.ring.peer_doorbell.ring();
        match answer {
            Err(violation) => Err(self.violated(data_path, violation)),
            Ok(RecallOutcome::Taken) => Ok(HandedOver::All),
            Ok(_) if q.unread() == 0 => Ok(HandedOver::All),
            Ok(_)
                if q.peer_is_uncounted()
                    || q.peer_has_looked_last()
                    || socket::ends(self.fd()).peers
                    || !q.peer_has_holder(|pid| !is_ending(pid)) =>
            {
                Err(Errno::AGAIN)
            }
            Ok(_) => Ok(HandedOver::Later),
        }
    }

    /// The processes that hold an attached connection.
    #[must_use]
    pub fn holders(&self) -> Vec<u32> {
        let Some(data_path) = self.attached() else { return Vec::new() };
        self.remove_successors(data_path);
        data_path.ring.queue.all_holders()
    }

    /// Whether one of these processes still holds it.
    #[must_use]
    pub fn is_held_by(&self, pids: &[u32]) -> bool {
        self.attached().is_some_and(|data_path| data_path.ring.queue.is_held_by(pids))
    }

    /// Whether one of these processes has a descriptor of the socket, according to the kernel:
    /// looks through all of theirs. True if that cannot be seen.
    #[must_use]
    pub fn is_open_in(&self, pids: &[u32]) -> bool {
        let Some((_, inode)) = socket::identity(self.fd()) else { return true };
        pids.iter().any(|pid| process::has_socket(*pid, inode).unwrap_or(true))
    }

    /// Whether a process that is not among [`Connection::holders`] may hold an attached connection.
    #[must_use]
    pub fn has_unlisted_holders(&self) -> bool {
        self.attached().is_some_and(|data_path| data_path.ring.queue.has_unlisted_holders())
    }

    /// Whether this process has the socket at a number besides the connection's own: one with which
    /// the next program gets it.
    pub(super) fn is_open_here_too(&self) -> bool {
        socket::identity(self.fd())
            .is_none_or(|(_, inode)| process::has_socket_beside(self.fd(), inode))
    }

    /// Whether another process may have a descriptor of the socket, according to the kernel: looks
    /// through those of all processes. True if not all can be seen.
    pub(super) fn is_open_elsewhere(&self) -> bool {
        socket::identity(self.fd())
            .is_none_or(|(_, inode)| process::socket_is_elsewhere(inode, None).unwrap_or(true))
    }

    /// As far as can be seen, whether another process whose name is not `but` has a descriptor of
    /// the socket. False if the only others are those whose descriptors this user may not see: a
    /// caller that waited for those might wait for as long as the system runs.
    #[must_use]
    pub fn is_seen_elsewhere(&self, but: &CStr) -> bool {
        socket::identity(self.fd())
            .is_some_and(|(_, inode)| process::socket_is_elsewhere(inode, Some(but)) == Some(true))
    }

    /// The descriptors that a process needs to move those bytes of a connection that are not in the
    /// kernel's socket. `None` if there are no such descriptors, or if only this process can move
    /// them, since the peer is on another machine.
    #[must_use]
    pub fn descriptors(&self) -> Option<Vec<Fd>> {
        let mut descriptors = vec![self.fd()];
        descriptors.extend(self.spill.get().map(SpillFile::fd));
        if let Some(data_path) = self.attached() {
            let ring = &data_path.ring;
            descriptors.extend([ring.doorbell.descriptor()?, ring.peer_doorbell.descriptor()?]);
        }
        (descriptors.len() > 1).then_some(descriptors)
    }
}
