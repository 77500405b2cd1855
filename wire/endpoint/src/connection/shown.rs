//! Reports on a connection: to the registry, and to a peer that violates the protocol.

use std::sync::atomic::Ordering;

use seekwire_protocol::Reason;
use seekwire_transport::Errno;
use seekwire_transport::queue::Violation;
use seekwire_transport::sys::socket;

use super::link::{Link, VIOLATED};
use super::state::Connection;
use crate::config::Config;

impl Connection {
    #[inline]
    pub(super) fn show_sent(&self, link: &Link) {
        let (tcp, _) = link.ring.queue.tcp_bytes();
        let (ring, _) = link.ring.queue.ring_bytes();
        if let Some(slot) = self.slot.get() {
            slot.show_sent(tcp, ring);
        }
        self.show_switches(link);
        if let Some(after) = Config::get().fall_back_after {
            if ring >= after {
                self.forced_back(link);
            }
        }
    }

    #[inline]
    pub(super) fn show_received(&self, link: &Link) {
        let q = &link.ring.queue;
        if let Some(slot) = self.slot.get() {
            slot.show_received(q.tcp_bytes().1, q.ring_bytes().1);
        }
        self.show_switches(link);
    }

    /// Updates the registry when a direction has changed its carrier.
    #[inline]
    pub(super) fn show_switches(&self, link: &Link) {
        let q = &link.ring.queue;
        let now = u8::from(q.tx_on_ring()) | u8::from(q.rx_on_ring()) << 1;
        if link.shown.load(Ordering::Relaxed) != now {
            link.shown.store(now, Ordering::Relaxed);
            if q.peer_wants_tcp() && self.reason().is_none() {
                self.set_reason(Some(Reason::AskedByPeer));
            } else {
                self.show_carriers();
            }
        }
    }

    #[cold]
    pub(super) fn forced_back(&self, link: &Link) {
        if !link.ring.queue.is_tcp_only() {
            link.ring.queue.set_tcp_only();
            self.set_reason(Some(Reason::Forced));
        }
    }

    /// The peer violated the protocol: the connection is reset, and both directions report that
    /// from now on.
    #[cold]
    pub(super) fn violated(&self, link: &Link, violation: Violation) -> Errno {
        if link.broken.swap(VIOLATED, Ordering::Relaxed) != VIOLATED {
            tracing::error!(
                "fd {}: process {}: {violation}; reset",
                self.fd().raw(),
                link.peer_pid
            );
            self.set_reason(Some(Reason::PeerViolation));
            socket::reset(self.fd());
            link.ring.doorbell.ring();
        }
        Errno::CONNRESET
    }
}
