//! Waiting for an attached connection, in a call on it alone.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use seekwire_protocol::Carrier;
use seekwire_protocol::readiness::Sends;
use seekwire_transport::Errno;
use seekwire_transport::ring::Wait;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::doorbell::EdgeWatch;
use seekwire_transport::sys::poll::{self, Deadline, Events};

use super::call::Call;
use super::call_limit::Limit;
use super::data_path::DataPath;
use super::full_ring::{AMPLE, STANDSTILL};
use super::readiness::events;
use super::state::Connection;
use super::types::Interest;
use super::waiters::Counted;

/// The wait of a receive.
pub(super) struct ToReceive<'c> {
    /// The carrier of the next byte.
    pub(super) carrier: Carrier,
    pub(super) limit: &'c Limit,
    /// The peer need not ring before it has published this many bytes in all, if there is no other
    /// waiter.
    pub(super) published: u64,
    /// Watched in place of the socket, for bytes by TCP that were not there before.
    pub(super) edge_watch: Option<&'c EdgeWatch>,
    /// The count of waiters in which it is counted while it sleeps.
    pub(super) among: Option<&'c AtomicU32>,
}

/// In a [`Wait`]: the number on which the call sleeps.
const OF_CALL: Fd = Fd::new(-1);

/// The error of a call that has timed out.
pub(super) fn as_again(error: Errno) -> Errno {
    if error == Errno::TIMEDOUT { Errno::AGAIN } else { error }
}

impl Connection {
    /// Sleeps until the next receive may find bytes. With a `mark`, until the peer has published
    /// anything since it was taken. Returns whether the kernel's socket, or an edge watch in its
    /// place, ended the sleep.
    pub(super) fn wait_to_receive(
        &self,
        data_path: &DataPath,
        carrier: Carrier,
        limit: &Limit,
        (mark, edge_watch): (Option<u64>, Option<&EdgeWatch>),
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let q = &data_path.ring.queue;
        // A thread or process that starts a program moves bytes from the ring to the spill, also
        // those for which the peer has rung.
        let is_there = || q.has_record() || (q.spill_len() > 0 && self.has_spill());
        let ready =
            || mark.map_or_else(is_there, |mark| q.published_mark() != mark) || self.is_seeking();
        let among = Some(&self.waiters.unaware);
        let wait = ToReceive { carrier, limit, published: 0, edge_watch, among };
        self.wait_until(data_path, &wait, call, ready)
    }

    /// As [`Self::wait_to_receive`], until `ready`.
    pub(super) fn wait_until(
        &self,
        data_path: &DataPath,
        wait: &ToReceive<'_>,
        call: &Call<'_>,
        ready: impl Fn() -> bool,
    ) -> Result<bool, Errno> {
        let &ToReceive { carrier, limit, published, edge_watch, among } = wait;
        let q = &data_path.ring.queue;
        self.service_peer();
        // Bytes to be retransmitted go out even while this end only receives.
        let retransmits = q.to_retransmit() > 0;
        let of_socket = Events { write: retransmits, ..Events::READ };
        if call.begin_wait()? || (edge_watch.is_some() && retransmits) {
            let of_socket = edge_watch.is_none().then_some(of_socket);
            return self.wait_a_moment(limit, call, of_socket).map(|()| true);
        }
        let ready = || {
            ready()
                || call.is_interrupted()
                || q.wants_attention()
                || (q.to_retransmit() > 0) != retransmits
        };
        if carrier == Carrier::Ring && edge_watch.is_none() && !limit.is_over() {
            let may_wait = |waited| limit.has_much_more_than(waited, self) && call.is_undisturbed();
            if data_path.stay_awake(&data_path.rx_spinner, may_wait, ready) {
                return Ok(false);
            }
        }
        // True if the call may not wait: then it asks the kernel's socket before it returns.
        let Some(until) = limit.until(self) else { return Ok(true) };
        self.not_stale(data_path, call)?;
        let _counted = among.map(Counted::among);
        let socket = edge_watch.map_or(OF_CALL, EdgeWatch::fd);
        let wait = Wait { published, of_socket, ..Wait::for_data(socket, until) };
        let short = self.longest_sleep(Interest::READ, Sends::default());
        let slept = self.sleep_once(data_path, call, wait, short, ready).map_err(as_again)?;
        call.not_interrupted()?;
        Ok(slept.is_none_or(|events| events.read || events.dead))
    }

    /// Sleeps once on the ring. `None` if nothing woke it for the time that is `short`, and the
    /// caller looks all the same: for some events, neither a doorbell nor the kernel wakes.
    fn sleep_once(
        &self,
        data_path: &DataPath,
        call: &Call<'_>,
        wait: Wait,
        short: Option<Duration>,
        ready: impl Fn() -> bool,
    ) -> Result<Option<Events>, Errno> {
        let until = wait.until;
        let asleep = call.sleep(short.map_or(until, |short| until.at_most(short)));
        let socket = if wait.socket == OF_CALL { asleep.fd } else { wait.socket };
        let wait = Wait { socket, until: asleep.until, ..wait };
        let slept = data_path.ring.sleep(&wait, ready, || self.others_are_called());
        drop(asleep);
        match slept {
            Err(Errno::TIMEDOUT) if short.is_some() && !until.is_over() => {
                call.moved();
                Ok(None)
            }
            slept => slept.map(Some),
        }
    }

    /// Sleeps until the next send may find room.
    pub(super) fn wait_to_send(
        &self,
        data_path: &DataPath,
        carrier: Carrier,
        limit: &Limit,
        call: &Call<'_>,
    ) -> Result<(), Errno> {
        if data_path.has_lost_wake_channel() {
            self.service_peer();
            return call.not_interrupted();
        }
        if call.begin_wait()? {
            return self.wait_a_moment(
                limit,
                call,
                (carrier == Carrier::Tcp).then_some(Events::WRITE),
            );
        }
        let waited = match carrier {
            Carrier::Tcp => {
                call.not_interrupted()?;
                let Some(until) = limit.until(self) else { return Ok(()) };
                self.not_stale(data_path, call)?;
                let sleep = call.sleep(until);
                let slept =
                    poll::wait(data_path.ring.doorbell.fd(), sleep.fd, Events::WRITE, sleep.until);
                drop(sleep);
                slept.map(|(rung, _)| {
                    if rung {
                        data_path.ring.silence(Events::default(), || self.others_are_called());
                    }
                })
            }
            Carrier::Ring => self.wait_for_room(data_path, limit, call),
        };
        waited.and_then(|()| call.not_interrupted()).map_err(as_again)
    }

    /// Sleeps for a moment, or until the socket has one of the wanted events: then the caller tries
    /// again.
    pub(super) fn wait_a_moment(
        &self,
        limit: &Limit,
        call: &Call<'_>,
        of_socket: Option<Events>,
    ) -> Result<(), Errno> {
        call.not_interrupted()?;
        let Some(until) = limit.until(self) else { return Ok(()) };
        self.sleep_for_a_moment(call, until, of_socket).map(drop).map_err(as_again)
    }

    fn sleep_for_a_moment(
        &self,
        call: &Call<'_>,
        until: Deadline,
        of_socket: Option<Events>,
    ) -> Result<Option<Events>, Errno> {
        let sleep = call.sleep(until.at_most(Self::MOMENT));
        let none = Fd::new(-1);
        let socket = of_socket.map_or(none, |_| sleep.fd);
        let mut slept = poll::wait(none, socket, of_socket.unwrap_or_default(), sleep.until);
        if matches!(slept, Ok((_, Events { read: false, write: false, dead: true, .. }))) {
            // A message in the kernel's error queue, such as that of MSG_ZEROCOPY, ends every sleep
            // on the socket.
            slept = poll::wait(none, none, Events::default(), sleep.until);
        }
        drop(sleep);
        match slept {
            Err(Errno::TIMEDOUT) if !until.is_over() => Ok(None),
            slept => slept.map(|(_, events)| Some(events)),
        }
    }

    /// Wakes every receive and send of this process that sleeps on the connection, to look whether
    /// it has to leave ([`Connection::leave_calls_if`]).
    pub fn interrupt(&self) {
        self.ring_own_doorbell();
        self.wake_seekers();
    }

    fn wait_for_room(
        &self,
        data_path: &DataPath,
        limit: &Limit,
        call: &Call<'_>,
    ) -> Result<(), Errno> {
        let q = &data_path.ring.queue;
        let ready = || {
            q.has_room()
                || q.is_shut()
                || q.peer_refuses()
                || call.is_interrupted()
                || q.wants_attention()
                // Another thread has served the request for TCP, or left the full ring.
                || !q.tx_on_ring()
        };
        let may_wait = |waited| limit.has_much_more_than(waited, self) && call.is_undisturbed();
        if !limit.is_over() && data_path.stay_awake(&data_path.tx_spinner, may_wait, ready) {
            return Ok(());
        }
        let Some(until) = limit.until(self) else { return Ok(()) };
        // A call whose deadline has passed does not wait below, where this would be checked.
        if until.is_over() && self.overflow_if_due(data_path, false)? {
            return Ok(());
        }
        loop {
            data_path.ring.peer_doorbell.ring_owed();
            let mark = q.consumed_mark();
            let little = q.unsent() < AMPLE;
            let short = Some(if little { STANDSTILL } else { Self::RECHECK_INTERVAL });
            self.not_stale(data_path, call)?;
            let wait = Wait::for_space(OF_CALL, until);
            match self.sleep_once(data_path, call, wait, short, ready)? {
                // An ICMP error that the program has asked for is no end (IP_RECVERR).
                Some(events) if events.dead => self.note_end(data_path),
                Some(_) => {}
                None if q.consumed_mark() != mark => continue,
                None if !self.overflow_if_due(data_path, false)? => continue,
                None => {}
            }
            return Ok(());
        }
    }

    /// Waits until the socket is readable or writable by either carrier.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    pub fn wait(&self, want: Interest, until: Deadline) -> Result<(), Errno> {
        let wanted = events(want);
        if want.read && (self.has_drained() || self.has_spill()) {
            return Ok(());
        }
        let Some(data_path) = self.attached() else {
            // While a connection seeks, another thread can move the next byte to library memory.
            let doorbell = want.read.then(|| self.seek_doorbell()).flatten().unwrap_or(Fd::new(-1));
            let Some(_bracket) = self.enter_plain() else {
                // It has just been attached.
                return self.wait(want, until);
            };
            return poll::wait(doorbell, self.fd(), wanted, until).map(drop);
        };
        let call = self.begin_call();
        loop {
            self.service_peer();
            if self.is_starved(want) {
                self.overflow_if_due(data_path, true)?;
            }
            let sends = self.sends();
            let seeks = self.is_seeking();
            let _counted = want.read.then(|| {
                Counted::among(if seeks { &self.waiters.watchers } else { &self.waiters.unaware })
            });
            let ready = || {
                let now = self.readiness();
                (want.read && now.read)
                    || self.is_seeking() != seeks
                    || (want.write && now.write)
                    || self.sends() != sends
                    || data_path.ring.queue.wants_attention()
            };
            let of_socket = Events { write: sends.asks_for_room(want.write), ..wanted };
            let events = if call.begin_wait()? {
                self.sleep_for_a_moment(&call, until, Some(of_socket))?
            } else {
                let wait = Wait { want: wanted, of_socket, ..Wait::for_data(OF_CALL, until) };
                let short = self.longest_sleep(want, sends);
                self.sleep_once(data_path, &call, wait, short, ready)?
            };
            let Some(events) = events else { continue };
            let now = self.readiness();
            let by_kernel =
                events.read || events.dead || (events.write && want.write && !self.retransmits());
            if by_kernel || (want.read && now.read) || (want.write && now.write) {
                return Ok(());
            }
        }
    }

    /// Sleeps until there is room to send, or a byte to receive that is not in library memory yet.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; those of ioctl(2).
    pub fn wait_for_progress(&self, until: Deadline) -> Result<(), Errno> {
        let either = poll::of_progress(self.fd())?;
        self.service_peer();
        let Some(data_path) = self.attached() else {
            let Some(_bracket) = self.enter_plain() else {
                // It has just been attached.
                return self.wait_for_progress(until);
            };
            return poll::wait(Fd::new(-1), self.fd(), either, until).map(drop);
        };
        let q = &data_path.ring.queue;
        let sends = self.sends();
        let ready = || {
            q.has_record()
                || (sends == Sends::Ring && q.has_room())
                || q.peer_refuses()
                || q.wants_attention()
                || self.sends() != sends
        };
        let want = Events { read: true, ..Events::WRITE };
        let of_socket = Events { write: sends.asks_for_room(true), ..either };
        let wait = Wait { want, of_socket, ..Wait::for_data(OF_CALL, until) };
        // After a short sleep, the next send may find that the ring has to be left.
        let short = self.longest_sleep(Interest::WRITE, sends);
        self.sleep_once(data_path, &self.begin_call(), wait, short, ready).map(drop)
    }
}

#[cfg(test)]
mod tests;
