//! A wake channel that carries rings between two machines, and the channel that may carry them
//! instead.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::sys::event_channel::EventChannel;
use crate::sys::fd::{Fd, PrivateFd};
use crate::sys::poll::{self, Deadline, Events};
use crate::sys::{host, socket};

/// A connected stream socket between two machines that carries rings in both directions. If both
/// are domains of Xen's, a channel does so, and the wake channel shows when its other end is gone.
#[derive(Debug)]
pub(super) struct WakeChannel {
    pub(super) socket: PrivateFd,
    pub(super) channel: Option<EventChannel>,
    /// The other machine has closed it, or it broke.
    pub(super) is_over: AtomicBool,
    /// It was removed from the set of this end, after it was closed.
    pub(super) is_out: AtomicBool,
    /// Number of waits that began with rings in it.
    pub(super) unread: AtomicU32,
    /// The kernel did not take the last ring.
    pub(super) is_owed: AtomicBool,
    /// Since when it has had no memory for rings, in nanoseconds; 0 while it has some.
    starved_since: AtomicU64,
}

/// An end that is watched edge-triggered is not silenced. This many waits leave rings in its wake
/// channel, each of which may have brought two, for data and for space. The kernel acknowledges
/// rings when they are read, or 40 ms later; while ten are not acknowledged (RFC 6928), the
/// ringer's kernel holds back the next one.
pub(super) const MOST_UNREAD: u32 = 4;
/// Maximum number of rings taken at once: more than a ringer sends that rings no more often than
/// the other end waits.
const AT_ONCE: usize = 1024;
/// How long the kernel may have no memory for a ring before the wake channel is given up: closing
/// it needs none, and notifies the other machine.
const STARVED: Duration = Duration::from_secs(1);

impl WakeChannel {
    pub(super) fn new(socket: PrivateFd, channel: Option<EventChannel>) -> Self {
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
        // Cleared before the attempt: what another thread owes meanwhile stays owed.
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

    /// Rings in flight may have been received before the event for which this one was meant.
    #[cold]
    fn owe(&self, error: Errno) {
        self.is_owed.store(true, Ordering::Relaxed);
        // EAGAIN means either, but with nothing in flight there is room.
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

    /// Closes it for both machines.
    fn end(&self) {
        // An error means that it has closed already.
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

    /// Finds out whether it is closed although rings are left in it, which hide its end. Returns
    /// the number of those rings, if too many waits have left some.
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

    /// Takes the rings that have come. If the channel has some, those of the wake channel are taken
    /// the next time.
    pub(super) fn quiet(&self) {
        if !self.channel.as_ref().is_some_and(EventChannel::silence) {
            self.drain(AT_ONCE);
        }
    }

    /// Takes at most this many. A wake channel that rings without end is read again later.
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
