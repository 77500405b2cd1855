//! Waiting for an attached connection: one call's own waiting, and what poll, select and epoll
//! need.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::ring::Wait;
use seekwire_transport::spin::{SpinPolicy, Spinner};
use seekwire_transport::sys::doorbell::Ear;
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::{Fd, socket, thread};

use super::call::Call;
use super::peer::{AMPLE, STANDSTILL};
use super::settings::Limit;
use super::{Connection, Interest, Link, Readiness};
use crate::Config;

const MOMENT: Duration = Duration::from_millis(1);

/// Waits awake on behalf of a caller that watches several connections, and learns whether it is
/// worth it.
#[derive(Debug, Default)]
pub struct SetSpinner(Spinner);

impl SetSpinner {
    /// Waits awake until `ready`, for as long as the configuration and the machine's load allow;
    /// returns whether it is ready. Returns at once when it is not worth it.
    pub fn spin(&self, ready: impl FnMut() -> bool) -> bool {
        self.0.spin(Config::get().spin, ready)
    }
}

/// A wait of one who receives.
pub(super) struct ToReceive<'c> {
    /// By which carrier the next byte comes.
    pub(super) carrier: Carrier,
    pub(super) limit: &'c Limit,
    /// The peer need not ring before it has published so many bytes in all, if nobody else waits.
    pub(super) published: u64,
    /// The count of waiters that it adds to while it sleeps.
    pub(super) among: Option<&'c AtomicU32>,
}

/// Who waits for this end.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Receives that sleep on the ring's doorbell, or are about to, and began before the first
    /// seek.
    pub(super) unaware: AtomicU32,
    /// Callers of [`Connection::wait`] that sleep there, or are about to, until there is a next
    /// byte.
    pub(super) watchers: AtomicU32,
    /// Counts the calls of [`Connection::interrupt`].
    interrupts: AtomicU32,
}

impl Waiters {
    /// In the child of a fork: those who slept are threads of the parent.
    pub(super) fn forget(&self) {
        self.unaware.store(0, Ordering::Relaxed);
        self.watchers.store(0, Ordering::Relaxed);
    }
}

/// One of those who wait, until it is dropped.
struct Counted<'c>(&'c AtomicU32);

impl<'c> Counted<'c> {
    fn among(number: &'c AtomicU32) -> Self {
        number.fetch_add(1, Ordering::SeqCst);
        Self(number)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connection {
    // ---- one call's own waiting ---------------------------------------------------------------

    /// Sleeps until the next receive may find something. With a `mark`, until the peer has
    /// published something since it was taken. Returns whether it was the kernel's socket that
    /// ended the sleep.
    pub(super) fn wait_to_receive(
        &self,
        link: &Link,
        carrier: Carrier,
        limit: &Limit,
        mark: Option<u64>,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let q = &link.ring.queue;
        let ready = || {
            mark.map_or_else(|| q.has_record(), |mark| q.published_mark() != mark)
                || self.is_seeking()
        };
        let wait = ToReceive { carrier, limit, published: 0, among: Some(&self.waiters.unaware) };
        self.wait_until(link, &wait, call, ready)
    }

    /// As [`Self::wait_to_receive`], until `ready`.
    pub(super) fn wait_until(
        &self,
        link: &Link,
        wait: &ToReceive<'_>,
        call: &Call<'_>,
        ready: impl Fn() -> bool,
    ) -> Result<bool, Errno> {
        let &ToReceive { carrier, limit, published, among } = wait;
        let q = &link.ring.queue;
        self.attend();
        // What is to be retransmitted goes out while this end only receives.
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
        if carrier == Carrier::Ring && link.rx_spinner.spin(link.policy(), ready) {
            return Ok(false);
        }
        // True if the call may not wait: then it asks the kernel's socket before it says so.
        let Some(until) = limit.until(self) else { return Ok(true) };
        self.not_stale(link, call)?;
        let _counted = among.map(Counted::among);
        let slept = self.sleep_for_data(call, until, |until, fd| {
            let wait = Wait { published, of_socket, ..Wait::for_data(fd, until) };
            link.ring.sleep(&wait, ready, || self.others_are_called())
        })?;
        Ok(slept.is_none_or(|events| events.read || events.dead))
    }

    /// Sleeps once, by `sleep`, which gets a deadline and a descriptor. `None` if nothing was heard
    /// and the caller is to look all the same: some bytes come without a doorbell or the kernel
    /// waking anybody.
    fn sleep_for_data(
        &self,
        call: &Call<'_>,
        until: Deadline,
        sleep: impl FnOnce(Deadline, Fd) -> Result<Events, Errno>,
    ) -> Result<Option<Events>, Errno> {
        let short = self.is_deaf();
        let asleep = call.sleep(if short { until.at_most(Self::DOUBT) } else { until });
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

    /// Sleeps until the peer has published something since `mark`, or more has come by TCP than
    /// when `ear` forgot.
    pub(super) fn wait_to_see(
        &self,
        link: &Link,
        mark: u64,
        ear: &Ear,
        limit: &Limit,
        call: &Call<'_>,
    ) -> Result<(), Errno> {
        let q = &link.ring.queue;
        self.attend();
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
            link.ring.sleep(&Wait::for_data(ear.fd(), until), ready, || self.others_are_called())
        };
        self.sleep_for_data(call, until, sleep).map(drop)
    }

    /// Sleeps until the next send may find room.
    pub(super) fn wait_to_send(
        &self,
        link: &Link,
        carrier: Carrier,
        limit: &Limit,
        call: &Call<'_>,
    ) -> Result<(), Errno> {
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
                self.not_stale(link, call)?;
                let sleep = call.sleep(until);
                let slept =
                    poll::wait(link.ring.doorbell.fd(), sleep.fd, Events::WRITE, sleep.until);
                drop(sleep);
                match slept {
                    Ok((rung, _)) => {
                        if rung {
                            link.ring.doorbell.quiet();
                            link.ring.disarm(Events::default());
                            self.call_others_again(link);
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Carrier::Ring => self.wait_for_room(link, limit, call),
        };
        waited
            .and_then(|()| call.not_interrupted())
            .map_err(|error| if error == Errno::TIMEDOUT { Errno::AGAIN } else { error })
    }

    /// Sleeps for a moment, or until the socket has what is wanted of it: then the caller tries
    /// again.
    pub(super) fn wait_a_moment(
        &self,
        limit: &Limit,
        call: &Call<'_>,
        of_socket: Option<Events>,
    ) -> Result<(), Errno> {
        call.not_interrupted()?;
        let Some(until) = limit.until(self) else { return Ok(()) };
        let sleep = call.sleep(until.at_most(MOMENT));
        let socket = of_socket.map_or(Fd::new(-1), |_| sleep.fd);
        let slept = poll::wait(Fd::new(-1), socket, of_socket.unwrap_or_default(), sleep.until);
        drop(sleep);
        match slept {
            Err(Errno::TIMEDOUT) if until.is_over() => Err(Errno::AGAIN),
            Ok(_) | Err(Errno::TIMEDOUT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Calls of [`Connection::interrupt`] so far.
    #[inline]
    pub(super) fn interrupts(&self) -> u32 {
        self.waiters.interrupts.load(Ordering::Acquire)
    }

    /// Makes every receive and send of this process that sleeps on the connection return: with what
    /// it has moved, or ECANCELED.
    pub fn interrupt(&self) {
        self.waiters.interrupts.fetch_add(1, Ordering::AcqRel);
        self.ring_own_doorbell();
        self.wake_seekers();
    }

    fn wait_for_room(&self, link: &Link, limit: &Limit, call: &Call<'_>) -> Result<(), Errno> {
        let q = &link.ring.queue;
        let ready = || {
            q.has_room()
                || q.is_shut()
                || q.peer_refuses()
                || call.is_interrupted()
                || q.wants_attention()
                // Another thread has met the wish for TCP, or left the full ring.
                || !q.tx_on_ring()
        };
        if link.tx_spinner.spin(link.policy(), ready) {
            return Ok(());
        }
        let Some(until) = limit.until(self) else { return Ok(()) };
        // A call whose time is over does not wait below, where this is otherwise found out.
        if until.is_over() && self.overflow_if_due(link, false)? {
            return Ok(());
        }
        loop {
            let mark = q.consumed_mark();
            let little = q.unsent() < AMPLE;
            let this_time = until.at_most(if little { STANDSTILL } else { Self::DOUBT });
            self.not_stale(link, call)?;
            let sleep = call.sleep(this_time);
            let wait = Wait::for_space(sleep.fd, sleep.until);
            let slept = link.ring.sleep(&wait, ready, || self.others_are_called());
            drop(sleep);
            match slept {
                Ok(events) if events.dead => link.peer_is_gone(),
                Ok(_) => {}
                Err(Errno::TIMEDOUT) if until.is_over() => return Err(Errno::TIMEDOUT),
                Err(Errno::TIMEDOUT) if q.consumed_mark() != mark => continue,
                Err(Errno::TIMEDOUT) if !self.overflow_if_due(link, false)? => continue,
                Err(Errno::TIMEDOUT) => {}
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    // ---- poll, select, epoll -------------------------------------------------------------------

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
        if want.write
            && let Some(link) = self.attached()
            && link.tx_on_ring()
            && !link.ring.queue.has_room()
        {
            // An error is that of the next send.
            let _ = self.overflow_if_due(link, false);
        }
        let drained = self.has_drained();
        let Some(link) = self.attached() else {
            return Readiness { read: drained, ..Readiness::default() };
        };
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
            self.attend();
            link.ring.arm(events(want));
        }
        self.readiness_for(want)
    }

    /// Undoes [`Connection::arm`].
    pub fn disarm(&self, want: Interest) {
        if let Some(link) = self.attached() {
            link.ring.disarm(events(want));
        }
    }

    /// The doorbell's descriptor, readable once it was rung; `None` before the connection is
    /// attached or seeking. It is another one once the connection seeks, then also readable while
    /// the next byte is in library memory.
    #[must_use]
    pub fn doorbell(&self) -> Option<Fd> {
        self.seek_doorbell().or_else(|| self.attached().map(|link| link.ring.doorbell.fd()))
    }

    /// As [`Connection::doorbell`], for somebody who wants nothing else than this: only who wants
    /// to read is called by bytes in library memory.
    #[must_use]
    pub fn doorbell_for(&self, want: Interest) -> Option<Fd> {
        if want.read {
            self.doorbell()
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
    fn call_others_again(&self, link: &Link) {
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
        }
    }

    /// Changes whenever the peer has published bytes or the end of the stream.
    #[inline]
    #[must_use]
    pub fn data_mark(&self) -> u64 {
        self.attached().map_or(0, |link| link.ring.queue.data_mark())
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

    /// Whether waiting awake for this peer can be of use: it runs on another processor. No system
    /// call.
    #[must_use]
    pub fn worth_spinning(&self) -> bool {
        self.attached().is_some_and(|link| link.policy() != SpinPolicy::Fixed(0))
    }

    /// Waits until the socket is readable or writable by either carrier.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    pub fn wait(&self, want: Interest, until: Deadline) -> Result<(), Errno> {
        let wanted = events(want);
        if want.read && self.has_drained() {
            return Ok(());
        }
        let Some(link) = self.attached() else {
            // Of a seeking connection another thread can move the next byte to library memory.
            let doorbell = want.read.then(|| self.seek_doorbell()).flatten().unwrap_or(Fd::new(-1));
            let _bracket = self.enter_plain();
            return poll::wait(doorbell, self.fd(), wanted, until).map(drop);
        };
        let call = self.begin_call();
        loop {
            self.attend();
            if self.is_starved(want) {
                self.overflow_if_due(link, true)?;
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
                    || link.ring.queue.wants_attention()
            };
            let room = begun.retransmits || (want.write && !begun.tx_on_ring);
            let of_socket = Events { write: room, ..wanted };
            let in_vain = call.begin_wait()?;
            let short = in_vain || self.is_in_doubt(want);
            let sleep = call.sleep(if in_vain {
                until.at_most(MOMENT)
            } else if short {
                until.at_most(Self::DOUBT)
            } else {
                until
            });
            let slept = if in_vain {
                poll::wait(Fd::new(-1), sleep.fd, of_socket, sleep.until).map(|(_, events)| events)
            } else {
                let wait =
                    Wait { want: wanted, of_socket, ..Wait::for_data(sleep.fd, sleep.until) };
                link.ring.sleep(&wait, ready, || self.others_are_called())
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
    /// Sleeps until there is room to send, or something to receive that is not in library memory
    /// yet.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; those of ioctl(2).
    pub fn wait_for_progress(&self, until: Deadline) -> Result<(), Errno> {
        // Nothing more comes after the end, which would not let anybody sleep.
        let ended = poll::look(self.fd(), Events { hangup: true, ..Events::default() })?.hangup;
        let read = !ended || socket::unread(self.fd())? > 0;
        let either = Events { read, write: true, ..Events::default() };
        self.attend();
        let Some(link) = self.attached() else {
            let _bracket = self.enter_plain();
            return poll::wait(Fd::new(-1), self.fd(), either, until).map(drop);
        };
        let q = &link.ring.queue;
        let tx_on_ring = q.tx_on_ring();
        let ready = || {
            q.has_record()
                || (tx_on_ring && q.has_room())
                || q.peer_refuses()
                || q.wants_attention()
                || q.tx_on_ring() != tx_on_ring
        };
        let of_socket = Events { write: !tx_on_ring || q.to_retransmit() > 0, ..either };
        let short = self.is_starved(Interest { write: true, ..Interest::default() });
        let this_time = if short { until.at_most(Self::DOUBT) } else { until };
        let want = Events { read: true, ..Events::WRITE };
        let wait = Wait { want, published: 0, socket: self.fd(), of_socket, until: this_time };
        match link.ring.sleep(&wait, ready, || self.others_are_called()) {
            // The next send may find that the ring is to be left.
            Err(Errno::TIMEDOUT) if short && !until.is_over() => Ok(()),
            slept => slept.map(drop),
        }
    }
}

impl Link {
    /// How long to wait awake for this peer now: not at all for one that runs on this processor.
    fn policy(&self) -> SpinPolicy {
        let here = thread::processor();
        self.ring.queue.note_processor(here);
        if self.ring.queue.peer_processor() == Some(here) {
            SpinPolicy::Fixed(0)
        } else {
            Config::get().spin
        }
    }
}

fn events(want: Interest) -> Events {
    Events { read: want.read, write: want.write, ..Events::default() }
}
