//! A connection in an epoll set, as the set sees it.

use std::ffi::{c_int, c_short};
use std::ops::Deref;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use libc::{
    EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI,
    EPOLLRDHUP, EPOLLRDNORM, EPOLLWRNORM, POLLIN, POLLRDHUP,
};
use seekwire_endpoint::{Carrier, Connection, Interest};
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::Deadline;

use super::sharing::Note;
use super::tag::{self, Op, Subject, Tag};
use crate::look;
use crate::registration::Registration;
use crate::socket::Socket;

pub(super) const READ: u32 = (EPOLLIN | EPOLLRDNORM) as u32;
pub(super) const WRITE: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
pub(super) const RDHUP: u32 = EPOLLRDHUP as u32;
pub(super) const EDGE: u32 = EPOLLET as u32;
pub(super) const ONE_SHOT: u32 = EPOLLONESHOT as u32;
/// One or more of the sets that have it are woken; a set whose doorbell rings, like the others, is
/// one of them.
pub(super) const EXCLUSIVE: u32 = EPOLLEXCLUSIVE as u32;
/// What the kernel reports whether it was asked to or not.
pub(super) const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;

/// A counted reference to a socket.
pub(crate) trait Share: Deref<Target = Socket> {}

/// A connection in an epoll set that is attached or seeking, or was found with a rest.
pub(super) struct Watch<S> {
    pub(super) socket: S,
    pub(super) fd: c_int,
    /// As the application asked for them.
    pub(super) events: u32,
    pub(super) data: u64,
    pub(super) generation: u8,
    /// Next watch of the same connection in this set, by a duplicate of its fd: a ring, of one
    /// almost always.
    pub(super) sibling: u32,
    /// The doorbell, which those of one connection share, carries the tag of this one.
    pub(super) owns_doorbell: bool,
    /// The doorbell that is in the set.
    pub(super) doorbell: Option<Fd>,
    /// In the queue of those to be looked at.
    pub(super) hot: bool,
    /// Armed, and its own doorbell was rung to give it a place in the kernel's ready list.
    pub(super) queued: bool,
    /// Was ready in a wait that had no room for it, and in which the kernel had nothing to report.
    pub(super) overdue: bool,
    /// The pass of looks that found it ready last.
    pub(super) found: u64,
    /// What the peer was asked to ring for.
    armed: Option<Armed>,
    /// When it was armed, the peer held bytes back until then at most.
    held: Option<Deadline>,
    /// Among those that are to be looked after.
    pub(super) is_untaken: bool,
    /// One-shot, and the shot is fired.
    pub(super) disabled: bool,
    /// The kernel has fired it: only then does it report nothing of it any more.
    pub(super) is_silent: bool,
    /// Just added or changed: everything that is ready is news.
    pub(super) fresh: bool,
    /// Edge-triggered: what was reported last.
    pub(super) mark: u64,
    pub(super) starved: u64,
    /// The ends of the stream that the kernel knew of when one was reported last.
    pub(super) ended: u32,
    /// Edge-triggered: the ends and errors that the kernel has told, and what had arrived there
    /// when it last told something to read, and how often this end had shut itself down.
    pub(super) known: u32,
    pub(super) arrived: Option<u64>,
    pub(super) shutdowns: u64,
    /// Edge-triggered: the kernel may tell again what was told, because the registration was
    /// changed, or because what has arrived there was reported with what lies on the ring.
    pub(super) may_repeat: bool,
    /// The registration was changed, and nothing was reported since.
    pub(super) is_unmarked: bool,
    /// Looks in a row that found nothing.
    pub(super) idle: u8,
    /// For what the kernel was told when to report EPOLLOUT.
    pub(super) sends: Sends,
    /// What the kernel was last asked to report; level-triggered, it may be more than the
    /// application wants.
    pub(super) told: u32,
    /// The application has taken the socket out of the set, and the kernel has not been told: see
    /// [`State::park`].
    pub(super) parked: bool,
    /// The walks through the kernel's ready list that told of the socket last, and of the
    /// doorbell.
    pub(super) told_of: [u64; 2],
    /// The wait that reported this watch last, and at which place: one wait reports a watch once.
    pub(super) reported: (u64, usize),
}

impl<S: Share> Watch<S> {
    /// Of `registration`, not known to the kernel yet.
    pub(super) fn new(
        socket: S,
        registration: &Registration,
        index: u32,
        generation: u8,
    ) -> Watch<S> {
        let sends = Sends::of(&socket.connection);
        Watch {
            socket,
            fd: registration.number(),
            events: registration.events & !EXCLUSIVE,
            data: registration.data,
            generation,
            sibling: index,
            owns_doorbell: true,
            doorbell: None,
            hot: false,
            queued: false,
            overdue: false,
            found: 0,
            armed: None,
            held: None,
            is_untaken: false,
            disabled: false,
            is_silent: false,
            fresh: true,
            mark: 0,
            starved: 0,
            ended: 0,
            known: 0,
            arrived: None,
            shutdowns: 0,
            may_repeat: false,
            is_unmarked: false,
            idle: 0,
            sends,
            told: EDGE,
            parked: false,
            told_of: [0; 2],
            reported: (0, 0),
        }
    }

    /// What whoever inherits the set has to know of it.
    pub(super) fn note(&self) -> Note {
        Note {
            events: self.events,
            data: self.data,
            generation: self.generation,
            parked: self.parked,
            fired: self.disabled,
        }
    }

    pub(super) fn interest(&self) -> Interest {
        Interest { read: self.events & READ != 0, write: self.events & WRITE != 0 }
    }

    /// What user space alone knows to be ready, as events to report.
    pub(super) fn look(&self) -> u32 {
        if self.disabled {
            return 0;
        }
        let look = self.look_closely();
        if look.is_news { look.events } else { 0 }
    }

    fn look_closely(&self) -> Look {
        // Before the readiness: what changes in between is news next time.
        let (mark, starved) = (self.socket.connection.data_mark(), self.socket.starved());
        let ready = self.socket.readiness_for(self.interest());
        let mut events = 0;
        if ready.read {
            events |= READ;
        }
        if ready.write {
            events |= WRITE;
        }
        events &= self.events;
        let connection = &self.socket.connection;
        if self.events & EDGE != 0
            && self.events & !events & READ != 0
            && Connection::bytes_of_mark(mark) != Connection::bytes_of_mark(self.mark)
            && connection.carriers().1 == Carrier::Tcp
        {
            // News on the ring, behind what is still to be received by TCP.
            events |= look::state(connection.fd(), POLLIN) & self.events & READ;
        }
        let is_news = self.events & EDGE == 0
            || self.fresh
            || events & READ != 0 && mark != self.mark
            || events & WRITE != 0 && starved != self.starved;
        let ended = ready.end || self.socket.connection.has_end_to_tell();
        let is_full = ready.tx_on_ring && !ready.write && self.events & WRITE != 0;
        Look { events, is_news, is_full, ended, mark, starved }
    }

    /// As [`Watch::look`], for somebody who reports what is found; beside what the kernel has to
    /// report of it, what is no news as well, as the kernel does.
    pub(super) fn take(&mut self, beside_kernel: bool) -> u32 {
        if self.disabled {
            return 0;
        }
        let look = self.look_closely();
        let is_told = look.events != 0 && (look.is_news || beside_kernel);
        if is_told || beside_kernel {
            self.fresh = false;
            if look.events & WRITE != 0 {
                self.starved = look.starved;
            } else if look.is_full {
                // A look that finds no room makes room news, as a send does.
                self.starved = look.starved.wrapping_sub(1);
            }
        }
        if is_told {
            self.mark = look.mark;
            self.idle = 0;
            self.disabled = self.events & ONE_SHOT != 0;
            self.mark_kernel(look.events);
            return look.events | self.ask_kernel(look.ended);
        }
        0
    }

    /// What is reported may have come by TCP as well.
    fn mark_kernel(&mut self, events: u32) {
        let connection = &self.socket.connection;
        if self.events & EDGE != 0
            && events & READ != 0
            && (self.is_unmarked || connection.peer_has_sent_by_tcp())
        {
            self.arrived = connection.kernel_mark();
            self.shutdowns = self.socket.shutdowns();
            (self.may_repeat, self.is_unmarked) = (true, false);
        }
    }

    /// What the kernel has to add to what user space knows, for one event tells all: of a direction
    /// that is on TCP, and of the end.
    fn ask_kernel(&mut self, ended: bool) -> u32 {
        let connection = &self.socket.connection;
        let mut open = if connection.carriers().1 == Carrier::Tcp { self.events & READ } else { 0 };
        if Sends::of(connection) == Sends::default() {
            open |= self.events & WRITE;
        }
        if open == 0 && !ended {
            return 0;
        }
        let known = look::state(connection.fd(), open as c_short | POLLRDHUP);
        if ended {
            self.ended = known & !(READ | WRITE);
        }
        let told = known & (self.events | ALWAYS);
        self.note_told(told);
        told
    }

    /// Notes what is told of the kernel's, for [`Watch::is_old`].
    pub(super) fn note_told(&mut self, events: u32) {
        if events & ALWAYS != 0 {
            self.socket.connection.heard_of_end();
        }
        if self.events & EDGE == 0 {
            return;
        }
        self.known |= events & !(READ | WRITE);
        self.is_unmarked = false;
        if events & (READ | RDHUP) != 0 {
            self.arrived = self.socket.connection.kernel_mark();
            self.shutdowns = self.socket.shutdowns();
        }
        if events & WRITE != 0 {
            self.starved = self.socket.starved();
        }
    }

    /// Whether the kernel tells, edge-triggered, what it has told, for the second time.
    pub(super) fn is_old(&mut self, events: u32) -> bool {
        let may_repeat = std::mem::take(&mut self.may_repeat);
        let connection = &self.socket.connection;
        let has_arrived = || {
            let now = connection.kernel_mark();
            now.is_none() || now != self.arrived || self.shutdowns != self.socket.shutdowns()
        };
        may_repeat
            && !self.fresh
            && events & !(READ | WRITE | self.known) == 0
            && events & (EPOLLERR | EPOLLPRI) as u32 == 0
            && (events & WRITE == 0 || self.starved == self.socket.starved())
            && (events & (READ | RDHUP) == 0 || !has_arrived())
    }

    /// Whether the kernel tells once more, edge-triggered, of an end that was reported.
    pub(super) fn knows_end(&self, events: u32) -> bool {
        self.events & EDGE != 0
            && !self.fresh
            && self.ended != 0
            && events & !(self.ended | READ) == 0
            && self.shutdowns == self.socket.shutdowns()
    }

    /// Whether it is ready; noted for this pass of looks.
    pub(super) fn is_found(&mut self, pass: u64) -> bool {
        let found = self.look() != 0;
        if found {
            self.found = pass;
            // Whatever was published before it is seen by the looks that follow.
            fence(Ordering::Acquire);
        }
        found
    }

    /// From now on the peer rings; true if there is something to report already.
    pub(super) fn arm(&mut self) -> bool {
        if self.disabled || self.parked {
            return false;
        }
        if self.armed.is_none() {
            // Edge-triggered, room is no news before a send has found none. The peer is not asked
            // to ring for it until then: it would ring for every message that it takes.
            let leaves_room = self.leaves_room();
            let mut interest = self.interest();
            interest.write &= !leaves_room;
            self.socket.connection.arm(interest);
            self.armed = Some(Armed { interest, leaves_room });
        }
        // Taken before the look: bytes that are held back at the look are visible by then.
        let held = self.socket.connection.held_for(self.interest());
        self.held = held.map(|held| Deadline::after(Some(held)));
        self.look() != 0
    }

    /// Whether this watch is to be armed without the room that it wants; then the socket knows.
    fn leaves_room(&self) -> bool {
        if self.events & WRITE == 0 || self.is_room_news() {
            return false;
        }
        self.socket.leave_room();
        // A send that found no room meanwhile did not see this watch yet.
        let is_news = self.is_room_news();
        if is_news {
            self.socket.mind_room();
        }
        !is_news
    }

    /// Whether room to send is to be reported when there is any.
    fn is_room_news(&self) -> bool {
        self.events & EDGE == 0 || self.fresh || self.starved != self.socket.starved()
    }

    /// How long a sleep may be, if perhaps no doorbell will be rung for what it is armed for.
    pub(super) fn doubt(&self) -> Option<Duration> {
        let interest = self.armed.as_ref()?.interest;
        let doubt = match self.sends {
            Sends { held_up: true, .. } if interest.write => Some(Connection::MOMENT),
            _ => self.socket.connection.is_in_doubt(interest).then_some(Connection::DOUBT),
        };
        self.held.and_then(|held| held.left()).into_iter().chain(doubt).min()
    }

    pub(super) fn disarm(&mut self) {
        if let Some(interest) = self.forget_arm() {
            self.socket.connection.disarm(interest);
        }
    }

    /// No longer armed, as far as this process goes. In the child of a fork that is all: the parent
    /// disarms what it has armed.
    pub(super) fn forget_arm(&mut self) -> Option<Interest> {
        let armed = self.armed.take()?;
        if armed.leaves_room {
            self.socket.mind_room();
        }
        Some(armed.interest)
    }

    /// What the kernel has to report of the application's fd.
    pub(super) fn wanted(&self) -> u32 {
        match self.sends {
            Sends { on_ring: true, .. } | Sends { held_up: true, .. } => self.events & !WRITE,
            Sends { retransmit: true, .. } => self.events | EPOLLOUT as u32,
            Sends { .. } => self.events,
        }
    }

    pub(super) fn is_stale(&self) -> bool {
        self.sends != Sends::of(&self.socket.connection)
            || self.socket.connection.doorbell() != self.doorbell
    }

    /// Whether events beyond [`Watch::wanted`] do no harm: they are dropped when they come.
    pub(super) fn is_lenient(&self) -> bool {
        self.events & (EDGE | ONE_SHOT) == 0
    }

    /// Makes the kernel's registration of the application's fd that of this watch, unless it covers
    /// what is wanted.
    pub(super) fn tell_kernel(&mut self, epfd: c_int, index: u32) -> Result<(), Errno> {
        let wanted = self.wanted();
        if self.is_lenient() && self.told & wanted == wanted && self.told & (EDGE | ONE_SHOT) == 0 {
            return Ok(());
        }
        // The next change is then most likely covered, too.
        self.tell(epfd, index, if self.is_lenient() { wanted | READ } else { wanted })
    }

    /// Puts the socket, which is in the set by the number of this watch, there by another.
    pub(super) fn replace(&mut self, epfd: c_int, index: u32, fd: c_int) -> Result<(), Errno> {
        let data =
            Tag { watch: index, generation: self.generation, subject: Subject::Socket }.encode()?;
        let events = if self.disabled { ONE_SHOT } else { self.told };
        tag::control(epfd, Op::Add, fd, events, data)?;
        self.is_silent = false;
        self.may_repeat = self.told & EDGE != 0;
        let _ = tag::control(epfd, Op::Delete, self.fd, 0, 0);
        self.fd = fd;
        Ok(())
    }

    /// Takes EPOLLEXCLUSIVE from the registration of the application's fd, which the kernel would
    /// not change.
    pub(super) fn join_others(&self, epfd: c_int, index: u32) -> Result<(), Errno> {
        let data =
            Tag { watch: index, generation: self.generation, subject: Subject::Socket }.encode()?;
        tag::control(epfd, Op::Delete, self.fd, 0, 0)?;
        tag::control(epfd, Op::Add, self.fd, EDGE, data)
    }

    pub(super) fn tell(&mut self, epfd: c_int, index: u32, events: u32) -> Result<(), Errno> {
        let data =
            Tag { watch: index, generation: self.generation, subject: Subject::Socket }.encode()?;
        tag::control(epfd, Op::Modify, self.fd, events, data)?;
        (self.told, self.is_silent) = (events, false);
        (self.may_repeat, self.is_unmarked) = (events & EDGE != 0, events & EDGE != 0);
        Ok(())
    }

    /// Before it is taken out: to the kernel, its socket is in the set as the application asked.
    pub(super) fn give_back(&self, epfd: c_int, registration: &Registration, fired: Fired) {
        let number = registration.number();
        let modify = |events, data| tag::control(epfd, Op::Modify, number, events, data);
        let _ = match fired {
            _ if !self.disabled => modify(registration.events & !EXCLUSIVE, registration.data),
            Fired::Gone => tag::control(epfd, Op::Delete, number, 0, 0),
            Fired::Kept => tag::fire(epfd, number),
            Fired::Bare if self.is_silent => Ok(()),
            Fired::Bare => modify(ONE_SHOT, registration.data),
        };
    }

    /// Watches the doorbell that the connection has now: one that seeks has another.
    pub(super) fn change_doorbell(&mut self, epfd: c_int, index: u32) -> Result<(), Errno> {
        let now = self.socket.connection.doorbell();
        if self.doorbell == now {
            return Ok(());
        }
        self.remove_doorbell(epfd);
        if let Some(doorbell) = now.filter(|_| self.owns_doorbell) {
            let data =
                Tag { watch: index, generation: self.generation, subject: Subject::Doorbell }
                    .encode()?;
            match tag::control(epfd, Op::Add, doorbell.raw(), READ | EDGE, data) {
                // Another process has left it there.
                Err(Errno::EXIST) => {}
                added => added?,
            }
        }
        self.doorbell = now;
        Ok(())
    }

    pub(super) fn remove_doorbell(&mut self, epfd: c_int) {
        if let Some(doorbell) = self.doorbell.take().filter(|_| self.owns_doorbell) {
            let _ = tag::control(epfd, Op::Delete, doorbell.raw(), 0, 0);
        }
    }
}

/// When a watch goes, the kernel's entry of a shot that is fired.
#[derive(Copy, Clone)]
pub(super) enum Fired {
    /// None: the connection ends.
    Gone,
    /// It is the library's.
    Kept,
    /// It is the application's, which goes on without the library. Of a shot that the kernel did not
    /// fire, it may report EPOLLERR or EPOLLHUP.
    Bare,
}

/// What room in the kernel's socket means to a connection.
#[derive(Copy, Clone, Default, Eq, PartialEq)]
pub(super) struct Sends {
    /// Nothing: sends travel on the ring. EPOLLOUT is kept from the kernel.
    pub(super) on_ring: bool,
    /// Nothing: a receiver keeps sends from TCP ([`Connection::is_held_up`]). EPOLLOUT is kept from
    /// the kernel.
    pub(super) held_up: bool,
    /// That it can retransmit. EPOLLOUT is asked of the kernel for the library's own sake: see
    /// [`seekwire_endpoint::Readiness::retransmits`].
    pub(super) retransmit: bool,
}

impl Sends {
    pub(super) fn of(connection: &Connection) -> Sends {
        let retransmit = connection.retransmits();
        let held_up = !retransmit && connection.is_held_up();
        Sends { on_ring: connection.tx_on_ring(), held_up, retransmit }
    }
}

/// How a watch is armed.
struct Armed {
    interest: Interest,
    /// The application wants to hear of room to send, and the peer was not asked to ring for it:
    /// see [`Socket::note_starved`](crate::socket::Socket::note_starved).
    leaves_room: bool,
}

/// What a look at a connection says, and the marks that go with it.
struct Look {
    events: u32,
    /// Edge-triggered, it may have been reported before.
    is_news: bool,
    /// There is no room on the ring.
    is_full: bool,
    /// The kernel may have something to add.
    ended: bool,
    mark: u64,
    starved: u64,
}
