//! Finds out whether a peer that takes nothing is slow or dead.
//!
//! Bytes on the ring of a killed process are of no use, but a send cannot know that: nobody writes
//! into the memory any more. The kernel knows, because it ended the connection. So a sender asks
//! it: in the second send to a peer that has shown no sign of life since the first, and then every
//! few tens of microseconds. Once the peer's direction has ended, the kernel learns nothing more of
//! its own accord, so the sender goes on by TCP, where a peer that is gone answers with a reset
//! (RFC 9293, 3.10.7.1).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seekwire_protocol::Carrier;
use seekwire_transport::Errno;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Full, Rx, Tx, Violation};
use seekwire_transport::seek::Engine;
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket::KernelRecv;
use seekwire_transport::sys::{diag, host, socket, thread};

use super::call::Call;
use super::link::Link;
use super::outcome::Try;
use super::recv::Failure;
use super::state::Connection;
use super::taking::Watch;
use super::terms::Interest;

/// Bytes that a receiver may leave unread before it has to wait for its turn: about what TCP takes
/// by default.
pub(super) const AMPLE: usize = 256 << 10;
/// How long a receiver must have taken nothing from the ring to count as standing still.
pub(super) const STANDSTILL: Duration = Duration::from_millis(50);
/// How long a peer on another machine may take nothing before it is rung for again: it may have
/// missed the first ring.
const UNHEARD: Duration = Duration::from_secs(1);
/// Maximum number of looks at a receiver that is inside a read, each followed by yielding the
/// processor.
const LOOKS: u32 = 1000;
/// How long a receiver may be inside a read that does not block; it may be stopped there.
const INSIDE: Duration = Duration::from_secs(60);

/// How long something has lasted that began at this reading of the clock. It begins now if the
/// reading is 0, or if the clock was set back since: this process is a child with another clock
/// than its parent.
fn lasts(since: &AtomicU64) -> Duration {
    let begin = since.load(Ordering::Relaxed);
    if begin != 0 {
        if let Some(so_long) = host::since(begin) {
            return so_long;
        }
    }
    since.store(host::nanoseconds().max(1), Ordering::Relaxed);
    Duration::ZERO
}

impl Link {
    /// Counts a send that is about to be made. True if the kernel is to be asked about the peer
    /// first.
    #[inline]
    pub(super) fn looks_lost(&self) -> bool {
        let Watch { sends, shown, asked, .. } = &self.watch;
        let count = sends.load(Ordering::Relaxed).wrapping_add(1);
        sends.store(count, Ordering::Relaxed);
        if count == 1 {
            // A sign of life from before this send does not count for the next one.
            let mark = self.ring.queue.life_mark();
            if shown.load(Ordering::Relaxed) != mark {
                shown.store(mark, Ordering::Relaxed);
                sends.store(0, Ordering::Relaxed);
                return false;
            }
        }
        // Half of the readings are enough: one of two sends is the second one.
        if count % 2 == 0 {
            return false;
        }
        let now = host::tick();
        if asked.load(Ordering::Relaxed) == now {
            return false;
        }
        asked.store(now, Ordering::Relaxed);
        sends.store(0, Ordering::Relaxed);
        true
    }

    #[cold]
    fn has_stood_still(&self) -> bool {
        let taken = self.ring.queue.consumed_mark();
        self.watch.taken.swap(taken, Ordering::Relaxed) == taken
    }

    /// Whether there is no room for a send of whatever length, since one found none: after a
    /// refusal, the program must see a ring with room for a smaller message as full, as with TCP's
    /// buffers.
    #[inline]
    pub(super) fn is_still_full(&self) -> bool {
        self.watch.refused.load(Ordering::Relaxed) && self.has_no_room_yet()
    }

    #[cold]
    fn has_no_room_yet(&self) -> bool {
        let has_room = self.ring.queue.has_room_beside_reserved();
        if has_room {
            self.watch.refused.store(false, Ordering::Relaxed);
        }
        !has_room
    }

    /// Whether nothing was taken off the ring for a while.
    fn has_stood_full(&self) -> bool {
        let taken = self.ring.queue.consumed_mark();
        let since = &self.watch.full_since;
        if self.watch.full_at.swap(taken, Ordering::Relaxed) != taken {
            since.store(0, Ordering::Relaxed);
        }
        lasts(since) >= STANDSTILL
    }

    /// Whether all processes that held the peer's end have left it, are dying, or are dead: a
    /// process closes its sockets before it is gone. Asked after TCP has ended.
    fn peer_is_ending(&self) -> bool {
        self.is_left_across().unwrap_or_else(|| {
            self.peer_pid != 0
                && !self.ring.queue.peer_has_holder(|pid| !thread::process_is_ending(pid))
        })
    }

    /// Whether the peer may be dead now that its direction has ended. If it ended that in order,
    /// TCP does not report its death.
    fn may_be_dead(&self) -> bool {
        let q = &self.ring.queue;
        let is_gone = || self.peer_pid != 0 && !q.peer_has_holder(thread::exists);
        !q.peer_is_shut() || is_gone() || self.has_stood_still()
    }

    /// Whether no living process holds the peer's end. Processes of another pid namespace are not
    /// known.
    pub(super) fn peer_is_dead(&self) -> bool {
        self.peer_pid != 0 && !self.ring.queue.peer_has_holder(thread::process_is_alive)
    }
}

impl Connection {
    /// Leaves a ring that is full, or from which nothing is taken: TCP has room of its own.
    #[cold]
    pub(super) fn overflow(&self, link: &Link) -> Result<(), Errno> {
        let tx = self.tx(link)?;
        let was_on_ring = link.ring.queue.tx_on_ring();
        let left = tx.overflow();
        let has_left = was_on_ring && !link.ring.queue.tx_on_ring();
        if has_left {
            // This end's waiters for room now wait for room in the socket.
            tx.calls().own();
        }
        drop(tx);
        if has_left {
            self.show_carriers();
        }
        match left {
            Ok(_) | Err(Full::NoRoom) => Ok(()),
            Err(Full::Violation(violation)) => Err(self.violated(link, violation)),
        }
    }

    /// Whether bytes may be given to the kernel: the receiver may be inside a read that does not
    /// block, for some microseconds. Waits that long; a receiver that is stopped there keeps the
    /// sender from TCP, and one that stays there for [`INSIDE`] breaks the protocol.
    pub(super) fn may_use_tcp(&self, link: &Link, tx: &Tx<'_, Own, Peer>) -> Result<bool, Errno> {
        for _ in 0..LOOKS {
            if tx.may_use_tcp() {
                link.watch.held_up_since.store(0, Ordering::Relaxed);
                return Ok(true);
            }
            std::thread::yield_now();
        }
        if self.is_nobody_inside(link) {
            return Ok(true);
        }
        if lasts(&link.watch.held_up_since) > INSIDE {
            return Err(self.violated(link, Violation));
        }
        Ok(false)
    }

    /// Whether the process that was inside a read is gone, and will never leave it.
    fn is_nobody_inside(&self, link: &Link) -> bool {
        let q = &link.ring.queue;
        // The processes of another machine are not known.
        let is_killed = || link.is_across() && !q.peer_is_shut() && socket::ends(self.fd()).peers;
        q.peer_has_closed() || link.peer_is_dead() || self.has_error() || is_killed()
    }

    /// TCP has ended, but the ring has no record of it. If a process was killed that had not
    /// received all bytes, its kernel knew nothing of those on the ring and ended the connection in
    /// order; with TCP alone it would have reset it (RFC 1122, 4.2.2.13).
    #[cold]
    pub(super) fn end_of_stream(
        &self,
        link: &Link,
        rx: &Rx<'_, Own, Peer>,
    ) -> Result<Try, Failure> {
        let q = &link.ring.queue;
        if !rx.is_intact() {
            // Bytes may have been lost before the end.
            return Err(Violation.into());
        }
        if let Some(error) = link.take_untold() {
            return Err(error.into());
        }
        // False if only this end was shut down for reading, by any process.
        let has_ended = socket::ends(self.fd()).peers;
        let in_order = !has_ended || q.peer_is_shut() || q.peer_has_closed();
        if !in_order {
            q.set_saw_end();
            // Perhaps no peer is left to take further bytes: only TCP can tell. The next send
            // returns an error.
            let _ = self.overflow(link);
        }
        if in_order || q.unsent_and_shown() == 0 || !link.peer_is_ending() {
            link.has_ended.fetch_or(has_ended, Ordering::Relaxed);
            return Ok(Try::Moved(0));
        }
        self.reset_by_killed(link);
        // As in the kernel: once a receive has returned the end, later errors do not change it.
        // EPIPE is for sends.
        let told = |error: &Errno| *error != Errno::PIPE && !link.has_ended.load(Ordering::Relaxed);
        let error = match socket::take_error(self.fd()) {
            // TCP had ended in both directions, and has nothing left to reset.
            None if q.is_shut() && !link.has_ended.swap(true, Ordering::Relaxed) => {
                Some(Errno::CONNRESET)
            }
            error => error.filter(told),
        };
        error.map_or(Ok(Try::Moved(0)), |error| Err(error.into()))
    }

    /// If both directions of TCP have ended, sends go to the kernel, even if the ring has room.
    #[cold]
    pub(super) fn note_end(&self, link: &Link) {
        if link.is_sound() && socket::ends(self.fd()).both {
            link.peer_is_gone();
        }
    }

    /// Notes that the kernel has reported an error, or the end of both directions.
    #[cold]
    pub fn heard_of_end(&self) {
        if let Some(link) = self.attached() {
            self.note_end(link);
        }
    }

    /// SO_ERROR, which reports an error once.
    #[must_use]
    pub fn take_error(&self) -> Option<Errno> {
        let error = socket::take_error(self.fd());
        if error.is_some() {
            self.heard_of_end();
        }
        error.or_else(|| self.take_kept_error())
    }

    /// Takes an error that the kernel has returned to this library and the program has not seen
    /// yet, as SO_ERROR takes the socket's.
    #[must_use]
    pub fn take_kept_error(&self) -> Option<Errno> {
        let untold = self.attached().and_then(Link::take_untold);
        untold.or_else(|| self.with_late(Engine::take_late)?)
    }

    /// Whether such an error is kept.
    #[must_use]
    pub fn keeps_error(&self) -> bool {
        self.attached().is_some_and(Link::has_untold)
            || self.with_late(|engine| engine.has_late()) == Some(true)
    }

    /// Checks on bytes that a peer on another machine has not taken from the ring. All words of the
    /// two ends lie in memory that others can write, even the request to be woken. So after a while
    /// the peer is woken whether it has asked for that or not. If it can no longer find the bytes
    /// that this end has left for it, neither of them would ever go on: the connection is reset.
    #[inline]
    pub(super) fn look_after(&self, link: &Link) {
        if link.is_across() && link.is_sound() {
            self.look_after_untaken(link);
        }
    }

    #[cold]
    fn look_after_untaken(&self, link: &Link) {
        let q = &link.ring.queue;
        let Watch { untaken_at, untaken_since, rung_at, .. } = &link.watch;
        if link.has_lost_memory() {
            self.violated(link, Violation);
            return;
        }
        let taken = q.consumed_mark();
        if !q.is_untaken() || untaken_at.swap(taken, Ordering::Relaxed) != taken {
            untaken_since.store(0, Ordering::Relaxed);
        }
        if !q.is_untaken() || lasts(untaken_since) < UNHEARD {
            return;
        }
        untaken_since.store(0, Ordering::Relaxed);
        if !link.is_intact() {
            self.violated(link, Violation);
        } else if rung_at.swap(taken.wrapping_add(1), Ordering::Relaxed) != taken.wrapping_add(1) {
            link.ring.peer_doorbell.ring();
        }
    }

    fn reset_by_killed(&self, link: &Link) {
        link.peer_is_gone();
        socket::reset(self.fd());
        link.ring.doorbell.ring();
    }

    /// A sender finds that TCP has ended, and so has the peer's process, which had not received all
    /// bytes: the connection is reset, as in [`Self::end_of_stream`]. Not while bytes are left to
    /// receive.
    fn is_reset_by_killed(&self, link: &Link) -> bool {
        let q = &link.ring.queue;
        let is_killed = !(q.peer_is_shut() || q.peer_has_closed())
            && socket::ends(self.fd()).peers
            && q.unsent_and_shown() > 0
            && q.unread() == 0
            && socket::unread(self.fd()) == Ok(0)
            && link.peer_is_ending()
            && link.is_sound();
        if is_killed {
            self.reset_by_killed(link);
        }
        is_killed
    }

    /// The result of a receive on an end that was shut down for reading, when no bytes are left:
    /// the end of the stream, unless TCP has reset the connection, which is reported once.
    #[cold]
    pub(super) fn end_of_shut(&self) -> Result<usize, Errno> {
        let is_reset = || self.attached().is_some_and(|link| self.is_reset_by_killed(link));
        if !(self.has_error() || is_reset()) {
            return Ok(0);
        }
        // The kernel knows which of the peer's end and the reset came first.
        match socket::recv(self.fd(), &mut [0], KernelRecv::PEEK) {
            Ok(_) | Err(Errno::AGAIN) => Ok(0),
            Err(error) => {
                self.heard_of_end();
                Err(error)
            }
        }
    }

    /// Leaves a full ring if that is due: at once if few bytes lie there, fewer than TCP has room
    /// for from the start, or if TCP_USER_TIMEOUT is set; otherwise after nothing was taken for a
    /// while, since TCP's room grows with the bytes sent. A receiver that is merely slow keeps the
    /// ring. So does one whose sender is `patient` ([`super::terms::SendFlags`]), or has sent more
    /// than TCP has room for, unless TCP may have news of it. Returns whether the next send goes by
    /// TCP.
    #[cold]
    pub(super) fn overflow_if_due(&self, link: &Link, patient: bool) -> Result<bool, Errno> {
        let is_little = link.ring.queue.unsent() < AMPLE;
        let stands = link.has_stood_full();
        let is_due = stands || (is_little && !patient);
        if (!patient && self.limits_silence())
            || (is_due
                && (!(patient || self.holds_more_than_tcp(link))
                    || (stands && self.is_for_tcp_to_say(link))))
        {
            self.leave_full(link)?;
        }
        Ok(!link.ring.queue.tx_on_ring())
    }

    /// Whether more bytes lie on the ring than the kernel would take: the program has set small
    /// buffers, and may know that they are full.
    fn holds_more_than_tcp(&self, link: &Link) -> bool {
        let unsent = link.ring.queue.unsent();
        let Ok(mut room) = socket::send_buffer(self.fd()) else { return false };
        if unsent <= room {
            return false;
        }
        let (Ok((local, peer)), Ok(namespace)) = (self.names(), socket::namespace(self.fd()))
        else {
            return false;
        };
        let [local, peer] = [local, peer]
            .map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
        // Nothing is known of a peer on another machine.
        let Ok(Some(buffer)) = diag::receive_buffer(peer, local, namespace) else { return false };
        room += buffer as usize;
        unsent > room
    }

    fn leave_full(&self, link: &Link) -> Result<(), Errno> {
        if self.has_hung_up() && self.is_reset_by_killed(link) {
            return Ok(());
        }
        self.overflow(link)
    }

    /// Leaves a full ring; returns whether it did. Called by a wait that would otherwise report
    /// nothing but ends: with TCP alone, it would report room.
    pub fn make_room_by_tcp(&self) -> bool {
        self.attached().is_some_and(|link| {
            link.tx_on_ring()
                && !link.ring.queue.has_room()
                && self.leave_full(link).is_ok()
                && !link.tx_on_ring()
        })
    }

    /// Whether TCP may have news: the peer may be dead, which a reset reports, or TCP_USER_TIMEOUT
    /// limits how long it may be silent.
    fn is_for_tcp_to_say(&self, link: &Link) -> bool {
        link.ring.queue.peer_is_shut() || self.has_hung_up() || self.limits_silence()
    }

    /// Whether TCP_USER_TIMEOUT is set. The kernel counts that time, whether the program makes
    /// calls or not, from the moment when it has bytes for which the peer has no room.
    fn limits_silence(&self) -> bool {
        socket::user_timeout(self.fd()).is_ok_and(|timeout| timeout > 0)
    }

    pub(super) fn has_hung_up(&self) -> bool {
        let hangup = Events { hangup: true, ..Events::default() };
        poll::look(self.fd(), hangup).is_ok_and(|events| events.hangup || events.dead)
    }

    /// Whether a sleep until there is room has to be short ([`Connection::DOUBT`]): the ring is
    /// full, and may have to be left.
    #[must_use]
    pub fn is_starved(&self, want: Interest) -> bool {
        let full = |link: &&Link| link.tx_on_ring() && !link.ring.queue.has_room();
        want.write && self.attached().filter(full).is_some()
    }

    /// Whether the kernel may be silent about bytes that a caller waits for: it wakes nobody for
    /// fewer than SO_RCVLOWAT bytes in its own queue, and knows nothing of bytes on the ring that
    /// precede or follow these. Also true once the line to another machine is closed, or has no
    /// room.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        let may_be_split = |link: &&Link| {
            let q = &link.ring.queue;
            q.unread() > 0 || q.carriers().1 == Carrier::Tcp
        };
        let Some(link) = self.attached() else { return false };
        (self.recv_low_water() > 1 && may_be_split(&link)) || link.is_silent()
    }

    /// Whether a sleep has to be short ([`Connection::DOUBT`]), since possibly nobody wakes the
    /// sleeper.
    #[must_use]
    pub fn is_in_doubt(&self, want: Interest) -> bool {
        self.is_starved(want) || (want.read && self.is_deaf())
    }

    /// Whether this end has left something on a ring to another machine that the peer has not
    /// taken. A caller that waits for the connection looks again after [a
    /// while](Connection::DOUBT).
    #[inline]
    #[must_use]
    pub fn is_untaken(&self) -> bool {
        let is_untaken = |link: &Link| link.is_across() && link.ring.queue.is_untaken();
        self.attached().is_some_and(is_untaken)
    }

    /// Whether a receiver that is inside a read kept a send of this end from TCP, and no send was
    /// let through since. No notification tells when the read ends.
    #[inline]
    #[must_use]
    pub fn was_held_up(&self) -> bool {
        self.attached().is_some_and(|link| link.watch.held_up_since.load(Ordering::Relaxed) != 0)
    }

    /// Whether the read that [kept a send from TCP](Self::was_held_up) still lasts. Until it ends,
    /// room in the kernel means nothing, and waiting means looking again after a
    /// [moment](Connection::MOMENT). The next send judges a receiver that stays inside for too
    /// long.
    #[inline]
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.was_held_up() && self.is_still_held_up()
    }

    #[cold]
    fn is_still_held_up(&self) -> bool {
        let Some(link) = self.attached() else { return false };
        let since = &link.watch.held_up_since;
        if !link.ring.queue.is_kept_from_tcp() || self.is_nobody_inside(link) {
            // Once seen, this stays so until the next send.
            since.store(0, Ordering::Relaxed);
            return false;
        }
        lasts(since) <= INSIDE
    }

    /// How long to wait for a receiver before checking whether TCP has news of it, or of its bytes.
    pub const DOUBT: Duration = Duration::from_millis(100);

    /// How long to wait for an event that takes microseconds and sends no notification.
    pub const MOMENT: Duration = Duration::from_millis(1);

    /// Whether the number no longer stands for the socket: it was closed by a system call that the
    /// library did not see, and the kernel may have given it to another file. Not asked after a
    /// close that the library saw.
    #[cold]
    pub(super) fn is_stale(&self, link: &Link) -> bool {
        let Some(identity) = link.identity.get() else { return false };
        *identity != socket::identity(self.fd()) && !self.is_closed()
    }

    /// ESTALE if the number on which a call is about to sleep [is stale](Self::is_stale).
    pub(super) fn not_stale(&self, link: &Link, call: &Call<'_>) -> Result<(), Errno> {
        if !call.holds_file() && self.is_stale(link) { Err(Errno::STALE) } else { Ok(()) }
    }

    /// Asks the kernel about a peer that may be dead.
    ///
    /// # Errors
    /// ESTALE if the number no longer stands for the socket.
    #[cold]
    pub(super) fn doubt_peer(&self, link: &Link) -> Result<(), Errno> {
        if link.machine_is_gone() {
            link.peer_is_gone();
            return Ok(());
        }
        self.look_after(link);
        let hangup = Events { hangup: true, ..Events::default() };
        let Ok(events) = poll::look(self.fd(), hangup) else { return Ok(()) };
        if !(events.hangup || events.dead) {
            return Ok(());
        }
        if self.is_stale(link) {
            return Err(Errno::STALE);
        }
        // The kernel also reports an error while the error queue has a message.
        self.note_end(link);
        if link.is_sound() && events.hangup && link.may_be_dead() && !self.is_reset_by_killed(link)
        {
            // A reset is all that TCP can still report of it, and only to a sender. The next send
            // returns an error.
            let _ = self.overflow(link);
        }
        Ok(())
    }
}
