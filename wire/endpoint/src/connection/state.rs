//! A connection: its parts and its status.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use seekwire_protocol::{Carrier, Reason, Role};
use seekwire_transport::Errno;
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::spill::SpillFile;
use seekwire_transport::sys::{Fd, socket};

use super::data_path::{DataPath, Far};
use super::gate::Gate;
use super::holders::Holders;
use super::negotiation::Negotiation;
use super::seek::state::Seeking;
use super::settings::Settings;
use super::socket_fd::Number;
use super::types::{Interest, Status, Totals};
use super::waiters::Waiters;
use crate::config::Config;
use crate::registry::RegistrySlot;

/// One TCP socket of this process. Every method may be called by any thread.
///
/// - The socket: [`new`](Self::new), [`fd`](Self::fd), [`role`](Self::role),
///   [`settings`](Self::settings) and SO_RCVLOWAT, [`names`](Self::names),
///   [`take_error`](Self::take_error).
/// - Before it is attached: the brackets of [`enter_plain`](Self::enter_plain).
/// - Moving bytes once it is attached ([`is_attached`](Self::is_attached)): [`send`](Self::send),
///   [`recv`](Self::recv) and [`recv_message`](Self::recv_message); in place
///   [`reserve`](Self::reserve) and [`lend_head`](Self::lend_head); how many there are,
///   [`unread`](Self::unread) and [`unsent`](Self::unsent).
/// - Out of order, attached or not: [`seek`](Self::seek), [`seek_lend`](Self::seek_lend),
///   [`wait_seek`](Self::wait_seek), [`extent`](Self::extent).
/// - Waiting: [`wait`](Self::wait); for poll, select and epoll [`readiness`](Self::readiness),
///   [`arm`](Self::arm), [`disarm`](Self::disarm), [`doorbell`](Self::doorbell);
///   [`interrupt`](Self::interrupt) wakes others;
///   [`expect_own_waits`](Self::expect_own_waits), [`note_poll`](Self::note_poll) and
///   [`note_sets`](Self::note_sets) where the program has waits of its own.
/// - Back to TCP: [`fall_back`](Self::fall_back), [`hand_over`](Self::hand_over), and
///   [service](Self::service_peer) the peer's requests.
/// - Other processes and numbers: [`before_fork`](Self::before_fork),
///   [`after_fork_child`](Self::after_fork_child), [`divert`](Self::divert),
///   [`hold_file`](Self::hold_file).
/// - Status: [`status`](Self::status), [`totals`](Self::totals),
///   [`carriers`](Self::carriers).
/// - Its end: [`shutdown`](Self::shutdown), [`close`](Self::close),
///   [`was_closed`](Self::was_closed).
#[derive(Debug)]
pub struct Connection {
    pub(super) number: Number,
    pub(super) role: Role,
    pub(super) settings: Settings,
    pub(super) waiters: Waiters,
    pub(super) gate: Gate,
    pub(super) wait_coverage: WaitCoverage,
    pub(super) reason: AtomicU8,
    pub(super) receive_shut: AtomicBool,
    /// Another process may also have the socket.
    pub(super) is_shared: AtomicBool,
    /// Since when it has been looking for the peer without an obstacle, by the clock of
    /// [`host`](seekwire_transport::sys::host); 0: not now.
    pub(super) looked_since: AtomicU64,
    /// How long it took from then until it was attached, in nanoseconds.
    pub(super) set_up: AtomicU64,
    /// Created when the first look for a peer is due: most connections end before.
    pub(super) negotiation: Mutex<Option<Box<Negotiation>>>,
    pub(super) slot: OnceLock<RegistrySlot>,
    /// Its entry in the region shared with another machine, if the peer's address is there.
    pub(super) far: OnceLock<Arc<Far>>,
    pub(super) holders: OnceLock<Holders>,
    /// The data path, once it is attached.
    pub(super) data_path: OnceLock<DataPath>,
    /// Bytes that were taken off the ring and left for all holders of the socket, or room for them.
    pub(super) spill: OnceLock<SpillFile>,
    /// This process was started with the spill.
    pub(super) found_spill: OnceLock<Box<FoundSpill>>,
    /// Created by the first seek.
    pub(super) seeking: OnceLock<Box<Seeking>>,
    /// The two addresses, as the kernel reported them: it does not once TCP has ended.
    pub(super) names: OnceLock<Box<(SocketAddr, SocketAddr)>>,
}

/// The waits that were seen.
#[derive(Debug, Default)]
pub(super) struct WaitCoverage {
    pub(super) flags: AtomicU8,
    /// Number of calls that had moved bytes when poll or select last covered it, plus 1; 0: never.
    pub(super) polled: AtomicU32,
    /// Receives in a row that found nothing, and the number of calls that had moved bytes before
    /// them.
    pub(super) looks: AtomicU32,
    pub(super) looks_since: AtomicU32,
}

/// The bytes that an earlier program has left.
#[derive(Debug, Default)]
pub(super) struct FoundSpill {
    /// Present once a set has it.
    pub(super) doorbell: OnceLock<Doorbell>,
    /// Number of sleepers that want to read.
    pub(super) armed: AtomicU32,
}

impl Connection {
    /// Begins to track a connected socket, or one that is about to be. No system call.
    #[must_use]
    pub fn new(fd: Fd, role: Role) -> Self {
        Self {
            number: Number::new(fd),
            role,
            settings: Settings::default(),
            waiters: Waiters::default(),
            gate: Gate::default(),
            wait_coverage: WaitCoverage::default(),
            reason: AtomicU8::new(Reason::BelowThreshold as u8),
            receive_shut: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            looked_since: AtomicU64::new(0),
            set_up: AtomicU64::new(0),
            negotiation: Mutex::default(),
            slot: OnceLock::new(),
            far: OnceLock::new(),
            holders: OnceLock::new(),
            data_path: OnceLock::new(),
            spill: OnceLock::new(),
            found_spill: OnceLock::new(),
            seeking: OnceLock::new(),
            names: OnceLock::new(),
        }
    }

    /// The role of this end.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The data path of an attached connection.
    #[inline]
    pub(super) fn attached(&self) -> Option<&DataPath> {
        if self.gate.is_attached() { self.data_path.get() } else { None }
    }

    /// Whether shared memory carries, or can carry, this connection: the caller must not make
    /// system calls on the socket that move bytes.
    #[inline]
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.gate.is_attached()
    }

    /// Whether it has more than the socket: an entry in the registry, which others see, and memory
    /// and descriptors once it is attached, or about to be.
    #[must_use]
    pub fn holds_resources(&self) -> bool {
        self.slot.get().is_some()
            || self.data_path.get().is_some()
            || self.far.get().is_some()
            || self.is_negotiating()
    }

    pub(super) fn slot(&self) -> Option<&RegistrySlot> {
        self.slot.get().filter(|slot| slot.is_ours())
    }

    pub(super) fn negotiation(&self) -> MutexGuard<'_, Option<Box<Negotiation>>> {
        self.negotiation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what it does and why -----------------------------------------------------------------

    pub(super) fn set_reason(&self, reason: Option<Reason>) {
        self.reason.store(reason.map_or(0, |reason| reason as u8), Ordering::Relaxed);
        self.show_carriers();
    }

    /// Why it is not, or no longer, on the ring.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        Reason::from_code(self.reason.load(Ordering::Relaxed).into())
    }

    /// The reason shown to users: past the threshold, a connection waits for the other end.
    fn shown_reason(&self) -> Option<Reason> {
        self.reason().map(|reason| if self.is_waiting() { Reason::Waiting } else { reason })
    }

    fn is_waiting(&self) -> bool {
        let config = Config::get();
        self.reason() == Some(Reason::BelowThreshold)
            && self.gate.traffic(config.threshold, config.threshold_bytes) >= config.threshold
    }

    /// Updates the registry when the threshold has been passed.
    pub(super) fn show_waiting(&self) {
        if self.is_waiting() {
            self.show_carriers();
        }
    }

    pub(super) fn show_carriers(&self) {
        if let Some(slot) = self.slot() {
            let (tx, rx) = self.carriers();
            slot.show_carriers(self.role, tx, rx, self.shown_reason());
        }
    }

    /// The carriers of the next byte sent and the next byte received. No system call.
    #[must_use]
    pub fn carriers(&self) -> (Carrier, Carrier) {
        self.attached().map_or_else(Default::default, |data_path| data_path.ring.queue.carriers())
    }

    /// Whether `want` includes a direction that is on TCP. No system call.
    #[must_use]
    pub fn is_for_kernel(&self, want: Interest) -> bool {
        let (tx, rx) = self.carriers();
        (want.read && rx == Carrier::Tcp) || (want.write && tx == Carrier::Tcp)
    }

    /// Whether the next byte sent travels on the ring. False once no receiver is left: the kernel's
    /// socket then has the error to return.
    #[inline]
    #[must_use]
    pub fn tx_on_ring(&self) -> bool {
        self.attached().is_some_and(DataPath::tx_on_ring)
    }

    /// Bytes moved so far. Bytes taken out of order count for the carrier of the next byte. No
    /// system call.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals_in_order();
        let ahead = self.taken_out_of_order();
        match self.carriers() {
            (_, Carrier::Tcp) => totals.rx_tcp += ahead,
            (_, Carrier::Ring) => totals.rx_ring += ahead,
        }
        totals
    }

    /// As [`Self::totals`], without bytes that were taken out of order.
    pub(super) fn totals_in_order(&self) -> Totals {
        let reason = self.shown_reason();
        match self.attached() {
            None => {
                let (tx_tcp, rx_tcp) = self.gate.bytes();
                Totals { tx_tcp, rx_tcp, reason, ..Totals::default() }
            }
            Some(data_path) => {
                let (tx_tcp, rx_tcp) = data_path.ring.queue.tcp_bytes();
                let (tx_ring, rx_ring) = data_path.ring.queue.ring_bytes();
                let set_up = Duration::from_nanos(self.set_up.load(Ordering::Relaxed));
                let linked = data_path.is_remote();
                Totals { tx_tcp, tx_ring, rx_tcp, rx_ring, attached: true, linked, set_up, reason }
            }
        }
    }

    /// This end's address and the other one's, also after the end of the connection if they were
    /// asked for before.
    ///
    /// # Errors
    /// ENOTCONN before the connection is established; EBADF.
    pub fn names(&self) -> Result<(SocketAddr, SocketAddr), Errno> {
        match socket::names(self.fd()) {
            Err(Errno::NOTCONN) => self.names.get().map(|names| **names).ok_or(Errno::NOTCONN),
            names => names.inspect(|names| {
                let _ = self.names.set(Box::new(*names));
            }),
        }
    }

    /// Both addresses, and the cookie of the network namespace, as
    /// [diag](seekwire_transport::sys::diag) wants them.
    pub(super) fn names_in_diag(&self) -> io::Result<([SocketAddr; 2], u64)> {
        let (local, peer) = self.names()?;
        let names = [local, peer]
            .map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
        Ok((names, socket::namespace(self.fd())?))
    }

    /// Addresses, carriers and totals, also after the end of the connection.
    ///
    /// # Errors
    /// ENOTCONN before the connection is established; EBADF.
    pub fn status(&self) -> Result<Status, Errno> {
        let (local, peer) = self.names()?;
        let (tx, rx) = self.carriers();
        Ok(Status { role: self.role, local, peer, tx, rx, totals: self.totals() })
    }

    /// Whether this end was shut down for reading, by whichever process.
    #[must_use]
    pub fn is_receive_shut(&self) -> bool {
        self.receive_shut.load(Ordering::Relaxed)
            || self.attached().is_some_and(|data_path| data_path.ring.queue.is_receive_shut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_moved_much_waits_for_the_peer() {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let connection = Connection::new(Fd::from(&nobody), Role::Accepted);
        let received = |bytes| {
            connection.enter_plain_at_once().unwrap().received(bytes);
            connection.totals().reason
        };
        assert_eq!(received(168), Some(Reason::BelowThreshold));
        assert_eq!(received(168 << 10), Some(Reason::Waiting));
    }
}
