//! One tracked stream socket of this process.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use libc::epoll_event;
use seekwire_endpoint::{
    Connection, Interest, Plain, Readiness, Reason, Role, SetSpinner, Settings, Totals, Until,
};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::{Fd, thread};

use crate::epoll;
use crate::ffi;
use crate::lock::Lock;
use crate::seek::IovecLoan;
use crate::table::{self, Object, SocketRef};
use crate::{hazard, log, memory, passed, postponed, process, stats};

/// The fd numbers of this process that stand for one object.
pub(crate) struct Numbers {
    /// Almost always the only one.
    first: Option<c_int>,
    others: Vec<c_int>,
}

impl Numbers {
    pub(crate) fn new(fd: c_int) -> Numbers {
        Numbers { first: Some(fd), others: Vec::new() }
    }

    pub(crate) fn any(&self) -> Option<c_int> {
        self.first
    }

    /// False if the last was removed: the object is on its way out, and is retired only once.
    #[must_use]
    fn add(&mut self, fd: c_int) -> bool {
        if self.first.is_some() {
            self.others.push(fd);
        }
        self.first.is_some()
    }

    /// True if none is left.
    pub(crate) fn remove(&mut self, fd: c_int) -> bool {
        if self.first == Some(fd) {
            self.first = self.others.pop();
        } else {
            self.others.retain(|&other| other != fd);
        }
        self.first.is_none()
    }
}

impl SocketRef {
    /// A call that a signal interrupted begins again, as the kernel would have it: by its number.
    /// False: that is for the kernel alone to know now, if anybody.
    ///
    /// # Errors
    /// EBADF when the number stands for another object of the library's.
    pub(crate) fn begin_again(&self) -> Result<bool, Errno> {
        let fd = self.number();
        let stands = |numbers: &Numbers| numbers.first == Some(fd) || numbers.others.contains(&fd);
        match table::lookup(fd) {
            _ if !self.connection.is_closed()
                && self.numbers.lock_in_handler().is_none_or(|now| stands(&now)) =>
            {
                Ok(true)
            }
            None => Ok(false),
            Some(_) => Err(Errno::BADF),
        }
    }
}

/// A call that has begun. One with a time limit is never started again after a signal, whatever has
/// been set since it began.
pub(crate) struct Begun {
    timeout: fn(&Settings) -> Option<Duration>,
    is_limited: bool,
    limits_set: u32,
}

impl Begun {
    pub(crate) fn receive(socket: &Socket) -> Begun {
        Begun::new(socket, Settings::recv_timeout)
    }

    pub(crate) fn send(socket: &Socket) -> Begun {
        Begun::new(socket, Settings::send_timeout)
    }

    fn new(socket: &Socket, timeout: fn(&Settings) -> Option<Duration>) -> Begun {
        let is_limited = timeout(socket.connection.settings()).is_some();
        Begun { timeout, is_limited, limits_set: socket.limits_set.load(Ordering::Relaxed) }
    }

    pub(crate) fn was_limited(&self, socket: &Socket) -> bool {
        let is_as_it_was = || socket.limits_set.load(Ordering::Relaxed) == self.limits_set;
        // What another process had set before, the call has found out.
        self.is_limited
            || ((self.timeout)(socket.connection.settings()).is_some() && is_as_it_was())
    }
}

/// The place of a socket in an epoll set, as the application asked for it.
pub(crate) struct Registration {
    /// The set; it may be gone.
    pub(crate) set: Weak<Object>,
    /// The number by which the socket was added: the kernel tells duplicates apart by it.
    pub(crate) fd: c_int,
    /// The application's events and data.
    pub(crate) events: u32,
    /// As above.
    pub(crate) data: u64,
    /// Index of the watch in the set, once the connection is attached.
    pub(crate) watch: Option<u32>,
    /// Index of the watch if the application has taken the socket out of the set and the kernel
    /// was not told.
    pub(crate) parked: Option<u32>,
    /// The number was closed while others stand for the socket, and this one is in the set
    /// instead.
    pub(crate) stand_in: Option<Placed>,
    /// Another program may be about to get the set, so it is left to the kernel alone.
    pub(crate) is_bare: bool,
}

impl Registration {
    pub(crate) fn new(set: Weak<Object>, fd: c_int, event: epoll_event) -> Registration {
        let (events, data) = (event.events, event.u64);
        Registration {
            set,
            fd,
            events,
            data,
            watch: None,
            parked: None,
            stand_in: None,
            is_bare: false,
        }
    }

    /// The number by which it is in the kernel's set.
    pub(crate) fn number(&self) -> c_int {
        self.stand_in.as_ref().map_or(self.fd, |stand_in| stand_in.fd().raw())
    }
}

/// The connection is or was attached, or seeks, so the sets watch its doorbell.
pub(crate) const WATCHED: u8 = 1;
/// Sends travel on the ring, so the kernel's EPOLLOUT means nothing.
pub(crate) const TX_ON_RING: u8 = 2;
/// Bytes wait for room in the kernel's socket: its EPOLLOUT is wanted, whatever the application
/// wants.
pub(crate) const RETRANSMITS: u8 = 4;
/// The peer rings its doorbell. A connection that only seeks has one for library memory alone.
pub(crate) const ATTACHED: u8 = 8;
pub(crate) const SEEKING: u8 = 16;

/// A socket made by socket() or accept(), from its first to its last fd number in this process.
pub(crate) struct Socket {
    /// What moves its bytes.
    pub(crate) connection: Connection,
    numbers: Lock<Numbers>,
    listening: AtomicBool,
    /// TCP_INQ: messages say how much is left unread.
    tells_unread: AtomicBool,
    /// The kernel was asked to tell something with what is received.
    hears_kernel: AtomicBool,
    registrations: Lock<Vec<Registration>>,
    /// Length of `registrations`, for those who only want to know whether there are any.
    registered: AtomicUsize,
    /// What the epoll sets were last told about the connection.
    shown: AtomicU8,
    /// Counts the sends that found no room: after one of them, room is news to an edge-triggered
    /// epoll set.
    starved: AtomicU64,
    /// Counts the shutdowns of this end, which are news to an edge-triggered epoll set.
    shutdowns: AtomicU64,
    /// How often this process has set a time limit.
    limits_set: AtomicU32,
    /// Made by SOCK_SEEK_STREAM; so are the sockets that it accepts.
    seekable: AtomicBool,
    /// What the application has borrowed.
    loans: Lock<Vec<IovecLoan>>,
    /// Another program holds it, too, as a plain socket.
    handed_over: AtomicBool,
    /// Whether waiting awake in poll and select has paid lately.
    pub(crate) spinner: SetSpinner,
    /// What a parent process had moved when it forked this one.
    inherited: OnceLock<Totals>,
}

impl Socket {
    fn new(fd: c_int, role: Role) -> Socket {
        let connection = Connection::new(Fd::new(fd), role);
        connection.hold_in_sleep();
        Socket {
            connection,
            numbers: Lock::new(Numbers::new(fd)),
            listening: AtomicBool::new(false),
            tells_unread: AtomicBool::new(false),
            hears_kernel: AtomicBool::new(false),
            registrations: Lock::new(Vec::new()),
            registered: AtomicUsize::new(0),
            shown: AtomicU8::new(0),
            starved: AtomicU64::new(0),
            shutdowns: AtomicU64::new(0),
            limits_set: AtomicU32::new(0),
            seekable: AtomicBool::new(false),
            loans: Lock::new(Vec::new()),
            handed_over: AtomicBool::new(false),
            spinner: SetSpinner::default(),
            inherited: OnceLock::new(),
        }
    }

    pub(crate) fn numbers(&self) -> &Lock<Numbers> {
        &self.numbers
    }

    pub(crate) fn registrations(&self) -> &Lock<Vec<Registration>> {
        &self.registrations
    }

    /// To be called under the lock of the registrations whenever their number changes.
    pub(crate) fn count_registrations(&self, count: usize) {
        self.registered.store(count, Ordering::Release);
    }

    /// What the epoll sets have to know about the connection.
    #[inline]
    pub(crate) fn to_show(&self) -> u8 {
        let (attached, seeks) = (self.connection.is_attached(), self.connection.is_seeking());
        let mut show =
            if attached || seeks { WATCHED } else { self.shown.load(Ordering::Relaxed) & WATCHED };
        if show == 0 {
            return 0;
        }
        show |= if attached { ATTACHED } else { 0 } | if seeks { SEEKING } else { 0 };
        if self.connection.tx_on_ring() {
            show | TX_ON_RING
        } else if self.connection.retransmits() {
            show | RETRANSMITS
        } else {
            show
        }
    }

    /// To be called under the lock of the registrations when all sets know `shown`.
    pub(crate) fn set_shown(&self, shown: u8) {
        self.shown.store(shown, Ordering::Release);
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.seekable.load(Ordering::Relaxed)
    }

    pub(crate) fn set_seekable(&self) {
        self.seekable.store(true, Ordering::Relaxed);
    }

    pub(crate) fn loans(&self) -> &Lock<Vec<IovecLoan>> {
        &self.loans
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

    pub(crate) fn set_low_water(&self, bytes: usize) {
        self.connection.set_recv_low_water(bytes);
    }

    /// SO_RCVLOWAT.
    pub(crate) fn low_water(&self) -> usize {
        self.connection.recv_low_water()
    }

    /// Whether messages say how much is left unread.
    pub(crate) fn tells_unread(&self) -> bool {
        self.tells_unread.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tells_unread(&self, on: bool) {
        self.tells_unread.store(on, Ordering::Relaxed);
    }

    /// Whether the kernel may have something to tell with what is received.
    pub(crate) fn hears_kernel(&self) -> bool {
        self.hears_kernel.load(Ordering::Relaxed)
    }

    pub(crate) fn set_hears_kernel(&self) {
        self.hears_kernel.store(true, Ordering::Relaxed);
    }

    /// Options that the kernel copies from a listener to the sockets that it accepts.
    fn inherit(&self, listener: &Socket) {
        let (from, to) = (&listener.connection, &self.connection);
        to.settings().set_recv_timeout(from.settings().recv_timeout());
        to.settings().set_send_timeout(from.settings().send_timeout());
        to.set_recv_low_water(from.recv_low_water());
        self.set_tells_unread(listener.tells_unread());
        if listener.hears_kernel() {
            self.set_hears_kernel();
            let _ = self.connection.fall_back(Reason::UnknownOption);
        }
    }

    /// Bytes that are in the counters of the parent process.
    pub(crate) fn counted_by_parent(&self) -> Totals {
        self.inherited.get().copied().unwrap_or_default()
    }

    /// In the child of a fork.
    pub(crate) fn after_fork_child(&self) {
        self.connection.after_fork_child();
        let _ = self.inherited.set(self.connection.totals());
        // The thread that was about to become another program is not here.
        self.registrations.lock().iter_mut().for_each(|registration| registration.is_bare = false);
    }

    /// Another program gets this socket. False if one did before.
    pub(crate) fn hand_over(&self) -> bool {
        !self.handed_over.swap(true, Ordering::Relaxed)
    }

    /// It was not handed over after all.
    pub(crate) fn keep(&self) {
        self.handed_over.store(false, Ordering::Relaxed);
    }

    /// What user space alone knows to be ready. As in the kernel, less than SO_RCVLOWAT bytes are
    /// nothing to read.
    #[inline]
    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness_for(Interest::default())
    }

    /// As [`Socket::readiness`], for somebody who wants to know whether there is room.
    #[inline]
    pub(crate) fn readiness_for(&self, want: Interest) -> Readiness {
        let mut ready = self.connection.readiness_for(want);
        if ready.read && self.low_water() > 1 && !ready.end {
            // Another process may have set it back.
            let low_water = self.connection.recv_low_water_now();
            ready.read = self.connection.unread().is_ok_and(|unread| unread >= low_water);
        }
        ready
    }

    /// A send found less room than it wanted.
    #[inline]
    pub(crate) fn note_starved(&self) {
        if self.registered.load(Ordering::Relaxed) != 0 {
            self.starved.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn note_shutdown(&self) {
        self.shutdowns.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn shutdowns(&self) -> u64 {
        self.shutdowns.load(Ordering::Acquire)
    }

    /// Changes when a send found less room than it wanted.
    pub(crate) fn starved(&self) -> u64 {
        self.starved.load(Ordering::Acquire)
    }
}

/// By which way a call goes.
pub(crate) enum Way<'c> {
    /// By the kernel's own call, inside this bracket.
    Plain(Plain<'c>),
    /// By the library: the connection is attached, or seeks.
    Library,
    /// By the kernel's own call, unseen: the library has panicked.
    Unseen,
}

impl<'c> Way<'c> {
    /// The way that was found, unless finding it has panicked.
    fn chosen(entered: Option<Option<Plain<'c>>>) -> Self {
        match entered {
            Some(Some(plain)) => Self::Plain(plain),
            Some(None) => Self::Library,
            None => Self::Unseen,
        }
    }
}

impl SocketRef {
    /// By which way a call goes now.
    #[inline]
    pub(crate) fn enter(&self) -> Way<'_> {
        if self.connection.is_attached() {
            return Way::Library;
        }
        match self.connection.enter_plain_at_once() {
            Some(plain) => Way::Plain(plain),
            None => Way::chosen(ffi::guarded(|| self.connection.enter_plain())),
        }
    }

    /// As [`Self::enter`] for a call that receives: by the library also if the connection seeks,
    /// because the kernel's socket then does not have all that comes next, and has what was taken
    /// before.
    #[inline]
    pub(crate) fn enter_to_receive(&self) -> Way<'_> {
        if self.connection.is_attached() || self.connection.is_seeking() {
            return Way::Library;
        }
        match self.connection.enter_plain_to_receive_at_once() {
            Some(plain) => Way::Plain(plain),
            None => Way::chosen(ffi::guarded(|| self.connection.enter_plain_to_receive())),
        }
    }

    /// Leaves the bracket that [`Self::enter`] gave.
    #[inline]
    pub(crate) fn leave_plain(&self, plain: Plain<'_>) {
        if plain.leave() {
            ffi::keeping_errno(|| ffi::guarded(|| self.connection.catch_up()));
        }
    }

    /// Brings the epoll sets that hold this socket up to date with the state of its connection. To
    /// be called after anything that may have attached it, or may have moved its sends to the other
    /// carrier.
    #[inline]
    pub(crate) fn update_sets(&self) {
        if self.registered.load(Ordering::Acquire) != 0
            && self.shown.load(Ordering::Acquire) != self.to_show()
        {
            if postponed::is_due_later() {
                postponed::update_sets();
                return;
            }
            ffi::keeping_errno(|| ffi::guarded(|| epoll::update(self)));
        }
    }

    /// The number of the connection was found to stand for another file, or none.
    #[cold]
    pub(crate) fn untrack_stale(&self) {
        let fd = self.connection.fd().raw();
        let is_it = table::socket(fd)
            .is_some_and(|entered| std::ptr::eq(&raw const *entered, &raw const **self));
        if is_it {
            ffi::keeping_errno(|| untrack_unseen(fd));
        }
    }

    /// Moves the connection to TCP for good, before the caller sends by a call of its own.
    pub(crate) fn send_by_tcp(&self, why: Reason) {
        let _ = self.fall_back(why);
        ffi::guarded(|| self.connection.stay_on_tcp());
        // Whether the caller finds room is not seen.
        self.note_starved();
    }

    /// Moves the connection to TCP for good. The bytes that the peer has put on the ring by now
    /// come first.
    pub(crate) fn fall_back(&self, why: Reason) -> Result<(), Errno> {
        let result = ffi::guarded(|| self.connection.fall_back(why)).unwrap_or(Err(Errno::IO));
        self.update_sets();
        result
    }

    /// Moves the connection to TCP for good, for a holder that does not know of the ring.
    pub(crate) fn to_tcp(&self, why: Reason, until: Until) -> Result<(), Errno> {
        let result = ffi::guarded(|| self.connection.hand_over(why, until, passed::serve_peers))
            .unwrap_or(Err(Errno::IO));
        // Whether it finds room is not seen.
        self.note_starved();
        self.update_sets();
        result
    }
}

/// Tracks `fd`, which the kernel has just handed out. `listener` if it was accepted.
pub(crate) fn track(fd: c_int, role: Role, nonblocking: bool, listener: Option<&Socket>) {
    if memory::is_scarce() {
        fresh(fd);
        return;
    }
    let socket = Socket::new(fd, role);
    if nonblocking {
        socket.connection.settings().set_nonblocking(true);
    }
    if let Some(listener) = listener {
        socket.inherit(listener);
    }
    enter(fd, Object::socket(socket));
    if hazard::is_due(false) {
        hazard::reclaim();
    }
}

/// Enters an object for a number that the kernel has just handed out.
pub(crate) fn enter(fd: c_int, object: Arc<Object>) {
    if let Some(stale) = table::insert(fd, object) {
        // Closed by a way that the library cannot see, such as a raw system call.
        log::debug!(fd, "a tracked fd was closed behind the library's back");
        leave(fd, stale, Last::Gone);
    }
}

/// The kernel has just handed out `fd` for something that the library takes no part in: what the
/// table has there was closed by a way that the library cannot see.
#[inline]
pub(crate) fn fresh(fd: c_int) -> c_int {
    if table::is_entered(fd) {
        ffi::keeping_errno(|| untrack_unseen(fd));
    }
    fd
}

/// Stops tracking `fd`, which does not stand for the entered object any more.
#[cold]
pub(crate) fn untrack_unseen(fd: c_int) {
    match process::kind() {
        process::Kind::Own => {
            log::debug!(fd, "a tracked fd was closed behind the library's back");
            untrack(fd, Last::Gone);
        }
        process::Kind::Stranger => untrack(fd, Last::Kept),
        // It has closed its own number, but the table is its parent's.
        process::Kind::Vfork => {}
    }
}

/// What happens to the kernel's object when its last number goes.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Last {
    /// The caller closes it next.
    Closing,
    /// It is closed already.
    Gone,
    /// It stays open, unknown to the library or in another process.
    Kept,
}

/// Stops tracking `fd`: to be called before the kernel can hand its number out again.
pub(crate) fn untrack(fd: c_int, last: Last) {
    if let Some(object) = table::remove(fd) {
        leave(fd, object, last);
    }
}

/// Stops tracking `fd` because the caller closes it next.
pub(crate) fn untrack_closing(fd: c_int) {
    match process::kind() {
        process::Kind::Own => untrack(fd, Last::Closing),
        process::Kind::Stranger => untrack(fd, Last::Kept),
        // It closes its own number, but the table is its parent's.
        process::Kind::Vfork => {}
    }
}

pub(crate) fn leave(fd: c_int, object: Arc<Object>, last: Last) {
    if postponed::is_due_later() {
        postponed::leave(fd, object, last);
        return;
    }
    let mut numbers = object.numbers().lock();
    let gone = numbers.remove(fd);
    if let (Some(socket), Some(other)) = (object.as_socket(), numbers.any()) {
        socket.connection.set_fd(Fd::new(other));
    }
    drop(numbers);
    if let Some(socket) = object.as_socket().filter(|_| last != Last::Gone) {
        ffi::guarded(|| await_users(&object, socket, gone));
    }
    let mut eager = false;
    ffi::guarded(|| {
        if let Some(socket) = object.as_socket() {
            epoll::forget(socket, (!gone).then_some(fd), last);
            if gone && !socket.is_listening() {
                eager = socket.connection.holds_descriptors();
                socket.connection.leave_number();
                // One that lives on in another program does not end with this number.
                match last {
                    Last::Closing if !socket.handed_over.load(Ordering::Relaxed) => {
                        socket.connection.close()
                    }
                    Last::Gone => socket.connection.was_closed(),
                    Last::Closing | Last::Kept => {}
                }
                stats::closed(socket);
            }
        } else if let Some(set) = object.as_set().filter(|_| gone) {
            set.clear();
        }
    });
    // As long as other numbers stand for it, their references keep it.
    if gone {
        hazard::retire(object);
        if hazard::is_due(eager) {
            ffi::guarded(hazard::reclaim);
        }
    }
}

/// Waits until no other thread can be about to use the number that is closed next: each has left
/// its call, or sleeps, and has the file by another number when it wakes.
fn await_users(object: &Arc<Object>, socket: &Socket, gone: bool) {
    let connection = &socket.connection;
    if !(connection.is_attached() || connection.is_seeking()) || thread::is_only_one() {
        return;
    }
    loop {
        hazard::wait_for_others(Arc::as_ptr(object), || connection.sleepers());
        if !(gone && connection.divert()) {
            return;
        }
    }
}

/// `fd` has become another number for `object`.
pub(crate) fn duplicate(object: Arc<Object>, fd: c_int) {
    if object.numbers().lock_in_handler().is_some_and(|mut numbers| numbers.add(fd)) {
        enter(fd, object);
    }
}
