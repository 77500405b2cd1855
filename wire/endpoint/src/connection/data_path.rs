//! The data path of an attached connection: the ring, and what this end knows about the peer.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use seekwire_link::{EntryState, Link, LinkEntry, Other};
use seekwire_transport::Errno;
use seekwire_transport::ring::Ring;
use seekwire_transport::spin::{PeerPlace, Spinner};
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::{Fd, socket, thread};

use super::peer_progress::PeerProgress;
use crate::config::Config;
use crate::control_group::Held;

/// The data path: the parts of an attached connection besides its socket.
#[derive(Debug)]
pub(super) struct DataPath {
    pub(super) ring: Ring,
    /// Counts the memory of this end's part of the ring until it is freed.
    _held: Held,
    pub(super) rx_spinner: Spinner,
    pub(super) tx_spinner: Spinner,
    /// Why the ring is no longer used, if it is not: one of the constants below.
    pub(super) broken: AtomicU8,
    /// The peer's process.
    pub(super) peer_pid: u32,
    /// The carriers that the registry shows, one bit each.
    pub(super) shown: AtomicU8,
    /// Bytes of a full segment, once the kernel was asked; 0 before.
    pub(super) segment: AtomicUsize,
    /// How the peer takes from the ring, as this end sees it.
    pub(super) progress: PeerProgress,
    /// A receive has returned the end of the stream without an error before it.
    pub(super) has_ended: AtomicBool,
    /// An error that the kernel has reported, which it does once, while earlier bytes were on the
    /// ring, or to a caller other than the program: the receive after those bytes returns it. 0 is
    /// none.
    pub(super) kept_error: AtomicI32,
    /// Distinguishes the socket from other files: its number may come to stand for another one.
    pub(super) identity: OnceLock<Option<(u64, u64)>>,
    /// Present if the peer is on another machine.
    remote: Option<RemoteParts>,
}

/// The additional parts of a data path between two machines.
#[derive(Debug)]
struct RemoteParts {
    far: Arc<Far>,
    /// The other end's entry, as it was when both ends joined.
    other: Other,
    /// The shortest round trip by the network, in nanoseconds.
    round_trip: u64,
    /// This end has handled the closing of the wake channel.
    has_left_wake_channel: AtomicBool,
    /// This end has already waited for the wake channel to close after the connection.
    has_waited: AtomicBool,
}

/// How long a dying process may take to close the wake channel after the connection.
const DYING: Duration = Duration::from_millis(100);

/// This end's entry in the memory that this machine shares with another. It owns the place of the
/// ring, which is given to no other connection until this is dropped in all processes.
#[derive(Debug)]
pub(super) struct Far {
    pub(super) link: Arc<Link>,
    pub(super) entry: LinkEntry,
    /// The last process that held this end has closed it.
    is_left: AtomicBool,
}

impl Far {
    pub(super) fn new(link: Arc<Link>, entry: LinkEntry) -> Self {
        Self { link, entry, is_left: AtomicBool::new(false) }
    }

    /// The last process that held this end has closed it. Other threads may still be in a call, and
    /// write to the place, or take one.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // The last call has returned and the data path is dropped: nobody reads the memory any
        // more.
        if self.is_left.load(Ordering::Relaxed) {
            self.entry.clear();
        }
    }
}

/// The ring is usable.
const SOUND: u8 = 0;
/// The peer died or closed: the bytes on the ring can be read; sends go to the kernel, which knows
/// the right error and signal.
const PEER_GONE: u8 = 1;
/// The peer's memory had an impossible value; the connection was reset.
pub(super) const VIOLATED: u8 = 2;

impl DataPath {
    pub(super) fn new(ring: Ring, held: Held, peer_pid: u32) -> Self {
        Self {
            ring,
            _held: held,
            rx_spinner: Spinner::default(),
            tx_spinner: Spinner::default(),
            broken: AtomicU8::new(SOUND),
            peer_pid,
            shown: AtomicU8::new(0),
            segment: AtomicUsize::new(0),
            progress: PeerProgress::default(),
            has_ended: AtomicBool::new(false),
            kept_error: AtomicI32::new(0),
            identity: OnceLock::new(),
            remote: None,
        }
    }

    /// A data path to another machine, whose processes are not known here. A round trip by the
    /// network takes at least `round_trip` nanoseconds.
    pub(super) fn to_other_machine(
        ring: Ring,
        held: Held,
        far: Arc<Far>,
        other: &Other,
        round_trip: u64,
    ) -> Self {
        let remote = RemoteParts {
            far,
            other: *other,
            round_trip,
            has_left_wake_channel: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
        };
        Self { remote: Some(remote), ..Self::new(ring, held, 0) }
    }

    /// Whether the other half has another owner than when both ends joined: its machine has started
    /// anew, or another one was started from the same disk.
    pub(super) fn has_lost_machine(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| {
            remote.far.link.peer().is_none_or(|machine| machine.token != remote.other.token)
        })
    }

    /// The last process that held this end has closed it. Other threads may still be in a call.
    pub(super) fn leave_entry(&self) {
        if let Some(remote) = &self.remote {
            remote.far.leave();
        }
    }

    /// Whether the wake channel to another machine is closed, so that neither end can wake the
    /// other any more.
    #[inline]
    pub(super) fn has_lost_wake_channel(&self) -> bool {
        let is_new = |remote: &RemoteParts| !remote.has_left_wake_channel.load(Ordering::Relaxed);
        self.ring.doorbell.is_over() && self.remote.as_ref().is_some_and(is_new)
    }

    /// Whether the other end has joined, which its entry shows: an end that could not has closed
    /// the wake channel. Asked once that is closed. An end that no longer exists had no reason to
    /// refuse.
    pub(super) fn peer_has_joined(&self) -> bool {
        self.remote.as_ref().is_none_or(|remote| {
            let other = remote.far.entry.look(&remote.other);
            other.is_none_or(|other| other.state == EntryState::Granted)
        })
    }

    /// Switches rings to the channel to another domain, if the peer shows that it has the other
    /// end. Having received a ring through it is not enough: the entry of a process that has left
    /// shows a port which may belong to this connection by now.
    #[inline]
    pub(super) fn confirm_channel(&self) {
        let Some(port) = self.ring.peer_doorbell.unconfirmed_channel() else { return };
        let shows_it = |remote: &RemoteParts| {
            remote.far.entry.look(&remote.other).is_some_and(|other| other.channel == Some(port))
        };
        if self.remote.as_ref().is_some_and(shows_it) {
            self.ring.peer_doorbell.confirm_channel();
        }
    }

    /// Notes that this end has handled the closing: [`Self::has_lost_wake_channel`] is false from
    /// now on.
    pub(super) fn note_lost_wake_channel(&self) {
        if let Some(remote) = &self.remote {
            remote.has_left_wake_channel.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the ring may be in use although no doorbell ring comes for it, or one is still owed.
    pub(super) fn is_silent(&self) -> bool {
        let q = &self.ring.queue;
        self.ring.peer_doorbell.is_owed()
            || (self.ring.doorbell.is_over()
                && (q.rx_on_ring() || q.unread() > 0 || q.unsent() > 0))
    }

    /// Whether no process on the other machine holds the peer's end: the wake channel, which all
    /// holders share, is closed. Asked after TCP has ended. The first call waits for it, since a
    /// dying process closes its descriptors one after the other. `None` if the peer is on this
    /// host.
    pub(super) fn is_left_remotely(&self) -> Option<bool> {
        let remote = self.remote.as_ref()?;
        let is_first = !remote.has_waited.swap(true, Ordering::Relaxed);
        let limit = if is_first { DYING } else { Duration::ZERO };
        Some(self.ring.doorbell.is_over_by(Deadline::after(Some(limit))))
    }

    /// Whether the file with the memory of both ends was truncated: its content means nothing.
    #[inline]
    pub(super) fn has_lost_memory(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.far.link.region().is_lost())
    }

    /// Whether the peer can still take what this end has left on the ring. True in a signal handler
    /// that has interrupted a send, which cannot know.
    pub(super) fn is_intact(&self) -> bool {
        !self.has_lost_memory() && self.ring.sending().is_none_or(|tx| tx.is_intact())
    }

    /// Whether the peer is on another machine.
    pub(super) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Whether this number stands for the socket. True if that is unknown.
    pub(super) fn has_number(&self, number: Fd) -> bool {
        self.identity.get().is_none_or(|identity| *identity == socket::identity(number))
    }

    pub(super) fn peer_is_gone(&self) {
        let _ =
            self.broken.compare_exchange(SOUND, PEER_GONE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Keeps an error that the kernel reported only to this library. EPIPE is for sends.
    pub(super) fn keep_error(&self, error: Errno) {
        if error != Errno::PIPE {
            self.kept_error.store(error.raw_os_error(), Ordering::Relaxed);
        }
    }

    /// Whether such an error is kept.
    pub(super) fn has_kept_error(&self) -> bool {
        self.kept_error.load(Ordering::Relaxed) != 0
    }

    /// Takes the error that is kept, if any.
    pub(super) fn take_kept_error(&self) -> Option<Errno> {
        let error =
            if self.has_kept_error() { self.kept_error.swap(0, Ordering::Relaxed) } else { 0 };
        (error != 0).then(|| Errno::from_raw_os_error(error))
    }

    pub(super) fn is_sound(&self) -> bool {
        self.broken.load(Ordering::Relaxed) == SOUND
    }

    pub(super) fn is_violated(&self) -> bool {
        self.broken.load(Ordering::Relaxed) == VIOLATED
    }

    #[inline]
    pub(super) fn tx_on_ring(&self) -> bool {
        let q = &self.ring.queue;
        self.is_sound() && q.tx_on_ring() && !q.peer_has_closed() && !q.is_shut()
    }

    /// The processor on which the peer runs now.
    pub(super) fn peer_place(&self) -> PeerPlace {
        let here = thread::processor();
        self.ring.queue.note_processor(here);
        // Virtual machines number their processors independently.
        match &self.remote {
            Some(remote) if !remote.far.link.is_on_this_host() => {
                PeerPlace::AnotherMachine(remote.round_trip)
            }
            _ if self.ring.queue.peer_processor() == Some(here) => PeerPlace::ThisProcessor,
            _ => PeerPlace::ThisHost,
        }
    }

    /// Spins for the peer while that is worthwhile and the call may wait; returns whether it is
    /// `ready`.
    pub(super) fn stay_awake(
        &self,
        spinner: &Spinner,
        may_wait: impl FnMut(u64) -> bool,
        ready: impl FnMut() -> bool,
    ) -> bool {
        spinner.spin(Config::get().spin, self.peer_place(), may_wait, ready)
    }
}

// Miri has no shared files.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::fs::File;
    use std::net::SocketAddr;

    use seekwire_link::{Access, Definition, Provider, Side};
    use seekwire_protocol::{FourTuple, Role};

    use super::*;

    #[test]
    fn a_place_is_given_to_nobody_else_until_all_calls_of_its_connection_are_over() {
        let directory = tempfile::tempdir().unwrap();
        let (region, state) = (directory.path().join("region"), directory.path().join("state"));
        File::create(&region).unwrap().set_len(1 << 20).unwrap();
        let provider = Provider::File(region);
        let definition = Definition { name: "test".to_owned(), provider, side: Side::First };
        Link::attach(&definition, &state, Access { mode: 0o600, group: None }).unwrap();
        let link = Arc::new(Link::open(&definition, &state).unwrap());
        let entry = |port: u16| {
            let end = SocketAddr::from(([192, 0, 2, 1], port)).into();
            let tuple = FourTuple { local: end, peer: end, namespace: 0 };
            link.enter(&tuple, Role::Connected, 0).unwrap()
        };
        // Most of a half.
        const LENGTH: usize = 300 << 10;
        let (far, next) = (Arc::new(Far::new(Arc::clone(&link), entry(1))), entry(2));
        // A call in another thread owns it when the connection is closed, and takes a place after
        // that.
        let call = Arc::clone(&far);
        far.leave();
        drop(far);
        assert!(call.entry.place(LENGTH).is_some());
        assert_eq!(next.place(LENGTH), None);
        drop(call);
        assert!(next.place(LENGTH).is_some());
    }
}
