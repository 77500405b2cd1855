//! The doorbell: an eventfd, the cheapest thing that poll, select and epoll can wait on. Where the
//! ringer is on another machine, a connection of its own carries the rings, a byte each.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::fd::{Fd, Placed};
use super::poll::{self, Events};

/// A connected stream socket between two machines that carries rings in both directions.
#[derive(Debug)]
struct Line {
    socket: Placed,
    /// The other machine has closed it, or it broke.
    is_over: AtomicBool,
    /// Times that it was waited for without being silenced.
    unread: AtomicU32,
}

/// So many rings stay in a line whose end is watched edge-triggered, and so is not silenced.
const MOST_UNREAD: u32 = 256;

#[derive(Debug)]
enum Bell {
    /// An eventfd.
    Event(Placed),
    /// Of this end, with a ringer on another machine: a set of the eventfd that is rung here, and
    /// the line.
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
    /// between the two, which carries nothing else.
    ///
    /// # Errors
    /// As for [`Self::new`], and those of epoll_create1(2) and epoll_ctl(2).
    pub fn across(socket: Placed) -> io::Result<(Self, Self)> {
        let (set, event) = (new_set()?, event()?);
        for fd in [event.as_fd(), socket.as_fd()] {
            epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let (is_over, unread) = (AtomicBool::new(false), AtomicU32::new(0));
        let line = Arc::new(Line { socket, is_over, unread });
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

    /// Wakes whoever sleeps on it.
    #[inline]
    pub fn ring(&self) {
        // A full counter, or a full socket, means that it is ringing already; a dead peer needs no
        // waking.
        match &self.bell {
            Bell::Event(event) | Bell::Here { event, .. } => {
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
            Bell::There(line) => line.ring(),
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
        if let Bell::Here { set, line, .. } = &self.bell {
            line.quiet();
            if line.is_over.load(Ordering::Relaxed) {
                // It would be readable for ever.
                let _ = epoll::delete(set, &line.socket);
            }
        }
    }

    /// To be called by whoever is about to wait for it and may not have silenced it: a line that
    /// nobody reads would fill up, and then carry no more rings, and its end would not be seen.
    pub fn make_room(&self) {
        if let Bell::Here { event, line, .. } = &self.bell {
            line.look();
            if line.unread.fetch_add(1, Ordering::Relaxed) >= MOST_UNREAD {
                line.quiet();
                // What was read may have been for others, who have yet to wake up.
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
        }
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

impl Line {
    fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.socket, &[0], flags) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => {}
            Err(_) => self.is_over.store(true, Ordering::Relaxed),
        }
    }

    /// Finds out whether it is over where rings are left in it, behind which its end is not read.
    fn look(&self) {
        let hangup = Events { hangup: true, ..Events::default() };
        let events = poll::look(self.socket.fd(), hangup).unwrap_or_default();
        if events.hangup || events.dead {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the rings that have come. So many at a time as a ringer sends who rings no more often
    /// than it is waited for; one that rings without end is heard again.
    fn quiet(&self) {
        self.unread.store(0, Ordering::Relaxed);
        let mut rings = [0; 4 * MOST_UNREAD as usize];
        match rustix::net::recv(&self.socket, &mut rings[..], RecvFlags::DONTWAIT) {
            Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.is_over.store(true, Ordering::Relaxed),
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
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sys::poll::{self, Events};

    fn is_rung(doorbell: &Doorbell) -> bool {
        poll::look(doorbell.fd(), Events::READ).unwrap().read
    }

    /// The doorbells of two ends on two machines: of each its own and the peer's.
    fn machines() -> [(Doorbell, Doorbell); 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        [one, other].map(|socket| {
            socket.set_nodelay(true).unwrap();
            Doorbell::across(Placed::new(socket.into()).unwrap()).unwrap()
        })
    }

    fn until_rung(doorbell: &Doorbell) {
        while !is_rung(doorbell) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_ring_crosses_to_the_other_machine_and_is_silenced_there() {
        let [(here, of_there), (there, of_here)] = machines();
        assert!(!is_rung(&here) && !is_rung(&there));
        of_there.ring();
        until_rung(&there);
        assert!(!is_rung(&here));
        there.quiet();
        assert!(!is_rung(&there));
        of_here.ring();
        until_rung(&here);
        here.quiet();
        assert!(!is_rung(&here) && !here.is_over());
    }

    #[test]
    fn an_end_wakes_its_own_sleepers_too() {
        let [(here, _), (there, _)] = machines();
        here.ring();
        assert!(is_rung(&here) && !is_rung(&there));
        here.quiet();
        assert!(!is_rung(&here));
    }

    #[test]
    fn a_ringer_that_does_not_stop_neither_blocks_nor_is_lost() {
        let [(here, _of_there), (_there, of_here)] = machines();
        (0..100_000).for_each(|_| of_here.ring());
        until_rung(&here);
        while is_rung(&here) {
            here.quiet();
        }
        of_here.ring();
        until_rung(&here);
    }

    #[test]
    fn a_line_that_nobody_silences_goes_on_carrying_rings_until_it_is_over() {
        let [(here, _of_there), (there, of_here)] = machines();
        // As an edge-triggered set does: each ring is an event of its own.
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &here, epoll::EventData::new_u64(0), edges).unwrap();
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        for _ in 0..20 * MOST_UNREAD {
            of_here.ring();
            while epoll::wait(&set, &mut events[..], None).unwrap() == 0 {}
            here.make_room();
        }
        let Bell::Here { line, .. } = &here.bell else { panic!("a line") };
        assert!(rustix::io::ioctl_fionread(&line.socket).unwrap() <= u64::from(4 * MOST_UNREAD));
        drop((there, of_here));
        while !here.is_over() {
            here.make_room();
        }
    }

    #[test]
    fn a_line_that_is_closed_rings_once_and_is_over() {
        let [(here, of_there), (there, of_here)] = machines();
        drop((there, of_here));
        until_rung(&here);
        here.quiet();
        assert!(here.is_over() && of_there.is_over() && !is_rung(&here));
        of_there.ring();
        here.ring();
        assert!(is_rung(&here));
    }
}
