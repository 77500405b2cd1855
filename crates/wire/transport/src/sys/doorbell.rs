//! The doorbell: an eventfd, the cheapest thing that poll, select and epoll can wait on. Where the
//! ringer is on another machine, a connection of its own carries the rings, a byte each, or an event
//! channel of Xen's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use self::line::Line;
use super::event_channel::EventChannel;
use super::fd::{Fd, Placed};
use super::poll::Deadline;

mod line;

#[derive(Debug)]
enum Bell {
    /// An eventfd.
    Event(Placed),
    /// Of this end, with a ringer on another machine: a set of the eventfd that is rung here, the
    /// line, and its channel.
    Here { set: Placed, event: Placed, line: Arc<Line> },
    /// Of the end on the other machine.
    There(Arc<Line>),
}

/// What one end sleeps on and the other rings.
#[derive(Debug)]
pub struct Doorbell {
    bell: Bell,
    /// A waiter has answered its ring, and left it to the next sleeper to silence it.
    heard: AtomicBool,
    /// How often waiters have left it rung for others since it was silenced.
    left: AtomicU32,
}

impl Doorbell {
    /// A new one, silent.
    ///
    /// # Errors
    /// Those of eventfd(2), and EMFILE when there is no room above the library's floor.
    pub fn new() -> io::Result<Self> {
        Ok(Self::of(Bell::Event(event()?)))
    }

    /// That of this end and that of its peer on another machine, by a connected stream socket
    /// between the two, which carries nothing else, and by a channel, where there is one.
    ///
    /// # Errors
    /// As for [`Self::new`], and those of epoll_create1(2) and epoll_ctl(2).
    pub fn across(
        socket: Placed,
        channel: impl FnOnce() -> Option<EventChannel>,
    ) -> io::Result<(Self, Self)> {
        let (set, event) = (new_set()?, event()?);
        // Last: where descriptors are few, it can be done without.
        let channel = channel();
        let rung = [Some(event.as_fd()), Some(socket.as_fd()), channel.as_ref().map(AsFd::as_fd)];
        for fd in rung.into_iter().flatten() {
            epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let line = Arc::new(Line::new(socket, channel));
        let there = Self::of(Bell::There(Arc::clone(&line)));
        Ok((Self::of(Bell::Here { set, event, line }), there))
    }

    /// Whether nobody can ring any more who is on another machine.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.bell {
            Bell::Event(_) => false,
            Bell::Here { line, .. } | Bell::There(line) => line.is_over.load(Ordering::Relaxed),
        }
    }

    /// As [`Self::is_over`], having asked the line, and having waited for that until then.
    #[must_use]
    pub fn is_over_by(&self, until: Deadline) -> bool {
        match &self.bell {
            Bell::Event(_) => false,
            Bell::Here { line, .. } | Bell::There(line) => line.is_over_by(until),
        }
    }

    /// One that a peer sent. Nothing is believed of it: should it not be an eventfd, or one that
    /// blocks, ringing it fails or the write is refused.
    ///
    /// # Errors
    /// EINVAL when the descriptor blocks or is not an eventfd.
    pub fn from_peer(doorbell: Placed) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(doorbell.as_fd())?;
        if !flags.contains(rustix::fs::OFlags::NONBLOCK) || !is_eventfd(doorbell.as_fd()) {
            return Err(Errno::INVAL.into());
        }
        Ok(Self::of(Bell::Event(doorbell)))
    }

    fn of(bell: Bell) -> Self {
        Self { bell, heard: AtomicBool::new(false), left: AtomicU32::new(0) }
    }

    /// Its eventfd. `None` where the ringer is on another machine.
    #[must_use]
    pub fn descriptor(&self) -> Option<Fd> {
        match &self.bell {
            Bell::Event(event) => Some(event.fd()),
            Bell::Here { .. } | Bell::There(_) => None,
        }
    }

    /// Wakes whoever sleeps on it.
    #[inline]
    pub fn ring(&self) {
        // A full counter means that it is ringing already; a dead peer needs no waking.
        match &self.bell {
            Bell::Event(event) | Bell::Here { event, .. } => {
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
            Bell::There(line) => line.ring(),
        }
    }

    /// Whether the last ring did not go to the other machine, since there was no room in the line,
    /// or no memory. Then it is to be [rung again](Self::ring_owed).
    #[inline]
    #[must_use]
    pub fn is_owed(&self) -> bool {
        match &self.bell {
            Bell::Event(_) => false,
            Bell::Here { line, .. } | Bell::There(line) => line.is_owed.load(Ordering::Relaxed),
        }
    }

    /// Rings if a ring [is owed](Self::is_owed). After a second without memory, the line is over.
    #[inline]
    pub fn ring_owed(&self) {
        if self.is_owed() {
            self.ring();
        }
    }

    /// The port of the channel to another machine, if it has been heard and is not known to be the
    /// peer's: see [`Self::confirm_channel`].
    #[inline]
    #[must_use]
    pub fn unconfirmed_channel(&self) -> Option<u32> {
        match &self.bell {
            Bell::Event(_) => None,
            Bell::Here { line, .. } | Bell::There(line) => line.channel.as_ref()?.unconfirmed(),
        }
    }

    /// The peer says that it has the other end of the channel: from now on rings go by that.
    pub fn confirm_channel(&self) {
        if let Bell::Here { line, .. } | Bell::There(line) = &self.bell {
            line.channel.iter().for_each(EventChannel::confirm);
        }
    }

    /// Leaves it rung, for others.
    pub fn leave(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was [left](Self::leave) since it was silenced.
    #[must_use]
    pub fn times_left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    /// Silences it.
    pub fn quiet(&self) {
        self.left.store(0, Ordering::Relaxed);
        if let Bell::Event(event) | Bell::Here { event, .. } = &self.bell {
            // EAGAIN: it was silent.
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
        if let Bell::Here { set, event, line } = &self.bell {
            line.quiet();
            if line.is_over.load(Ordering::Relaxed) && !line.is_out.swap(true, Ordering::Relaxed) {
                // Forks that share the set have yet to hear of it, and this process may be killed
                // before it sees to that.
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
                // It would be readable for ever.
                let _ = epoll::delete(set, &line.socket);
            }
        }
    }

    /// To be called by whoever is about to wait for it and may not have silenced it: a line that
    /// nobody reads would fill up, and then carry no more rings, and its end would not be seen. A
    /// channel carries one.
    ///
    /// What it takes may have been for others who wait: if there are any (`others`), the doorbell
    /// is left rung for them. Returns whether it took something: others may have begun to wait
    /// meanwhile, and the caller is to ring for those who have a reason to wake.
    #[must_use]
    pub fn make_room(&self, others: impl FnOnce() -> bool) -> bool {
        let Bell::Here { event, line, .. } = &self.bell else { return false };
        let full = line.look();
        let rung = line.channel.as_ref().filter(|channel| channel.is_rung());
        if rung.is_none() && full.is_none() {
            return false;
        }
        // Asked after it is known what is in the line: whoever waits from now on has seen the cause
        // of that. Of a channel more may be taken.
        if rung.is_some() || others() {
            // Before it is taken: this process may be killed in between.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        rung.map(EventChannel::hear);
        full.into_iter().for_each(|rings| line.drain(rings));
        true
    }

    /// Leaves the system call that silences it for the time when somebody wants to sleep again:
    /// between being woken and answering every microsecond counts.
    #[inline]
    pub fn quiet_later(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether that is due, which the caller now sees to.
    #[inline]
    pub fn take_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed) && self.heard.swap(false, Ordering::Relaxed)
    }

    /// Its descriptor, for poll and epoll.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.as_fd())
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.bell {
            Bell::Event(fd) | Bell::Here { set: fd, .. } => fd.as_fd(),
            Bell::There(line) => line.socket.as_fd(),
        }
    }
}

fn event() -> io::Result<Placed> {
    let flags = EventfdFlags::CLOEXEC.union(EventfdFlags::NONBLOCK);
    Placed::new(rustix::event::eventfd(0, flags)?)
}

fn new_set() -> io::Result<Placed> {
    Placed::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)
}

/// Several doorbells as one descriptor, which is readable while any of them is rung.
#[derive(Debug)]
pub struct Doorbells {
    set: Placed,
}

impl Doorbells {
    /// None yet.
    ///
    /// # Errors
    /// Those of epoll_create1(2), and EMFILE when there is no room above the library's floor.
    pub fn new() -> io::Result<Self> {
        Ok(Self { set: new_set()? })
    }

    /// Adds one; again is as good as once. It leaves when it is closed.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn add(&self, doorbell: &Doorbell) -> io::Result<()> {
        match epoll::add(&self.set, doorbell, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The descriptor, for poll and epoll.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.set.as_fd())
    }
}

/// Hears that something comes to a descriptor, also where something is already: a doorbell that is
/// rung, a socket with bytes.
#[derive(Debug)]
pub struct Ear {
    set: Placed,
}

impl Ear {
    /// Of one descriptor.
    ///
    /// # Errors
    /// Those of epoll_create1(2) and epoll_ctl(2), and EMFILE when there is no room above the
    /// library's floor.
    pub fn new(fd: Fd) -> io::Result<Self> {
        let set = new_set()?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&set, fd.borrow(), epoll::EventData::new_u64(0), edges)?;
        Ok(Self { set })
    }

    /// Forgets what was heard so far.
    pub fn forget(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let _ = epoll::wait(&self.set, &mut events[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    /// The descriptor, readable once something has come since.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.set.as_fd())
    }
}

/// An eventfd is the one anonymous file whose name says so.
fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    use rustix::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlink(path, Vec::new())
        .is_ok_and(|name| name.as_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
