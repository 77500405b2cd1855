//! What poll, select and epoll need to know about a connection.

use std::sync::atomic::Ordering;

use seekwire_protocol::switch::RxStep;
use seekwire_transport::spin::{PeerPlace, Seen, Spinner};
use seekwire_transport::sys::poll::Events;
use seekwire_transport::sys::{Fd, socket};

use super::link::Link;
use super::state::Connection;
use super::terms::{Interest, Readiness};
use crate::config::Config;

/// Waits awake on behalf of a caller that watches several connections, and learns whether it is
/// worth it.
#[derive(Debug, Default)]
pub struct SetSpinner(Spinner);

impl SetSpinner {
    /// Waits awake for that peer until `look` sees something, for as long as the configuration, the
    /// machine's load and `may_wait`, which is asked with the nanoseconds so far, allow; returns
    /// whether it has. Returns at once when it is not worth it.
    pub fn spin(
        &self,
        peer: PeerPlace,
        may_wait: impl FnMut(u64) -> bool,
        look: impl FnMut() -> Seen,
    ) -> bool {
        self.0.spin(Config::get().spin, peer, may_wait, look)
    }
}

impl Connection {
    /// What the ring knows to be ready. What it does not know, the kernel's poll on the socket
    /// does: its POLLIN, POLLRDHUP, POLLHUP and POLLERR always count, its POLLOUT unless
    /// `tx_on_ring`.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.readiness_for(Interest::default())
    }

    /// As [`Connection::readiness`], for somebody who wants to know whether there is room to send:
    /// a ring without room is left, and TCP's counts.
    #[must_use]
    pub fn readiness_for(&self, want: Interest) -> Readiness {
        if want.write {
            if let Some(link) = self.attached() {
                if link.tx_on_ring() && !link.ring.queue.has_room() {
                    // An error is that of the next send.
                    let _ = self.overflow_if_due(link, false);
                }
            }
        }
        let drained = self.has_drained() || self.has_rest();
        let Some(link) = self.attached() else {
            return Readiness { read: drained, ..Readiness::default() };
        };
        self.look_after(link);
        let q = &link.ring.queue;
        if !link.is_sound() {
            return Readiness { read: true, write: true, end: true, ..Readiness::default() };
        }
        if q.to_retransmit() > 0 {
            self.attend();
        }
        let tx_on_ring = link.tx_on_ring();
        let read =
            drained || q.has_data() || (q.has_record() && self.has_data_after_switches(link));
        let end = q.peer_has_closed() || (read && !drained && q.has_end());
        Readiness {
            read,
            write: tx_on_ring && q.has_room(),
            tx_on_ring,
            retransmits: q.to_retransmit() > 0,
            end,
        }
    }

    /// Whether nothing comes any more but what lies on the ring, since the peer sends nothing more
    /// or this end was shut down for reading: the kernel may have POLLIN, POLLHUP, POLLRDHUP or
    /// POLLERR to add.
    #[must_use]
    pub fn has_end_to_tell(&self) -> bool {
        self.is_receive_shut()
            || self.attached().is_some_and(|link| {
                link.ring.queue.peer_is_shut() || link.ring.queue.peer_has_closed()
            })
    }

    /// Takes switches off the head of the ring to see what comes after them.
    #[cold]
    pub(super) fn has_data_after_switches(&self, link: &Link) -> bool {
        let Ok(rx) = self.rx(link) else { return false };
        let step = rx.step();
        drop(rx);
        match step {
            Ok(RxStep::Ring | RxStep::End) => true,
            Ok(_) => false,
            Err(violation) => {
                self.violated(link, violation);
                true
            }
        }
    }

    /// From now on the peer rings the doorbell when it publishes (`read`), or when it has freed
    /// half of what is missing (`write`); to be undone by [`Connection::disarm`], once each. What
    /// is ready already is returned: then do not sleep, unless only news counts (edge-triggered
    /// epoll).
    pub fn arm(&self, want: Interest) -> Readiness {
        if let Some(link) = self.attached() {
            link.ring.make_room(0);
            self.attend();
            link.ring.arm(events(want));
        } else if want.read {
            self.arm_found();
        }
        self.readiness_for(want)
    }

    /// As [`Connection::arm`], for one that is armed already and goes back to sleep: the peer, which
    /// rings once for each time that it is asked, rings again.
    pub fn rearm(&self, want: Interest) {
        if let Some(link) = self.attached() {
            link.ring.make_room(u64::from(want.read) + u64::from(want.write));
            self.attend();
            link.ring.rearm(events(want));
        }
    }

    /// Undoes [`Connection::arm`].
    pub fn disarm(&self, want: Interest) {
        if let Some(link) = self.attached() {
            link.ring.disarm(events(want));
        } else if want.read {
            self.disarm_found();
        }
    }

    /// The doorbell's descriptor, readable once it was rung; `None` before the connection is
    /// attached or seeking, or its rest [is watched](Self::watch_rest). It is another one once the
    /// connection seeks, then also readable while the next byte is in library memory.
    #[must_use]
    pub fn doorbell(&self) -> Option<Fd> {
        self.peers_doorbell().or_else(|| self.found_doorbell())
    }

    fn peers_doorbell(&self) -> Option<Fd> {
        self.seek_doorbell().or_else(|| self.attached().map(|link| link.ring.doorbell.fd()))
    }

    /// As [`Connection::doorbell`], for somebody who wants nothing else than this: only who wants
    /// to read is called by bytes in library memory. For a rest that was found nobody waits so.
    #[must_use]
    pub fn doorbell_for(&self, want: Interest) -> Option<Fd> {
        if want.read {
            self.peers_doorbell()
        } else {
            self.attached().map(|link| link.ring.doorbell.fd())
        }
    }

    /// Silences the doorbell. Not needed where it is watched edge-triggered.
    pub fn quiet_doorbell(&self) {
        if let Some(link) = self.attached() {
            link.ring.doorbell.quiet();
            // It may have rung for others who are armed.
            link.ring.disarm(Events::default());
            self.call_others_again(link);
        } else {
            self.quiet_found();
        }
    }

    /// Whether somebody of this end who sleeps on the ring's doorbell has a reason to wake that the
    /// peer does not ring for, and has yet to wake up. There are three: a receive that began before
    /// the first seek; one that waits for the next byte, which is in library memory; a seek that
    /// waits for bytes in the middle, some of which others have moved.
    ///
    /// Each sleeper is counted before it looks for the last time, and each reason is noted before
    /// the doorbell is rung. So whoever silences the doorbell afterwards sees both, and leaves it
    /// rung or rings it again: nobody sleeps on.
    pub(super) fn others_are_called(&self) -> bool {
        self.seeking.get().is_some_and(|seeking| {
            self.waiters.unaware.load(Ordering::SeqCst) > 0
                || seeking.leader_is_called()
                || (self.waiters.watchers.load(Ordering::SeqCst) > 0 && seeking.head_is_drained())
        })
    }

    /// Rings the doorbell again if it was silenced while it rang for others.
    pub(super) fn call_others_again(&self, link: &Link) {
        if self.others_are_called() {
            link.ring.doorbell.ring();
        }
    }

    /// Wakes this end's own waiters.
    pub fn ring_own_doorbell(&self) {
        if let Some(link) = self.attached() {
            link.ring.doorbell.ring();
        } else {
            self.ring_seek_doorbell();
            self.ring_found();
        }
    }

    /// Changes whenever the peer has published bytes or the end of the stream.
    #[inline]
    #[must_use]
    pub fn data_mark(&self) -> u64 {
        self.attached().map_or(0, |link| link.ring.queue.data_mark())
    }

    /// The part of a mark that bytes alone change. Where the direction is on TCP, the kernel reports
    /// the end.
    #[inline]
    #[must_use]
    pub fn bytes_of_mark(mark: u64) -> u64 {
        mark >> 1
    }

    /// Whether the peer has sent bytes by TCP that were not received yet.
    #[inline]
    #[must_use]
    pub fn peer_has_sent_by_tcp(&self) -> bool {
        self.attached().is_some_and(|link| link.ring.queue.peer_has_sent_by_tcp())
    }

    /// Changes whenever the kernel has received bytes or the end of the stream. `None` if it does
    /// not say.
    #[must_use]
    pub fn kernel_mark(&self) -> Option<u64> {
        socket::received(self.fd()).ok()
    }

    /// Where the peer runs now, for whose answer a caller may wait awake. `None` if that can be of
    /// no use: there is no ring, or the peer needs this processor. No system call.
    #[must_use]
    pub fn place_of_peer(&self) -> Option<PeerPlace> {
        let place = self.attached()?.peer_place();
        (place != PeerPlace::ThisProcessor).then_some(place)
    }
}

pub(super) fn events(want: Interest) -> Events {
    Events { read: want.read, write: want.write, ..Events::default() }
}
