//! A connection in an epoll set, as seen by the set.

use std::ffi::{c_int, c_short};
use std::ops::Deref;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use libc::{EPOLLOUT, POLLIN, POLLRDHUP};
use seekwire_endpoint::readiness::{
    ALWAYS, EDGE, EXCLUSIVE, Look, Marks, ONE_SHOT, READ, Reports, WRITE,
};
use seekwire_endpoint::{Armed, Carrier, Interest, Sends};
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::poll::Deadline;

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
    pub(super) place: Place,
    /// The last pass of checks that found it ready.
    pub(super) ready_pass: u64,
    /// The events for which the peer was asked to ring.
    armed: Option<ArmedWatch>,
    /// The latest time until which the peer, when this was armed, held bytes back.
    held: Option<Deadline>,
    /// Noted in the set's [`Rechecks`](super::rechecks::Rechecks).
    pub(super) is_noted: bool,
    pub(super) life: Life,
    /// The kernel itself has fired it, so it reports no more events.
    pub(super) is_silent: bool,
    /// One-shot, and armed by its installation, while another thread might have an event from the
    /// kernel that had fired it: the number of installations until then, including this one. 0
    /// otherwise.
    pub(super) armed_again: u64,
    /// It has reported an event since then, and was armed again by the program.
    pub(super) was_reported: bool,
    reports: Reports,
    /// Number of checks in a row that found no event.
    pub(super) idle: u8,
    /// The carrier state for which the kernel's registration was last chosen.
    pub(super) sends: Sends,
    /// The events in the kernel's registration. If level-triggered, they may include more than the
    /// application wants.
    pub(super) kernel_events: u32,
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
        let sends = socket.connection.sends();
        Watch {
            socket,
            fd: registration.number(),
            events: registration.events & !EXCLUSIVE,
            data: registration.data,
            generation,
            sibling: index,
            owns_doorbell: true,
            doorbell: None,
            place: Place::Idle,
            ready_pass: 0,
            armed: None,
            held: None,
            is_noted: false,
            life: Life::Watched,
            is_silent: false,
            armed_again: 0,
            was_reported: false,
            reports: Reports::new(registration.events),
            idle: 0,
            sends,
            kernel_events: EDGE,
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
            parked: self.life == Life::Parked,
            fired: self.life == Life::Fired,
        }
    }

    pub(super) fn interest(&self) -> Interest {
        Interest { read: self.events & READ != 0, write: self.events & WRITE != 0 }
    }

    /// The ready events that only user space knows about.
    pub(super) fn look(&self) -> u32 {
        if self.life != Life::Watched {
            return 0;
        }
        let (look, _) = self.look_closely();
        if self.reports.is_news(&look) { look.events } else { 0 }
    }

    fn marks(&self) -> Marks {
        Marks {
            data: self.socket.connection.data_mark(),
            starved: self.socket.starved(),
            shutdowns: self.socket.shutdowns(),
        }
    }

    /// Also returns whether the kernel may have an end to add.
    fn look_closely(&self) -> (Look, bool) {
        let marks = self.marks();
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
        if self.events & !events & READ != 0
            && self.reports.has_new_bytes(marks)
            && connection.carriers().1 == Carrier::Tcp
        {
            // There is news on the ring, after unread bytes that came by TCP.
            events |= look::state(connection.fd(), POLLIN) & self.events & READ;
        }
        let is_full = self.events & WRITE != 0 && !ready.write && connection.tx_on_ring();
        let ended = ready.end || connection.has_end_to_tell();
        (Look { events, is_full, marks }, ended)
    }

    /// Like [`Watch::look`], for a caller that reports the events. If the kernel also reports the
    /// connection, old events are included, as the kernel does.
    pub(super) fn take(&mut self, with_kernel: bool) -> u32 {
        if self.life != Life::Watched {
            return 0;
        }
        let (look, ended) = self.look_closely();
        if !self.reports.take(&look, with_kernel) {
            return 0;
        }
        self.idle = 0;
        self.fire();
        let connection = &self.socket.connection;
        let by_tcp = || connection.peer_has_sent_by_tcp();
        self.reports.note_bytes(&look, by_tcp, || connection.kernel_mark());
        look.events | self.ask_kernel(ended)
    }

    /// The application has changed the registration, which the kernel has accepted.
    pub(super) fn renew(&mut self, data: u64) {
        self.disarm();
        self.data = data;
        self.life = Life::Watched;
        self.reports.changed(self.events);
    }

    /// True if it is in the queue of watches to check.
    pub(super) fn is_hot(&self) -> bool {
        matches!(self.place, Place::Hot | Place::Overdue)
    }

    /// A report was made, after which a one-shot registration is silent.
    pub(super) fn fire(&mut self) {
        if self.events & ONE_SHOT != 0 {
            self.life = Life::Fired;
        }
    }

    /// The events that the kernel has in addition, because one report contains all: for a direction
    /// that is on TCP, and for the end.
    fn ask_kernel(&mut self, ended: bool) -> u32 {
        let connection = &self.socket.connection;
        let mut open = if connection.carriers().1 == Carrier::Tcp { self.events & READ } else { 0 };
        if connection.sends() == Sends::Tcp {
            open |= self.events & WRITE;
        }
        if open == 0 && !ended {
            return 0;
        }
        let state = look::state(connection.fd(), open as c_short | POLLRDHUP);
        if ended {
            self.reports.note_end(state);
        }
        let events = state & (self.events | ALWAYS);
        self.note_kernel_report(events);
        events
    }

    /// Notes a report of the kernel's events.
    pub(super) fn note_kernel_report(&mut self, events: u32) {
        let connection = &self.socket.connection;
        if events & ALWAYS != 0 {
            connection.note_reported_end();
        }
        let (asked, marks) = (self.wanted(), self.marks());
        self.reports.note_kernels(events, asked, marks, || connection.kernel_mark());
    }

    /// True if an event of the kernel is not reported: because the registration has fired, or
    /// because the event repeats an earlier one.
    pub(super) fn is_old(&mut self, events: u32) -> bool {
        let (connection, marks) = (&self.socket.connection, self.marks());
        self.life == Life::Fired || self.reports.repeats(events, marks, || connection.kernel_mark())
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
        if self.life != Life::Watched {
            return false;
        }
        if self.armed.is_none() {
            // Edge-triggered, room is news only after a send has found none. Until then the peer is
            // not asked to ring for it, because it would ring for every message that it takes.
            let leaves_room = self.leaves_room();
            let mut want = self.interest();
            want.write &= !leaves_room;
            self.armed = Some(ArmedWatch { end: self.socket.connection.arm(want), leaves_room });
        }
        let look = || self.look() != 0;
        let (is_ready, held) = self.socket.connection.last_look(self.interest(), look);
        self.held = held.map(|held| Deadline::after(Some(held)));
        is_ready
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
        self.reports.is_room_news(self.socket.starved())
    }

    /// How long a sleep may be, if an event that it is armed for may come without a doorbell.
    pub(super) fn recheck_after(&self) -> Option<Duration> {
        let want = self.armed.as_ref()?.end.want();
        let time = self.socket.connection.longest_sleep(want, self.sends);
        self.held.and_then(|held| held.left()).into_iter().chain(time).min()
    }

    pub(super) fn disarm(&mut self) {
        if let Some(armed) = self.forget_arm() {
            self.socket.connection.disarm(armed.end);
        }
    }

    /// Marks the watch as not armed in this process. In the child of a fork this is enough, because
    /// the parent disarms its watches.
    pub(super) fn forget_arm(&mut self) -> Option<ArmedWatch> {
        let armed = self.armed.take()?;
        if armed.leaves_room {
            self.socket.mind_room();
        }
        Some(armed)
    }

    /// The events that the kernel has to report for the application's fd.
    pub(super) fn wanted(&self) -> u32 {
        match self.sends {
            Sends::Ring | Sends::HeldUp => self.events & !WRITE,
            Sends::Retransmit => self.events | EPOLLOUT as u32,
            Sends::Tcp => self.events,
        }
    }

    pub(super) fn is_stale(&self) -> bool {
        let connection = &self.socket.connection;
        // A seeking connection has attached since this was armed: from now on the peer has to ring.
        self.sends != connection.sends()
            || connection.doorbell() != self.doorbell
            || self.armed.as_ref().is_some_and(|armed| armed.end.lacks_ring(connection))
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

    fn tag(&self, watch: u32, subject: Subject) -> Result<u64, Errno> {
        Tag { watch, generation: self.generation, subject }.encode()
    }

    /// Moves the socket, which is in the set under the number of this watch, to another number.
    pub(super) fn replace(&mut self, epfd: c_int, index: u32, fd: c_int) -> Result<(), Errno> {
        let data = self.tag(index, Subject::Socket)?;
        let events = if self.life == Life::Fired { ONE_SHOT } else { self.kernel_events };
        tag::control(epfd, Op::Add, fd, events, data)?;
        self.is_silent = false;
        self.reports.registered(self.kernel_events);
        let _ = tag::control(epfd, Op::Delete, self.fd, 0, 0);
        self.fd = fd;
        Ok(())
    }

    /// Removes EPOLLEXCLUSIVE from the registration of the application's fd, because the kernel
    /// does not modify such a registration.
    pub(super) fn drop_exclusive(&self, epfd: c_int, index: u32) -> Result<(), Errno> {
        let data = self.tag(index, Subject::Socket)?;
        tag::control(epfd, Op::Delete, self.fd, 0, 0)?;
        tag::control(epfd, Op::Add, self.fd, EDGE, data)
    }

    pub(super) fn set_kernel_events(
        &mut self,
        epfd: c_int,
        index: u32,
        events: u32,
    ) -> Result<(), Errno> {
        let data = self.tag(index, Subject::Socket)?;
        tag::control(epfd, Op::Modify, self.fd, events, data)?;
        (self.kernel_events, self.is_silent) = (events, false);
        self.reports.registered(events);
        Ok(())
    }

    /// Called before it is removed: restores the kernel's registration as the application asked.
    pub(super) fn give_back(&self, epfd: c_int, registration: &Registration, fired: Fired) {
        let number = registration.number();
        let modify = |events, data| tag::control(epfd, Op::Modify, number, events, data);
        let _ = match fired {
            _ if self.life != Life::Fired => {
                modify(registration.events & !EXCLUSIVE, registration.data)
            }
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
            let data = self.tag(index, Subject::Doorbell)?;
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

/// The life of a watch, between the application's calls.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Life {
    Watched,
    /// One-shot, and has fired.
    Fired,
    /// The application has removed the socket from the set, but the kernel does not know: see
    /// [`SetState::park`](super::state::SetState::park).
    Parked,
}

/// Where a watch is checked. Only [`SetState::move_to`](super::state::SetState::move_to) changes
/// it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// Nowhere: the peer rings, or it is not [`Life::Watched`].
    Idle,
    /// In the queue of watches to check.
    Hot,
    /// There, and was ready in a wait that had no room for it, and in which the kernel had no
    /// events.
    Overdue,
    /// In the kernel's ready list: armed, and its own doorbell was rung.
    Queued,
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

/// The way in which a watch is armed.
pub(super) struct ArmedWatch {
    end: Armed,
    /// The application wants reports of room to send, but the peer was not asked to ring for it:
    /// see [`Socket::note_starved`](crate::socket::Socket::note_starved).
    leaves_room: bool,
}
