//! A line that carries rings between two machines, and what carries them in its place.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::sys::event_channel::EventChannel;
use crate::sys::fd::{Fd, Placed};
use crate::sys::poll::{self, Deadline, Events};
use crate::sys::{host, socket};

/// A connected stream socket between two machines that carries rings in both directions. Where both
/// are domains of Xen's, a channel does so, and the line says when its end is gone.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) socket: Placed,
    pub(super) channel: Option<EventChannel>,
    /// The other machine has closed it, or it broke.
    pub(super) is_over: AtomicBool,
    /// It was taken out of the set of this end, after it was over.
    pub(super) is_out: AtomicBool,
    /// Times that it was waited for with rings in it.
    pub(super) unread: AtomicU32,
    /// The kernel did not take the last ring.
    pub(super) is_owed: AtomicBool,
    /// Since when it has had no memory for rings, in nanoseconds; 0 while it has some.
    starved_since: AtomicU64,
}

/// An end that is watched edge-triggered is not silenced. So many waits leave rings in its line, of
/// which each may have brought two, for data and for space. The kernel acknowledges rings when they
/// are read, or 40 ms later; while ten are not acknowledged (RFC 6928), that of the ringer keeps the
/// next one to itself.
pub(super) const MOST_UNREAD: u32 = 4;
/// So many are taken at once: more than a ringer sends who rings no more often than it is waited
/// for.
const AT_ONCE: usize = 1024;
/// A line on which the kernel has had no memory for a ring for so long is given up: its end needs
/// none, and the other machine hears of it.
const STARVED: Duration = Duration::from_secs(1);

impl Line {
    pub(super) fn new(socket: Placed, channel: Option<EventChannel>) -> Self {
        Self {
            socket,
            channel,
            is_over: AtomicBool::new(false),
            is_out: AtomicBool::new(false),
            unread: AtomicU32::new(0),
            is_owed: AtomicBool::new(false),
            starved_since: AtomicU64::new(0),
        }
    }

    pub(super) fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Before it is tried: what another thread owes meanwhile stays owed.
        self.is_owed.store(false, Ordering::Relaxed);
        if self.channel.as_ref().is_some_and(EventChannel::ring) {
            return;
        }
        match rustix::net::send(&self.socket, &[0], flags) {
            Ok(_) => {
                if self.starved_since.load(Ordering::Relaxed) != 0 {
                    self.starved_since.store(0, Ordering::Relaxed);
                }
            }
            Err(error @ (Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM)) => {
                self.owe(error);
            }
            Err(_) => self.is_over.store(true, Ordering::Relaxed),
        }
    }

    /// Rings that are on their way may have been heard before what this one was for.
    #[cold]
    fn owe(&self, error: Errno) {
        self.is_owed.store(true, Ordering::Relaxed);
        // EAGAIN says either, but with nothing on its way there is room.
        let is_starved = match error {
            Errno::AGAIN => socket::unsent(self.socket.fd()) == Ok(0),
            _ => error != Errno::INTR,
        };
        if !is_starved {
            self.starved_since.store(0, Ordering::Relaxed);
            return;
        }
        let since = self.starved_since.load(Ordering::Relaxed);
        match host::since(since).filter(|_| since != 0) {
            None => self.starved_since.store(host::nanoseconds().max(1), Ordering::Relaxed),
            Some(so_long) if so_long > STARVED => self.end(),
            Some(_) => {}
        }
    }

    /// Ends it for both machines.
    fn end(&self) {
        // An error means that it has ended.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over_by(&self, until: Deadline) -> bool {
        let hangup = Events { hangup: true, ..Events::default() };
        while !self.is_over.load(Ordering::Relaxed) {
            match poll::wait(Fd::new(-1), self.socket.fd(), hangup, until) {
                Ok(_) => self.is_over.store(true, Ordering::Relaxed),
                Err(Errno::INTR) if !until.is_over() => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Finds out whether it is over where rings are left in it, behind which its end is not read.
    /// Returns how many are left, where too many waits have left some.
    pub(super) fn look(&self) -> Option<usize> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let want = Events { read: true, hangup: true, ..Events::default() };
        let events = poll::look(self.socket.fd(), want).unwrap_or_default();
        if events.hangup || events.dead {
            self.is_over.store(true, Ordering::Relaxed);
        }
        if !events.read {
            self.unread.store(0, Ordering::Relaxed);
            return None;
        }
        let is_full = self.unread.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_UNREAD;
        is_full.then(|| socket::unread(self.socket.fd()).unwrap_or_default())
    }

    /// Takes the rings that have come. Where the channel has some, those of the line are heard the
    /// next time.
    pub(super) fn quiet(&self) {
        if !self.channel.as_ref().is_some_and(EventChannel::hear) {
            self.drain(AT_ONCE);
        }
    }

    /// So many at most. One that rings without end is heard again.
    pub(super) fn drain(&self, most: usize) {
        self.unread.store(0, Ordering::Relaxed);
        let mut rings = [0; AT_ONCE];
        let rings = &mut rings[..most.clamp(1, AT_ONCE)];
        match rustix::net::recv(&self.socket, rings, RecvFlags::DONTWAIT) {
            Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.is_over.store(true, Ordering::Relaxed),
        }
    }
}
