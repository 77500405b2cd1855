//! Waiting for an attached connection: one call's own waiting, and what poll, select and epoll need.

use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::switch::RxStep;
use protocol::{Carrier, Reason};
use transport::Errno;
use transport::mem::{Own, Peer};
use transport::queue::Rx;
use transport::spin::{SpinPolicy, Spinner};
use transport::sys::poll::{self, Deadline, Events};
use transport::sys::{Fd, thread};

use super::{Connection, Interest, Link, Readiness};
use crate::Config;

/// How often a sender looks whether a peer still lives that TCP tells nothing of any more.
const CHECK: Duration = Duration::from_secs(1);

/// Waits awake on behalf of a caller that watches several connections, and learns whether it is worth it.
#[derive(Debug, Default)]
pub struct Patience(Spinner);

impl Patience {
    /// Waits awake until `ready`, for as long as the configuration and the machine's load allow; returns
    /// whether it is ready. Returns at once when it is not worth it.
    pub fn spin(&self, ready: impl FnMut() -> bool) -> bool {
        self.0.spin(Config::get().spin, ready)
    }
}

impl Connection {
    // ---- one call's own waiting ---------------------------------------------------------------

    /// Sleeps until the next receive may find something. With a `mark`, until the peer has published
    /// something since it was taken. Returns whether it was the kernel's socket that ended the sleep.
    pub(super) fn wait_to_receive(
        &self,
        link: &Link,
        carrier: Carrier,
        until: Deadline,
        mark: Option<u64>,
        interrupts: u32,
    ) -> Result<bool, Errno> {
        let q = &link.ring.queue;
        let ready = || {
            mark.map_or_else(|| q.has_record(), |mark| q.published_mark() != mark)
                || self.interrupts() != interrupts
                || q.wants_attention()
        };
        self.attend();
        if carrier == Carrier::Ring && link.rx_spinner.spin(link.policy(), ready) {
            return Ok(false);
        }
        let read = Events { read: true, ..Events::default() };
        // What is owed to the peer goes out while this end only receives.
        let of_socket = Events { write: link.owing.load(Ordering::Relaxed), ..read };
        match link.ring.sleep(read, self.fd(), of_socket, until, ready) {
            Ok(events) => self.not_interrupted(interrupts).map(|()| events.read || events.dead),
            Err(Errno::TIMEDOUT) => Err(Errno::AGAIN),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until the next send may find room.
    pub(super) fn wait_to_send(
        &self,
        link: &Link,
        carrier: Carrier,
        until: Deadline,
        interrupts: u32,
    ) -> Result<(), Errno> {
        let write = Events { write: true, ..Events::default() };
        let waited = match carrier {
            Carrier::Tcp => {
                self.not_interrupted(interrupts)?;
                match poll::wait(link.ring.bell.fd(), self.fd(), write, until) {
                    Ok((rung, _)) => {
                        if rung {
                            link.ring.bell.quiet();
                            link.ring.disarm(Events::default());
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            Carrier::Ring => self.wait_for_room(link, until, interrupts),
        };
        waited
            .and_then(|()| self.not_interrupted(interrupts))
            .map_err(|error| if error == Errno::TIMEDOUT { Errno::AGAIN } else { error })
    }

    /// Calls of [`Connection::interrupt`] so far; to be taken when a call begins.
    #[inline]
    pub(super) fn interrupts(&self) -> u32 {
        self.interrupts.load(Ordering::Acquire)
    }

    fn not_interrupted(&self, interrupts: u32) -> Result<(), Errno> {
        if self.interrupts() == interrupts { Ok(()) } else { Err(Errno::CANCELED) }
    }

    /// Makes every receive and send of this process that sleeps on the connection return: with what it
    /// has moved, or ECANCELED.
    pub fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::AcqRel);
        self.ring_own_bell();
    }

    /// Whether a peer that makes no room has died. TCP says so, unless the peer had shut its own
    /// direction down before.
    #[cold]
    pub(super) fn is_peer_lost(&self, link: &Link) -> bool {
        let hangup = Events { hangup: true, ..Events::default() };
        let lost = poll::look(self.fd(), hangup)
            .is_ok_and(|events| events.dead || (events.hangup && !link.ring.queue.peer_is_shut()));
        if lost {
            link.peer_is_gone();
        }
        lost
    }

    fn wait_for_room(&self, link: &Link, until: Deadline, interrupts: u32) -> Result<(), Errno> {
        let q = &link.ring.queue;
        let ready =
            || q.has_room() || q.peer_has_closed() || self.interrupts() != interrupts || q.wants_attention();
        if link.tx_spinner.spin(link.policy(), ready) {
            return Ok(());
        }
        let write = Events { write: true, ..Events::default() };
        loop {
            // A peer that shut its own direction down has ended TCP towards us: whether it dies, TCP
            // cannot tell any more.
            let shut = q.peer_is_shut();
            let of_socket = Events { hangup: !shut, ..Events::default() };
            let this_time = if shut { until.at_most(CHECK) } else { until };
            match link.ring.sleep(write, self.fd(), of_socket, this_time, ready) {
                Ok(events) if events.dead || (events.hangup && !q.peer_is_shut()) => link.peer_is_gone(),
                Ok(_) => {}
                Err(Errno::TIMEDOUT) if !until.is_over() => {
                    if thread::process_is_alive(link.peer_pid) {
                        continue;
                    }
                    link.peer_is_gone();
                }
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// Waits until what is owed is with the kernel, before this end ends its sending direction.
    pub(super) fn pay_all(&self, link: &Link) {
        let until = Deadline::after(Some(2 * CHECK));
        let write = Events { write: true, ..Events::default() };
        while link.owing.load(Ordering::Relaxed) && !until.is_over() {
            let paid = self.pay(link, &link.ring.queue.tx());
            if paid.is_err() {
                return;
            }
            let _ = poll::wait(Fd::new(-1), self.fd(), write, until);
        }
    }

    /// Lets the peer's wish for TCP take effect on this end's sends. Called while waiting, so that an end
    /// that has nothing to send does not keep the peer from what it wants TCP for.
    pub fn attend(&self) {
        let Some(link) = self.attached() else { return };
        let q = &link.ring.queue;
        if link.owing.load(Ordering::Relaxed)
            && let Ok(tx) = self.tx(link)
        {
            // An error is that of the next send.
            let _ = self.pay(link, &tx);
        }
        if !q.wants_attention() {
            return;
        }
        let (_, by_peer) = q.tcp_only();
        let Ok(tx) = self.tx(link) else { return };
        if q.is_asked_back() {
            self.give_back(link, &tx);
        }
        // Without room for the record now, the next wait or send does it.
        let _ = tx.carrier();
        let _ = tx.should_ring();
        drop(tx);
        link.ring.peer_bell.ring();
        if by_peer {
            self.set_reason(Some(Reason::AskedByPeer));
        } else {
            self.show_carriers();
        }
    }

    // ---- poll, select, epoll -------------------------------------------------------------------

    /// What the ring knows to be ready. What it does not know, the kernel's poll on the socket does:
    /// its POLLIN, POLLRDHUP, POLLHUP and POLLERR always count, its POLLOUT unless `tx_on_ring`.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let Some(link) = self.attached() else { return Readiness::default() };
        let q = &link.ring.queue;
        if !link.is_sound() {
            return Readiness { read: true, write: true, tx_on_ring: false, end: true };
        }
        if link.owing.load(Ordering::Relaxed) {
            self.attend();
        }
        let tx_on_ring = link.tx_on_ring();
        let read = q.has_data() || (q.has_record() && self.has_data_after_switches(link));
        let end = q.peer_has_closed() || (read && q.has_end());
        Readiness { read, write: tx_on_ring && q.has_room(), tx_on_ring, end }
    }

    /// Takes switches off the head of the ring to see what comes after them.
    #[cold]
    fn has_data_after_switches(&self, link: &Link) -> bool {
        let Ok(rx) = self.rx(link) else { return false };
        let step = rx.step();
        let ring = rx.should_ring();
        drop(rx);
        if ring {
            link.ring.peer_bell.ring();
        }
        match step {
            Ok(RxStep::Ring | RxStep::End) => true,
            Ok(_) => false,
            Err(violation) => {
                self.violated(link, violation);
                true
            }
        }
    }

    /// From now on the peer rings the bell when it publishes (`read`), or when it has freed half of what
    /// is missing (`write`); to be undone by [`Connection::disarm`], once each. What is ready already is
    /// returned: then do not sleep, unless only news counts (edge-triggered epoll).
    pub fn arm(&self, want: Interest) -> Readiness {
        if let Some(link) = self.attached() {
            self.attend();
            link.ring.arm(events(want));
        }
        self.readiness()
    }

    /// Undoes [`Connection::arm`].
    pub fn disarm(&self, want: Interest) {
        if let Some(link) = self.attached() {
            link.ring.disarm(events(want));
        }
    }

    /// The bell's descriptor, readable once it was rung; `None` before the connection is attached.
    #[must_use]
    pub fn bell(&self) -> Option<Fd> {
        self.attached().map(|link| link.ring.bell.fd())
    }

    /// Silences the bell. Not needed where it is watched edge-triggered.
    pub fn quiet_bell(&self) {
        if let Some(link) = self.attached() {
            link.ring.bell.quiet();
        }
    }

    /// Wakes this end's own waiters.
    pub fn ring_own_bell(&self) {
        if let Some(link) = self.attached() {
            link.ring.bell.ring();
        }
    }

    /// Changes whenever the peer has published something new.
    #[inline]
    #[must_use]
    pub fn data_mark(&self) -> u64 {
        self.attached().map_or(0, |link| link.ring.queue.published_mark())
    }

    /// Whether waiting awake for this peer can be of use: it runs on another processor. No system call.
    #[must_use]
    pub fn worth_spinning(&self) -> bool {
        self.attached().is_some_and(|link| link.policy() != SpinPolicy::Fixed(0))
    }

    // ---- back to TCP ---------------------------------------------------------------------------

    /// Both directions go back to TCP, for good. This end's sends do so at once; the peer is asked to, and
    /// does at its next send. For reasons that hand the socket to somebody who does not know of the ring,
    /// what was not received yet is sent again by TCP, and this waits (up to a quarter of a second) until
    /// the peer has done so.
    ///
    /// # Errors
    /// EAGAIN when the peer did not answer in time, because it makes no call on the connection: handing
    /// the socket over would lose bytes. Receive them first.
    pub fn fall_back(&self, why: Reason) -> Result<(), Errno> {
        let Some(link) = self.attached() else {
            self.stay_plain(why);
            return Ok(());
        };
        let q = &link.ring.queue;
        self.set_reason(Some(why));
        if !matches!(why, Reason::Exec | Reason::FdPassed | Reason::Stdio | Reason::Spliced) {
            q.set_tcp_only();
            self.attend();
            link.ring.peer_bell.ring();
            return Ok(());
        }
        // With both ends in one process, the other one may be this very thread's to serve.
        let patience = if link.peer_pid == thread::process_id() { CHECK / 10 } else { CHECK / 4 };
        let rx = self.rx(link)?;
        // In one word with the wish for TCP: a peer that leaves the ring takes back first.
        rx.ask_back();
        self.attend();
        link.ring.peer_bell.ring();
        let handed_over = self.have_sent_again(link, &rx, Deadline::after(Some(patience)));
        if rx.should_ring() {
            link.ring.peer_bell.ring();
        }
        if q.tx_on_ring() { Err(Errno::AGAIN) } else { handed_over }
    }

    /// Waits until nothing can come by the ring any more: the peer has taken back what this end has not
    /// received (in its next call on the connection, or at once if it waits in one), or there was nothing.
    fn have_sent_again(&self, link: &Link, rx: &Rx<'_, Own, Peer>, until: Deadline) -> Result<(), Errno> {
        let q = &link.ring.queue;
        let refused = loop {
            match rx.is_taken_back() {
                Ok(Some(true)) => return Ok(()),
                Ok(Some(false)) => break true,
                Ok(None) => {}
                Err(violation) => return Err(self.violated(link, violation)),
            }
            // A send that began before the wish is over, and the ring is empty.
            if !q.peer_is_sending() && !q.has_record() {
                break false;
            }
            if until.is_over() || !thread::process_is_alive(link.peer_pid) {
                break false;
            }
            std::thread::yield_now();
        };
        match rx.withdraw(link.peer_pid) {
            Ok(true) => return Ok(()),
            // The end of the stream is TCP's to tell, too.
            Ok(false) if !refused && matches!(rx.step(), Ok(step) if is_over(step)) => return Ok(()),
            Ok(false) => {}
            Err(violation) => return Err(self.violated(link, violation)),
        }
        tracing::error!(
            "fd {}: process {} did not take back what it had sent; receive before the socket is handed over",
            self.fd().raw(),
            link.peer_pid
        );
        Err(Errno::AGAIN)
    }

    /// Waits the microseconds until bytes may be given to the kernel's socket without overtaking what
    /// went by the ring: for a call that the caller makes on it itself, after [`Connection::fall_back`].
    pub fn settle_on_tcp(&self) {
        let Some(link) = self.attached() else { return };
        let Ok(tx) = self.tx(link) else { return };
        self.wait_for_unbounded_read(link, &tx);
    }

    /// Waits until the socket is readable or writable by either carrier.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    pub(crate) fn wait(&self, want: Interest, until: Deadline) -> Result<(), Errno> {
        let wanted = events(want);
        let Some(link) = self.attached() else {
            let _bracket = self.enter_plain();
            return poll::wait(Fd::new(-1), self.fd(), wanted, until).map(drop);
        };
        let ready = || {
            let now = self.readiness();
            (want.read && now.read) || (want.write && now.write)
        };
        let of_socket = Events { write: want.write && !self.readiness().tx_on_ring, ..wanted };
        link.ring.sleep(wanted, self.fd(), of_socket, until, ready).map(drop)
    }
}

impl Link {
    /// How long to wait awake for this peer now: not at all for one that runs on this processor.
    fn policy(&self) -> SpinPolicy {
        let here = thread::processor();
        self.ring.queue.note_processor(here);
        if self.ring.queue.peer_processor() == Some(here) { SpinPolicy::Fixed(0) } else { Config::get().spin }
    }
}

/// Whether there is nothing on the ring for the receiver.
fn is_over(step: RxStep) -> bool {
    matches!(step, RxStep::TcpUnbounded | RxStep::RingEmpty | RxStep::End)
}

fn events(want: Interest) -> Events {
    Events { read: want.read, write: want.write, ..Events::default() }
}
