//! Readiness of a connection, for poll, select and epoll.

use std::sync::atomic::Ordering;
use std::time::Duration;

use seekwire_protocol::readiness::Sends;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::spin::PeerPlace;
use seekwire_transport::sys::poll::Events;
use seekwire_transport::sys::{Fd, socket};

use super::data_path::DataPath;
use super::state::Connection;
use super::types::{Interest, Readiness};

/// The request of a caller that the peer ring for it: the caller looks once more, and only then
/// sleeps.
#[derive(Debug, Default)]
#[must_use]
pub struct Armed {
    want: Interest,
    /// It does not before the connection is attached.
    peer_rings: bool,
}

impl Armed {
    /// The events for which it is armed.
    pub fn want(&self) -> Interest {
        self.want
    }

    /// Whether the connection has attached since: the peer rings for nobody that was armed before.
    pub fn lacks_ring(&self, connection: &Connection) -> bool {
        !self.peer_rings && connection.is_attached()
    }
}

impl Connection {
    /// Readiness that the ring knows of. The rest is for the kernel's poll on the socket: its
    /// POLLIN, POLLRDHUP, POLLHUP and POLLERR always count, its POLLOUT as [`Connection::sends`]
    /// says.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.readiness_for(Interest::default())
    }

    /// As [`Connection::readiness`], for a caller that wants to know whether there is room to send:
    /// a full ring is left, so that TCP's room counts.
    #[must_use]
    pub fn readiness_for(&self, want: Interest) -> Readiness {
        if want.write {
            if let Some(data_path) = self.attached() {
                if data_path.tx_on_ring() && !data_path.ring.queue.has_room() {
                    // The next send returns the error, if any.
                    let _ = self.overflow_if_due(data_path, false);
                }
            }
        }
        let drained = self.has_drained() || self.has_spill();
        let Some(data_path) = self.attached() else {
            return Readiness { read: drained, ..Readiness::default() };
        };
        self.look_after(data_path);
        let q = &data_path.ring.queue;
        if !data_path.is_sound() {
            return Readiness { read: true, write: true, end: true };
        }
        if q.to_retransmit() > 0 {
            self.service_peer();
        }
        let read =
            drained || q.has_data() || (q.has_record() && self.has_data_after_switches(data_path));
        let end = q.peer_has_closed() || (read && !drained && q.has_end());
        Readiness { read, write: data_path.tx_on_ring() && q.has_room(), end }
    }

    /// Whether only the bytes on the ring can still be received, since the peer sends nothing more
    /// or this end was shut down for reading: the kernel may have POLLIN, POLLHUP, POLLRDHUP or
    /// POLLERR to add.
    #[must_use]
    pub fn has_end_to_tell(&self) -> bool {
        self.is_receive_shut()
            || self.attached().is_some_and(|data_path| {
                data_path.ring.queue.peer_is_shut() || data_path.ring.queue.peer_has_closed()
            })
    }

    /// Takes switches off the head of the ring to see what comes after them.
    #[cold]
    pub(super) fn has_data_after_switches(&self, data_path: &DataPath) -> bool {
        let Ok(rx) = self.rx(data_path) else { return false };
        let step = rx.step();
        drop(rx);
        match step {
            Ok(RxStep::Ring | RxStep::End) => true,
            Ok(_) => false,
            Err(violation) => {
                self.violated(data_path, violation);
                true
            }
        }
    }

    /// From now on the peer rings the doorbell when it publishes (`read`), or when it has freed
    /// half of the missing room (`write`). Then comes [`Connection::last_look`], a sleep if that
    /// found nothing, and [`Connection::disarm`].
    pub fn arm(&self, want: Interest) -> Armed {
        let mut armed = Armed::default();
        self.rearm(&mut armed, want);
        armed
    }

    /// As [`Connection::arm`], for a caller that may be armed already and goes back to sleep: the
    /// peer, which rings once for each request, rings again.
    pub fn rearm(&self, armed: &mut Armed, want: Interest) {
        let data_path = self.attached();
        if armed.peer_rings != data_path.is_some() {
            self.disarm(std::mem::take(armed));
        }
        let had = armed.want;
        let again = Interest { read: want.read && had.read, write: want.write && had.write };
        let new = Interest { read: want.read && !had.read, write: want.write && !had.write };
        if let Some(data_path) = data_path {
            data_path.ring.make_room(u64::from(again.read) + u64::from(again.write));
            self.service_peer();
            data_path.ring.rearm(events(again));
            data_path.ring.arm(events(new));
        } else if new.read {
            self.arm_spill();
        }
        armed.want = Interest { read: want.read || had.read, write: want.write || had.write };
        armed.peer_rings = data_path.is_some();
    }

    /// The last look of a caller that is armed, before it sleeps, and the longest time that the
    /// sleep may last: the peer may hold bytes back until then, and does not ring when they become
    /// visible.
    pub fn last_look<T>(&self, want: Interest, look: impl FnOnce() -> T) -> (T, Option<Duration>) {
        // Read before the look: bytes that are held back during it become visible within this time.
        let reads = self.attached().filter(|_| want.read);
        let held = reads.and_then(|data_path| data_path.ring.queue.note_hold());
        (look(), held)
    }

    /// Undoes [`Connection::arm`].
    pub fn disarm(&self, armed: Armed) {
        let Armed { want, peer_rings } = armed;
        if !peer_rings {
            if want.read {
                self.disarm_spill();
            }
        } else if let Some(data_path) = self.attached() {
            data_path.ring.disarm(events(want));
        }
    }

    /// The meaning of room in the kernel's socket.
    #[must_use]
    pub fn sends(&self) -> Sends {
        if self.tx_on_ring() {
            Sends::Ring
        } else if self.retransmits() {
            Sends::Retransmit
        } else if self.is_held_up() {
            Sends::HeldUp
        } else {
            Sends::Tcp
        }
    }

    /// How long a sleep may be, where possibly nobody wakes the sleeper. `sends` is what the caller
    /// knew when it decided whether the kernel is to report room.
    #[must_use]
    pub fn longest_sleep(&self, want: Interest, sends: Sends) -> Option<Duration> {
        if want.write && sends == Sends::HeldUp {
            return Some(Self::MOMENT);
        }
        let is_short = self.is_starved(want)
            || (want.read && self.may_miss_wakeups())
            || self.has_undelivered();
        is_short.then_some(Self::RECHECK_INTERVAL)
    }

    /// The doorbell's descriptor, readable once it was rung; `None` before the connection is
    /// attached or seeking, or its spill [is watched](Self::watch_spill). Once the connection
    /// seeks, it is another descriptor, which is also readable while the next byte is in library
    /// memory.
    #[must_use]
    pub fn doorbell(&self) -> Option<Fd> {
        self.peers_doorbell().or_else(|| self.spill_doorbell())
    }

    fn peers_doorbell(&self) -> Option<Fd> {
        self.seek_doorbell()
            .or_else(|| self.attached().map(|data_path| data_path.ring.doorbell.fd()))
    }

    /// As [`Connection::doorbell`], for a caller that wants nothing but this: bytes in library
    /// memory wake only callers that want to read. Nobody waits in this way for a spill that was
    /// found.
    #[must_use]
    pub fn doorbell_for(&self, want: Interest) -> Option<Fd> {
        if want.read {
            self.peers_doorbell()
        } else {
            self.attached().map(|data_path| data_path.ring.doorbell.fd())
        }
    }

    /// Silences the doorbell. Not needed if it is watched edge-triggered.
    pub fn quiet_doorbell(&self) {
        if let Some(data_path) = self.attached() {
            data_path.ring.silence(Events::default(), || self.others_are_called());
        } else {
            self.quiet_spill();
        }
    }

    /// Whether a sleeper of this end on the ring's doorbell has yet to wake for a reason that does
    /// not show on the ring. There are four: a receive that began before the first seek; one that
    /// waits for the next byte, which is in library memory; a seek that waits for bytes in the
    /// middle, some of which others have moved; bytes that others have moved to the spill.
    ///
    /// Each sleeper is counted before its last look, and each reason is noted before the doorbell
    /// is rung. So a thread that silences the doorbell afterwards sees both, and leaves it rung or
    /// rings it again: no sleeper is missed.
    pub(super) fn others_are_called(&self) -> bool {
        let is_spilled = |data_path: &DataPath| {
            let q = &data_path.ring.queue;
            q.spill_len() > 0 && q.has_readers() && self.has_spill()
        };
        let by_seek = self.seeking.get().is_some_and(|seeking| {
            self.waiters.unaware.load(Ordering::SeqCst) > 0
                || seeking.leader_is_called()
                || (self.waiters.watchers.load(Ordering::SeqCst) > 0 && seeking.head_is_drained())
        });
        by_seek || self.attached().is_some_and(is_spilled)
    }

    /// Wakes this end's own waiters.
    pub fn ring_own_doorbell(&self) {
        if let Some(data_path) = self.attached() {
            data_path.ring.doorbell.ring();
        } else {
            self.ring_seek_doorbell();
            self.ring_spill();
        }
    }

    /// Changes whenever the peer has published bytes or the end of the stream, which is the lowest
    /// bit.
    #[inline]
    #[must_use]
    pub fn data_mark(&self) -> u64 {
        self.attached().map_or(0, |data_path| data_path.ring.queue.data_mark())
    }

    /// Whether the peer has sent bytes by TCP that were not received yet.
    #[inline]
    #[must_use]
    pub fn peer_has_sent_by_tcp(&self) -> bool {
        self.attached().is_some_and(|data_path| data_path.ring.queue.peer_has_sent_by_tcp())
    }

    /// Changes whenever the kernel has received bytes or the end of the stream. `None` if the
    /// kernel does not report it.
    #[must_use]
    pub fn kernel_mark(&self) -> Option<u64> {
        socket::received(self.fd()).ok()
    }

    /// The processor on which the peer runs now, for a caller that may spin for its answer. `None`
    /// if that is of no use: there is no ring, or the peer needs this processor. No system call.
    #[must_use]
    pub fn place_of_peer(&self) -> Option<PeerPlace> {
        let place = self.attached()?.peer_place();
        (place != PeerPlace::ThisProcessor).then_some(place)
    }
}

pub(super) fn events(want: Interest) -> Events {
    Events { read: want.read, write: want.write, ..Events::default() }
}
