//! One TCP socket of this process, and what moves its bytes.
//!
//! ```text
//!   plain ----> attaching ----> attached
//!     the kernel's socket        shared memory is there; each direction is on TCP or on the ring
//!     alone; calls are counted
//! ```
//!
//! In the plain phase the caller makes the system calls itself, inside a bracket
//! ([`Connection::enter_plain`]); when the last bracket is left after both ends agreed, the
//! connection is attached, and from then on every call goes through [`Connection::recv`] and
//! [`Connection::send`]. Nobody can therefore be asleep in a system call that a byte on the ring
//! would not end.

mod attached;
mod back;
mod call;
mod halves;
mod holders;
#[cfg(test)]
mod impostor;
mod in_place;
mod negotiate;
mod next;
mod peek;
mod peer;
mod plain;
#[cfg(test)]
mod restless;
mod seek;
mod settings;
mod waiting;

use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use seekwire_protocol::{Carrier, Reason, Role};
use seekwire_transport::Errno;
use seekwire_transport::ring::Ring;
use seekwire_transport::spin::Spinner;
use seekwire_transport::sys::{Fd, socket, thread};

pub use back::Until;
pub use call::{Asleep, Holding};
pub use in_place::{HeadLoan, Reserved};
pub use plain::Plain;
pub use seek::{LoanPiece, RangeLoan};
pub use settings::Settings;
pub use waiting::SetSpinner;

use crate::registry::Slot;
use call::Number;
use holders::Holders;
use negotiate::Negotiation;
use plain::Gate;
use seek::Seeking;
use waiting::Waiters;

/// Which of two directions is meant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Interest {
    /// Something to receive.
    pub read: bool,
    /// Room to send.
    pub write: bool,
}

/// What user space alone knows to be ready.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// The ring has something for the next receive. If not, the kernel's POLLIN on the socket
    /// decides.
    pub read: bool,
    /// The ring has room for the next send.
    pub write: bool,
    /// Sends travel on the ring: the kernel's POLLOUT on the socket means nothing.
    pub tx_on_ring: bool,
    /// Bytes wait for room in the kernel's socket: whoever waits for anything has to ask it for
    /// POLLOUT, and to call [`Connection::attend`] when it comes.
    pub retransmits: bool,
    /// The stream has ended: the kernel may have POLLHUP, POLLRDHUP or POLLERR to add.
    pub end: bool,
}

/// How to receive; the flags of recv(2) that the ring knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecvFlags {
    /// MSG_PEEK: the bytes stay.
    pub peek: bool,
    /// MSG_WAITALL: wait until the buffer is full.
    pub wait_all: bool,
    /// MSG_DONTWAIT: do not wait, whatever O_NONBLOCK says.
    pub dont_wait: bool,
    /// MSG_TRUNC: throw the bytes away instead of copying them (tcp(7)).
    pub truncate: bool,
}

/// How to send; the flags of send(2) that the ring knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendFlags {
    /// MSG_DONTWAIT: do not wait, whatever O_NONBLOCK says.
    pub dont_wait: bool,
    /// MSG_NOSIGNAL: no SIGPIPE when the peer is gone.
    pub no_signal: bool,
    /// MSG_MORE: more follows soon; only TCP cares.
    pub more: bool,
    /// The caller also receives while it waits for room, so a full ring is no reason to go on by
    /// TCP.
    pub patient: bool,
}

/// What a connection has moved, by carrier, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// Sent by TCP.
    pub tx_tcp: u64,
    /// Sent on the ring.
    pub tx_ring: u64,
    /// Received by TCP.
    pub rx_tcp: u64,
    /// Received from the ring.
    pub rx_ring: u64,
    /// Whether it ever got as far as shared memory.
    pub attached: bool,
    /// Why it is not on the ring.
    pub reason: Option<Reason>,
}

/// A connection as its owner sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Which end this is.
    pub role: Role,
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub peer: SocketAddr,
    /// What the next byte sent travels on.
    pub tx: Carrier,
    /// What the next byte received comes from.
    pub rx: Carrier,
    /// Bytes moved so far.
    pub totals: Totals,
}

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
///   [`interrupt`](Self::interrupt) ends the waits of others.
/// - Back to TCP: [`fall_back`](Self::fall_back), [`hand_over`](Self::hand_over), and
///   [`attend`](Self::attend) to what the peer asks for.
/// - Other processes and numbers: [`before_fork`](Self::before_fork),
///   [`after_fork_child`](Self::after_fork_child), [`divert`](Self::divert),
///   [`hold_file`](Self::hold_file).
/// - What it does and why: [`status`](Self::status), [`totals`](Self::totals),
///   [`carriers`](Self::carriers).
/// - Its end: [`shutdown`](Self::shutdown), [`close`](Self::close),
///   [`was_closed`](Self::was_closed).
#[derive(Debug)]
pub struct Connection {
    number: Number,
    role: Role,
    settings: Settings,
    waiters: Waiters,
    gate: Gate,
    reason: AtomicU8,
    receive_shut: AtomicBool,
    /// Another process may have the socket, too.
    is_shared: AtomicBool,
    /// Made when the first look for a peer is due: most connections are over before.
    negotiation: Mutex<Option<Box<Negotiation>>>,
    slot: OnceLock<Slot>,
    holders: OnceLock<Holders>,
    /// The data path, once it is attached.
    link: OnceLock<Link>,
    /// Made by the first seek.
    seeking: OnceLock<Box<Seeking>>,
    /// What the kernel said of the two addresses: once TCP has ended it does not any more.
    names: OnceLock<Box<(SocketAddr, SocketAddr)>>,
}

/// The data path: what an attached connection has besides its socket.
#[derive(Debug)]
struct Link {
    ring: Ring,
    rx_spinner: Spinner,
    tx_spinner: Spinner,
    /// Why the ring is not used any more, if it is not: one of the constants in `attached`.
    broken: AtomicU8,
    /// The peer's process.
    peer_pid: u32,
    /// What the registry was last told about the carriers, a bit each.
    shown: AtomicU8,
    /// What this end has seen the peer take off the ring.
    watch: peer::Watch,
    /// A receive has returned the end of the stream, and no error before it.
    has_ended: AtomicBool,
    /// An error that the kernel told, which it does once, while bytes on the ring come before it:
    /// the receive behind those bytes returns it. 0 is none.
    untold: AtomicI32,
    /// What tells the socket from other files: its number may come to stand for another one.
    identity: OnceLock<Option<(u64, u64)>>,
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
            reason: AtomicU8::new(Reason::BelowThreshold as u8),
            receive_shut: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            negotiation: Mutex::default(),
            slot: OnceLock::new(),
            holders: OnceLock::new(),
            link: OnceLock::new(),
            seeking: OnceLock::new(),
            names: OnceLock::new(),
        }
    }

    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The link of an attached connection.
    #[inline]
    fn attached(&self) -> Option<&Link> {
        if self.gate.is_attached() { self.link.get() } else { None }
    }

    /// Whether shared memory carries, or can carry, this connection: the caller must not make
    /// system calls on the socket that move bytes.
    #[inline]
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.gate.is_attached()
    }

    /// Whether it has memory and descriptors of its own, beside the socket: once it is attached, or
    /// about to be.
    #[must_use]
    pub fn holds_descriptors(&self) -> bool {
        self.link.get().is_some() || self.is_negotiating()
    }

    fn slot(&self) -> Option<&Slot> {
        self.slot.get().filter(|slot| slot.is_ours())
    }

    fn negotiation(&self) -> MutexGuard<'_, Option<Box<Negotiation>>> {
        self.negotiation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what it does and why -----------------------------------------------------------------

    fn set_reason(&self, reason: Option<Reason>) {
        self.reason.store(reason.map_or(0, |reason| reason as u8), Ordering::Relaxed);
        self.show_carriers();
    }

    fn reason(&self) -> Option<Reason> {
        Reason::from_code(self.reason.load(Ordering::Relaxed).into())
    }

    fn show_carriers(&self) {
        if let Some(slot) = self.slot() {
            let (tx, rx) = self.carriers();
            slot.show_carriers(self.role, tx, rx, self.reason());
        }
    }

    /// What the next byte sent travels on, and what the next byte received comes from. No system
    /// call.
    #[must_use]
    pub fn carriers(&self) -> (Carrier, Carrier) {
        self.attached().map_or_else(Default::default, |link| link.ring.queue.carriers())
    }

    /// Whether the next byte sent travels on the ring. Once nobody is there to receive it, it does
    /// not: the kernel's socket then has the error to tell.
    #[inline]
    #[must_use]
    pub fn tx_on_ring(&self) -> bool {
        self.attached().is_some_and(Link::tx_on_ring)
    }

    /// What was moved so far. No system call.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let reason = self.reason();
        match self.attached() {
            None => {
                let (tx_tcp, rx_tcp) = self.gate.bytes();
                Totals { tx_tcp, rx_tcp, reason, ..Totals::default() }
            }
            Some(link) => {
                let (tx_tcp, rx_tcp) = link.ring.queue.tcp_bytes();
                let (tx_ring, rx_ring) = link.ring.queue.ring_bytes();
                Totals { tx_tcp, tx_ring, rx_tcp, rx_ring, attached: true, reason }
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

    /// Addresses, carriers and totals, also after the end of the connection.
    ///
    /// # Errors
    /// ENOTCONN before the connection is established; EBADF.
    pub fn status(&self) -> Result<Status, Errno> {
        let (local, peer) = self.names()?;
        let (tx, rx) = self.carriers();
        Ok(Status { role: self.role, local, peer, tx, rx, totals: self.totals() })
    }

    // ---- the end ------------------------------------------------------------------------------

    /// shutdown(2) of either direction, on the ring and in the kernel.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        let (read, write) = (how != Shutdown::Write, how != Shutdown::Read);
        // TCP has ended with an error. The kernel returns it; nothing is to be done on the ring.
        if let Some(link) = self.attached()
            && socket::names(self.fd()) == Err(Errno::NOTCONN)
        {
            self.note_end(link);
            return socket::shutdown(self.fd(), how);
        }
        if read {
            self.receive_shut.store(true, Ordering::Relaxed);
            if let Some(link) = self.attached() {
                link.ring.queue.set_receive_shut();
            }
        }
        // In a bracket, as a send is: when the connection attaches, it asks the kernel whether the
        // stream was ended.
        let bracket = self.enter_plain();
        let mut now = Some(how);
        if let Some(link) = self.attached() {
            if write {
                self.attend();
                link.shut();
                // The end follows what is still to be retransmitted.
                if link.ring.queue.to_retransmit() > 0 {
                    now = read.then_some(Shutdown::Read);
                }
                // Wakes those who wait for room. A waiter that has not armed yet sees the shutdown
                // when it looks once more after arming. Those who wait for bytes are not woken, as
                // in the kernel: a signal that came while they were awake would not end their call.
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
            // TCP resets a connection when something comes for an end that is shut down both ways.
            // So the peer is told to send by TCP from now on; but not while TCP has yet to bring
            // what is to be retransmitted.
            if result.is_ok() && self.is_receive_shut() && q.is_shut() && q.to_retransmit() == 0 {
                q.set_refuses();
                link.ring.peer_doorbell.ring();
            }
        }
        drop(bracket);
        result
    }

    /// Whether this end was shut down for reading, by whichever process.
    fn is_receive_shut(&self) -> bool {
        self.receive_shut.load(Ordering::Relaxed)
            || self.attached().is_some_and(|link| link.ring.queue.is_receive_shut())
    }

    /// The caller is about to close its last descriptor of the socket in this process. A call that
    /// sleeps on it goes on, and the connection ends with that.
    pub fn close(&self) {
        if !self.leave_to_holders() {
            self.end();
        }
    }

    /// The end of the connection in this process.
    fn end(&self) {
        if let Some(slot) = self.slot.get() {
            crate::rendezvous::forget(slot.slot());
        }
        if let Some(holders) = self.holders.get() {
            holders.remove(thread::process_id());
        }
        if self.attached().is_none() && self.is_sole_holder() {
            self.close_seeking();
        }
        if let Some(link) = self.attached()
            && link.ring.queue.remove_holder(thread::process_id())
        {
            self.close_seeking();
            self.finish_retransmission();
            link.close(self.fd());
        }
    }

    /// The last descriptor of the socket in this process was closed unseen: the number is another
    /// file's, or nobody's. Makes no system call on it.
    pub fn was_closed(&self) {
        if let Some(slot) = self.slot.get() {
            crate::rendezvous::forget(slot.slot());
        }
        if let Some(holders) = self.holders.get() {
            holders.remove(thread::process_id());
        }
        if let Some(link) = self.attached()
            && link.ring.queue.remove_holder(thread::process_id())
        {
            link.ring.queue.set_closed();
            link.ring.peer_doorbell.ring();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.get() {
            crate::rendezvous::forget(slot.slot());
        }
    }
}

impl Link {
    #[inline]
    fn tx_on_ring(&self) -> bool {
        let q = &self.ring.queue;
        self.is_sound() && q.tx_on_ring() && !q.peer_has_closed() && !q.is_shut()
    }

    /// Ends the sending direction on the ring; the kernel's shutdown follows.
    fn shut(&self) {
        match self.ring.sending() {
            Some(tx) => {
                // Without room for the record, the end of TCP tells the peer.
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
    /// 4.2.2.13), and so must a linger time of zero; else the stream ends in order, unless TCP has
    /// ended before: then the kernel has told the peer how.
    fn close(&self, fd: Fd) {
        let unread = self.ring.queue.unread() > 0 || socket::unread(fd).unwrap_or(0) > 0;
        if unread || socket::resets_on_close(fd) {
            socket::reset_on_close(fd);
        } else if !socket::ends(fd).both
            && let Some(tx) = self.ring.sending()
        {
            let _ = tx.shutdown();
        }
        self.ring.queue.set_closed();
        self.ring.peer_doorbell.ring();
    }
}
