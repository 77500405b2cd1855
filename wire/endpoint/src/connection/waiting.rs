//! Waiting for an attached connection, in a call on it alone.

use std::sync::atomic::AtomicU32;

use seekwire_protocol::Carrier;
use seekwire_transport::Errno;
use seekwire_transport::ring::Wait;
use seekwire_transport::sys::doorbell::EdgeWatch;
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::{Fd, socket};

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
    /// The count of waiters in which it is counted while it sleeps.
    pub(super) among: Option<&'c AtomicU32>,
}

impl Connection {
    /// Sleeps until the next receive may find bytes. With a `mark`, until the peer has published
    /// anything since it was taken. Returns whether the kernel's socket ended the sleep.
    pub(super) fn wait_to_receive(
        &self,
        data_path: &DataPath,
        carrier: Carrier,
        limit: &Limit,
        mark: Option<u64>,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let q = &data_path.ring.queue;
        // A thread or process that starts a program moves bytes from the ring to the spill, also
        // those for which the peer has rung.
        let is_there = || q.has_record() || (q.spill_len() > 0 && self.has_spill());
        let ready =
            || mark.map_or_else(is_there, |mark| q.published_mark() != mark) || self.is_seeking();
        let wait = ToReceive { carrier, limit, published: 0, among: Some(&self.waiters.unaware) };
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
        let &ToReceive { carrier, limit, published, among } = wait;
        let q = &data_path.ring.queue;
        self.service_peer();
        // Bytes to be retransmitted go out even while this end only receives.
        let retransmits = q.to_retransmit() > 0;
        let of_socket = Events { write: retransmits, ..Events::READ };
        if call.begin_wait()? {
            return self.wait_a_moment(limit, call, Some(of_socket)).map(|()| true);
        }
        let ready = || {
            ready()
                || call.is_interrupted()
                || q.wants_attention()
                || (q.to_retransmit() > 0) != retransmits
        };
        if carrier == Carrier::Ring && !limit.is_over() {
            let may_wait = |waited| limit.has_much_more_than(waited, self) && call.is_undisturbed();
            if data_path.stay_awake(&data_path.rx_spinner, may_wait, ready) {
                return Ok(false);
            }
        }
        // True if the call may not wait: then it asks the kernel's socket before it returns.
        let Some(until) = limit.until(self) else { return Ok(true) };
        self.not_stale(data_path, call)?;
        let _counted = among.map(Counted::among);
        let slept = self.sleep_for_data(call, until, |until, fd| {
            let wait = Wait { published, of_socket, ..Wait::for_data(fd, until) };
            data_path.ring.sleep(&wait, ready, || self.others_are_called())
        })?;
        Ok(slept.is_none_or(|events| events.read || events.dead))
    }

    /// Sleeps once, in `sleep`, which gets a deadline and a descriptor. `None` if nothing woke it
    /// and the caller is to look all the same: for some bytes, neither a doorbell nor the kernel
    /// wakes.
    fn sleep_for_data(
        &self,
        call: &Call<'_>,
        until: Deadline,
        sleep: impl FnOnce(Deadline, Fd) -> Result<Events, Errno>,
    ) -> Result<Option<Events>, Errno> {
        let short = self.may_miss_wakeups() || self.has_undelivered();
        let asleep = call.sleep(if short { until.at_most(Self::RECHECK_INTERVAL) } else { until });
        let slept = sleep(asleep.until, asleep.fd);
        drop(asleep);
        match slept {
            Ok(events) => call.not_interrupted().map(|()| Some(events)),
            Err(Errno::TIMEDOUT) if short && !until.is_over() => {
                call.moved();
                call.not_interrupted().map(|()| None)
            }
            Err(Errno::TIMEDOUT) => Err(Errno::AGAIN),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until the peer has published anything since `mark`, or more bytes have come by TCP
    /// than when `edge_watch` forgot.
    pub(super) fn wait_to_see(
        &self,
        data_path: &DataPath,
        mark: u64,
        edge_watch: &EdgeWatch,
        limit: &Limit,
        call: &Call<'_>,
    ) -> Result<(), Errno> {
        let q = &data_path.ring.queue;
        self.service_peer();
        if call.begin_wait()? || q.to_retransmit() > 0 {
            return self.wait_a_moment(limit, call, None);
        }
        let Some(until) = limit.until(self) else { return Ok(()) };
        let ready = || {
            q.published_mark() != mark
                || self.is_seeking()
                || call.is_interrupted()
                || q.wants_attention()
        };
        let _counted = Counted::among(&self.waiters.unaware);
        let sleep = |until, _| {
            data_path
                .ring
                .sleep(&Wait::for_data(edge_watch.fd(), until), ready, || self.others_are_called())
        };
        self.sleep_for_data(call, until, sleep).map(drop)
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
                match slept {
                    Ok((rung, _)) => {
                        if rung {
                            let are_called = || self.others_are_called();
                            data_path.ring.silence(Events::default(), are_called);
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Carrier::Ring => self.wait_for_room(data_path, limit, call),
        };
        waited
            .and_then(|()| call.not_interrupted())
            .map_err(|error| if error == Errno::TIMEDOUT { Errno::AGAIN } else { error })
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
            Err(Errno::TIMEDOUT) if until.is_over() => Err(Errno::AGAIN),
            Ok(_) | Err(Errno::TIMEDOUT) => Ok(()),
            Err(error) => Err(error),
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
            let this_time = until.at_most(if little { STANDSTILL } else { Self::RECHECK_INTERVAL });
            self.not_stale(data_path, call)?;
            let sleep = call.sleep(this_time);
            let wait = Wait::for_space(sleep.fd, sleep.until);
            let slept = data_path.ring.sleep(&wait, ready, || self.others_are_called());
            drop(sleep);
            match slept {
                // An ICMP error that the program has asked for is no end (IP_RECVERR).
                Ok(events) if events.dead => self.note_end(data_path),
                Ok(_) => {}
                Err(Errno::TIMEDOUT) if until.is_over() => return Err(Errno::TIMEDOUT),
                Err(Errno::TIMEDOUT) if q.consumed_mark() != mark => continue,
                Err(Errno::TIMEDOUT) if !self.overflow_if_due(data_path, false)? => continue,
                Err(Errno::TIMEDOUT) => {}
                Err(error) => return Err(error),
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
            let begun = self.readiness();
            let seeks = self.is_seeking();
            let _counted = want.read.then(|| {
                Counted::among(if seeks { &self.waiters.watchers } else { &self.waiters.unaware })
            });
            let ready = || {
                let now = self.readiness();
                (want.read && now.read)
                    || self.is_seeking() != seeks
                    || (want.write && now.write)
                    || (now.tx_on_ring, now.retransmits) != (begun.tx_on_ring, begun.retransmits)
                    || data_path.ring.queue.wants_attention()
            };
            let held_up = want.write && self.is_held_up();
            let room = begun.retransmits || (want.write && !begun.tx_on_ring && !held_up);
            let of_socket = Events { write: room, ..wanted };
            let in_vain = call.begin_wait()?;
            let short = in_vain || held_up || self.must_recheck(want) || self.has_undelivered();
            let sleep = call.sleep(if in_vain || held_up {
                until.at_most(Self::MOMENT)
            } else if short {
                until.at_most(Self::RECHECK_INTERVAL)
            } else {
                until
            });
            let slept = if in_vain {
                poll::wait(Fd::new(-1), sleep.fd, of_socket, sleep.until).map(|(_, events)| events)
            } else {
                let wait =
                    Wait { want: wanted, of_socket, ..Wait::for_data(sleep.fd, sleep.until) };
                data_path.ring.sleep(&wait, ready, || self.others_are_called())
            };
            drop(sleep);
            let events = match slept {
                Err(Errno::TIMEDOUT) if short && !until.is_over() => {
                    if !in_vain {
                        call.moved();
                    }
                    continue;
                }
                slept => slept?,
            };
            let now = self.readiness();
            let by_kernel =
                events.read || events.dead || (events.write && want.write && !now.retransmits);
            if by_kernel || (want.read && now.read) || (want.write && now.write) {
                return Ok(());
            }
        }
    }
}

impl Connection {
    /// Sleeps until there is room to send, or a byte to receive that is not in library memory yet.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; those of ioctl(2).
    pub fn wait_for_progress(&self, until: Deadline) -> Result<(), Errno> {
        // No more bytes come after the end, which would prevent any sleep.
        let ended = poll::look(self.fd(), Events { hangup: true, ..Events::default() })?.hangup;
        let read = !ended || socket::unread(self.fd())? > 0;
        let either = Events { read, write: true, ..Events::default() };
        self.service_peer();
        let Some(data_path) = self.attached() else {
            let Some(_bracket) = self.enter_plain() else {
                // It has just been attached.
                return self.wait_for_progress(until);
            };
            return poll::wait(Fd::new(-1), self.fd(), either, until).map(drop);
        };
        let q = &data_path.ring.queue;
        let tx_on_ring = q.tx_on_ring();
        let held_up = self.is_held_up();
        let ready = || {
            q.has_record()
                || (tx_on_ring && q.has_room())
                || q.peer_refuses()
                || q.wants_attention()
                || q.tx_on_ring() != tx_on_ring
        };
        let room = !tx_on_ring && !held_up;
        let of_socket = Events { write: room || q.to_retransmit() > 0, ..either };
        let is_starved = self.is_starved(Interest { write: true, ..Interest::default() });
        let short = held_up || is_starved || self.has_undelivered();
        let this_time = match held_up {
            true => until.at_most(Self::MOMENT),
            false if short => until.at_most(Self::RECHECK_INTERVAL),
            false => until,
        };
        let want = Events { read: true, ..Events::WRITE };
        let wait = Wait { want, published: 0, socket: self.fd(), of_socket, until: this_time };
        match data_path.ring.sleep(&wait, ready, || self.others_are_called()) {
            // The next send may find that the ring has to be left.
            Err(Errno::TIMEDOUT) if short && !until.is_over() => Ok(()),
            slept => slept.map(drop),
        }
    }
}

#[cfg(test)]
mod tests;
