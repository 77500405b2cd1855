//! The queue pair with its doorbells: the holder of a half notifies the peer of what was done, and
//! a waiter sleeps on its own end's doorbell.

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use crate::Errno;
use crate::mem::{Own, Peer};
use crate::queue::{QueuePair, Rx, Tx};
use crate::sys::Fd;
use crate::sys::doorbell::{Doorbell, EdgeWatch};
use crate::sys::poll::{self, Deadline, Events};

/// One end of a queue pair with its doorbells: its own, on which it sleeps, and its peer's, which
/// it rings.
#[derive(Debug)]
pub struct Ring {
    /// The rings.
    pub queue: QueuePair<Own, Peer>,
    /// The doorbell on which this end sleeps.
    pub doorbell: Doorbell,
    /// The doorbell on which the peer sleeps.
    pub peer_doorbell: Doorbell,
}

/// The purpose of one sleep on a ring.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The events for which the ring is armed: data (`read`), space (`write`), or both.
    pub want: Events,
    /// The peer need not ring for data before it has published this many bytes in all, if no other
    /// waiter waits for data.
    pub published: u64,
    /// The socket of the connection; -1 for none.
    pub socket: Fd,
    /// The wanted events of the socket.
    pub of_socket: Events,
    /// When the sleep ends.
    pub until: Deadline,
}

impl Wait {
    /// For data on the ring or any event of the socket.
    #[must_use]
    pub fn for_data(socket: Fd, until: Deadline) -> Self {
        Self { want: Events::READ, published: 0, socket, of_socket: Events::READ, until }
    }

    /// For space on the ring.
    #[must_use]
    pub fn for_space(socket: Fd, until: Deadline) -> Self {
        Self { want: Events::WRITE, published: 0, socket, of_socket: Events::default(), until }
    }
}

/// The ends whose doorbells are rung when a half is released, even if nothing was announced.
#[derive(Debug, Default)]
pub struct Calls {
    peer: Cell<bool>,
    own: Cell<bool>,
}

impl Calls {
    /// Makes the peer look again, whatever it waits for.
    #[inline]
    pub fn peer(&self) {
        self.peer.set(true);
    }

    /// Makes the waiters of this end look again.
    #[inline]
    pub fn own(&self) {
        self.own.set(true);
    }
}

/// The sending half of a ring, held longer than [`Ring::send_with`] does. Releasing it announces to
/// the peer what was published: the lock is released first, and then the doorbell is rung if the
/// other end waits, so that no thread waits for a lock whose holder is in a system call.
#[derive(Debug)]
pub struct Sending<'r> {
    // In the order in which they are dropped.
    tx: Tx<'r, Own, Peer>,
    due: Due<'r>,
}

/// The receiving half of a ring, held longer than [`Ring::receive_with`] does. Releasing it
/// announces to the peer what was given back, as with [`Sending`].
#[derive(Debug)]
pub struct Receiving<'r> {
    rx: Rx<'r, Own, Peer>,
    is_before_sleep: Cell<bool>,
    due: Due<'r>,
}

/// Rings when it is dropped.
#[derive(Debug)]
struct Due<'r> {
    ring: &'r Ring,
    calls: Calls,
}

impl Drop for Due<'_> {
    fn drop(&mut self) {
        self.ring.ring_for(&self.calls);
    }
}

impl Sending<'_> {
    /// The ends to ring for afterwards.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.due.calls
    }
}

impl<'r> Deref for Sending<'r> {
    type Target = Tx<'r, Own, Peer>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.tx
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if self.tx.announce() {
            self.due.calls.peer();
        }
        if self.tx.ends_noted_hold() {
            self.due.calls.own();
        }
    }
}

impl Receiving<'_> {
    /// The holder is about to sleep although the ring is not empty: tells the peer of any room at
    /// all.
    pub fn before_sleep(&self) {
        self.is_before_sleep.set(true);
    }

    /// The ends to ring for afterwards.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.due.calls
    }
}

impl<'r> Deref for Receiving<'r> {
    type Target = Rx<'r, Own, Peer>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.rx
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        let is_due = if self.is_before_sleep.get() {
            self.rx.announce_before_sleep()
        } else {
            self.rx.announce()
        };
        if is_due {
            self.due.calls.peer();
        }
    }
}

impl Ring {
    /// Calls `send` with the sending half; `None` in a signal handler that interrupted its holder.
    /// Announces the published records and releases the lock; only then rings a doorbell.
    #[inline]
    pub fn send_with<R>(&self, send: impl FnOnce(&Tx<'_, Own, Peer>, &Calls) -> R) -> Option<R> {
        let tx = self.queue.try_tx()?;
        let calls = Calls::default();
        let result = send(&tx, &calls);
        let is_due = tx.announce();
        if tx.ends_noted_hold() {
            calls.own();
        }
        drop(tx);
        if is_due {
            calls.peer();
        }
        self.ring_for(&calls);
        Some(result)
    }

    /// Calls `receive` with the receiving half, and announces what was given back, as
    /// [`Self::send_with`] does.
    #[inline]
    pub fn receive_with<R>(
        &self,
        receive: impl FnOnce(&Rx<'_, Own, Peer>, &Calls) -> R,
    ) -> Option<R> {
        let rx = self.queue.try_rx()?;
        let calls = Calls::default();
        let result = receive(&rx, &calls);
        let is_due = rx.announce();
        drop(rx);
        if is_due {
            calls.peer();
        }
        self.ring_for(&calls);
        Some(result)
    }

    /// Takes the sending half; `None` in a signal handler that interrupted its holder.
    #[must_use]
    pub fn sending(&self) -> Option<Sending<'_>> {
        let due = Due { ring: self, calls: Calls::default() };
        self.queue.try_tx().map(|tx| Sending { tx, due })
    }

    /// Takes the receiving half; `None` in a signal handler that interrupted its holder.
    #[must_use]
    pub fn receiving(&self) -> Option<Receiving<'_>> {
        let due = Due { ring: self, calls: Calls::default() };
        self.queue.try_rx().map(|rx| Receiving { rx, is_before_sleep: Cell::new(false), due })
    }

    #[inline]
    fn ring_for(&self, calls: &Calls) {
        if calls.peer.get() {
            self.peer_doorbell.ring();
            if self.peer_doorbell.is_owed() {
                self.queue.ring_again();
            }
        }
        if calls.own.get() {
            self.doorbell.ring();
        }
    }

    /// For a caller that is about to wait and may not have silenced the doorbell: keeps the carrier
    /// of another machine's rings from filling up. The caller is already armed `times` times.
    pub fn make_room(&self, times: u64) {
        if self.doorbell.make_room(|| self.queue.number_of_waiters() > times) {
            self.wake_others();
        }
    }

    /// Asks the peer to ring for data, for space, or both; to be undone by [`Ring::disarm`]. A
    /// caller has to look again before it sleeps.
    pub fn arm(&self, want: Events) {
        if want.read {
            self.queue.arm_data();
        }
        if want.write {
            self.queue.arm_space();
        }
    }

    /// As [`Ring::arm`], for a waiter that is armed and was rung for, and goes back to sleep.
    pub fn rearm(&self, want: Events) {
        if want.read {
            self.queue.rearm_data();
        }
        if want.write {
            self.queue.rearm_space();
        }
    }

    /// Undoes [`Ring::arm`].
    pub fn disarm(&self, want: Events) {
        if want.read {
            self.queue.disarm_data();
        }
        if want.write {
            self.queue.disarm_space();
        }
    }

    /// Wakes the sleepers of this end that have a reason to wake.
    fn wake_others(&self) {
        if self.is_for_others(Events::default()) {
            self.doorbell.ring();
        }
    }

    /// Gives a reserved segment back unused, and wakes the waiters of this end for room.
    pub fn cancel(&self, segment: usize) {
        // A signal handler that interrupted a send of this thread cannot take the half: the segment
        // stays reserved.
        if let Some(tx) = self.sending() {
            tx.cancel(segment);
            drop(tx);
            self.wake_others();
        }
    }

    /// Sleeps until `ready`, armed for what `wait` wants, or until the socket has an event; returns
    /// the socket's events.
    ///
    /// Several threads may sleep on this doorbell. Some have reasons to wake that do not show in
    /// the ring; `are_called` returns whether one of those has been rung for and has yet to wake
    /// up. It must be true from before the doorbell is rung for that reason until the sleeper is
    /// awake: meanwhile the doorbell is not silenced.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; those of poll(2).
    pub fn sleep(
        &self,
        wait: &Wait,
        ready: impl Fn() -> bool,
        are_called: impl Fn() -> bool,
    ) -> Result<Events, Errno> {
        let &Wait { want, published, socket, of_socket, until } = wait;
        // If others are armed, the doorbell may have rung again, for them: it is not silenced here.
        if self.queue.number_of_waiters() == 0 && self.doorbell.take_quiet_due() {
            // This caller is not armed yet: whoever is by now, may have been rung for.
            self.silence(Events::default(), &are_called);
        }
        if want.read && self.queue.arm_data_for(published) {
            self.doorbell.ring();
        }
        if want.write {
            self.queue.arm_space();
        }
        let was_over = self.doorbell.is_over();
        let mut edge_watch = None;
        let result = loop {
            // If others keep a doorbell rung, it lets nobody sleep on it. An edge watch does, and
            // wakes when the doorbell is rung anew.
            let watches_edges = self.doorbell.times_left() >= MOST_LEFT;
            if watches_edges {
                edge_watch = edge_watch.or_else(|| EdgeWatch::new(self.doorbell.fd()).ok());
                edge_watch.iter().for_each(EdgeWatch::forget);
                // While the last ring of a channel was not received, it carries no other one. A
                // ring received here now wakes the edge watch.
                self.make_room(u64::from(want.read) + u64::from(want.write));
            }
            // Taken before the last look: bytes that are held back at the look are visible by then.
            let held = if want.read { self.queue.note_hold() } else { None };
            if ready() {
                break Ok(Events::default());
            }
            let this_time = held.map_or(until, |held| until.at_most(held));
            // Even if there is nothing left to wait for, this call is one sleep: a signal or the
            // deadline ends it.
            let slept = match &edge_watch {
                _ if !watches_edges => poll::wait(self.doorbell.fd(), socket, of_socket, this_time),
                Some(watch) => poll::wait(watch.fd(), socket, of_socket, this_time),
                None => poll::wait(Fd::new(-1), socket, of_socket, this_time.at_most(NAP)),
            };
            match slept {
                Ok((true, Events { read: false, write: false, hangup: false, dead: false })) => {
                    if self.is_alone(want) && ready() {
                        self.doorbell.quiet_later();
                        break Ok(Events::default());
                    }
                }
                Err(Errno::TIMEDOUT) if held.is_some() && !until.is_over() => continue,
                Err(Errno::TIMEDOUT) if watches_edges => {}
                Ok((_, events)) => break Ok(events),
                Err(error) => break Err(error),
            }
            if until.is_over() {
                break Err(Errno::TIMEDOUT);
            }
            self.answer(want, &are_called);
            if self.doorbell.is_over() && !was_over {
                // Rings no longer arrive: the caller goes on by TCP.
                break Ok(Events::default());
            }
            if want.read && self.queue.rearm_data_for(published) {
                self.doorbell.ring();
            }
            if want.write {
                self.queue.rearm_space();
            }
        };
        self.disarm(want);
        // This sleep may have silenced the doorbell that rang for others.
        self.wake_others();
        result
    }

    /// Silences the doorbell for a waiter that it woke, unless it also rang for waiters for
    /// something else: they share the doorbell, and would sleep on once it is silent.
    fn answer(&self, want: Events, are_called: &impl Fn() -> bool) {
        let may_leave = self.doorbell.times_left() < MOST_LEFT;
        // They may have been rung for a reason that does not show on the ring: their bytes may have
        // been moved to library memory.
        let others = self.queue.number_of_readers() > u64::from(want.read);
        if !(self.is_for_others(want) || are_called() || (others && may_leave)) {
            self.silence(want, are_called);
            return;
        }
        // The others are awake already and soon silence it. That takes long only if one of them
        // died, or is an event loop that is busy elsewhere.
        self.doorbell.leave();
        if may_leave {
            std::thread::yield_now();
        }
    }

    /// Silences the doorbell, for a caller that is armed for `want`; `are_called` as for
    /// [`Self::sleep`]. It may have rung for other waiters that have not looked yet, such as an
    /// epoll set: they find it silent. So it rings again for those that have a reason to wake now,
    /// and the peer is asked to ring for the next one.
    pub fn silence(&self, want: Events, are_called: impl Fn() -> bool) {
        self.doorbell.quiet();
        self.queue.rearm_others(want.read, want.write);
        if self.is_for_others(want) || are_called() {
            // It had been rung for them before it was silenced.
            self.doorbell.ring();
        }
    }

    /// Whether no thread but the caller sleeps here.
    fn is_alone(&self, want: Events) -> bool {
        self.queue.number_of_waiters() == u64::from(want.read) + u64::from(want.write)
    }

    fn is_for_others(&self, want: Events) -> bool {
        let q = &self.queue;
        // A seeker that waits for bytes in the middle leaves those at the head to the others.
        let readers = q.number_of_readers() > u64::from(want.read);
        // Nobody rings when a hold expires: each of them has to know of it.
        (readers && (q.has_record() || q.has_unnoted_hold()))
            || (!want.write && q.has_writers() && self.may_send())
    }

    /// Whether a waiter for space has a reason to try.
    fn may_send(&self) -> bool {
        let q = &self.queue;
        // Once the ring was left, room on it has no meaning.
        q.has_room() || !q.tx_on_ring() || q.peer_has_closed() || q.is_shut()
    }
}

/// How often waiters leave a doorbell rung for others, such as an epoll set on which nobody waits,
/// before they sleep although it is rung.
pub const MOST_LEFT: u32 = 100;
/// How long they sleep at a time if no descriptor is free for an [`EdgeWatch`].
const NAP: Duration = Duration::from_millis(1);
