//! Reports on a connection: to the registry, and to a peer that violates the protocol.

use std::sync::atomic::Ordering;

use seekwire_protocol::Reason;
use seekwire_transport::Errno;
use seekwire_transport::queue::Violation;
use seekwire_transport::sys::socket;

use super::data_path::{DataPath, VIOLATED};
use super::state::Connection;
use crate::config::Config;

impl Connection {
    #[inline]
    pub(super) fn show_sent(&self, data_path: &DataPath) {
        let (tcp, _) = data_path.ring.queue.tcp_bytes();
        let (ring, _) = data_path.ring.queue.ring_bytes();
        if let Some(slot) = self.slot.get() {
            slot.show_sent(tcp, ring);
        }
        self.show_switches(data_path);
        if let Some(after) = Config::get().fall_back_after {
            if ring >= after {
                self.forced_back(data_path);
            }
        }
    }

    #[inline]
    pub(super) fn show_received(&self, data_path: &DataPath) {
        let q = &data_path.ring.queue;
        if let Some(slot) = self.slot.get() {
            slot.show_received(q.tcp_bytes().1, q.ring_bytes().1);
        }
        self.show_switches(data_path);
    }

    /// Updates the registry when a direction has changed its carrier.
    #[inline]
    pub(super) fn show_switches(&self, data_path: &DataPath) {
        let q = &data_path.ring.queue;
        let now = u8::from(q.tx_on_ring()) | u8::from(q.rx_on_ring()) << 1;
        if data_path.shown.load(Ordering::Relaxed) != now {
            data_path.shown.store(now, Ordering::Relaxed);
            if q.peer_wants_tcp() && self.reason().is_none() {
                self.set_reason(Some(Reason::AskedByPeer));
            } else {
                self.show_carriers();
            }
        }
    }

    #[cold]
    pub(super) fn forced_back(&self, data_path: &DataPath) {
        if !data_path.ring.queue.is_tcp_only() {
            data_path.ring.queue.set_tcp_only();
            self.set_reason(Some(Reason::Forced));
        }
    }

    /// The peer violated the protocol: the connection is reset, and both directions report that
    /// from now on.
    #[cold]
    pub(super) fn violated(&self, data_path: &DataPath, violation: Violation) -> Errno {
        if data_path.broken.swap(VIOLATED, Ordering::Relaxed) != VIOLATED {
            tracing::error!(
                "fd {}: process {}: {violation}; reset",
                self.fd().raw(),
                data_path.peer_pid
            );
            self.set_reason(Some(Reason::PeerViolation));
            socket::reset(self.fd());
            data_path.ring.doorbell.ring();
        }
        Errno::CONNRESET
    }
}
