//! Readiness of an end, and whether it is news to a waiter.
//!
//! An end has two carriers, and so two sources of events: the ring, at which the library looks, and
//! the kernel's socket. [`Sends`] is what the kernel has to be asked. [`Reports`] is what an
//! edge-triggered registration of epoll(7) has reported: a report is news once per change, whichever
//! source has it, although the kernel repeats its own whenever the library changes a registration.

/// EPOLLIN and EPOLLRDNORM. The events of epoll(7) have the same values on all machines that
/// Seekwire knows.
pub const READ: u32 = 0x41;
/// EPOLLOUT and EPOLLWRNORM.
pub const WRITE: u32 = 0x104;
/// EPOLLRDHUP.
pub const RDHUP: u32 = 0x2000;
/// EPOLLERR and EPOLLHUP, which the kernel always reports.
pub const ALWAYS: u32 = 0x18;
/// EPOLLET.
pub const EDGE: u32 = 1 << 31;
/// EPOLLONESHOT.
pub const ONE_SHOT: u32 = 1 << 30;
/// EPOLLEXCLUSIVE. At least one of the sets with such a registration is woken. A set whose doorbell
/// rings along with the others counts as one.
pub const EXCLUSIVE: u32 = 1 << 28;
/// EPOLLERR and EPOLLPRI, which nobody can call old.
const NEVER_OLD: u32 = 0xa;

/// The meaning of room in the kernel's socket, for a caller that may want to send.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sends {
    /// Nothing: sends travel on the ring.
    Ring,
    /// Bytes that have to be retransmitted come before those of the caller, and go out as soon as
    /// there is room.
    Retransmit,
    /// Nothing yet: a receiver inside a read keeps sends from TCP, and nothing announces the end of
    /// that read.
    HeldUp,
    /// The next send succeeds.
    #[default]
    Tcp,
}

impl Sends {
    /// Whether the kernel has to report room, if the caller wants it (`wanted`) or not.
    #[must_use]
    pub fn asks_for_room(self, wanted: bool) -> bool {
        match self {
            Self::Ring | Self::HeldUp => false,
            Self::Retransmit => true,
            Self::Tcp => wanted,
        }
    }
}

/// Counts of what has happened at an end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Marks {
    /// Changes with the bytes that the peer has put on the ring, and the lowest bit with the end of
    /// the stream.
    pub data: u64,
    /// Sends that have found no room: room that comes after one of them is news.
    pub starved: u64,
    /// Shutdowns of this end.
    pub shutdowns: u64,
}

/// The result of a look at the ring.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Look {
    /// The wanted events that are ready.
    pub events: u32,
    /// Sends travel on the ring, which has no room.
    pub is_full: bool,
    /// Read before the events: changes in between are news next time.
    pub marks: Marks,
}

/// The reports of one registration.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    is_edge: bool,
    /// Just added or changed: all ready events are news.
    is_fresh: bool,
    /// At the last report.
    marks: Marks,
    /// The mark of the kernel's bytes at its last report of something to read.
    arrived: Option<u64>,
    /// The ends and errors that the kernel has reported.
    ends: u32,
    /// The ends that the kernel knew when the end was reported together with bytes on the ring.
    known_ends: u32,
    /// The kernel may repeat a report, because its registration was changed, or because its bytes
    /// were reported together with those on the ring.
    may_repeat: bool,
    /// The kernel's registration was changed, and nothing has been reported since.
    is_unmarked: bool,
}

impl Reports {
    /// Of a registration for these events that is new.
    #[must_use]
    pub fn new(events: u32) -> Self {
        Self { is_edge: events & EDGE != 0, is_fresh: true, ..Self::default() }
    }

    /// The application has changed the registration.
    pub fn changed(&mut self, events: u32) {
        (self.is_edge, self.is_fresh) = (events & EDGE != 0, true);
    }

    /// The library has changed the kernel's registration: if that is edge-triggered, the kernel
    /// reports again whatever is ready.
    pub fn registered(&mut self, kernels: u32) {
        self.may_repeat = kernels & EDGE != 0;
        self.is_unmarked = self.may_repeat;
    }

    /// Whether any of the events that are ready on the ring is to be reported.
    #[must_use]
    pub fn is_news(&self, Look { events, marks, .. }: &Look) -> bool {
        let has_read = marks.data != self.marks.data || marks.shutdowns != self.marks.shutdowns;
        !self.is_edge
            || self.is_fresh
            || (events & READ != 0 && has_read)
            || (events & WRITE != 0 && marks.starved != self.marks.starved)
    }

    /// Whether bytes have come to the ring since the last report. If the direction is on TCP, the
    /// kernel reports the end.
    #[must_use]
    pub fn has_new_bytes(&self, now: Marks) -> bool {
        self.is_edge && now.data >> 1 != self.marks.data >> 1
    }

    /// Whether room is to be reported when there is any; `starved` as in [`Marks`].
    #[must_use]
    pub fn is_room_news(&self, starved: u64) -> bool {
        !self.is_edge || self.is_fresh || self.marks.starved != starved
    }

    /// Whether the ring's events are reported now. If the kernel also reports the end
    /// (`with_kernel`), old events are included, as the kernel does.
    pub fn take(&mut self, look: &Look, with_kernel: bool) -> bool {
        let &Look { events, is_full, marks } = look;
        let is_reported = events != 0 && (with_kernel || self.is_news(look));
        if is_reported || with_kernel {
            self.is_fresh = false;
            if events & WRITE != 0 {
                self.marks.starved = marks.starved;
            } else if is_full {
                // Finding no room makes later room news, as a failed send does.
                self.marks.starved = marks.starved.wrapping_sub(1);
            }
        }
        if is_reported {
            (self.marks.data, self.marks.shutdowns) = (marks.data, marks.shutdowns);
        }
        is_reported
    }

    /// After [`Reports::take`]: the reported bytes may have come by TCP as well, where `arrived` is
    /// the kernel's mark. `by_tcp`: some surely have.
    pub fn note_bytes(
        &mut self,
        look: &Look,
        by_tcp: impl FnOnce() -> bool,
        arrived: impl FnOnce() -> Option<u64>,
    ) {
        if self.is_edge && look.events & READ != 0 && (self.is_unmarked || by_tcp()) {
            self.arrived = arrived();
            (self.may_repeat, self.is_unmarked) = (true, false);
        }
    }

    /// The end was reported together with bytes on the ring, with all that the kernel knew.
    pub fn note_end(&mut self, kernels: u32) {
        self.known_ends = kernels & !(READ | WRITE);
    }

    /// The kernel's events are reported, of those that it was `asked` for.
    pub fn note_kernels(
        &mut self,
        events: u32,
        asked: u32,
        now: Marks,
        arrived: impl FnOnce() -> Option<u64>,
    ) {
        if !self.is_edge {
            return;
        }
        self.ends |= events & !(READ | WRITE);
        self.is_unmarked = false;
        if events & (READ | RDHUP) != 0 {
            // Whoever gets the report receives from the ring as well.
            (self.marks.data, self.marks.shutdowns) = (now.data, now.shutdowns);
            self.arrived = arrived();
        }
        if events & WRITE != 0 {
            self.marks.starved = now.starved;
        } else if asked & WRITE != 0 {
            self.marks.starved = now.starved.wrapping_sub(1);
        }
    }

    /// Whether the kernel's events repeat what was reported.
    pub fn repeats(
        &mut self,
        events: u32,
        now: Marks,
        arrived: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let is_open = self.is_edge && !self.is_fresh;
        let is_known_end = self.known_ends != 0
            && events & !(self.known_ends | READ) == 0
            && self.marks.shutdowns == now.shutdowns;
        if is_open && is_known_end {
            return true;
        }
        let has_arrived = || {
            let arrived = arrived();
            arrived.is_none() || arrived != self.arrived || self.marks.shutdowns != now.shutdowns
        };
        std::mem::take(&mut self.may_repeat)
            && is_open
            && events & !(READ | WRITE | self.ends) == 0
            && events & NEVER_OLD == 0
            && (events & WRITE == 0 || self.marks.starved == now.starved)
            && (events & (READ | RDHUP) == 0 || !has_arrived())
    }
}
