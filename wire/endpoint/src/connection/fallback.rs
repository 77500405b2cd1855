//! Takes a connection back to TCP, permanently: when the peer asks for it, and when the socket is
//! handed to a program that does not know about the ring.
//!
//! The peer then retransmits by TCP the bytes that it put on the ring and that this end has not
//! received. From the moment it is asked, it does so before it sends anything else, while it waits
//! for anything, and before it closes, ends its direction, or hands the socket over itself.

use std::io::IoSlice;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seekwire_protocol::switch::RxStep;
use seekwire_protocol::{Carrier, Reason};
use seekwire_transport::Errno;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{PublishError, RecallOutcome, Rx, Tx};
use seekwire_transport::ring::{Calls, Sending};
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::socket::{self, KernelSend};
use seekwire_transport::sys::{Fd, thread};

use super::data_path::DataPath;
use super::state::Connection;

/// How long a peer may take to answer while bytes that it sent by TCP lie in the kernel before
/// their turn. Longer than [`Connection::ANSWER_LIMIT`], because the new holder loses the bytes of
/// the ring unless this end discards those in the kernel.
const OUT_OF_TURN: Duration = Duration::from_secs(5);
/// How long a peer that has begun the recall may take to finish it: it does not sleep meanwhile.
const AT_WORK: Duration = Duration::from_secs(2);
/// How long this end waits for a peer that takes no retransmitted bytes.
const STANDSTILL: Duration = Duration::from_secs(10);
/// How long this end waits in all, if the peer takes a few bytes at a time.
const AT_LAST: Duration = Duration::from_secs(120);
/// Looks for an answer between two sleeps, and the length of a sleep.
const LOOKS: u32 = 1000;
const NAP: Duration = Duration::from_millis(1);

/// Counts the looks for an answer, and pauses between them.
struct Looks(u32);

impl Looks {
    /// True if it is time for more than a look.
    fn is_due(&self) -> bool {
        self.0 % (LOOKS / 10) == 0 || self.0 >= LOOKS
    }

    fn pause(&mut self) {
        self.0 += 1;
        if self.0 < LOOKS { std::thread::yield_now() } else { thread::nap(NAP) }
    }
}

/// The deadline of a hand-over that waits for the peer; several hand-overs may share one.
pub type Until = Deadline;

/// The outcome of a hand-over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandedOver {
    /// All unread bytes are in the kernel's socket, or on their way there.
    All,
    /// Bytes are left on the ring until the peer makes a call.
    Later,
}

impl Connection {
    /// How long a peer may take to answer. A peer that waits on the connection answers at once; any
    /// other retransmits the bytes in its next call, whenever that is.
    pub const ANSWER_LIMIT: Duration = Duration::from_millis(100);

    // ---- as the sender ------------------------------------------------------------------------

    /// The carrier of the next byte sent, after the switch that is due.
    #[inline]
    pub(super) fn due_carrier(
        &self,
        data_path: &DataPath,
        tx: &Tx<'_, Own, Peer>,
        calls: &Calls,
    ) -> Result<Carrier, PublishError> {
        let q = &data_path.ring.queue;
        let was_on_ring = q.tx_on_ring();
        let was_retransmitting = !was_on_ring && q.to_retransmit() > 0;
        let carrier = tx.carrier();
        if carrier == Ok(Carrier::Tcp)
            && (was_on_ring || (!was_retransmitting && q.to_retransmit() > 0))
        {
            self.has_left_ring(data_path, tx, calls);
        }
        if carrier == Ok(Carrier::Ring) && !was_on_ring {
            // A later read that keeps it from TCP is another one.
            data_path.progress.held_up_since.store(0, Ordering::Relaxed);
            data_path.follow_cork(tx, self.fd());
            if self.has_hung_up() && data_path.peer_is_dead() {
                // The kernel answers with a reset, and the ring not at all.
                return tx.overflow();
            }
        }
        carrier
    }

    #[cold]
    fn has_left_ring(&self, data_path: &DataPath, tx: &Tx<'_, Own, Peer>, calls: &Calls) {
        if let Err(error) = self.retransmit(data_path, tx) {
            data_path.keep_error(error);
        }
        calls.peer();
        // The waiters of this end now also have to wait for room in the socket, whatever they
        // waited for.
        calls.own();
    }

    /// Lets the peer's request for TCP take effect on this end's sends, and retransmits. Called
    /// while waiting, so that an end that has nothing to send does not hold up the peer.
    pub fn service_peer(&self) {
        let Some(data_path) = self.attached() else { return };
        self.look_after(data_path);
        let q = &data_path.ring.queue;
        data_path.confirm_channel();
        data_path.ring.peer_doorbell.ring_owed();
        if data_path.has_lost_wake_channel() {
            self.leave_for_lost_wake_channel(data_path);
        }
        if !q.wants_attention() && q.to_retransmit() == 0 {
            return;
        }
        // TCP answers bytes for a socket that nobody holds any more with a reset, which a receive after
        // the end does not return.
        if self.is_reset_by_killed(data_path) {
            return;
        }
        let by_peer = q.peer_wants_tcp();
        let Ok(tx) = self.tx(data_path) else { return };
        let carrier = self.due_carrier(data_path, &tx, tx.calls());
        let retransmitted = self.retransmit(data_path, &tx);
        drop(tx);
        if let Err(PublishError::Violation(violation)) = carrier {
            self.violated(data_path, violation);
        }
        if let Err(error) = retransmitted {
            // The kernel has reported the error, and from now on would report the end of the
            // stream.
            data_path.keep_error(error);
            data_path.ring.doorbell.ring();
        }
        if by_peer && self.reason().is_none() {
            self.set_reason(Some(Reason::AskedByPeer));
        } else {
            self.show_carriers();
        }
    }

    #[cold]
    fn leave_for_lost_wake_channel(&self, data_path: &DataPath) {
        let reason =
            if data_path.peer_has_joined() { Reason::NoWakeChannel } else { Reason::PeerRefused };
        tracing::info!(
            "fd {}: the wake channel to the other machine is closed: {reason}",
            self.fd().raw()
        );
        data_path.note_lost_wake_channel();
        self.leave_other_machine(data_path, reason);
    }

    /// Both directions go on by TCP, which wakes all sleepers.
    #[cold]
    pub(super) fn leave_other_machine(&self, data_path: &DataPath, reason: Reason) {
        data_path.ring.queue.set_tcp_only();
        self.set_reason(Some(reason));
        if data_path.ring.queue.unsent() > 0 {
            // The whole machine may be gone. TCP knows nothing of these bytes, and would wait for
            // ever.
            socket::probe(self.fd());
        }
        if let Ok(tx) = self.tx(data_path) {
            // The next send returns the error, if any.
            let _ = self.due_carrier(data_path, &tx, tx.calls());
            tx.calls().own();
        }
    }

    /// Whether [`Self::service_peer`] has something to do. No system call.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.attached().is_some_and(|data_path| {
            data_path.ring.queue.wants_attention()
                || data_path.has_lost_wake_channel()
                || data_path.ring.peer_doorbell.is_owed()
        })
    }

    /// Whether bytes wait for room in the kernel's socket: a caller that waits for anything also
    /// has to poll it for POLLOUT, and then to call [`Connection::service_peer`]. No system call.
    #[inline]
    #[must_use]
    pub fn retransmits(&self) -> bool {
        self.attached().is_some_and(|data_path| data_path.ring.queue.to_retransmit() > 0)
    }

    /// Gives the kernel the bytes to be retransmitted; false if it has no room for all of them.
    /// Then shuts the socket down, if the application has requested that meanwhile.
    pub(super) fn retransmit(
        &self,
        data_path: &DataPath,
        tx: &Tx<'_, Own, Peer>,
    ) -> Result<bool, Errno> {
        let q = &data_path.ring.queue;
        if q.to_retransmit() == 0 {
            return Ok(true);
        }
        let mut piece = Vec::new();
        loop {
            if let Err(violation) = tx.to_retransmit(&mut piece) {
                tx.forget_retransmission();
                return Err(self.violated(data_path, violation));
            }
            if piece.is_empty() {
                break;
            }
            match socket::send(self.fd(), &[IoSlice::new(&piece)], KernelSend::NOSIGNAL) {
                Ok(n) => tx.retransmitted(n),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => {
                    tx.forget_retransmission();
                    return Err(error);
                }
            }
        }
        if q.is_shut() {
            // An error means that the connection has already ended.
            let _ = socket::shutdown(self.fd(), Shutdown::Write);
        }
        Ok(true)
    }

    /// The connection is about to end with this process, or through a call that is under way: a
    /// request that the peer makes from now on may stay unseen, and the peer knows it.
    pub fn begin_last_look(&self) {
        if let Some(data_path) = self.attached() {
            if self.is_only_holder(data_path) {
                data_path.ring.queue.begin_last_look();
            }
        }
    }

    /// Called before the socket is closed or the process ends: waits until the kernel has
    /// everything to be retransmitted, unless this end's close resets the connection. Gives up on a
    /// peer that takes nothing for ten seconds, or not all within two minutes; then the close resets
    /// the connection.
    pub fn finish_retransmission(&self) {
        if let Some(data_path) = self.attached() {
            let fd = self.fd();
            // Retransmissions that the peer has requested begin now.
            self.service_peer();
            // RFC 1122, 4.2.2.13: unreceived bytes cause a reset, as does a linger time of zero,
            // and with TCP, unsent bytes are then lost as well. Neither has an effect while others
            // hold the socket, which may never make a call.
            let resets = || socket::resets_on_close(fd) || socket::unread(fd).unwrap_or(0) > 0;
            let is_only_holder = || self.is_only_holder(data_path);
            let is_in_vain = || !self.is_given() && resets() && is_only_holder();
            if !self.retransmit_all(data_path, is_in_vain) && is_only_holder() {
                socket::reset_on_close(fd);
            }
        }
    }

    /// Called before an exec after which the next program alone has the socket: what it sends must
    /// not precede the bytes to be retransmitted. Gives up as
    /// [`finish_retransmission`](Self::finish_retransmission), and resets the connection.
    pub fn finish_retransmission_for_successor(&self) {
        if let Some(data_path) = self.attached() {
            self.service_peer();
            if !self.retransmit_all(data_path, || false) {
                socket::reset(self.fd());
            }
        }
    }

    /// Returns false if it has given up.
    fn retransmit_all(&self, data_path: &DataPath, is_in_vain: impl Fn() -> bool) -> bool {
        let q = &data_path.ring.queue;
        let at_last = Deadline::after(Some(AT_LAST));
        let mut until = at_last.at_most(STANDSTILL);
        let write = Events::WRITE;
        while q.to_retransmit() > 0 && !is_in_vain() {
            let before = q.to_retransmit();
            let retransmitted = self.tx(data_path).and_then(|tx| self.retransmit(data_path, &tx));
            if !matches!(retransmitted, Ok(false)) {
                return true;
            }
            if q.to_retransmit() < before {
                until = at_last.at_most(STANDSTILL);
            }
            if until.is_over() {
                tracing::error!(
                    "fd {}: the peer does not take {} bytes that are sent again; they are lost",
                    self.fd().raw(),
                    q.to_retransmit()
                );
                return false;
            }
            let _ = poll::wait(Fd::new(-1), self.fd(), write, until);
        }
        true
    }

    // ---- as the receiver ----------------------------------------------------------------------

    /// How long a hand-over should wait for the peer's answer.
    #[must_use]
    pub fn answer_limit(&self) -> Duration {
        let out_of_turn = |data_path: &DataPath| {
            data_path.ring.queue.rx_on_ring() && data_path.ring.queue.peer_has_left_ring()
        };
        if self.attached().is_some_and(out_of_turn) { OUT_OF_TURN } else { Self::ANSWER_LIMIT }
    }

    /// Both directions go back to TCP, for good. This end's sends do so at once, and the peer does
    /// at its next send, because it is asked to. For reasons that hand the socket to a program that
    /// does not know about the ring, this is [`Connection::hand_over`].
    ///
    /// # Errors
    /// Those of [`Connection::hand_over`].
    pub fn fall_back(&self, why: Reason) -> Result<(), Errno> {
        let is_for_others =
            matches!(why, Reason::Exec | Reason::FdPassed | Reason::Stdio | Reason::UnseenWait);
        if is_for_others {
            let until = Deadline::after(Some(self.answer_limit()));
            return self.hand_over(why, until, || ()).map(drop);
        }
        let Some(data_path) = self.attached() else {
            self.stay_plain(why);
            return Ok(());
        };
        self.fall_back_now(data_path, why);
        Ok(())
    }

    pub(super) fn fall_back_now(&self, data_path: &DataPath, why: Reason) {
        self.set_reason(Some(why));
        data_path.ring.queue.set_tcp_only();
        self.service_peer();
        data_path.ring.peer_doorbell.ring();
    }

    /// Both directions go back to TCP, for good, and the peer retransmits the bytes that this end
    /// has not received, so that no byte on the ring precedes one that TCP brings later. Waits
    /// until the peer has agreed, which it does in its next call on the connection, or at once if
    /// it waits in one; until the kernel has all that this end has to retransmit; and until other
    /// programs may give bytes to the kernel. A peer that makes no call until then retransmits when
    /// it does. Such a peer may be another connection of this process: `meanwhile` calls
    /// [`service_peer`](Self::service_peer) on those.
    ///
    /// # Errors
    /// EBUSY if bytes were taken out of the middle of the unread ones, or moved to library memory,
    /// or if the peer does not take those that this end has to retransmit;
    /// EAGAIN if the peer cannot retransmit the bytes because it is gone, has ended its direction
    /// or has sent others by TCP: handing the socket over would lose bytes. Receive them first.
    pub fn hand_over(
        &self,
        why: Reason,
        until: Until,
        meanwhile: impl Fn(),
    ) -> Result<HandedOver, Errno> {
        self.set_shared();
        let _in_order = self.hand_over_seeking()?;
        let Some(data_path) = self.attached() else {
            self.inherited();
            self.stay_plain(why);
            return self.without_spill();
        };
        self.set_reason(Some(why));
        let rx = self.rx(data_path)?;
        // If this end is shut down both ways, bytes that come by TCP would reset the connection.
        let can_come = !data_path.ring.queue.refuses();
        if can_come {
            // A switch with nothing after it leaves the peer nothing to send again.
            rx.step().map_err(|violation| self.violated(data_path, violation))?;
            rx.ask_recall();
        }
        self.service_peer();
        data_path.ring.peer_doorbell.ring();
        let handed_over = if can_come {
            self.have_sent_again(data_path, &rx, until, meanwhile).and_then(|handed_over| {
                self.have_discarded(&rx, Deadline::after(Some(AT_WORK))).map(|()| handed_over)
            })
        } else {
            rx.stop_asking();
            Ok(HandedOver::All)
        };
        drop(rx);
        // A peer that also hands over has asked before it answered.
        self.service_peer();
        let handed_over = match self.retransmit_all(data_path, || false) {
            true => handed_over,
            false => Err(Errno::BUSY),
        };
        self.expect_others_to_send(data_path, why);
        let tx = self.tx(data_path)?;
        if !self.wait_for_unbounded_read(&tx, Deadline::after(Some(AT_WORK))) {
            return Err(Errno::AGAIN);
        }
        handed_over.and_then(|handed_over| self.without_spill().map(|_| handed_over))
    }

    /// The new holder of the socket may send by TCP. Retransmitting earlier bytes from the ring
    /// after that would change the order, and so would a read of the peer that goes on from before
    /// these bytes.
    pub(super) fn expect_others_to_send(&self, data_path: &DataPath, why: Reason) {
        if matches!(why, Reason::Exec | Reason::FdPassed | Reason::Stdio) {
            if let Ok(tx) = self.tx(data_path) {
                self.stop_counting(data_path, &tx);
                let until = Deadline::after(Some(Self::ANSWER_LIMIT));
                let _ = self.wait_for_unbounded_read(&tx, until);
            }
        }
    }

    fn stop_counting(&self, data_path: &DataPath, tx: &Sending<'_>) {
        let was_retransmitting = data_path.ring.queue.to_retransmit() > 0;
        match tx.stop_counting() {
            Ok(()) if data_path.ring.queue.to_retransmit() > 0 && !was_retransmitting => {
                self.has_left_ring(data_path, tx, tx.calls());
            }
            Ok(()) => {}
            Err(violation) => _ = self.violated(data_path, violation),
        }
    }

    /// Waits until nothing can come by the ring any more: the peer has recalled the bytes that this
    /// end has not received, or will, or there were none.
    fn have_sent_again(
        &self,
        data_path: &DataPath,
        rx: &Rx<'_, Own, Peer>,
        until: Until,
        meanwhile: impl Fn(),
    ) -> Result<HandedOver, Errno> {
        let q = &data_path.ring.queue;
        let violated = |violation| Err(self.violated(data_path, violation));
        let mut looks = Looks(0);
        let is_late = loop {
            match rx.answer() {
                Ok(RecallOutcome::Taken) => return Ok(HandedOver::All),
                Ok(RecallOutcome::Refused) => break false,
                Ok(RecallOutcome::Pending | RecallOutcome::AtWork) => {}
                Err(violation) => return violated(violation),
            }
            // A send that began before the request has finished, and the ring is empty; or no peer
            // is left to answer.
            if !q.peer_is_sending() && !q.has_record() {
                break false;
            }
            let is_over = until.is_over();
            if is_over || looks.is_due() {
                // The peer may wait for the same from this end, or be another connection of this
                // process.
                self.service_peer();
                meanwhile();
                let is_gone = q.peer_is_uncounted()
                    || q.peer_has_looked_last()
                    || socket::ends(self.fd()).peers
                    || data_path.peer_is_dead();
                if is_gone && rx.answer() == Ok(RecallOutcome::Pending) {
                    break false;
                }
            }
            if is_over && matches!(rx.answer(), Ok(RecallOutcome::Pending | RecallOutcome::AtWork))
            {
                // Bytes taken out of the middle must not come again.
                break !self.is_seeking();
            }
            looks.pause();
        };
        let at_work = Deadline::after(Some(AT_WORK));
        loop {
            match if is_late { rx.keep_asking() } else { rx.withdraw() } {
                Ok(RecallOutcome::Taken) => return Ok(HandedOver::All),
                Ok(RecallOutcome::Pending) => {
                    tracing::info!(
                        "fd {}: process {} sends again what is unread when it makes its next call",
                        self.fd().raw(),
                        data_path.peer_pid
                    );
                    return Ok(HandedOver::Later);
                }
                Ok(RecallOutcome::Refused) => break,
                // A peer that dies during the recall, or never finishes it, may have retransmitted
                // some of the bytes.
                Ok(RecallOutcome::AtWork) if at_work.is_over() || data_path.peer_is_dead() => {
                    return violated(seekwire_transport::queue::Violation);
                }
                Ok(RecallOutcome::AtWork) => looks.pause(),
                Err(violation) => return violated(violation),
            }
        }
        let is_over = |step| matches!(step, RxStep::TcpUnbounded | RxStep::RingEmpty | RxStep::End);
        // The end of the stream is for TCP to report as well.
        if !q.peer_is_sending() && rx.step().is_ok_and(is_over) {
            return Ok(HandedOver::All);
        }
        tracing::info!(
            "fd {}: process {} cannot send again what lies on the ring",
            self.fd().raw(),
            data_path.peer_pid
        );
        Err(Errno::AGAIN)
    }

    /// Discards bytes from TCP that will be retransmitted; false if not all of them have arrived.
    #[cold]
    pub(super) fn discard_recalled(&self, rx: &Rx<'_, Own, Peer>) -> Result<bool, Errno> {
        while rx.discard_left() > 0 {
            let most = usize::try_from(rx.discard_left()).unwrap_or(usize::MAX).min(1 << 20);
            match socket::discard(self.fd(), most) {
                // The peer has ended before retransmitting them.
                Ok(0) => return Err(Errno::CONNRESET),
                Ok(n) => rx.note_discarded(n),
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// As [`Self::discard_recalled`], for all of them: they are in the kernel, so no action of the
    /// peer is needed.
    fn have_discarded(&self, rx: &Rx<'_, Own, Peer>, until: Deadline) -> Result<(), Errno> {
        let read = Events::READ;
        while !self.discard_recalled(rx)? {
            if until.is_over() {
                return Err(Errno::AGAIN);
            }
            let _ = poll::wait(Fd::new(-1), self.fd(), read, until);
        }
        Ok(())
    }

    /// Waits the microseconds until bytes may be given to the kernel's socket without overtaking
    /// bytes on the ring: for a call that the caller itself makes on the socket, after
    /// [`Connection::fall_back`]. From now on, bytes on the ring cannot be retransmitted. Returns
    /// false if they would be overtaken all the same, by a receiver that is stopped.
    pub fn stay_on_tcp(&self) -> bool {
        let Some(data_path) = self.attached() else { return true };
        let Ok(tx) = self.tx(data_path) else { return false };
        self.stop_counting(data_path, &tx);
        let is_free = self.wait_for_unbounded_read(&tx, Deadline::after(Some(AT_WORK)));
        let q = &data_path.ring.queue;
        if q.is_shut() && q.to_retransmit() == 0 {
            // A shutdown of another thread may have ended the ring, and is about to end TCP: bytes
            // that the kernel took until then would follow the end of the stream. An error means
            // that the connection has already ended.
            let _ = socket::shutdown(self.fd(), Shutdown::Write);
        }
        is_free
    }

    /// The receiver may be inside a read that does not block, for some microseconds. Returns false
    /// if it stays there.
    fn wait_for_unbounded_read(&self, tx: &Tx<'_, Own, Peer>, until: Deadline) -> bool {
        while !tx.may_use_tcp() {
            if until.is_over() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}
