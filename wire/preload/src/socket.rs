//! One tracked stream socket of this process.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use seekwire_endpoint::{Carrier, Connection, Interest, Readiness, Reason, Role, Sends, Totals};
use seekwire_transport::spin::Spinner;
use seekwire_transport::sys::{Fd, socket as kernel};

use crate::fd_numbers::Numbers;
use crate::ffi::guarded_raw;
use crate::loan::IovecLoan;
use crate::lock::Lock;
use crate::registration::Registration;

/// A type of socket(2) that every Linux rejects: the kernel's own types end below it, and only four
/// bits are looked at.
pub(crate) const SOCK_SEEK_STREAM: c_int = 0xf;

/// The connection is or was attached, seeks, or was found with a rest, so the sets watch its
/// doorbell.
const WATCHED: u8 = 1;
/// The peer rings its doorbell. A connection that only seeks has a doorbell for library memory
/// alone.
const ATTACHED: u8 = 2;
const SEEKING: u8 = 4;
/// From this bit on: what the kernel's EPOLLOUT means ([`Sends`]).
const SENDS: u32 = 3;

/// The place of a relay's end that a program gets instead of the socket.
pub(crate) struct Relayed {
    number: Fd,
    identity: (u64, u64),
}

impl Relayed {
    pub(crate) fn at(number: Fd) -> Option<Self> {
        Some(Self { number, identity: kernel::identity(number)? })
    }

    /// The number, if the end is still there.
    pub(crate) fn number(&self) -> Option<Fd> {
        (kernel::identity(self.number) == Some(self.identity)).then_some(self.number)
    }
}

/// A socket made by socket() or accept(), from its first to its last fd number in this process.
pub(crate) struct Socket {
    /// The connection that moves its bytes.
    pub(crate) connection: Connection,
    numbers: Lock<Numbers>,
    listening: AtomicBool,
    registrations: Lock<Vec<Registration>>,
    /// Length of `registrations`, for callers that only check whether there are any.
    registered: AtomicUsize,
    /// The state of the connection that the epoll sets last got.
    shown: AtomicU8,
    /// Number of sends that found no room: after one of them, room is news to an edge-triggered
    /// epoll set.
    starved: AtomicU64,
    /// Number of armed watches in epoll sets that want room to send, but are not armed for it.
    leaving_room: AtomicUsize,
    /// A send has found no room while there were such watches, which do not know it yet.
    lacks_room: AtomicBool,
    /// Number of shutdowns of this end, which are news to an edge-triggered epoll set.
    shutdowns: AtomicU64,
    /// See [`Socket::limits_set`].
    limits_set: AtomicU32,
    /// Made with SOCK_SEEK_STREAM; so are the sockets that it accepts.
    seekable: AtomicBool,
    /// The memory that the application has borrowed.
    loans: Lock<Vec<IovecLoan>>,
    /// Another program also holds it, as a plain socket.
    handed_over: AtomicBool,
    /// With `handed_over`: a process that shares the connection had given it away before.
    others_gave: AtomicBool,
    /// Tracks whether spinning in poll and select has paid recently.
    pub(crate) spinner: Spinner,
    /// The relay that the last program got to which it was handed over.
    relayed: Lock<Option<Relayed>>,
    /// The bytes that a parent process had moved when it forked this one.
    inherited: OnceLock<Totals>,
}

impl Socket {
    pub(crate) fn new(fd: c_int, role: Role) -> Socket {
        let connection = Connection::new(Fd::new(fd), role);
        connection.hold_in_sleep();
        connection.expect_own_waits();
        Socket {
            connection,
            numbers: Lock::new(Numbers::new(fd)),
            listening: AtomicBool::new(false),
            registrations: Lock::new(Vec::new()),
            registered: AtomicUsize::new(0),
            shown: AtomicU8::new(0),
            starved: AtomicU64::new(0),
            leaving_room: AtomicUsize::new(0),
            lacks_room: AtomicBool::new(false),
            shutdowns: AtomicU64::new(0),
            limits_set: AtomicU32::new(0),
            seekable: AtomicBool::new(false),
            loans: Lock::new(Vec::new()),
            handed_over: AtomicBool::new(false),
            others_gave: AtomicBool::new(false),
            spinner: Spinner::default(),
            relayed: Lock::new(None),
            inherited: OnceLock::new(),
        }
    }

    pub(crate) fn numbers(&self) -> &Lock<Numbers> {
        &self.numbers
    }

    pub(crate) fn registrations(&self) -> &Lock<Vec<Registration>> {
        &self.registrations
    }

    /// Call it under the lock of the registrations whenever they change. Those that are not live
    /// keep no connection from the ring.
    pub(crate) fn note_registrations(
        &self,
        registrations: &[Registration],
        is_live: impl Fn(&Registration) -> bool,
    ) {
        self.registered.store(registrations.len(), Ordering::Release);
        let live = registrations.iter().filter(|registration| is_live(registration));
        self.connection.note_sets(live.map(|registration| registration.is_seen));
    }

    /// The state of the connection that the epoll sets need.
    #[inline]
    pub(crate) fn to_show(&self) -> u8 {
        let (attached, seeks) = (self.connection.is_attached(), self.connection.is_seeking());
        let mut show = if attached || seeks || self.connection.spill_is_watched() {
            WATCHED
        } else {
            self.shown.load(Ordering::Relaxed) & WATCHED
        };
        if show == 0 {
            return 0;
        }
        show |= if attached { ATTACHED } else { 0 } | if seeks { SEEKING } else { 0 };
        show | (self.connection.sends() as u8) << SENDS
    }

    /// True if some sets do not have the current state.
    #[inline]
    pub(crate) fn has_more_to_show(&self) -> bool {
        self.registered.load(Ordering::Acquire) != 0 && {
            // A set finds out by itself when a read that keeps sends from TCP ends. So it may not
            // know about the next one, although it was shown the one before.
            let now = self.to_show();
            now >> SENDS == Sends::HeldUp as u8 || now != self.shown.load(Ordering::Acquire)
        }
    }

    /// Call it under the lock of the registrations when all sets have the state `shown`.
    pub(crate) fn set_shown(&self, shown: u8) {
        self.shown.store(shown, Ordering::Release);
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.seekable.load(Ordering::Relaxed)
    }

    /// From its first byte on, every receive from the connection may find holes.
    pub(crate) fn set_seekable(&self) {
        self.seekable.store(true, Ordering::Relaxed);
        // Querying begins the seeking.
        guarded_raw(|| self.connection.extent());
    }

    pub(crate) fn loans(&self) -> &Lock<Vec<IovecLoan>> {
        &self.loans
    }

    pub(crate) fn relayed(&self) -> &Lock<Option<Relayed>> {
        &self.relayed
    }

    pub(crate) fn set_listening(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_recv_timeout(&self, timeout: Option<Duration>) {
        self.limits_set.fetch_add(1, Ordering::Relaxed);
        self.connection.settings().set_recv_timeout(timeout);
    }

    pub(crate) fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.limits_set.fetch_add(1, Ordering::Relaxed);
        self.connection.settings().set_send_timeout(timeout);
    }

    /// Number of times that this process has set a time limit.
    pub(crate) fn limits_set(&self) -> u32 {
        self.limits_set.load(Ordering::Relaxed)
    }

    pub(crate) fn set_low_water(&self, bytes: usize) {
        self.connection.set_recv_low_water(bytes);
    }

    /// SO_RCVLOWAT.
    pub(crate) fn low_water(&self) -> usize {
        self.connection.recv_low_water()
    }

    /// Takes over the options that the kernel copies from a listener to the sockets that it
    /// accepts.
    pub(crate) fn inherit(&self, listener: &Socket) {
        let (from, to) = (&listener.connection, &self.connection);
        to.settings().set_recv_timeout(from.settings().recv_timeout());
        to.settings().set_send_timeout(from.settings().send_timeout());
        to.set_recv_low_water(from.recv_low_water());
        to.set_reports_unread(from.reports_unread());
        if from.wants_kernel_messages() {
            to.set_wants_kernel_messages();
        }
        if from.reason() == Some(Reason::UnknownOption) {
            let _ = to.fall_back(Reason::UnknownOption);
        }
    }

    /// Bytes that the parent process has already counted.
    pub(crate) fn counted_by_parent(&self) -> Totals {
        self.inherited.get().copied().unwrap_or_default()
    }

    /// Called in the child of a fork.
    pub(crate) fn after_fork_child(&self) {
        self.connection.after_fork_child();
        let _ = self.inherited.set(self.connection.totals());
        // The thread that was about to become another program does not exist here.
        self.registrations.lock().iter_mut().for_each(|registration| registration.is_bare = false);
    }

    /// Notes that another program gets this socket, also for the processes that share it. Returns
    /// false if this process gave it away before.
    pub(crate) fn hand_over(&self, why: Reason) -> bool {
        let was_given = self.connection.note_given(why);
        let first = !self.handed_over.swap(true, Ordering::Relaxed);
        if first {
            self.others_gave.store(was_given, Ordering::Relaxed);
        }
        first
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Notes that it was not handed over after all.
    pub(crate) fn keep(&self) {
        if self.handed_over.swap(false, Ordering::Relaxed)
            && !self.others_gave.load(Ordering::Relaxed)
        {
            self.connection.note_kept();
        }
    }

    /// The readiness known only to user space. As in the kernel, fewer than SO_RCVLOWAT bytes do
    /// not make it readable.
    #[inline]
    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness_for(Interest::default())
    }

    /// Like [`Socket::readiness`], for a caller that also wants to know about room.
    #[inline]
    pub(crate) fn readiness_for(&self, want: Interest) -> Readiness {
        let mut ready = self.connection.readiness_for(want);
        if ready.read && self.low_water() > 1 && !ready.end {
            // Another process may have reset it.
            let low_water = self.connection.recv_low_water_now();
            ready.read = self.connection.unread().is_ok_and(|unread| unread >= low_water);
        }
        ready
    }

    /// True if the kernel does not know about all unread bytes, or the connection seeks.
    pub(crate) fn is_left(&self) -> bool {
        let unread = || self.readiness_for(Interest { read: true, write: false }).read;
        let connection = &self.connection;
        connection.is_seeking() || connection.carriers().1 == Carrier::Ring || unread()
    }

    /// Notes that a send found less room than it wanted. From now on room is news to edge-triggered
    /// sets: update them afterwards, so that they have the peer ring for it.
    #[inline]
    pub(crate) fn note_starved(&self) {
        if self.registered.load(Ordering::Relaxed) != 0 {
            self.starved.fetch_add(1, Ordering::SeqCst);
            // Either this sees the watch, or the watch sees the count.
            fence(Ordering::SeqCst);
            if self.leaving_room.load(Ordering::Relaxed) != 0 {
                self.lacks_room.store(true, Ordering::Release);
            }
        }
    }

    /// True if some armed watches do not know that a send has found no room.
    #[inline]
    pub(crate) fn lacks_room(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
    }

    /// Call it before telling them; returns whether there may be any.
    pub(crate) fn take_lack_of_room(&self) -> bool {
        self.lacks_room.swap(false, Ordering::Acquire)
    }

    /// Called before a watch is armed without room to send; afterwards it checks the number of
    /// sends that found none.
    pub(crate) fn leave_room(&self) {
        self.leaving_room.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Undoes [`Socket::leave_room`].
    pub(crate) fn mind_room(&self) {
        self.leaving_room.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn note_shutdown(&self) {
        self.shutdowns.fetch_add(1, Ordering::Release);
    }

    /// Wakes the waits of epoll sets after a shutdown, as the kernel does, which knows nothing of
    /// unread bytes on the ring.
    pub(crate) fn announce_shutdown(&self) {
        if self.registered.load(Ordering::Relaxed) != 0 {
            self.connection.ring_own_doorbell();
        }
    }

    pub(crate) fn shutdowns(&self) -> u64 {
        self.shutdowns.load(Ordering::Acquire)
    }

    /// Changes when a send found less room than it wanted.
    pub(crate) fn starved(&self) -> u64 {
        self.starved.load(Ordering::Acquire)
    }
}
