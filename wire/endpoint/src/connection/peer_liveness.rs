//! Finds out whether a peer that takes nothing is slow or dead.
//!
//! Bytes on the ring of a killed process are of no use, but a send cannot know that: nobody writes
//! into the memory any more. The kernel knows, because it ended the connection. So a sender asks
//! it: in the second send to a peer that has shown no sign of life since the first, and then every
//! few tens of microseconds. Once the peer's direction has ended, the kernel learns nothing more of
//! its own accord, so the sender goes on by TCP, where a peer that is gone answers with a reset
//! (RFC 9293, 3.10.7.1).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seekwire_protocol::{Carrier, Reason};
use seekwire_transport::Errno;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Rx, Tx, Violation};
use seekwire_transport::seek::Engine;
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket::KernelRecv;
use seekwire_transport::sys::{Fd, diag, host, socket, thread};

use super::call::Call;
use super::data_path::DataPath;
use super::outcome::RecvOutcome;
use super::peer_progress::PeerProgress;
use super::recv::RecvFailure;
use super::state::Connection;

/// How long a peer on another machine may take nothing before it is rung for again: it may have
/// missed the first ring.
const RING_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of looks at a receiver that is inside a read, each followed by yielding the
/// processor.
const LOOKS: u32 = 1000;
/// How long a receiver may be inside a read that does not block; it may be stopped there.
const INSIDE: Duration = Duration::from_secs(60);

/// How long something has lasted that began at this reading of the clock. It begins now if the
/// reading is 0, or if the clock was set back since: this process is a child with another clock
/// than its parent.
pub(super) fn lasts(since: &AtomicU64) -> Duration {
    let begin = since.load(Ordering::Relaxed);
    if begin != 0 {
        if let Some(so_long) = host::since(begin) {
            return so_long;
        }
    }
    since.store(host::nanoseconds().max(1), Ordering::Relaxed);
    Duration::ZERO
}

impl DataPath {
    /// Counts a send that is about to be made. True if the kernel is to be asked about the peer
    /// first.
    #[inline]
    pub(super) fn looks_lost(&self) -> bool {
        let PeerProgress { sends, shown, asked, .. } = &self.progress;
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
        let consumed = self.ring.queue.consumed_mark();
        self.progress.consumed.swap(consumed, Ordering::Relaxed) == consumed
    }

    /// Whether all processes that held the peer's end have left it, are dying, or are dead: a
    /// process closes its sockets before it is gone. Asked after TCP has ended.
    fn peer_is_ending(&self) -> bool {
        let stays = |pid| !thread::process_is_ending(pid);
        self.is_left_remotely()
            .unwrap_or_else(|| self.peer_pid != 0 && !self.ring.queue.peer_has_holder_left(stays))
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
    /// Whether bytes may be given to the kernel: the receiver may be inside a read that does not
    /// block, for some microseconds. Waits that long; a receiver that is stopped there keeps the
    /// sender from TCP, and one that stays there for [`INSIDE`] breaks the protocol.
    pub(super) fn may_use_tcp(
        &self,
        data_path: &DataPath,
        tx: &Tx<'_, Own, Peer>,
    ) -> Result<bool, Errno> {
        for _ in 0..LOOKS {
            if tx.may_use_tcp() {
                data_path.progress.held_up_since.store(0, Ordering::Relaxed);
                return Ok(true);
            }
            std::thread::yield_now();
        }
        if self.is_nobody_inside(data_path) {
            return Ok(true);
        }
        if lasts(&data_path.progress.held_up_since) > INSIDE {
            return Err(self.violated(data_path, Violation));
        }
        Ok(false)
    }

    /// Whether the process that was inside a read is gone, and will never leave it.
    fn is_nobody_inside(&self, data_path: &DataPath) -> bool {
        let q = &data_path.ring.queue;
        // The processes of another machine are not known.
        let is_killed =
            || data_path.is_remote() && !q.peer_is_shut() && socket::ends(self.fd()).peers;
        q.peer_has_closed()
            || data_path.peer_is_dead()
            || (!data_path.is_remote() && q.peer_reader_is_dead())
            || self.has_error()
            || is_killed()
    }

    /// TCP has ended, but the ring has no record of it. If a process was killed that had not
    /// received all bytes, its kernel knew nothing of those on the ring and ended the connection in
    /// order; with TCP alone it would have reset it (RFC 1122, 4.2.2.13).
    #[cold]
    pub(super) fn end_of_stream(
        &self,
        data_path: &DataPath,
        rx: &Rx<'_, Own, Peer>,
    ) -> Result<RecvOutcome, RecvFailure> {
        let q = &data_path.ring.queue;
        if !rx.is_intact() {
            // Bytes may have been lost before the end.
            return Err(Violation.into());
        }
        if let Some(error) = data_path.take_kept_error() {
            return Err(error.into());
        }
        // False if only this end was shut down for reading, by any process.
        let has_ended = socket::ends(self.fd()).peers;
        if has_ended && q.peer_retransmits() {
            // It has died before the kernel had all of that.
            return Err(Errno::CONNRESET.into());
        }
        let in_order = !has_ended || q.peer_is_shut() || q.peer_has_closed();
        if !in_order {
            q.set_saw_end();
            // Perhaps no peer is left to take further bytes: only TCP can tell. The next send
            // returns an error.
            let _ = self.overflow(data_path);
        }
        if in_order || q.unsent_and_shown() == 0 || !self.peer_is_ending(data_path) {
            data_path.has_ended.fetch_or(has_ended, Ordering::Relaxed);
            return Ok(RecvOutcome::Moved(0));
        }
        self.reset_by_killed(data_path);
        // As in the kernel: once a receive has returned the end, later errors do not change it.
        // EPIPE is for sends.
        let is_reported =
            |error: &Errno| *error != Errno::PIPE && !data_path.has_ended.load(Ordering::Relaxed);
        let error = match socket::take_error(self.fd()) {
            // TCP had ended in both directions, and has nothing left to reset.
            None if q.is_shut() && !data_path.has_ended.swap(true, Ordering::Relaxed) => {
                Some(Errno::CONNRESET)
            }
            error => error.filter(is_reported),
        };
        error.map_or(Ok(RecvOutcome::Moved(0)), |error| Err(error.into()))
    }

    /// Whether nobody holds the peer's end any more. Processes that are listed may have closed it
    /// while others seemed to hold it, or be unknown here, and programs that have got the socket are
    /// in no list: then only the kernel knows.
    fn peer_is_ending(&self, data_path: &DataPath) -> bool {
        let are_all_listed = data_path.is_remote() || !data_path.ring.queue.peer_is_uncounted();
        (are_all_listed && data_path.peer_is_ending())
            || (!data_path.is_remote() && self.peer_is_held_by_nobody())
    }

    /// Whether the kernel knows of no holder of the peer's socket. False if it cannot be asked.
    fn peer_is_held_by_nobody(&self) -> bool {
        let is_it = || -> io::Result<bool> {
            let ([local, peer], namespace) = self.names_in_diag()?;
            Ok(diag::find(peer, local, namespace)?.is_none())
        };
        let is_it = || is_it().unwrap_or(false);
        is_it() || {
            // The last holder may be in the middle of its close, which has sent the end already.
            std::thread::yield_now();
            is_it()
        }
    }

    /// If both directions of TCP have ended, sends go to the kernel, even if the ring has room.
    #[cold]
    pub(super) fn note_end(&self, data_path: &DataPath) {
        if data_path.is_sound() && socket::ends(self.fd()).both {
            data_path.peer_is_gone();
        }
    }

    /// Notes that the kernel has reported an error, or the end of both directions.
    #[cold]
    pub fn note_reported_end(&self) {
        if let Some(data_path) = self.attached() {
            self.note_end(data_path);
        }
    }

    /// SO_ERROR, which reports an error once.
    #[must_use]
    pub fn take_error(&self) -> Option<Errno> {
        let error = socket::take_error(self.fd());
        if error.is_some() {
            self.note_reported_end();
        }
        error.or_else(|| self.take_kept_error())
    }

    /// Takes an error that the kernel has returned to this library and the program has not seen
    /// yet, as SO_ERROR takes the socket's.
    #[must_use]
    pub fn take_kept_error(&self) -> Option<Errno> {
        let kept_error = self.attached().and_then(DataPath::take_kept_error);
        kept_error.or_else(|| self.with_engine_if_free(Engine::take_kept_error)?)
    }

    /// Whether such an error is kept.
    #[must_use]
    pub fn keeps_error(&self) -> bool {
        self.attached().is_some_and(DataPath::has_kept_error)
            || self.with_engine_if_free(|engine| engine.has_kept_error()) == Some(true)
    }

    /// Checks on bytes that a peer on another machine has not taken from the ring. All words of the
    /// two ends lie in memory that others can write, even the request to be woken. So after a while
    /// the peer is woken whether it has asked for that or not. If it can no longer find the bytes
    /// that this end has left for it, neither of them would ever go on: the connection is reset.
    #[inline]
    pub(super) fn look_after(&self, data_path: &DataPath) {
        if data_path.is_remote() && data_path.is_sound() {
            self.look_after_undelivered(data_path);
        }
    }

    #[cold]
    fn look_after_undelivered(&self, data_path: &DataPath) {
        let q = &data_path.ring.queue;
        let PeerProgress { undelivered_at, undelivered_since, rung_at, .. } = &data_path.progress;
        if data_path.has_lost_memory() {
            self.violated(data_path, Violation);
            return;
        }
        let consumed = q.consumed_mark();
        if !q.has_undelivered() || undelivered_at.swap(consumed, Ordering::Relaxed) != consumed {
            undelivered_since.store(0, Ordering::Relaxed);
        }
        if !q.has_undelivered() || lasts(undelivered_since) < RING_AGAIN_AFTER {
            return;
        }
        undelivered_since.store(0, Ordering::Relaxed);
        if !data_path.is_intact() {
            self.violated(data_path, Violation);
        } else if rung_at.swap(consumed.wrapping_add(1), Ordering::Relaxed)
            != consumed.wrapping_add(1)
        {
            data_path.ring.peer_doorbell.ring();
        }
    }

    fn reset_by_killed(&self, data_path: &DataPath) {
        data_path.peer_is_gone();
        socket::reset(self.fd());
        data_path.ring.doorbell.ring();
    }

    /// A sender finds that TCP has ended, and so has the peer's process, which had not received all
    /// bytes: the connection is reset, as in [`Self::end_of_stream`]. Not while bytes are left to
    /// receive.
    pub(super) fn is_reset_by_killed(&self, data_path: &DataPath) -> bool {
        let q = &data_path.ring.queue;
        let is_killed = !(q.peer_is_shut() || q.peer_has_closed())
            && socket::ends(self.fd()).peers
            && q.unsent_and_shown() > 0
            && q.unread() == 0
            && socket::unread(self.fd()) == Ok(0)
            && self.peer_is_ending(data_path)
            && !self.is_stale(data_path)
            && data_path.is_sound();
        if is_killed {
            self.reset_by_killed(data_path);
        }
        is_killed
    }

    /// The result of a receive on an end that was shut down for reading, when no bytes are left:
    /// the end of the stream, unless TCP has reset the connection, which is reported once.
    #[cold]
    pub(super) fn end_of_shut(&self) -> Result<usize, Errno> {
        let is_reset =
            || self.attached().is_some_and(|data_path| self.is_reset_by_killed(data_path));
        if !(self.has_error() || is_reset()) {
            return Ok(0);
        }
        // The kernel knows which of the peer's end and the reset came first.
        match socket::recv(self.fd(), &mut [0], KernelRecv::PEEK) {
            Ok(_) | Err(Errno::AGAIN) => Ok(0),
            Err(error) => {
                self.note_reported_end();
                Err(error)
            }
        }
    }

    pub(super) fn has_hung_up(&self) -> bool {
        let hangup = Events { hangup: true, ..Events::default() };
        poll::look(self.fd(), hangup).is_ok_and(|events| events.hangup || events.dead)
    }

    /// Whether the kernel may be silent about bytes that a caller waits for: it wakes nobody for
    /// fewer than SO_RCVLOWAT bytes in its own queue, and knows nothing of bytes on the ring that
    /// precede or follow these. Also true once the wake channel to another machine is closed,
    /// or has no room.
    pub(super) fn may_miss_wakeups(&self) -> bool {
        let may_be_split = |data_path: &&DataPath| {
            let q = &data_path.ring.queue;
            q.unread() > 0 || q.carriers().1 == Carrier::Tcp
        };
        let Some(data_path) = self.attached() else { return false };
        (self.recv_low_water() > 1 && may_be_split(&data_path)) || data_path.is_silent()
    }

    /// Whether this end has left something on a ring to another machine that the peer has not
    /// taken. A caller that waits for the connection looks again after [a
    /// while](Connection::RECHECK_INTERVAL).
    #[inline]
    pub(super) fn has_undelivered(&self) -> bool {
        let has_undelivered =
            |data_path: &DataPath| data_path.is_remote() && data_path.ring.queue.has_undelivered();
        self.attached().is_some_and(has_undelivered)
    }

    /// Whether a receiver that is inside a read kept a send of this end from TCP, and no send was
    /// let through since. No notification tells when the read ends.
    #[inline]
    #[must_use]
    pub fn was_held_up(&self) -> bool {
        self.attached()
            .is_some_and(|data_path| data_path.progress.held_up_since.load(Ordering::Relaxed) != 0)
    }

    /// Whether the read that [kept a send from TCP](Self::was_held_up) still lasts. Until it ends,
    /// room in the kernel means nothing, and waiting means looking again after a
    /// [moment](Connection::MOMENT). The next send judges a receiver that stays inside for too
    /// long.
    #[inline]
    pub(super) fn is_held_up(&self) -> bool {
        self.was_held_up() && self.is_still_held_up()
    }

    #[cold]
    fn is_still_held_up(&self) -> bool {
        let Some(data_path) = self.attached() else { return false };
        let since = &data_path.progress.held_up_since;
        if !data_path.ring.queue.is_kept_from_tcp() || self.is_nobody_inside(data_path) {
            // Once seen, this stays so until the next send.
            since.store(0, Ordering::Relaxed);
            return false;
        }
        lasts(since) <= INSIDE
    }

    /// How long to wait for a receiver before checking whether TCP has news of it, or of its bytes.
    pub const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

    /// How long to wait for an event that takes microseconds and sends no notification.
    pub const MOMENT: Duration = Duration::from_millis(1);

    /// Whether the number no longer stands for the socket: it was closed by a system call that the
    /// library did not see, and the kernel may have given it to another file. Not asked after a
    /// close that the library saw.
    #[cold]
    pub(super) fn is_stale(&self, data_path: &DataPath) -> bool {
        !data_path.has_number(self.fd()) && !self.is_closed()
    }

    /// Whether this number stands for the socket. True if that is unknown.
    #[cold]
    pub fn has_number(&self, number: Fd) -> bool {
        self.attached().is_none_or(|data_path| data_path.has_number(number))
    }

    /// ESTALE if the number on which a call is about to sleep [is stale](Self::is_stale).
    pub(super) fn not_stale(&self, data_path: &DataPath, call: &Call<'_>) -> Result<(), Errno> {
        if !call.holds_file() && self.is_stale(data_path) { Err(Errno::STALE) } else { Ok(()) }
    }

    /// Asks the kernel about a peer that may be dead.
    ///
    /// # Errors
    /// ESTALE if the number no longer stands for the socket.
    #[cold]
    pub(super) fn check_peer(&self, data_path: &DataPath) -> Result<(), Errno> {
        self.look_after(data_path);
        if data_path.is_sound() && data_path.has_lost_machine() {
            // If the other machine has started anew, its kernel answers with a reset.
            self.leave_other_machine(data_path, Reason::NoLink);
            return Ok(());
        }
        let hangup = Events { hangup: true, ..Events::default() };
        let Ok(events) = poll::look(self.fd(), hangup) else { return Ok(()) };
        if !(events.hangup || events.dead) {
            return Ok(());
        }
        if self.is_stale(data_path) {
            return Err(Errno::STALE);
        }
        // The kernel also reports an error while the error queue has a message.
        self.note_end(data_path);
        if data_path.is_sound()
            && events.hangup
            && data_path.may_be_dead()
            && !self.is_reset_by_killed(data_path)
        {
            // A reset is all that TCP can still report of it, and only to a sender. The next send
            // returns an error.
            let _ = self.overflow(data_path);
        }
        Ok(())
    }
}
