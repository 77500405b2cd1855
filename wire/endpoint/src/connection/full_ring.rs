//! A ring without room: whether a send waits for it, or goes by TCP.
//!
//! A ring can be full because messages are small and many, or because the receiver is slow.
//! [`Connection::overflow_if_due`] decides.

use std::sync::atomic::Ordering;
use std::time::Duration;

use seekwire_transport::Errno;
use seekwire_transport::queue::PublishError;
use seekwire_transport::sys::{diag, socket};

use super::data_path::DataPath;
use super::peer_liveness::lasts;
use super::state::Connection;
use super::types::Interest;

/// Bytes that a receiver may leave unread before it has to wait for its turn: about what TCP takes
/// by default.
pub(super) const AMPLE: usize = 256 << 10;
/// How long a receiver must have taken nothing from the ring to count as standing still.
pub(super) const STANDSTILL: Duration = Duration::from_millis(50);

impl DataPath {
    /// Whether there is no room for a send of whatever length, since one found none: after a
    /// refusal, the program must see a ring with room for a smaller message as full, as with TCP's
    /// buffers.
    #[inline]
    pub(super) fn is_still_full(&self) -> bool {
        self.progress.refused.load(Ordering::Relaxed) && self.has_no_room_yet()
    }

    #[cold]
    fn has_no_room_yet(&self) -> bool {
        let has_room = self.ring.queue.has_unreserved_room();
        if has_room {
            self.progress.refused.store(false, Ordering::Relaxed);
        }
        !has_room
    }

    /// Whether nothing was taken off the ring for a while.
    fn has_stood_full(&self) -> bool {
        let consumed = self.ring.queue.consumed_mark();
        let since = &self.progress.full_since;
        if self.progress.full_at.swap(consumed, Ordering::Relaxed) != consumed {
            since.store(0, Ordering::Relaxed);
        }
        lasts(since) >= STANDSTILL
    }
}

impl Connection {
    /// Leaves a full ring if that is due: at once if few bytes lie there, fewer than TCP has room
    /// for from the start, or if TCP_USER_TIMEOUT is set; otherwise after nothing was taken for a
    /// while, since TCP's room grows with the bytes sent. A receiver that is merely slow keeps the
    /// ring. So does one whose sender is `patient` ([`super::types::SendFlags`]), or has sent more
    /// than TCP has room for, unless TCP may have news of it. Returns whether the next send goes by
    /// TCP.
    #[cold]
    pub(super) fn overflow_if_due(
        &self,
        data_path: &DataPath,
        patient: bool,
    ) -> Result<bool, Errno> {
        let is_little = data_path.ring.queue.unsent() < AMPLE;
        let stands = data_path.has_stood_full();
        let is_due = stands || (is_little && !patient);
        if (!patient && self.has_user_timeout())
            || (is_due
                && (!(patient || self.holds_more_than_tcp(data_path))
                    || (stands && self.tcp_may_have_news(data_path))))
        {
            self.leave_full(data_path)?;
        }
        Ok(!data_path.ring.queue.tx_on_ring())
    }

    /// Whether more bytes lie on the ring than the kernel would take: the program has set small
    /// buffers, and may know that they are full.
    fn holds_more_than_tcp(&self, data_path: &DataPath) -> bool {
        let unsent = data_path.ring.queue.unsent();
        let Ok(mut room) = socket::send_buffer(self.fd()) else { return false };
        if unsent <= room {
            return false;
        }
        let Ok(([local, peer], namespace)) = self.names_in_diag() else { return false };
        // Nothing is known of a peer on another machine.
        let Ok(Some(buffer)) = diag::receive_buffer(peer, local, namespace) else { return false };
        room += buffer as usize;
        unsent > room
    }

    fn leave_full(&self, data_path: &DataPath) -> Result<(), Errno> {
        if self.has_hung_up() && self.is_reset_by_killed(data_path) {
            return Ok(());
        }
        self.overflow(data_path)
    }

    /// Leaves a ring that is full, or from which nothing is taken: TCP has room of its own.
    #[cold]
    pub(super) fn overflow(&self, data_path: &DataPath) -> Result<(), Errno> {
        let tx = self.tx(data_path)?;
        let was_on_ring = data_path.ring.queue.tx_on_ring();
        let left = tx.overflow();
        let has_left = was_on_ring && !data_path.ring.queue.tx_on_ring();
        if has_left {
            // This end's waiters for room now wait for room in the socket.
            tx.calls().own();
        }
        drop(tx);
        if has_left {
            self.show_carriers();
        }
        match left {
            Ok(_) | Err(PublishError::NoRoom) => Ok(()),
            Err(PublishError::Violation(violation)) => Err(self.violated(data_path, violation)),
        }
    }

    /// Leaves a full ring; returns whether it did. Called by a wait that would otherwise report
    /// nothing but ends: with TCP alone, it would report room.
    pub fn make_room_by_tcp(&self) -> bool {
        self.attached().is_some_and(|data_path| {
            data_path.tx_on_ring()
                && !data_path.ring.queue.has_room()
                && self.leave_full(data_path).is_ok()
                && !data_path.tx_on_ring()
        })
    }

    /// Whether TCP may have news: the peer may be dead, which a reset reports, or TCP_USER_TIMEOUT
    /// limits how long it may be silent.
    fn tcp_may_have_news(&self, data_path: &DataPath) -> bool {
        data_path.ring.queue.peer_is_shut() || self.has_hung_up() || self.has_user_timeout()
    }

    /// Whether TCP_USER_TIMEOUT is set. The kernel counts that time, whether the program makes
    /// calls or not, from the moment when it has bytes for which the peer has no room.
    fn has_user_timeout(&self) -> bool {
        socket::user_timeout(self.fd()).is_ok_and(|timeout| timeout > 0)
    }

    /// Whether a sleep until there is room has to be short ([`Connection::RECHECK_INTERVAL`]): the
    /// ring is full, and may have to be left.
    pub(super) fn is_starved(&self, want: Interest) -> bool {
        let full =
            |data_path: &&DataPath| data_path.tx_on_ring() && !data_path.ring.queue.has_room();
        want.write && self.attached().filter(full).is_some()
    }
}
