//! Waiting on a list of fds, of which some are connections that are attached or seeking: the engine
//! of poll, ppoll, select and pselect.
//!
//! User space is checked, and the kernel as well unless every fd is an attached connection, so that
//! no fd starves. The thread sleeps on the application's fds and on the doorbells together.

use std::ffi::{c_int, c_short};
use std::ptr;
use std::time::Duration;

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM,
    pollfd, sigset_t,
};
use seekwire_endpoint::{Armed, Carrier, Holding, Interest, Plain, Sends};
use seekwire_transport::Errno;
use seekwire_transport::ring::MOST_LEFT;
use seekwire_transport::sys::doorbell::EdgeWatch;
use seekwire_transport::sys::signal::HeldBack;
use seekwire_transport::sys::{self, Fd};
use smallvec::SmallVec;

use crate::call_path::CallPath;
use crate::ffi::{errno, fail, guarded, guarded_raw, set_errno};
use crate::look::look;
use crate::signals::while_asleep;
use crate::table::{self, SetRef, SocketRef, TableEntry};
use crate::timeout::{Timeout, timespec};
use crate::waiter::{MOST_QUESTIONS, Spun, Waiter, stay_awake, until_armed};
use crate::{epoll, real, unload};

const READ: c_short = POLLIN | POLLRDNORM;
/// TCP never reports POLLWRBAND.
const WRITE: c_short = POLLOUT | POLLWRNORM;

/// How long to sleep if an event may come without ending the sleep.
const SHORT: Duration = Duration::from_millis(10);

/// A list for the kernel.
type Asked = SmallVec<[pollfd; 16]>;

/// The source of an answer.
pub(crate) enum PollAnswer {
    /// No fd is an attached connection; the application's own call was made.
    Kernel(c_int),
    /// The library leaves the process: the application's own call is to be made, with the remaining
    /// time.
    Left(Timeout),
    /// The result as of poll, with `revents` filled in.
    Poll { result: c_int, has_slept: bool },
}

/// The entries of the list that the kernel does not fully know, with their positions.
#[derive(Default)]
struct Ours<'a> {
    sockets: SmallVec<[(usize, &'a SocketRef); 8]>,
    sets: SmallVec<[(usize, &'a SetRef); 2]>,
}

/// The sleep of one call.
#[derive(Default)]
struct Sleep<'a> {
    is_of_select: bool,
    /// Holds the files, like the kernel's poll.
    holdings: SmallVec<[Holding<'a>; 8]>,
    /// Used once the sleep has begun, or the thread stays awake for long: a signal ends the call even
    /// if it comes while the thread is awake.
    signals: Option<HeldBack>,
    has_begun: bool,
    /// Number of times that a doorbell has woken it.
    called: u32,
    /// Watched in place of the doorbells, after [`MOST_LEFT`] wake-ups.
    edge_watches: SmallVec<[(Fd, Option<EdgeWatch>); 2]>,
}

impl Sleep<'_> {
    fn watches_edges(&self) -> bool {
        self.called >= MOST_LEFT
    }

    /// Forgets earlier signals of the doorbells, before the last check.
    fn forget(&mut self) {
        self.edge_watches.iter().flat_map(|(_, watch)| watch).for_each(EdgeWatch::forget);
    }

    /// The descriptor to watch for `doorbell`, or `None` if there are none left.
    fn wait_fd(&mut self, doorbell: Fd) -> Option<Fd> {
        if !self.watches_edges() {
            return Some(doorbell);
        }
        let existing = self.edge_watches.iter().position(|(of, _)| *of == doorbell);
        let at = existing.unwrap_or_else(|| {
            self.edge_watches.push((doorbell, EdgeWatch::new(doorbell).ok()));
            self.edge_watches.len() - 1
        });
        self.edge_watches[at].1.as_ref().map(EdgeWatch::fd)
    }
}

/// Waits until something in `fds` is ready. For select (`is_of_select`), a number that is closed
/// during the sleep differs from one that was closed before. `kernel` makes the application's own
/// call.
pub(crate) fn wait(
    fds: &mut [pollfd],
    mut timeout: Timeout,
    mask: *const sigset_t,
    is_of_select: bool,
    kernel: impl FnOnce() -> c_int,
) -> PollAnswer {
    let parts: SmallVec<[(usize, TableEntry); 8]> =
        fds.iter().enumerate().filter_map(|(at, entry)| Some((at, part(entry.fd)?))).collect();
    if parts.is_empty() {
        return PollAnswer::Kernel(kernel());
    }
    let mut ours = Ours::default();
    // A connection does not attach while a thread sleeps on its TCP socket alone.
    let mut brackets: SmallVec<[(&SocketRef, Plain<'_>); 8]> = SmallVec::new();
    for (at, part) in &parts {
        match part {
            TableEntry::Socket(socket) => match socket.enter_to_wait() {
                CallPath::Plain(plain) => {
                    brackets.push((socket, plain));
                    // The library may hold bytes that the kernel does not know about.
                    if socket.connection.receives_by_library() {
                        ours.sockets.push((*at, socket));
                    }
                }
                CallPath::Library => ours.sockets.push((*at, socket)),
                CallPath::Unseen => {}
            },
            TableEntry::Set(set) if fds[*at].events & READ != 0 => ours.sets.push((*at, set)),
            TableEntry::Set(_) | TableEntry::Uring(_) => {}
        }
    }
    let answer = if ours.sockets.is_empty() && ours.sets.is_empty() {
        PollAnswer::Kernel(kernel())
    } else {
        let mut sleep = Sleep { is_of_select, ..Sleep::default() };
        let waited = wait_for_ours(fds, &ours, &mut timeout, mask, &mut sleep);
        let mut result = waited.unwrap_or(0);
        // Like the kernel, which looks up each number again after a wake-up.
        if result > 0 && sleep.has_begun {
            for (at, socket) in &ours.sockets {
                if socket.connection.is_closed() {
                    fds[*at].revents = POLLNVAL;
                }
            }
            result = count(fds);
        }
        let has_slept = sleep.has_begun;
        guarded(|| drop(sleep.holdings));
        // Handlers of pending signals run here, or at the end.
        match (waited, &sleep.signals) {
            (None, Some(signals)) => match signals.let_in() {
                Ok(()) => PollAnswer::Left(timeout),
                Err(error) => PollAnswer::Poll { result: fail(error), has_slept },
            },
            (None, None) => PollAnswer::Left(timeout),
            (Some(0), _) if is_interrupted(mask) => PollAnswer::Poll { result: -1, has_slept },
            (Some(_), _) => PollAnswer::Poll { result, has_slept },
        }
    };
    brackets.into_iter().for_each(|(socket, plain)| socket.leave_plain(plain));
    for (_, part) in &parts {
        if let TableEntry::Socket(socket) = part {
            socket.update_sets();
        }
    }
    answer
}

/// Lets in signals that only the application's own mask unblocks, as the kernel does if nothing is
/// ready, even in a call that does not sleep. Returns true if a handler ran; then errno is EINTR.
fn is_interrupted(mask: *const sigset_t) -> bool {
    let at_once = timespec(Duration::ZERO);
    // SAFETY: no descriptors, a live time, and the application's own mask.
    !mask.is_null() && unsafe { real::ppoll(ptr::null_mut(), 0, &raw const at_once, mask) } < 0
}

/// Excludes listeners, which only the kernel handles. A set without connections may get some.
fn part(fd: c_int) -> Option<TableEntry> {
    table::lookup(fd).filter(|entry| match entry {
        TableEntry::Socket(socket) => !socket.is_listening(),
        TableEntry::Set(set) => {
            set.expect_sleeper();
            // A set that was left to the kernel may still have bytes on a ring.
            if epoll::is_alone(set, fd) {
                epoll::note_wait(set);
            }
            true
        }
        TableEntry::Uring(_) => false,
    })
}

/// One call, while it waits.
struct Call<'w, 'a, 'o> {
    fds: &'w mut [pollfd],
    ours: &'a Ours<'o>,
    all_attached: bool,
    timeout: &'w mut Timeout,
    sleep: &'w mut Sleep<'a>,
}

/// `None` if the library leaves the process.
fn wait_for_ours<'a>(
    fds: &mut [pollfd],
    ours: &'a Ours<'_>,
    timeout: &mut Timeout,
    mask: *const sigset_t,
    sleep: &mut Sleep<'a>,
) -> Option<c_int> {
    let all_attached = ours.sets.is_empty() && ours.sockets.len() == fds.len();
    // The peer may be waiting for this, and the call may not get as far as sleeping.
    guarded_raw(|| ours.service_peers());
    // Only the kernel knows about a direction that is on TCP, and mostly at once.
    let mut asks = ours.is_for_kernel(fds);
    let mut call = Call { fds, ours, all_attached, timeout, sleep };
    loop {
        let (armed, held) = match until_armed(&mut call, asks) {
            Ok(armed) => armed,
            Err(answer) => return answer,
        };
        if let Err(result) = call.sleep(armed, held, mask) {
            return Some(result);
        }
        // The kernel has checked the fds one after the other, and the doorbells last: if it is
        // asked again, it reports all events that came before those.
        asks = true;
    }
}

impl<'a, 'o> Waiter for Call<'_, 'a, 'o> {
    /// As returned by [`wait_for_ours`].
    type Answer = Option<c_int>;
    /// Also how long the sleep may be if peers hold bytes back.
    type Armed = (ArmedEnds<'a, 'o>, Option<Duration>);

    fn look(&mut self, asks: bool) -> Option<Option<c_int>> {
        let ours = self.ours;
        if unload::has_begun() {
            return Some(None);
        }
        if self.sleep.has_begun {
            // Another process may have begun to use a set.
            ours.sets.iter().for_each(|(at, set)| _ = epoll::is_alone(set, self.fds[*at].fd));
        }
        self.fds.iter_mut().for_each(|entry| entry.revents = 0);
        guarded_raw(|| ours.sets.iter().for_each(|(_, set)| set.recheck()));
        let ready = guarded_raw(|| ours.add_ready(self.fds)).unwrap_or(false);
        if ready && self.all_attached && guarded_raw(|| ours.knows_all(self.fds)).unwrap_or(false) {
            return Some(Some(count(self.fds)));
        }
        if !(ready || asks || self.timeout.is_none()) {
            return None;
        }
        let answered = ours.ask_kernel(self.fds);
        // A set may be readable because of the event that wakes the others.
        if !ours.sets.is_empty() && unload::has_begun() {
            return Some(None);
        }
        match count(self.fds) {
            0 if !answered => Some(Some(-1)),
            0 if asks && !self.timeout.is_over() => None,
            1.. if guarded_raw(|| ours.make_room(self.fds)).unwrap_or(false) => self.look(true),
            ready => Some(Some(ready)),
        }
    }

    /// By the experience of the first connection.
    fn spin(&mut self) -> Spun {
        let Self { fds, ours, all_attached, timeout, sleep } = self;
        let spin = || {
            let place = |socket: &SocketRef| socket.connection.place_of_peer();
            let mut worthy =
                ours.sockets.iter().filter_map(|(_, socket)| Some((socket, place(socket)?)));
            let Some((first, peer)) = worthy.next() else { return Spun::InVain };
            let kernel_has_events = || {
                !*all_attached && {
                    let mut asked = ours.masked(fds).0;
                    look(&mut asked) && asked.iter().any(|entry| entry.revents != 0)
                }
            };
            let is_ready = || ours.any_ready(fds);
            stay_awake(
                &first.spinner,
                peer,
                timeout,
                &mut sleep.signals,
                kernel_has_events,
                is_ready,
            )
        };
        guarded_raw(spin).unwrap_or(Spun::InVain)
    }

    fn arm(&mut self) -> Option<Self::Armed> {
        // From here on any event ends the sleep. Arming makes room for later events, by taking
        // earlier ones that would block them.
        self.sleep.forget();
        let mut armed = ArmedEnds { ours: self.ours, ends: SmallVec::new() };
        let held = guarded_raw(|| armed.arm(self.fds)).flatten()?;
        Some((armed, held))
    }
}

impl<'a> Call<'_, 'a, '_> {
    /// Sleeps once. An error is the result of the call.
    fn sleep(
        &mut self,
        armed: ArmedEnds<'a, '_>,
        held: Option<Duration>,
        mask: *const sigset_t,
    ) -> Result<(), c_int> {
        let Self { fds, ours, all_attached, timeout, sleep } = self;
        // Computed only now, because a check may have moved sends off a full ring to TCP.
        let (mut asked, sends) = ours.masked(fds);
        let mut short = held.into_iter().chain(ours.recheck_after(fds, &sends)).min();
        for (at, socket) in &ours.sockets {
            let doorbell = socket.connection.doorbell_for(interest(&fds[*at]));
            let watched =
                doorbell.and_then(|doorbell| guarded_raw(|| sleep.wait_fd(doorbell)).flatten());
            if doorbell.is_some() && watched.is_none() {
                short = Some(short.map_or(SHORT, |short| short.min(SHORT)));
            }
            asked.push(pollfd { fd: watched.map_or(-1, Fd::raw), events: POLLIN, revents: 0 });
        }
        let left = timeout.left_at_most(short).map(timespec);
        let limit = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        if !sleep.has_begun {
            // During the sleep it becomes unknown whether a number was closed before.
            if sleep.is_of_select && !*all_attached && has_closed(&asked[..fds.len()]) {
                return Ok(());
            }
            sleep.has_begun = true;
            sleep.signals.get_or_insert_with(HeldBack::new);
            sleep.holdings = ours
                .sockets
                .iter()
                .filter_map(|(_, socket)| socket.connection.hold_file())
                .collect();
        }
        let asleep: SmallVec<[_; 8]> =
            ours.sockets.iter().map(|(_, socket)| socket.connection.fall_asleep()).collect();
        let blocked = while_asleep(sleep.signals.as_ref(), mask);
        let before = errno();
        // SAFETY: `asked` and `limit` are live; so is the mask, or it is the application's own.
        let mut result =
            unsafe { real::ppoll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, limit, blocked) };
        if result < 0 && errno() == Errno::INVAL.raw_os_error() {
            ours.replace_with_doorbells(fds.len(), &mut asked);
            let left = timeout.left_at_most(Some(SHORT)).map(timespec);
            let limit = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: as above.
            result = unsafe {
                real::ppoll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, limit, blocked)
            };
        }
        let after = if result < 0 { errno() } else { before };
        drop(asleep);
        drop(armed);
        set_errno(after);
        if result < 0 {
            return Err(result);
        }
        ours.await_end(fds, &mut asked);
        for (nth, (at, socket)) in ours.sockets.iter().enumerate() {
            let doorbell = asked.get(fds.len() + nth).unwrap_or(&asked[*at]);
            if doorbell.revents != 0 {
                let watches_edges = sleep.watches_edges();
                sleep.called = sleep.called.saturating_add(1);
                guarded_raw(|| {
                    if !watches_edges {
                        socket.connection.quiet_doorbell();
                    }
                    socket.connection.service_peer();
                });
            }
        }
        guarded_raw(|| ours.retransmit(fds, &mut asked));
        Ok(())
    }
}

impl Ours<'_> {
    /// Fills in the events known to user space; returns whether there are new ones. If a later
    /// event is filled in, all earlier ones are also filled in.
    fn add_ready(&self, fds: &mut [pollfd]) -> bool {
        let mut any = false;
        loop {
            let news = self.add_ready_once(fds);
            any |= news;
            if !news || self.sockets.len() + self.sets.len() == 1 {
                return any;
            }
        }
    }

    fn add_ready_once(&self, fds: &mut [pollfd]) -> bool {
        let mut news = false;
        let mut add = |entry: &mut pollfd, events: c_short| {
            let now = entry.revents | events & entry.events;
            news |= now != entry.revents;
            entry.revents = now;
        };
        for &(at, socket) in &self.sockets {
            let ready = socket.readiness_for(interest(&fds[at]));
            let mut events = 0;
            if ready.read {
                events |= READ;
            }
            if ready.write {
                events |= WRITE;
            }
            add(&mut fds[at], events);
        }
        for &(at, set) in &self.sets {
            add(&mut fds[at], if set.is_ready() { READ } else { 0 });
        }
        news
    }

    /// Adds the kernel's events, and earlier ones of user space. Returns false if the kernel
    /// returned an error, with errno set.
    fn ask_kernel(&self, fds: &mut [pollfd]) -> bool {
        for _ in 0..MOST_QUESTIONS {
            let (mut asked, _) = self.masked(fds);
            if !look(&mut asked) {
                return false;
            }
            // Silencing a doorbell may make it ring again.
            for _ in 0..MOST_QUESTIONS {
                if !guarded_raw(|| self.silence(&asked)).unwrap_or(false) {
                    break;
                }
                asked.iter_mut().for_each(|entry| entry.revents = 0);
                if !look(&mut asked) {
                    return false;
                }
            }
            self.await_end(fds, &mut asked);
            guarded_raw(|| self.retransmit(fds, &mut asked));
            guarded_raw(|| self.note_reported_ends(&asked));
            merge(fds, &asked);
            // For TCP there is room once both directions have ended, and it may know that before
            // the peer's memory shows it.
            for &(at, _) in self.sockets.iter().filter(|(at, _)| asked[*at].revents & POLLHUP != 0)
            {
                fds[at].revents |= fds[at].events & WRITE;
            }
            let news = guarded_raw(|| self.add_ready(fds)).unwrap_or(false);
            // If the peer has gone in the meantime, the kernel knows about the room that was
            // masked.
            let (now, _) = self.masked(fds);
            let same = now.iter().zip(&asked).all(|(now, then)| now.events == then.events);
            if !news && same {
                break;
            }
        }
        true
    }

    /// Silences the doorbells in sets that the kernel may have reported as readable only because of
    /// them.
    fn silence(&self, asked: &[pollfd]) -> bool {
        let is_reported = |&&(at, _): &&(usize, &SetRef)| asked[at].revents & READ != 0;
        self.sets.iter().filter(is_reported).fold(false, |any, (_, set)| epoll::silence(set) || any)
    }

    /// True if the kernel has nothing to add: no end of a stream, no events that only it knows, and
    /// no direction on TCP that is not known to be ready.
    fn knows_all(&self, fds: &[pollfd]) -> bool {
        self.sockets.iter().all(|&(at, socket)| {
            let open = fds[at].events & !fds[at].revents;
            fds[at].events & (POLLRDHUP | POLLPRI) == 0
                && (open & READ == 0 || socket.connection.carriers().1 == Carrier::Ring)
                && (open & WRITE == 0 || socket.connection.tx_on_ring())
                && socket.connection.is_attached()
                && !socket.readiness().end
                && !socket.connection.has_end_to_tell()
        })
    }

    /// True if events are wanted for a direction that is on TCP.
    fn is_for_kernel(&self, fds: &[pollfd]) -> bool {
        let socket = |&(at, socket): &(usize, &SocketRef)| {
            socket.connection.is_for_kernel(interest(&fds[at]))
        };
        self.sockets.iter().any(socket)
    }

    /// Leaves full rings if the answer would report nothing but ends: a program that gets such an
    /// answer may drop bytes that it has yet to forward. Returns whether the kernel has to be asked
    /// for room.
    fn make_room(&self, fds: &[pollfd]) -> bool {
        const ENDS: c_short = POLLHUP | POLLRDHUP | POLLERR;
        if fds.iter().any(|entry| entry.revents & !ENDS != 0) {
            return false;
        }
        let has_left = |&&(at, socket): &&(usize, &SocketRef)| {
            fds[at].events & WRITE != 0 && socket.connection.make_room_by_tcp()
        };
        // For all of them, not only the first.
        self.sockets.iter().filter(has_left).count() > 0
    }

    fn service_peers(&self) {
        self.sockets.iter().for_each(|(_, socket)| socket.connection.service_peer());
    }

    fn any_ready(&self, fds: &[pollfd]) -> bool {
        self.sockets.iter().any(|&(at, socket)| is_ready(socket, interest(&fds[at])))
            || self.sets.iter().any(|(_, set)| set.is_ready())
    }

    /// How long the sleep may be, if an event may come without ending it.
    fn recheck_after(&self, fds: &[pollfd], sends: &[Sends]) -> Option<Duration> {
        let of_sockets = self.sockets.iter().zip(sends).filter_map(|(&(at, socket), &sends)| {
            socket.connection.longest_sleep(interest(&fds[at]), sends)
        });
        let of_sets = self.sets.iter().filter_map(|(_, set)| set.recheck_after());
        of_sockets.chain(of_sets).min()
    }

    /// The kernel polls no more fds than RLIMIT_NOFILE allows: doorbells replace their sockets if
    /// bytes come by the ring. The sockets are checked after a short sleep.
    fn replace_with_doorbells(&self, count: usize, asked: &mut Asked) {
        for (nth, (at, socket)) in self.sockets.iter().enumerate() {
            if socket.connection.carriers().1 == Carrier::Ring
                && let Some(&doorbell) = asked.get(count + nth)
            {
                asked[*at] = doorbell;
            }
        }
        asked.truncate(count);
    }

    /// When the kernel ends a connection, it first sets the error and then frees the unsent bytes.
    /// A check in between finds the error, but not the room that comes with it. The kernel's own
    /// wait would be woken again afterwards; here the peer's doorbell may end the sleep before. A
    /// socket whose error queue has messages is no such case.
    fn await_end(&self, fds: &[pollfd], asked: &mut Asked) {
        const LOOKS: u32 = 10_000;
        let is_half_reported = |asked: &Asked| {
            self.sockets.iter().any(|&(at, socket)| {
                fds[at].events & POLLOUT != 0
                    && asked[at].revents & (POLLERR | POLLHUP | POLLOUT) == POLLERR
                    && !sys::socket::fills_error_queue(socket.connection.fd())
            })
        };
        for _ in 0..LOOKS {
            if !is_half_reported(asked) || !look(asked) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// An end that the kernel reports also applies to the ring.
    fn note_reported_ends(&self, asked: &Asked) {
        for &(at, socket) in &self.sockets {
            if asked[at].revents & (POLLERR | POLLHUP) != 0 {
                socket.connection.note_reported_end();
            }
        }
    }

    /// Uses the room that the kernel has found for bytes to retransmit, which come before those
    /// that the application wants to send.
    fn retransmit(&self, fds: &[pollfd], asked: &mut Asked) {
        for &(at, socket) in &self.sockets {
            if asked[at].revents & WRITE != 0 && socket.connection.retransmits() {
                socket.connection.service_peer();
            }
            let kept =
                if socket.connection.retransmits() { WRITE } else { WRITE & !fds[at].events };
            asked[at].revents &= !kept;
        }
    }

    /// The list for the kernel. While sends do not go by TCP, room in the TCP socket means nothing;
    /// while bytes have to be retransmitted, it is always wanted. Also returns how each connection
    /// sends.
    fn masked(&self, fds: &[pollfd]) -> (Asked, SmallVec<[Sends; 8]>) {
        let mut asked: Asked = fds.iter().map(|entry| pollfd { revents: 0, ..*entry }).collect();
        let mask = |&(at, socket): &(usize, &SocketRef)| {
            // The call holds the file, even though another thread has closed the number.
            if socket.connection.is_closed() {
                asked[at].fd = socket.connection.fd().raw();
            }
            let sends = socket.connection.sends();
            match sends {
                Sends::Ring | Sends::HeldUp => asked[at].events &= !WRITE,
                Sends::Retransmit => asked[at].events |= POLLOUT,
                Sends::Tcp => {}
            }
            sends
        };
        let sends = self.sockets.iter().map(mask).collect();
        (asked, sends)
    }
}

/// Armed connections; disarmed at the end, even if the thread is cancelled in its sleep.
struct ArmedEnds<'a, 'b> {
    ours: &'a Ours<'b>,
    ends: SmallVec<[Armed; 8]>,
}

impl ArmedEnds<'_, '_> {
    /// Arms one after the other. Returns how long the sleep may be if peers hold bytes back, or
    /// nothing once one is ready.
    fn arm(&mut self, fds: &[pollfd]) -> Option<Option<Duration>> {
        let mut least = None;
        for &(at, socket) in &self.ours.sockets {
            let want = interest(&fds[at]);
            self.ends.push(socket.connection.arm(want));
            let (ready, held) = socket.connection.last_look(want, || is_ready(socket, want));
            if ready {
                return None;
            }
            least = held.into_iter().chain(least).min();
        }
        let is_awake = |(_, set): &(usize, &SetRef)| set.is_ready() || set.arm();
        (!self.ours.sets.iter().any(is_awake)).then_some(least)
    }
}

impl Drop for ArmedEnds<'_, '_> {
    fn drop(&mut self) {
        for ((_, socket), armed) in self.ours.sockets.iter().zip(self.ends.drain(..)) {
            guarded_raw(|| socket.connection.disarm(armed));
        }
    }
}

fn is_ready(socket: &SocketRef, want: Interest) -> bool {
    let ready = socket.readiness_for(want);
    want.read && ready.read || want.write && ready.write
}

fn interest(entry: &pollfd) -> Interest {
    Interest { read: entry.events & READ != 0, write: entry.events & WRITE != 0 }
}

/// Adds the kernel's answers.
fn merge(fds: &mut [pollfd], asked: &[pollfd]) {
    for (entry, answer) in fds.iter_mut().zip(asked) {
        entry.revents |= answer.revents;
    }
}

fn has_closed(asked: &[pollfd]) -> bool {
    let mut asked = Asked::from_slice(asked);
    look(&mut asked) && asked.iter().any(|entry| entry.revents & POLLNVAL != 0)
}

/// Number of ready fds.
fn count(fds: &[pollfd]) -> c_int {
    fds.iter().filter(|entry| entry.revents != 0).count() as c_int
}
