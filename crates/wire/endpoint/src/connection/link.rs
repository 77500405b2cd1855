//! The data path of an attached connection: the ring, and what this end knows about the peer.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use seekwire_link::{Entry, Link as Shared, Other, State};
use seekwire_transport::Errno;
use seekwire_transport::ring::Ring;
use seekwire_transport::spin::{PeerPlace, Spinner};
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::thread;

use super::taking::Watch;
use crate::config::Config;
use crate::control_group::Held;

/// The data path: what an attached connection has besides its socket.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ring: Ring,
    /// This end's part of the ring counts until the ring goes.
    _held: Held,
    pub(super) rx_spinner: Spinner,
    pub(super) tx_spinner: Spinner,
    /// Why the ring is not used any more, if it is not: one of the constants below.
    pub(super) broken: AtomicU8,
    /// The peer's process.
    pub(super) peer_pid: u32,
    /// What the registry was last told about the carriers, a bit each.
    pub(super) shown: AtomicU8,
    /// Bytes of a full segment, once the kernel was asked; 0 before.
    pub(super) segment: AtomicUsize,
    /// What this end has seen the peer take off the ring.
    pub(super) watch: Watch,
    /// A receive has returned the end of the stream, and no error before it.
    pub(super) has_ended: AtomicBool,
    /// An error that the kernel told, which it does once, while bytes on the ring come before it, or
    /// to somebody else than the program: the receive behind those bytes returns it. 0 is none.
    pub(super) untold: AtomicI32,
    /// What tells the socket from other files: its number may come to stand for another one.
    pub(super) identity: OnceLock<Option<(u64, u64)>>,
    /// What makes it one between two machines.
    across: Option<Across>,
}

/// What a data path between two machines has besides.
#[derive(Debug)]
struct Across {
    far: Arc<Far>,
    /// The entry of the other end, as it was when both met.
    other: Other,
    /// Nanoseconds that the network took at best, there and back.
    away: u64,
    /// This end has met the end of the line.
    has_left_line: AtomicBool,
    /// This end has waited for the end of the line, behind that of the connection.
    has_waited: AtomicBool,
}

/// How long a process may take that dies to close the line behind the connection.
const DYING: Duration = Duration::from_millis(100);

/// This end's entry in the memory that this machine shares with another. The place of the ring is
/// its, and is given to nobody else until this is gone in all processes.
#[derive(Debug)]
pub(super) struct Far {
    pub(super) link: Arc<Shared>,
    pub(super) entry: Entry,
    /// The last process that held this end has closed it.
    is_left: AtomicBool,
}

impl Far {
    pub(super) fn new(link: Arc<Shared>, entry: Entry) -> Self {
        Self { link, entry, is_left: AtomicBool::new(false) }
    }

    /// The last process that held this end has closed it. Other threads may still be in a call, and
    /// write to the place, or come to have one.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // The last call and the data path are over: nobody looks at the memory any more.
        if self.is_left.load(Ordering::Relaxed) {
            self.entry.clear();
        }
    }
}

/// The ring is as it should be.
const SOUND: u8 = 0;
/// The peer died or closed: what is in the ring can be read, sends go to the kernel, which knows
/// the right error and signal.
const PEER_GONE: u8 = 1;
/// The peer's memory said something impossible; the connection was reset.
pub(super) const VIOLATED: u8 = 2;

impl Link {
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
            watch: Watch::default(),
            has_ended: AtomicBool::new(false),
            untold: AtomicI32::new(0),
            identity: OnceLock::new(),
            across: None,
        }
    }

    /// One to another machine, whose processes are not known here.
    /// It takes at least `away` nanoseconds there and back by the network.
    pub(super) fn across(ring: Ring, held: Held, far: Arc<Far>, other: &Other, away: u64) -> Self {
        let across = Across {
            far,
            other: *other,
            away,
            has_left_line: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
        };
        Self { across: Some(across), ..Self::new(ring, held, 0) }
    }

    /// Whether the machine at the other end has started anew since both ends met. Its kernel resets
    /// the connection; who knows of it sooner looks at nothing that stands there.
    pub(super) fn machine_is_gone(&self) -> bool {
        self.across.as_ref().is_some_and(|across| {
            across.far.link.peer().is_none_or(|machine| machine.token != across.other.token)
        })
    }

    /// The last process that held this end has closed it. Other threads may still be in a call.
    pub(super) fn leave_entry(&self) {
        if let Some(across) = &self.across {
            across.far.leave();
        }
    }

    /// Whether the line to another machine is over, so that nobody there can wake this end any
    /// more, nor be woken.
    #[inline]
    pub(super) fn has_lost_line(&self) -> bool {
        let is_new = |across: &Across| !across.has_left_line.load(Ordering::Relaxed);
        self.ring.doorbell.is_over() && self.across.as_ref().is_some_and(is_new)
    }

    /// Whether the other end has joined, which it says: one that could not has closed the line.
    /// Asked when that is over. An end that is gone has had no reason to say anything.
    pub(super) fn has_joined_across(&self) -> bool {
        self.across.as_ref().is_none_or(|across| {
            let other = across.far.entry.look(&across.other);
            other.is_none_or(|other| other.state == State::Granted)
        })
    }

    /// Has rings go by the channel to another domain, if the peer shows that it has the other end.
    /// That it was heard is not enough: an entry that a process has left shows a port which may be
    /// that of this connection by now.
    #[inline]
    pub(super) fn confirm_channel(&self) {
        let Some(port) = self.ring.peer_doorbell.unconfirmed_channel() else { return };
        let shows_it = |across: &Across| {
            across.far.entry.look(&across.other).is_some_and(|other| other.channel == Some(port))
        };
        if self.across.as_ref().is_some_and(shows_it) {
            self.ring.peer_doorbell.confirm_channel();
        }
    }

    /// From now on [`Self::has_lost_line`] is false: this end has done what is to be done.
    pub(super) fn leave_line(&self) {
        if let Some(across) = &self.across {
            across.has_left_line.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something may still go by the ring although nobody rings for it, or is yet to.
    pub(super) fn is_silent(&self) -> bool {
        let q = &self.ring.queue;
        self.ring.peer_doorbell.is_owed()
            || (self.ring.doorbell.is_over()
                && (q.rx_on_ring() || q.unread() > 0 || q.unsent() > 0))
    }

    /// Whether nobody holds the peer's end on another machine: the line is over, which all who have
    /// the end have, too. Asked when TCP has ended. The first time it is waited for, since a
    /// process that dies closes one after the other. `None` where the peer is on this host.
    pub(super) fn is_left_across(&self) -> Option<bool> {
        let across = self.across.as_ref()?;
        let is_first = !across.has_waited.swap(true, Ordering::Relaxed);
        let patience = if is_first { DYING } else { Duration::ZERO };
        Some(self.ring.doorbell.is_over_by(Deadline::after(Some(patience))))
    }

    /// Whether the file was cut short that has the memory of both ends: what is found there means
    /// nothing.
    #[inline]
    pub(super) fn has_lost_memory(&self) -> bool {
        self.across.as_ref().is_some_and(|across| across.far.link.region().is_lost())
    }

    /// Whether the peer can still take what this end has left on the ring. A signal handler that
    /// has interrupted a send cannot tell.
    pub(super) fn is_intact(&self) -> bool {
        !self.has_lost_memory() && self.ring.sending().is_none_or(|tx| tx.is_intact())
    }

    /// Whether the peer is on another machine.
    pub(super) fn is_across(&self) -> bool {
        self.across.is_some()
    }

    pub(super) fn peer_is_gone(&self) {
        let _ =
            self.broken.compare_exchange(SOUND, PEER_GONE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// An error that the kernel told to this library alone. EPIPE is for sends.
    pub(super) fn keep_untold(&self, error: Errno) {
        if error != Errno::PIPE {
            self.untold.store(error.raw_os_error(), Ordering::Relaxed);
        }
    }

    /// Whether there is such an error.
    pub(super) fn has_untold(&self) -> bool {
        self.untold.load(Ordering::Relaxed) != 0
    }

    /// The error that [`Link::untold`] keeps, if there is one: it is told now.
    pub(super) fn take_untold(&self) -> Option<Errno> {
        let error = if self.has_untold() { self.untold.swap(0, Ordering::Relaxed) } else { 0 };
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

    /// Where the peer runs now.
    pub(super) fn peer_place(&self) -> PeerPlace {
        let here = thread::processor();
        self.ring.queue.note_processor(here);
        // Processors of virtual machines have numbers of their own.
        match &self.across {
            Some(across) if !across.far.link.is_on_this_host() => {
                PeerPlace::AnotherMachine(across.away)
            }
            _ if self.ring.queue.peer_processor() == Some(here) => PeerPlace::ThisProcessor,
            _ => PeerPlace::ThisHost,
        }
    }

    /// Waits awake for the peer as long as that is worth it, and as the call may wait; returns
    /// whether it is `ready`.
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
        Shared::attach(&definition, &state, Access { mode: 0o600, group: None }).unwrap();
        let shared = Arc::new(Shared::open(&definition, &state).unwrap());
        let entry = |port: u16| {
            let end = SocketAddr::from(([192, 0, 2, 1], port)).into();
            let tuple = FourTuple { local: end, peer: end, namespace: 0 };
            shared.enter(&tuple, Role::Connected, 0).unwrap()
        };
        // Most of a half.
        const LENGTH: usize = 300 << 10;
        let (far, next) = (Arc::new(Far::new(Arc::clone(&shared), entry(1))), entry(2));
        // A call of another thread has it when the connection is closed, and a place after that.
        let call = Arc::clone(&far);
        far.leave();
        drop(far);
        assert!(call.entry.place(LENGTH).is_some());
        assert_eq!(next.place(LENGTH), None);
        drop(call);
        assert!(next.place(LENGTH).is_some());
    }
}
