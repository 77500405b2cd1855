//! The doorbell: an eventfd, the cheapest object that poll, select and epoll can wait on. If the
//! ringer is on another machine, a separate connection carries the rings, a byte each, or an event
//! channel of Xen's does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use self::wake_channel::WakeChannel;
use super::event_channel::EventChannel;
use super::fd::{Fd, PrivateFd};
use super::poll::Deadline;

mod wake_channel;

#[derive(Debug)]
enum Bell {
    /// An eventfd.
    Event(PrivateFd),
    /// This end's, with a ringer on another machine: a set of the eventfd that is rung here, the
    /// wake channel, and its channel.
    Here { set: PrivateFd, event: PrivateFd, wake_channel: Arc<WakeChannel> },
    /// The doorbell of the end on the other machine.
    There(Arc<WakeChannel>),
}

/// A doorbell: one end sleeps on it and the other rings it.
#[derive(Debug)]
pub struct Doorbell {
    bell: Bell,
    /// A waiter has answered its ring, and left the silencing to the next sleeper.
    is_quiet_due: AtomicBool,
    /// How often waiters have left it rung for others since it was silenced.
    left: AtomicU32,
}

impl Doorbell {
    /// Creates a silent one.
    ///
    /// # Errors
    /// Those of eventfd(2); EMFILE if no number above the library's floor is free.
    pub fn new() -> io::Result<Self> {
        Ok(Self::of(Bell::Event(event()?)))
    }

    /// Creates this end's doorbell and that of its peer on another machine, on a connected stream
    /// socket between the two, which carries nothing else, and on a channel, if there is one.
    ///
    /// # Errors
    /// As for [`Self::new`], and those of epoll_create1(2) and epoll_ctl(2).
    pub fn remote_pair(
        socket: PrivateFd,
        channel: impl FnOnce() -> Option<EventChannel>,
    ) -> io::Result<(Self, Self)> {
        let (set, event) = (new_set()?, event()?);
        // Last: if descriptors are scarce, the channel is dispensable.
        let channel = channel();
        let rung = [Some(event.as_fd()), Some(socket.as_fd()), channel.as_ref().map(AsFd::as_fd)];
        for fd in rung.into_iter().flatten() {
            epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let wake_channel = Arc::new(WakeChannel::new(socket, channel));
        let there = Self::of(Bell::There(Arc::clone(&wake_channel)));
        Ok((Self::of(Bell::Here { set, event, wake_channel }), there))
    }

    /// Whether a ringer on another machine can no longer ring.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match &self.bell {
            Bell::Event(_) => false,
            Bell::Here { wake_channel, .. } | Bell::There(wake_channel) => {
                wake_channel.is_over.load(Ordering::Relaxed)
            }
        }
    }

    /// As [`Self::is_over`], after asking the wake channel, and waiting for it at most until then.
    #[must_use]
    pub fn is_over_by(&self, until: Deadline) -> bool {
        match &self.bell {
            Bell::Event(_) => false,
            Bell::Here { wake_channel, .. } | Bell::There(wake_channel) => {
                wake_channel.is_over_by(until)
            }
        }
    }

    /// A doorbell that a peer sent. It is not trusted: if it were no eventfd, or one that blocks,
    /// ringing it could fail or block, so it is refused.
    ///
    /// # Errors
    /// EINVAL if the descriptor blocks or is not an eventfd.
    pub fn from_peer(doorbell: PrivateFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(doorbell.as_fd())?;
        if !flags.contains(rustix::fs::OFlags::NONBLOCK) || !is_eventfd(doorbell.as_fd()) {
            return Err(Errno::INVAL.into());
        }
        Ok(Self::of(Bell::Event(doorbell)))
    }

    fn of(bell: Bell) -> Self {
        Self { bell, is_quiet_due: AtomicBool::new(false), left: AtomicU32::new(0) }
    }

    /// Its eventfd. `None` if the ringer is on another machine.
    #[must_use]
    pub fn descriptor(&self) -> Option<Fd> {
        match &self.bell {
            Bell::Event(event) => Some(event.fd()),
            Bell::Here { .. } | Bell::There(_) => None,
        }
    }

    /// Wakes all sleepers on it.
    #[inline]
    pub fn ring(&self) {
        // A full counter means that it is ringing already; a dead peer needs no waking.
        match &self.bell {
            Bell::Event(event) | Bell::Here { event, .. } => {
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
            Bell::There(wake_channel) => wake_channel.ring(),
        }
    }

    /// Whether the last ring did not go to the other machine, because the wake channel had no room,
    /// or no memory. Then the caller has to [ring again](Self::ring_owed).
    #[inline]
    #[must_use]
    pub fn is_owed(&self) -> bool {
        match &self.bell {
            Bell::Event(_) => false,
            Bell::Here { wake_channel, .. } | Bell::There(wake_channel) => {
                wake_channel.is_owed.load(Ordering::Relaxed)
            }
        }
    }

    /// Rings if a ring [is owed](Self::is_owed). After a second without memory, the wake channel is
    /// closed.
    #[inline]
    pub fn ring_owed(&self) {
        if self.is_owed() {
            self.ring();
        }
    }

    /// The port of the channel to another machine, if it has been rung and is not known to be the
    /// peer's: see [`Self::confirm_channel`].
    #[inline]
    #[must_use]
    pub fn unconfirmed_channel(&self) -> Option<u32> {
        match &self.bell {
            Bell::Event(_) => None,
            Bell::Here { wake_channel, .. } | Bell::There(wake_channel) => {
                wake_channel.channel.as_ref()?.unconfirmed()
            }
        }
    }

    /// The peer reports that it has the other end of the channel: from now on the channel carries
    /// the rings.
    pub fn confirm_channel(&self) {
        if let Bell::Here { wake_channel, .. } | Bell::There(wake_channel) = &self.bell {
            wake_channel.channel.iter().for_each(EventChannel::confirm);
        }
    }

    /// Leaves it rung, for other waiters.
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
        if let Bell::Here { set, event, wake_channel } = &self.bell {
            wake_channel.quiet();
            if wake_channel.is_over.load(Ordering::Relaxed)
                && !wake_channel.is_out.swap(true, Ordering::Relaxed)
            {
                // Forks that share the set have not seen it yet, and this process may be killed
                // before it rings for them.
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
                // It would be readable for ever.
                let _ = epoll::delete(set, &wake_channel.socket);
            }
        }
    }

    /// To be called by a waiter that is about to wait for it and may not have silenced it: a wake
    /// channel that nobody reads would fill up, and then carry no more rings, and its closing would
    /// not be seen. A channel carries one ring.
    ///
    /// The rings that it takes may have been for other waiters: if there are any (`others`), the
    /// doorbell is left rung for them. Returns whether it took any: others may have begun to wait
    /// meanwhile, and the caller has to ring for those that have a reason to wake.
    #[must_use]
    pub fn make_room(&self, others: impl FnOnce() -> bool) -> bool {
        let Bell::Here { event, wake_channel, .. } = &self.bell else { return false };
        let full = wake_channel.look();
        let rung = wake_channel.channel.as_ref().filter(|channel| channel.is_rung());
        if rung.is_none() && full.is_none() {
            return false;
        }
        // Asked after the number of rings in the wake channel is known: a waiter that comes later
        // has seen their cause. From a channel, more may be taken.
        if rung.is_some() || others() {
            // Before the rings are taken: this process may be killed in between.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        rung.map(EventChannel::silence);
        full.into_iter().for_each(|rings| wake_channel.drain(rings));
        true
    }

    /// Postpones the system call that silences it until a thread wants to sleep again: between
    /// being woken and answering, every microsecond counts.
    #[inline]
    pub fn quiet_later(&self) {
        self.is_quiet_due.store(true, Ordering::Relaxed);
    }

    /// Whether that is due; the caller then does it.
    #[inline]
    pub fn take_quiet_due(&self) -> bool {
        self.is_quiet_due.load(Ordering::Relaxed)
            && self.is_quiet_due.swap(false, Ordering::Relaxed)
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
            Bell::There(wake_channel) => wake_channel.socket.as_fd(),
        }
    }
}

fn event() -> io::Result<PrivateFd> {
    let flags = EventfdFlags::CLOEXEC.union(EventfdFlags::NONBLOCK);
    PrivateFd::new(rustix::event::eventfd(0, flags)?)
}

fn new_set() -> io::Result<PrivateFd> {
    PrivateFd::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)
}

/// Several doorbells as one descriptor, which is readable while any of them is rung.
#[derive(Debug)]
pub struct Doorbells {
    set: PrivateFd,
}

impl Doorbells {
    /// Creates an empty set.
    ///
    /// # Errors
    /// Those of epoll_create1(2); EMFILE if no number above the library's floor is free.
    pub fn new() -> io::Result<Self> {
        Ok(Self { set: new_set()? })
    }

    /// Adds a doorbell; adding it again has no effect. It leaves when it is closed.
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

/// Detects new events on a descriptor, even one that is ready already: a doorbell that is rung, a
/// socket with bytes.
#[derive(Debug)]
pub struct EdgeWatch {
    set: PrivateFd,
}

impl EdgeWatch {
    /// Creates one for a descriptor.
    ///
    /// # Errors
    /// Those of epoll_create1(2) and epoll_ctl(2); EMFILE if no number above the library's floor is
    /// free.
    pub fn new(fd: Fd) -> io::Result<Self> {
        let set = new_set()?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&set, fd.borrow(), epoll::EventData::new_u64(0), edges)?;
        Ok(Self { set })
    }

    /// Forgets the events so far.
    pub fn forget(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let _ = epoll::wait(&self.set, &mut events[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    /// The descriptor, readable once a new event has come.
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::from(&self.set.as_fd())
    }
}

/// An eventfd is the only anonymous file with this name.
fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    use rustix::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::readlink(path, Vec::new())
        .is_ok_and(|name| name.as_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
