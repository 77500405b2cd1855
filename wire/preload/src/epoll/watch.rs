//! A connection in an epoll set, as seen by the set.

use std::ffi::{c_int, c_short};
use std::ops::Deref;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use libc::{EPOLLERR, EPOLLOUT, EPOLLPRI, POLLIN, POLLRDHUP};
use seekwire_endpoint::{Carrier, Connection, Interest};
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::Deadline;

use super::event_flags::{ALWAYS, EDGE, EXCLUSIVE, ONE_SHOT, RDHUP, READ, WRITE};
use super::set_records::Note;
use super::tag::{self, Op, Subject, Tag};
use crate::look;
use crate::registration::Registration;
use crate::socket::Socket;

/// A counted reference to a socket.
pub(crate) trait SocketHandle: Deref<Target = Socket> {}

/// A connection in an epoll set that is attached or seeking, or was found with a spill.
pub(super) struct Watch<S> {
    pub(super) socket: S,
    pub(super) fd: c_int,
    /// The events that the application asked for.
    pub(super) events: u32,
    pub(super) data: u64,
    pub(super) generation: u8,
    /// Next watch of the same connection in this set, under a duplicate of its fd: a circular list,
    /// almost always of one.
    pub(super) sibling: u32,
    /// The doorbell, which all watches of one connection share, carries the tag of this one.
    pub(super) owns_doorbell: bool,
    /// The doorbell that is in the set.
    pub(super) doorbell: Option<Fd>,
    /// In the queue of watches to check.
    pub(super) hot: bool,
    /// Armed, and its own doorbell was rung to put it into the kernel's ready list.
    pub(super) queued: bool,
    /// Was ready in a wait that had no room for it, and in which the kernel had no events.
    pub(super) overdue: bool,
    /// The last pass of checks that found it ready.
    pub(super) ready_pass: u64,
    /// The events for which the peer was asked to ring.
    armed: Option<Armed>,
    /// The latest time until which the peer, when this was armed, held bytes back.
    held: Option<Deadline>,
    /// Noted because of undelivered bytes.
    pub(super) is_undelivered: bool,
    /// One-shot, and has fired.
    pub(super) disabled: bool,
    /// The kernel itself has fired it, so it reports no more events.
    pub(super) is_silent: bool,
    /// One-shot, and armed by its installation, while another thread might have an event from the
    /// kernel that had fired it: the number of installations until then, including this one. 0
    /// otherwise.
    pub(super) armed_again: u64,
    /// It has reported an event since then, and was armed again by the program.
    pub(super) was_reported: bool,
    /// Just added or changed: all ready events are news.
    pub(super) fresh: bool,
    /// Edge-triggered: the mark of the last report.
    pub(super) mark: u64,
    pub(super) starved: u64,
    /// The ends of the stream that the kernel knew at the last report of one.
    pub(super) ended: u32,
    /// Edge-triggered: the ends and errors that the kernel has reported; the mark of its bytes at
    /// its last report of something to read; and the number of this end's shutdowns.
    pub(super) reported_ends: u32,
    pub(super) arrived: Option<u64>,
    pub(super) shutdowns: u64,
    /// Edge-triggered: the kernel may repeat a report, because the registration was changed, or
    /// because its bytes were reported together with those on the ring.
    pub(super) may_repeat: bool,
    /// The registration was changed, and nothing has been reported since.
    pub(super) is_unmarked: bool,
    /// Number of checks in a row that found no event.
    pub(super) idle: u8,
    /// The carrier state for which the kernel's registration was last chosen.
    pub(super) sends: Sends,
    /// The events in the kernel's registration. If level-triggered, they may include more than the
    /// application wants.
    pub(super) kernel_events: u32,
    /// The application has removed the socket from the set, but the kernel does not know: see
    /// [`SetState::park`](super::state::SetState::park).
    pub(super) parked: bool,
    /// The last walks through the kernel's ready list that reported the socket, and the doorbell.
    pub(super) reported_walks: [u64; 2],
    /// The last wait that reported this watch, and the position there: one wait reports a watch
    /// once.
    pub(super) reported: (u64, usize),
}

impl<S: SocketHandle> Watch<S> {
    /// Makes the watch of `registration`, which the kernel does not know yet.
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
            ready_pass: 0,
            armed: None,
            held: None,
            is_undelivered: false,
            disabled: false,
            is_silent: false,
            armed_again: 0,
            was_reported: false,
            fresh: true,
            mark: 0,
            starved: 0,
            ended: 0,
            reported_ends: 0,
            arrived: None,
            shutdowns: 0,
            may_repeat: false,
            is_unmarked: false,
            idle: 0,
            sends,
            kernel_events: EDGE,
            parked: false,
            reported_walks: [0; 2],
            reported: (0, 0),
        }
    }

    /// The note for a process that inherits the set.
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

    /// The ready events that only user space knows about.
    pub(super) fn look(&self) -> u32 {
        if self.disabled {
            return 0;
        }
        let look = self.look_closely();
        if look.is_news { look.events } else { 0 }
    }

    fn look_closely(&self) -> Look {
        // Read before the readiness: changes in between are news next time.
        let (mark, starved) = (self.socket.connection.data_mark(), self.socket.starved());
        let shutdowns = self.socket.shutdowns();
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
            // There is news on the ring, after unread bytes that came by TCP.
            events |= look::state(connection.fd(), POLLIN) & self.events & READ;
        }
        let is_news = self.events & EDGE == 0
            || self.fresh
            || events & READ != 0 && (mark != self.mark || shutdowns != self.shutdowns)
            || events & WRITE != 0 && starved != self.starved;
        let ended = ready.end || self.socket.connection.has_end_to_tell();
        let is_full = ready.tx_on_ring && !ready.write && self.events & WRITE != 0;
        Look { events, is_news, is_full, ended, mark, starved, shutdowns }
    }

    /// Like [`Watch::look`], for a caller that reports the events. If the kernel also reports the
    /// connection, old events are included, as the kernel does.
    pub(super) fn take(&mut self, with_kernel: bool) -> u32 {
        if self.disabled {
            return 0;
        }
        let look = self.look_closely();
        let is_reported = look.events != 0 && (look.is_news || with_kernel);
        if is_reported || with_kernel {
            self.fresh = false;
            if look.events & WRITE != 0 {
                self.starved = look.starved;
            } else if look.is_full {
                // Finding no room makes later room news, as a failed send does.
                self.starved = look.starved.wrapping_sub(1);
            }
        }
        if is_reported {
            (self.mark, self.shutdowns) = (look.mark, look.shutdowns);
            self.idle = 0;
            self.disabled = self.events & ONE_SHOT != 0;
            self.mark_kernel(look.events);
            return look.events | self.ask_kernel(look.ended);
        }
        0
    }

    /// The reported bytes may have come by TCP as well.
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

    /// The events that the kernel has in addition, because one report contains all: for a direction
    /// that is on TCP, and for the end.
    fn ask_kernel(&mut self, ended: bool) -> u32 {
        let connection = &self.socket.connection;
        let mut open = if connection.carriers().1 == Carrier::Tcp { self.events & READ } else { 0 };
        if Sends::of(connection) == Sends::default() {
            open |= self.events & WRITE;
        }
        if open == 0 && !ended {
            return 0;
        }
        let state = look::state(connection.fd(), open as c_short | POLLRDHUP);
        if ended {
            self.ended = state & !(READ | WRITE);
        }
        let events = state & (self.events | ALWAYS);
        self.note_kernel_report(events);
        events
    }

    /// Notes a report of the kernel's events, for [`Watch::is_old`].
    pub(super) fn note_kernel_report(&mut self, events: u32) {
        if events & ALWAYS != 0 {
            self.socket.connection.note_reported_end();
        }
        if self.events & EDGE == 0 {
            return;
        }
        self.reported_ends |= events & !(READ | WRITE);
        self.is_unmarked = false;
        if events & (READ | RDHUP) != 0 {
            self.arrived = self.socket.connection.kernel_mark();
            self.shutdowns = self.socket.shutdowns();
        }
        if events & WRITE != 0 {
            self.starved = self.socket.starved();
        }
    }

    /// True if an edge-triggered event of the kernel repeats an earlier one.
    pub(super) fn is_old(&mut self, events: u32) -> bool {
        let may_repeat = std::mem::take(&mut self.may_repeat);
        let connection = &self.socket.connection;
        let has_arrived = || {
            let now = connection.kernel_mark();
            now.is_none() || now != self.arrived || self.shutdowns != self.socket.shutdowns()
        };
        may_repeat
            && !self.fresh
            && events & !(READ | WRITE | self.reported_ends) == 0
            && events & (EPOLLERR | EPOLLPRI) as u32 == 0
            && (events & WRITE == 0 || self.starved == self.socket.starved())
            && (events & (READ | RDHUP) == 0 || !has_arrived())
    }

    /// True if an edge-triggered event of the kernel repeats an end that was reported.
    pub(super) fn has_reported_end(&self, events: u32) -> bool {
        self.events & EDGE != 0
            && !self.fresh
            && self.ended != 0
            && events & !(self.ended | READ) == 0
            && self.shutdowns == self.socket.shutdowns()
    }

    /// True if it is ready; recorded for this pass of checks.
    pub(super) fn is_ready_in_pass(&mut self, pass: u64) -> bool {
        let is_ready = self.look() != 0;
        if is_ready {
            self.ready_pass = pass;
            // The following checks see all that was published before this one.
            fence(Ordering::Acquire);
        }
        is_ready
    }

    /// Asks the peer to ring from now on; returns true if there is already something to report.
    pub(super) fn arm(&mut self) -> bool {
        if self.disabled || self.parked {
            return false;
        }
        if self.armed.is_none() {
            // Edge-triggered, room is news only after a send has found none. Until then the peer is
            // not asked to ring for it, because it would ring for every message that it takes.
            let leaves_room = self.leaves_room();
            let mut interest = self.interest();
            interest.write &= !leaves_room;
            let peer_rings = self.socket.connection.arm(interest);
            self.armed = Some(Armed { interest, peer_rings, leaves_room });
        }
        // Read before the check: bytes that are held back during it become visible within this
        // time.
        let held = self.socket.connection.held_for(self.interest());
        self.held = held.map(|held| Deadline::after(Some(held)));
        self.look() != 0
    }

    /// True if this watch is to be armed without the room that it wants; the socket then notes
    /// that.
    fn leaves_room(&self) -> bool {
        if self.events & WRITE == 0 || self.is_room_news() {
            return false;
        }
        self.socket.leave_room();
        // A send that found no room in the meantime did not see this watch yet.
        let is_news = self.is_room_news();
        if is_news {
            self.socket.mind_room();
        }
        !is_news
    }

    /// True if it is armed without the room that it wants, and a send has found none since.
    pub(super) fn lacks_room(&self) -> bool {
        self.armed.as_ref().is_some_and(|armed| armed.leaves_room) && self.is_room_news()
    }

    /// True if room to send is to be reported when there is any.
    fn is_room_news(&self) -> bool {
        self.events & EDGE == 0 || self.fresh || self.starved != self.socket.starved()
    }

    /// How long a sleep may be, if an event that it is armed for may come without a doorbell.
    pub(super) fn recheck_after(&self) -> Option<Duration> {
        let interest = self.armed.as_ref()?.interest;
        let time = match self.sends {
            Sends { held_up: true, .. } if interest.write => Some(Connection::MOMENT),
            _ => self
                .socket
                .connection
                .must_recheck(interest)
                .then_some(Connection::RECHECK_INTERVAL),
        };
        self.held.and_then(|held| held.left()).into_iter().chain(time).min()
    }

    pub(super) fn disarm(&mut self) {
        if let Some(Armed { interest, peer_rings, .. }) = self.forget_arm() {
            self.socket.connection.disarm(interest, peer_rings);
        }
    }

    /// Marks the watch as not armed in this process. In the child of a fork this is enough, because
    /// the parent disarms its watches.
    pub(super) fn forget_arm(&mut self) -> Option<Armed> {
        let armed = self.armed.take()?;
        if armed.leaves_room {
            self.socket.mind_room();
        }
        Some(armed)
    }

    /// The events that the kernel has to report for the application's fd.
    pub(super) fn wanted(&self) -> u32 {
        match self.sends {
            Sends { on_ring: true, .. } | Sends { held_up: true, .. } => self.events & !WRITE,
            Sends { retransmit: true, .. } => self.events | EPOLLOUT as u32,
            Sends { .. } => self.events,
        }
    }

    pub(super) fn is_stale(&self) -> bool {
        let connection = &self.socket.connection;
        // A seeking connection has attached since this was armed: from now on the peer has to ring.
        let lacks_ring = |armed: &Armed| !armed.peer_rings && connection.is_attached();
        self.sends != Sends::of(connection)
            || connection.doorbell() != self.doorbell
            || self.armed.as_ref().is_some_and(lacks_ring)
    }

    /// True if events beyond [`Watch::wanted`] do no harm, because they are dropped when they come.
    pub(super) fn is_lenient(&self) -> bool {
        self.events & (EDGE | ONE_SHOT) == 0
    }

    /// Changes the kernel's registration of the application's fd to that of this watch, unless it
    /// already covers the wanted events.
    pub(super) fn update_kernel(&mut self, epfd: c_int, index: u32) -> Result<(), Errno> {
        let wanted = self.wanted();
        if self.is_lenient()
            && self.kernel_events & wanted == wanted
            && self.kernel_events & (EDGE | ONE_SHOT) == 0
        {
            return Ok(());
        }
        // Then it most likely also covers the next change.
        self.set_kernel_events(epfd, index, if self.is_lenient() { wanted | READ } else { wanted })
    }

    /// Moves the socket, which is in the set under the number of this watch, to another number.
    pub(super) fn replace(&mut self, epfd: c_int, index: u32, fd: c_int) -> Result<(), Errno> {
        let data =
            Tag { watch: index, generation: self.generation, subject: Subject::Socket }.encode()?;
        let events = if self.disabled { ONE_SHOT } else { self.kernel_events };
        tag::control(epfd, Op::Add, fd, events, data)?;
        self.is_silent = false;
        self.may_repeat = self.kernel_events & EDGE != 0;
        let _ = tag::control(epfd, Op::Delete, self.fd, 0, 0);
        self.fd = fd;
        Ok(())
    }

    /// Removes EPOLLEXCLUSIVE from the registration of the application's fd, because the kernel
    /// does not modify such a registration.
    pub(super) fn drop_exclusive(&self, epfd: c_int, index: u32) -> Result<(), Errno> {
        let data =
            Tag { watch: index, generation: self.generation, subject: Subject::Socket }.encode()?;
        tag::control(epfd, Op::Delete, self.fd, 0, 0)?;
        tag::control(epfd, Op::Add, self.fd, EDGE, data)
    }

    pub(super) fn set_kernel_events(
        &mut self,
        epfd: c_int,
        index: u32,
        events: u32,
    ) -> Result<(), Errno> {
        let data =
            Tag { watch: index, generation: self.generation, subject: Subject::Socket }.encode()?;
        tag::control(epfd, Op::Modify, self.fd, events, data)?;
        (self.kernel_events, self.is_silent) = (events, false);
        (self.may_repeat, self.is_unmarked) = (events & EDGE != 0, events & EDGE != 0);
        Ok(())
    }

    /// Called before it is removed: restores the kernel's registration as the application asked.
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

    /// Watches the current doorbell of the connection: seeking uses a different one.
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

/// The kernel's entry of a fired one-shot registration after its watch is gone.
#[derive(Copy, Clone)]
pub(super) enum Fired {
    /// No entry: the connection ends.
    Gone,
    /// An entry of the library.
    Kept,
    /// An entry of the application, which goes on without the library. If the kernel did not fire
    /// it, it may report EPOLLERR or EPOLLHUP.
    Bare,
}

/// The meaning of room in the kernel's socket for a connection.
#[derive(Copy, Clone, Default, Eq, PartialEq)]
pub(super) struct Sends {
    /// None: sends travel on the ring. EPOLLOUT is hidden from the kernel.
    pub(super) on_ring: bool,
    /// None: a receiver keeps sends from TCP ([`Connection::is_held_up`]). EPOLLOUT is hidden from
    /// the kernel.
    pub(super) held_up: bool,
    /// The connection can retransmit. The library requests EPOLLOUT for itself: see
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

/// The way in which a watch is armed.
pub(super) struct Armed {
    interest: Interest,
    /// As [`Connection::arm`] has returned.
    peer_rings: bool,
    /// The application wants reports of room to send, but the peer was not asked to ring for it:
    /// see [`Socket::note_starved`](crate::socket::Socket::note_starved).
    leaves_room: bool,
}

/// The result of checking a connection, with its marks.
struct Look {
    events: u32,
    /// False if it is edge-triggered and was reported before.
    is_news: bool,
    /// There is no room on the ring.
    is_full: bool,
    /// The kernel may have more events.
    ended: bool,
    mark: u64,
    starved: u64,
    shutdowns: u64,
}
