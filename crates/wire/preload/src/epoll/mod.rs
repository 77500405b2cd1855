//! Epoll sets that hold connections which are attached or seeking.
//!
//! The application's epoll fd stays a real one, and everything the library does not know is in it
//! as usual. When a connection attaches, or seeks, its registration is changed to carry a
//! [tag](tag) instead of the application's data, and the connection's doorbell is added with
//! another tag. What comes back from the kernel is translated.
//!
//! Each such connection in a set is a [`Watch`], in one of two states. A *hot* one is looked at in
//! user space by every wait, and the peer does not ring for it. An *armed* one is not looked at:
//! the peer rings its doorbell, which makes it hot again. So a wait costs as much as there are
//! active connections, and a busy program makes hardly any system call.
//!
//! Invariant, kept under the lock of the set: while a thread sleeps on the set in the kernel, or
//! something else could (the set is itself watched), no watch is hot. Therefore nobody sleeps
//! through what happens on a connection.
//!
//! Lock order: registrations of a socket, then state of a set.

mod answer;
mod events;
mod left;
mod shared;
mod sharing;
mod state;
mod tag;
mod turns;
mod wait;
mod watch;

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::epoll_event;
use seekwire_endpoint::{Reason, SetSpinner};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::file;

pub(crate) use left::control as control_left;
pub(crate) use shared::is_alone;
pub(crate) use wait::wait;

use self::state::State;
use self::watch::{EXCLUSIVE, ONE_SHOT, RDHUP, READ, WRITE};
use crate::ffi::fail;
use crate::lock::{Lock, RawLock};
use crate::log;
use crate::socket::{Last, Numbers, Registration, Socket};
use crate::table::{self, Object, SetRef, SharedSet, SharedSocket, SocketRef};

/// One epoll instance, from its first to its last fd number in this process.
pub(crate) struct Set {
    numbers: Lock<Numbers>,
    /// Another set, or poll, watches this one: it may be slept on without a wait of ours.
    watched: AtomicBool,
    /// From the first fork on.
    sharing: OnceLock<Option<Arc<sharing::Sharing>>>,
    /// Several processes use it, and this one has taken its connections out.
    is_left: AtomicBool,
    /// A thread is taking them out.
    is_leaving: AtomicBool,
    /// Whether waiting awake has paid lately.
    spinner: SetSpinner,
    state: Lock<State>,
}

impl Set {
    /// The set behind a new epoll fd.
    pub(crate) fn new(fd: c_int) -> Set {
        Set {
            numbers: Lock::new(Numbers::new(fd)),
            watched: AtomicBool::new(false),
            sharing: OnceLock::new(),
            is_left: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            spinner: SetSpinner::default(),
            state: Lock::new(State::new()),
        }
    }

    pub(crate) fn numbers(&self) -> &Lock<Numbers> {
        &self.numbers
    }

    /// The last number is closed: all watches go.
    pub(crate) fn clear(&self) {
        self.state.lock().clear();
        self.give_up();
    }

    fn number(&self) -> Option<c_int> {
        self.numbers.lock().any()
    }

    /// Somebody may sleep until the set becomes readable: what comes into it from now on rings.
    pub(crate) fn expect_sleeper(&self) {
        self.watched.store(true, Ordering::SeqCst);
    }

    /// From now on somebody may sleep on this set without waiting on it.
    pub(crate) fn set_watched(&self) {
        self.watched.store(true, Ordering::Release);
        if let Some(epfd) = self.number() {
            self.state.lock().arm_for_sleepers(epfd);
        }
    }

    /// Prepares for somebody who is about to sleep until the set becomes readable; true if it
    /// should not sleep.
    pub(crate) fn arm(&self) -> bool {
        self.number().is_some_and(|epfd| {
            self.state.lock_in_handler().is_none_or(|mut state| {
                state.heat_doubtful();
                state.arm(epfd) || state.is_left_ready()
            })
        })
    }

    /// Whether perhaps no doorbell will be rung for what it was prepared for, or another process
    /// may answer one that is: the sleep is to be a short one.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.sharing.get().is_some()
            || self
                .state
                .lock_in_handler()
                .is_none_or(|mut state| !state.in_doubt.is_empty() || state.has_left())
    }

    /// Whether an event is ready that the kernel does not know of.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock_in_handler().is_none_or(|state| state.is_ready())
    }

    /// The kernel says that the set is readable. That may be because of a doorbell that was rung
    /// for something that is gone by now. Then silences it; true, and the kernel is to be asked
    /// again.
    pub(crate) fn silence(&self) -> bool {
        let Some(epfd) = self.number() else { return false };
        self.state.lock_in_handler().is_some_and(|mut state| {
            let silenced = state.silence(epfd);
            if silenced && state.sleepers > 0 {
                state.arm_for_sleepers(epfd);
            } else if silenced {
                // Whoever polls the set looks at what is in doubt.
                state.arm_all(epfd);
            }
            silenced
        })
    }

    /// Whether the state must be free of hot watches when its lock is released.
    fn has_sleepers(&self, state: &State) -> bool {
        state.sleepers > 0 || self.watched.load(Ordering::Acquire)
    }

    /// What a fork must find free.
    pub(crate) fn state_lock(&self) -> &RawLock {
        self.state.raw()
    }

    pub(crate) fn after_fork_child(&self) {
        if self.is_leaving.swap(false, Ordering::Relaxed) {
            // The thread that was taking connections out is not here: it is done again.
            self.is_left.store(false, Ordering::Relaxed);
        }
        self.state.lock().after_fork_child();
    }
}

/// epoll_ctl on a tracked socket.
pub(crate) fn control(
    set: &SetRef,
    epfd: c_int,
    op: c_int,
    socket: &SocketRef,
    fd: c_int,
    event: *const epoll_event,
    kernel: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the application passes a valid event or null, as epoll_ctl demands.
    let asked = unsafe { event.as_ref() }.copied();
    if op == libc::EPOLL_CTL_MOD && asked.is_some_and(is_exclusive) {
        return fail(Errno::INVAL);
    }
    let mut registrations = socket.registrations().lock();
    let mut known = registrations
        .iter()
        .position(|registration| registration.fd == fd && set.is(&registration.set));
    // To the application, a parked socket is not in the set.
    if let Some(index) = known
        && let Some(watch) = registrations[index].parked
    {
        let mut state = set.state.lock();
        match (op, asked) {
            (libc::EPOLL_CTL_ADD, Some(asked))
                if state.is_parked(watch, fd) && !is_exclusive(asked) =>
            {
                if let Err(error) = state.change(watch, epfd, asked.events, asked.u64) {
                    return fail(error);
                }
                let registration = &mut registrations[index];
                (registration.events, registration.data) = (asked.events, asked.u64);
                (registration.watch, registration.parked) = (Some(watch), None);
                if set.has_sleepers(&state) {
                    state.arm_for_sleepers(epfd);
                }
                return 0;
            }
            (libc::EPOLL_CTL_ADD, _) => {
                state.unpark(watch, fd, epfd);
                registrations.swap_remove(index);
                known = None;
            }
            _ => return fail(Errno::NOENT),
        }
    }
    match (op, asked, known) {
        (libc::EPOLL_CTL_ADD, Some(asked), None) => {
            let result = kernel();
            if result == 0 {
                let place = Arc::downgrade(&set.share().into_object());
                registrations.push(Registration::new(place, fd, asked));
                socket.count_registrations(registrations.len());
                if socket.to_show() != 0 {
                    let shown = show(socket, &mut registrations);
                    drop(registrations);
                    keep_or_leave(socket, shown);
                }
            }
            result
        }
        (libc::EPOLL_CTL_ADD, _, Some(index)) if registrations[index].stand_in.is_some() => {
            fail(Errno::EXIST)
        }
        (libc::EPOLL_CTL_MOD, Some(asked), Some(index)) => {
            let registration = &mut registrations[index];
            if registration.events & EXCLUSIVE != 0 {
                return fail(Errno::INVAL);
            }
            let Some(watch) = registration.watch else {
                let result = match &registration.stand_in {
                    Some(stand_in) => returned(tag::control(
                        epfd,
                        tag::Op::Modify,
                        stand_in.fd().raw(),
                        asked.events,
                        asked.u64,
                    )),
                    None => kernel(),
                };
                if result == 0 {
                    (registration.events, registration.data) = (asked.events, asked.u64);
                }
                return result;
            };
            let mut state = set.state.lock();
            if let Err(error) = state.change(watch, epfd, asked.events, asked.u64) {
                return fail(error);
            }
            (registration.events, registration.data) = (asked.events, asked.u64);
            if set.has_sleepers(&state) {
                state.arm_for_sleepers(epfd);
            }
            0
        }
        (libc::EPOLL_CTL_DEL, _, Some(index)) => {
            if let Some(watch) = registrations[index].watch
                && registrations[index].stand_in.is_none()
                && set.is_own()
                && set.state.lock().park(watch)
            {
                (registrations[index].watch, registrations[index].parked) = (None, Some(watch));
                return 0;
            }
            let registration = registrations.swap_remove(index);
            socket.count_registrations(registrations.len());
            if let Some(watch) = registration.watch {
                let mut state = set.state.lock();
                state.remove(watch, Some(epfd));
            }
            match registration.stand_in {
                Some(stand_in) => {
                    returned(tag::control(epfd, tag::Op::Delete, stand_in.fd().raw(), 0, 0))
                }
                None => kernel(),
            }
        }
        _ => kernel(),
    }
}

/// What epoll_ctl returns.
fn returned(result: Answer<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}

/// `socket` turned out to be in `set`, by the number `fd`: it was put there before it was tracked.
fn found(set: &SetRef, socket: &SocketRef, fd: c_int, event: epoll_event) {
    let mut registrations = socket.registrations().lock();
    if registrations.iter().any(|registration| registration.fd == fd && set.is(&registration.set)) {
        return;
    }
    let place = Arc::downgrade(&set.share().into_object());
    registrations.push(Registration::new(place, fd, event));
    socket.count_registrations(registrations.len());
}

/// Tells the epoll sets which of these sockets they hold, by number. A set that is not tracked
/// cannot be told: somebody may sleep on it in the kernel.
pub(crate) fn find(wanted: impl Fn(c_int) -> Option<SocketRef>) {
    for (epfd, object) in table::entries() {
        drop(object);
        let Some(set) = table::set(epfd) else { continue };
        for entry in registrations(epfd) {
            if let Some(socket) = wanted(entry.number) {
                found(&set, &socket, entry.number, entry.event);
            }
        }
    }
}

/// What the kernel has in a set.
#[derive(Copy, Clone)]
struct InKernel {
    /// By which it was added.
    number: c_int,
    event: epoll_event,
    inode: u64,
}

impl InKernel {
    /// One-shot, and the shot is fired.
    fn is_fired(&self) -> bool {
        self.event.events & ONE_SHOT != 0 && self.event.events & (READ | WRITE | RDHUP) == 0
    }
}

/// What the kernel says is in the set `epfd`.
fn registrations(epfd: c_int) -> Vec<InKernel> {
    let text = file::read(format!("/proc/self/fdinfo/{epfd}").as_ref()).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(registration).collect()
}

/// Whether a one-shot has fired while it was the kernel's alone: nobody saw the shot.
fn is_fired(epfd: c_int, registration: &Registration) -> bool {
    let is_it = |entry: &InKernel| entry.number == registration.number() && entry.is_fired();
    registration.events & ONE_SHOT != 0 && registrations(epfd).iter().any(is_it)
}

/// A line of an epoll set: `tfd: 5 events: 19 data: 5 pos:0 ino:1234 sdev:8`, all but the first and
/// the position in hexadecimal.
fn registration(line: &str) -> Option<InKernel> {
    let mut words = line.split_whitespace();
    let mut after =
        |name: &str| words.next().filter(|&word| word == name).and_then(|_| words.next());
    let number = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    let inode = words
        .find_map(|word| word.strip_prefix("ino:"))
        .and_then(|word| u64::from_str_radix(word, 16).ok());
    Some(InKernel { number, event: epoll_event { events, u64: data }, inode: inode? })
}

fn is_exclusive(asked: epoll_event) -> bool {
    asked.events & EXCLUSIVE != 0
}

/// Tells every set that holds `socket` what the connection has become.
pub(crate) fn update(socket: &SocketRef) {
    let shown = show(socket, &mut socket.registrations().lock());
    keep_or_leave(socket, shown);
}

/// A connection that a set cannot watch is no good for the application on the ring.
fn keep_or_leave(socket: &SocketRef, shown: Answer<()>) {
    if let Err(error) = shown {
        log::warn!(%error, "cannot watch a connection in an epoll set; it goes back to TCP");
        let _ = socket.connection.fall_back(Reason::UnknownOption);
    }
}

fn show(socket: &SocketRef, registrations: &mut Vec<Registration>) -> Answer<()> {
    let shown = socket.to_show();
    registrations.retain(|registration| registration.set.strong_count() > 0);
    let mut result = Ok(());
    for index in 0..registrations.len() {
        let registration = &registrations[index];
        let Some(set) = SharedSet::find(&registration.set) else { continue };
        let Some(epfd) = set.number() else { continue };
        if set.is_left.load(Ordering::Acquire) {
            // Its connections go back to TCP anyway.
            continue;
        }
        if !set.is_own() {
            result = Err(Errno::BUSY);
            continue;
        }
        let mut state = set.state.lock();
        if let Some(watch) = registration.watch {
            state.refresh(watch, epfd);
        } else if registration.parked.is_none() && !registration.is_bare {
            let sibling = registrations
                .iter()
                .filter(|other| other.set.ptr_eq(&registration.set))
                .find_map(|other| other.watch);
            match state.install(epfd, socket.share(), registration, sibling) {
                Ok(watch) => registrations[index].watch = Some(watch),
                Err(error) => result = Err(error),
            }
        }
        if set.has_sleepers(&state) {
            state.arm_for_sleepers(epfd);
        }
    }
    socket.count_registrations(registrations.len());
    socket.set_shown(shown);
    result
}

/// What may be changed in the kernel's set for a registration that ends.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Reach {
    /// Another process has the set, and needs it as it is.
    Nothing,
    /// The socket's number is gone, and may stand for another file by now.
    Doorbell,
    All,
}

/// Takes a watch out; its registration goes on in the kernel's set as the application asked.
fn give_back(set: &Set, registration: &Registration, watch: u32, reach: Reach) {
    let epfd = set.number().filter(|_| reach != Reach::Nothing);
    let mut state = set.state.lock();
    if let Some(epfd) = epfd.filter(|_| reach == Reach::All) {
        state.give_back(watch, epfd, registration);
    }
    state.remove(watch, epfd);
}

/// Likewise one that the application has taken out already, for good: another process may put it
/// back.
fn drop_parked(set: &Set, registration: &Registration, watch: u32, reach: Reach) {
    let epfd = set.number().filter(|_| reach != Reach::Nothing);
    let mut state = set.state.lock();
    if state.is_parked(watch, registration.fd) {
        match epfd {
            Some(epfd) if reach == Reach::All => state.evict(watch, epfd),
            epfd => state.remove(watch, epfd),
        }
    }
}

/// The number `fd` of `socket` is about to be closed; `None`: all of them.
///
/// The kernel drops registrations only with the last reference to the socket in any process. Those
/// that stay while other numbers of this process stand for the socket go on by a number of the
/// library's own, since the kernel does not change one whose number is closed; others get the
/// application's data back.
pub(crate) fn forget(socket: &Socket, fd: Option<c_int>, last: Last) {
    let mut registrations = socket.registrations().lock();
    registrations.retain_mut(|registration| {
        if fd.is_some_and(|fd| fd != registration.fd) {
            return true;
        }
        let Some(set) = SharedSet::find(&registration.set) else { return false };
        let own = set.is_own();
        let reach = match (own, last) {
            (false, _) => Reach::Nothing,
            (true, Last::Gone) if registration.stand_in.is_none() => Reach::Doorbell,
            (true, _) => Reach::All,
        };
        if !own {
            set.state.lock().drop_left(registration.number());
        }
        if let Some(watch) = registration.parked {
            drop_parked(&set, registration, watch, reach);
        }
        let lives_on =
            fd.is_some() && last == Last::Closing && own && registration.parked.is_none();
        let Some(watch) = registration.watch else {
            if lives_on {
                // It stays the kernel's alone.
                let _ = socket.connection.fall_back(Reason::UnknownOption);
            }
            return false;
        };
        if lives_on && registration.stand_in.is_some() {
            // The number stood for the socket again.
            return true;
        }
        if lives_on
            && let Some(epfd) = set.number()
            && let Ok(stand_in) = Placed::duplicate(socket.connection.fd())
            && set.state.lock().replace(watch, epfd, stand_in.fd().raw()).is_ok()
        {
            registration.stand_in = Some(stand_in);
            return true;
        }
        give_back(&set, registration, watch, reach);
        if own && last != Last::Gone && !socket.connection.ends_with_this_process() {
            // Another process keeps it in the set, which only the kernel tells of it from now on.
            let _ = socket.connection.fall_back(Reason::Bypassed);
        }
        false
    });
    socket.count_registrations(registrations.len());
}

/// Another program is about to get the sets that hold `socket`: the kernel has them as the
/// application asked until [`cover`]. The sets of another process stay as they are.
pub(crate) fn lay_bare(socket: &Socket) {
    let mut registrations = socket.registrations().lock();
    registrations.retain_mut(|registration| {
        let Some(set) = SharedSet::find(&registration.set) else { return false };
        if !set.is_own() {
            return true;
        }
        if let Some(watch) = registration.parked {
            drop_parked(&set, registration, watch, Reach::All);
            return false;
        }
        if let Some(watch) = registration.watch.take() {
            give_back(&set, registration, watch, Reach::All);
        }
        // Also one that is not watched yet: another thread may bring its connection to the ring.
        registration.is_bare = true;
        true
    });
    socket.count_registrations(registrations.len());
}

/// No other program has come: what is worth watching in the sets that hold `socket` is watched
/// again.
pub(crate) fn cover(socket: &SocketRef) {
    let mut registrations = socket.registrations().lock();
    let mut was_bare = false;
    for registration in registrations.iter_mut() {
        was_bare |= std::mem::take(&mut registration.is_bare);
    }
    if was_bare && socket.to_show() != 0 {
        let shown = show(socket, &mut registrations);
        drop(registrations);
        keep_or_leave(socket, shown);
    }
}

/// The object of a new epoll fd enters the table.
pub(crate) fn track(fd: c_int) {
    crate::socket::enter(fd, Object::set(Set::new(fd)));
}

type Attached = SharedSocket;
type Answer<T> = Result<T, Errno>;
