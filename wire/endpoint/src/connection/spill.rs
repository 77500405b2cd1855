//! The spill ([`SpillFile`]): the bytes that programs receive which inherit the socket over exec.
//!
//! Before such a program begins, the process that has the ring requests TCP, waits until earlier
//! sends of the peer have finished, and moves all bytes on the ring into the spill, with those that
//! come by TCP between them. From then on nothing comes by the ring, whatever the peer does: the
//! stream is the spill, then the kernel's socket. A process that has the ring looks at the spill
//! first, under the lock of the receiving half; a process that has executed another program has
//! only the spill and the socket.
//!
//! Every holder of the end must have the spill, or it would miss bytes. So room for it is made by a
//! process that holds the end alone, and all others are forks of that process, which inherit it.

use std::io::IoSliceMut;
use std::time::Duration;

use seekwire_protocol::Reason;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::buffer::zeros;
use seekwire_transport::iov::Scatter;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::Rx;
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::socket::{self, KernelRecv};
use seekwire_transport::sys::spill::SpillFile;
use seekwire_transport::sys::{Fd, thread};

use super::call_limit::Limit;
use super::data_path::DataPath;
use super::fallback::HandedOver;
use super::recv::RecvFailure;
use super::state::Connection;
use super::types::RecvFlags;
use crate::fork;

/// Number of bytes that are taken at a time.
const PIECE: usize = 256 << 10;
/// Maximum number of rounds, in case the peer sends more bytes while earlier ones are taken.
const ROUNDS: usize = 8;
/// How long the peer may be in the middle of a send, or the kernel may take to deliver sent bytes.
/// Both take microseconds, unless the peer has no processor.
const AT_WORK: Duration = Duration::from_millis(100);
/// Number of looks before this end sleeps between two of them.
const LOOKS: u32 = 1000;
/// The time between two looks for an event that sends no notification.
const NAP: Duration = Duration::from_millis(1);

impl Connection {
    /// Number of bytes in the spill that were not received yet.
    ///
    /// # Errors
    /// EIO if this process does not have it.
    pub(super) fn spill_left(&self) -> Result<u64, Errno> {
        let written = self.attached().map(|data_path| data_path.ring.queue.spill_len());
        match (self.spill.get(), written) {
            (Some(spill), written) => spill.left(written.or(spill.found_len()).unwrap_or(0)),
            (None, None | Some(0)) => Ok(0),
            (None, Some(_)) => Err(Errno::IO),
        }
        .map_err(|_| Errno::IO)
    }

    /// Whether bytes were taken off the ring that were not received yet.
    #[inline]
    #[must_use]
    pub fn has_spill(&self) -> bool {
        self.spill.get().is_some() && self.spill_left() != Ok(0)
    }

    /// Whether receives go through the library, because the next bytes are not all in the kernel's
    /// socket.
    #[inline]
    #[must_use]
    pub fn receives_by_library(&self) -> bool {
        self.is_attached() || self.is_seeking() || self.has_spill()
    }

    /// The outcome of a hand-over: EAGAIN if there is a spill.
    pub(super) fn without_spill(&self) -> Result<HandedOver, Errno> {
        if self.has_spill() { Err(Errno::AGAIN) } else { Ok(HandedOver::All) }
    }

    /// Makes room for the spill, if this process holds the end alone: before a fork, whose child
    /// may execute another program.
    pub fn prepare_spill(&self) {
        if let Some(data_path) = self.attached().filter(|data_path| !data_path.is_remote()) {
            self.spill_with_room(data_path);
        }
    }

    fn spill_with_room(&self, data_path: &DataPath) -> Option<&SpillFile> {
        if self.spill.get().is_none() && self.is_only_holder(data_path) {
            let _inside = fork::enter();
            let spill = SpillFile::new(self.fd())
                .inspect_err(|error| tracing::debug!("fd {}: no spill: {error}", self.fd().raw()));
            let _ = self.spill.set(spill.ok()?);
        }
        self.spill.get()
    }

    /// As [`Connection::hand_over_later`], for a program that inherits the socket and loads this
    /// library: the unread bytes go to the spill, which that program also has. The peer need not
    /// act, and retransmits nothing.
    ///
    /// # Errors
    /// As for [`Connection::hand_over_later`], if there is no room for the spill.
    pub fn spill_unread(
        &self,
        why: Reason,
        is_ending: impl Fn(u32) -> bool,
    ) -> Result<HandedOver, Errno> {
        let is_here = |data_path: &&DataPath| !data_path.is_remote() && !self.is_seeking();
        let Some(data_path) = self.attached().filter(is_here) else {
            // A program that has found a spill leaves it there.
            return match self.hand_over_later(why, is_ending) {
                Err(Errno::AGAIN) if !self.is_attached() => Ok(HandedOver::All),
                handed_over => handed_over,
            };
        };
        self.set_shared();
        if data_path.ring.queue.wants_tcp() {
            // The peer takes bytes of other processes from the kernel only if this end has left the
            // ring.
            self.service_peer();
        } else {
            self.fall_back_now(data_path, why);
        }
        self.expect_others_to_send(data_path, why);
        // The peer may hold bytes back for others that go by TCP.
        data_path.ring.queue.end_hold();
        if self.take_all(data_path)? {
            return Ok(HandedOver::All);
        }
        self.request_tcp_for_all(data_path, is_ending)
    }

    /// Moves the bytes on the ring into the spill. False if some are left there, or may still come,
    /// though the peer has seen the request for TCP.
    fn take_all(&self, data_path: &DataPath) -> Result<bool, Errno> {
        let q = &data_path.ring.queue;
        let before = q.spill_len();
        let mut is_empty = false;
        for _ in 0..ROUNDS {
            // Sends that begin from now on go by TCP.
            let has_ended = self.await_send(data_path);
            if q.unread() == 0 {
                is_empty = has_ended;
                break;
            }
            let room = self.spill_with_room(data_path).filter(|spill| spill.is_found());
            let Some(spill) = room else { break };
            let rx = self.rx(data_path)?;
            let taken = self.move_to_spill(data_path, &rx, spill);
            drop(rx);
            match taken {
                Ok(()) => {}
                Err(RecvFailure::Violation(violation)) => {
                    return Err(self.violated(data_path, violation));
                }
                // The bytes that were taken are in the spill, and the others where they were.
                Err(RecvFailure::Kernel(error)) => {
                    tracing::warn!("fd {}: no more for the spill: {error}", self.fd().raw());
                    break;
                }
            }
        }
        if q.spill_len() > before {
            // A waiter that the peer has rung for these bytes may have found the ring empty.
            data_path.ring.doorbell.ring();
        }
        // Another thread or process may be adding to the spill for another program.
        let rx = self.rx(data_path)?;
        if let Some(spill) = self.spill.get().filter(|_| q.spill_len() > 0) {
            spill.finish(q.spill_len()).map_err(|_| Errno::IO)?;
        }
        // Otherwise the new program would receive bytes twice that come again by TCP.
        Ok(self.discard_recalled(&rx)? && is_empty)
    }

    /// Waits until a send of the peer that is under way has finished. After
    /// [`Connection::fall_back`], all later ones go by TCP.
    pub fn await_peers_send(&self) {
        if let Some(data_path) = self.attached() {
            self.await_send(data_path);
        }
    }

    /// Waits until a send of the peer that is under way has finished; false if it does not.
    fn await_send(&self, data_path: &DataPath) -> bool {
        let q = &data_path.ring.queue;
        let until = Deadline::after(Some(AT_WORK));
        for look in 0.. {
            if !q.peer_is_sending() {
                return true;
            }
            if look < LOOKS {
                std::thread::yield_now();
            } else if until.is_over() {
                return false;
            } else if data_path.peer_is_dead() {
                return true;
            } else {
                thread::nap(NAP);
            }
        }
        false
    }

    fn move_to_spill(
        &self,
        data_path: &DataPath,
        rx: &Rx<'_, Own, Peer>,
        spill: &SpillFile,
    ) -> Result<(), RecvFailure> {
        let q = &data_path.ring.queue;
        let most = q.unread().clamp(1, PIECE);
        let mut piece = zeros(most).map_err(|_| Errno::NOMEM)?;
        loop {
            let step = rx.step()?;
            let len = q.spill_len();
            match step {
                RxStep::Ring => {
                    let seen = rx.peek(&mut Scatter::new(&mut [IoSliceMut::new(&mut piece)]))?;
                    spill.append(len, &piece[..seen]).map_err(|_| Errno::NOSPC)?;
                    let taken = rx.discard(seen)?;
                    q.set_spill_len(len + taken as u64);
                }
                RxStep::Tcp(bound) => {
                    if rx.discard_left() > 0 && !self.discard_recalled(rx)? {
                        return Ok(());
                    }
                    if piece.len() < PIECE {
                        piece = zeros(PIECE).map_err(|_| Errno::NOMEM)?;
                    }
                    let most = usize::try_from(bound).unwrap_or(PIECE).min(PIECE);
                    let seen = match socket::recv(self.fd(), &mut piece[..most], KernelRecv::PEEK) {
                        Ok(0) => return Ok(()),
                        // They are on their way: the peer has given them to the kernel.
                        Err(Errno::AGAIN) => {
                            let until = Deadline::after(Some(AT_WORK));
                            match poll::wait(Fd::new(-1), self.fd(), Events::READ, until) {
                                Ok(_) | Err(Errno::INTR) => continue,
                                Err(error) => return Err(RecvFailure::Kernel(error)),
                            }
                        }
                        seen => seen?,
                    };
                    spill.append(len, &piece[..seen]).map_err(|_| Errno::NOSPC)?;
                    let taken = socket::recv(self.fd(), &mut piece[..seen], KernelRecv::empty())?;
                    rx.received_by_tcp(taken);
                    q.set_spill_len(len + taken as u64);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Receives from the spill, with the receiving half held.
    #[cold]
    pub(super) fn recv_spill(
        &self,
        data_path: &DataPath,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
    ) -> Result<usize, RecvFailure> {
        let Some(spill) = self.spill.get() else {
            tracing::error!("fd {}: the unread bytes are not to be had here", self.fd().raw());
            return Err(RecvFailure::Kernel(Errno::IO));
        };
        let len = data_path.ring.queue.spill_len();
        self.recv_from(spill, len, scatter, flags.peek).map_err(RecvFailure::Kernel)
    }

    fn recv_from(
        &self,
        spill: &SpillFile,
        len: u64,
        scatter: &mut Scatter<'_, '_>,
        peeks: bool,
    ) -> Result<usize, Errno> {
        let before = scatter.filled();
        while scatter.remaining() > 0 {
            let skip = (scatter.filled() - before) as u64;
            let room = scatter.next_room(usize::MAX);
            let n = if peeks { spill.peek(len, skip, room) } else { spill.receive(len, room) };
            match n.map_err(|_| Errno::IO)? {
                0 => break,
                n => scatter.filled_in_place(n),
            }
        }
        Ok(scatter.filled() - before)
    }

    /// Peeks at the spill of an attached connection.
    pub(super) fn peek_spill(&self, scatter: &mut Scatter<'_, '_>) -> Result<(), Errno> {
        let len = self.attached().map_or(0, |data_path| data_path.ring.queue.spill_len());
        match self.spill.get().filter(|_| len > 0) {
            Some(spill) => self.recv_from(spill, len, scatter, true).map(drop),
            None => Ok(()),
        }
    }

    // ---- in a program that has found it -------------------------------------------------------

    /// Notes that this process was started with a spill: bytes of this connection, which stays on
    /// TCP.
    pub fn adopt_spill(&self, spill: SpillFile) {
        self.set_shared();
        self.stay_plain(Reason::Exec);
        let _ = self.spill.set(spill);
        let _ = self.found_spill.set(Box::default());
    }

    /// Sets whether the next program gets the spill: if bytes are left there and the socket `goes` to
    /// that program.
    pub fn pass_spill_on(&self, goes: impl Fn() -> bool) {
        let Some(spill) = self.spill.get() else { return };
        let is_wanted = || self.has_spill() && goes();
        spill.pass_on(is_wanted());
        if is_wanted() {
            // Another thread may have filled it for its own program meanwhile.
            spill.pass_on(true);
        }
    }

    /// recv(2) in a process that has found the spill: from that, then from the socket.
    #[cold]
    pub(super) fn recv_found_spill(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let (spill, len) = self
            .spill
            .get()
            .and_then(|spill| Some((spill, spill.found_len()?)))
            .ok_or(Errno::NOTCONN)?;
        let mut scatter = Scatter::new(bufs);
        let (room, call, limit) = (scatter.remaining(), self.begin_call(), Limit::receive());
        if room == 0 {
            return Ok(0);
        }
        loop {
            if flags.peek {
                scatter.begin_again();
            }
            let is_over = self.try_recv_found_spill(spill, len, &mut scatter, flags)?;
            let filled = scatter.filled();
            if is_over || filled >= self.enough(room, flags) {
                return Ok(filled);
            }
            let stop = |error| if filled > 0 { Ok(filled) } else { Err(error) };
            if self.is_receive_shut() {
                return if filled > 0 { Ok(filled) } else { self.end_of_shut() };
            }
            if limit.forbids(self, flags.dont_wait) {
                return stop(Errno::AGAIN);
            }
            let begun = call.begin_wait().and_then(|in_vain| match in_vain {
                true => self.wait_a_moment(&limit, &call, None),
                false => call.not_interrupted(),
            });
            if let Err(error) = begun {
                return stop(error);
            }
            let Some(until) = limit.until(self) else { continue };
            // The bytes that were seen would end every sleep.
            let sees = flags.peek && filled > 0;
            let sleep = call.sleep(if sees { until.at_most(NAP) } else { until });
            let socket = if sees { Fd::new(-1) } else { sleep.fd };
            let slept = poll::wait(Fd::new(-1), socket, Events::READ, sleep.until);
            drop(sleep);
            match slept {
                Err(Errno::TIMEDOUT) if until.is_over() => return stop(Errno::AGAIN),
                Ok(_) | Err(Errno::TIMEDOUT) => {}
                Err(error) => return stop(error),
            }
        }
    }

    /// Returns whether no more can come.
    fn try_recv_found_spill(
        &self,
        spill: &SpillFile,
        len: u64,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
    ) -> Result<bool, Errno> {
        if scatter.filled() == 0 {
            self.recv_from(spill, len, scatter, flags.peek)?;
        }
        let fd = self.fd();
        if scatter.remaining() == 0 {
            return Ok(false);
        }
        // The kernel reports an error once: after bytes it is left to the next call.
        if scatter.filled() > 0 && (socket::unread(fd)? == 0 || socket::is_at_mark(fd)) {
            let news = Events { read: true, hangup: true, ..Events::default() };
            let news = poll::look(fd, news)?;
            return Ok(news.read || news.hangup || news.dead);
        }
        let how = if flags.peek { KernelRecv::PEEK } else { KernelRecv::empty() };
        match socket::recv(fd, scatter.next_room(usize::MAX), how) {
            Ok(0) => Ok(true),
            Ok(n) => {
                scatter.filled_in_place(n);
                Ok(false)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::{TcpListener, TcpStream};

    use seekwire_protocol::{Carrier, Role};

    use super::*;
    use crate::connection::SendFlags;

    #[test]
    fn a_waiter_learns_that_others_have_moved_its_bytes_to_the_spill() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let (from, to) = (
            Connection::new(Fd::from(&a), Role::Connected),
            Connection::new(Fd::from(&b), Role::Accepted),
        );
        while !(from.is_attached() && to.is_attached()) {
            to.hurry();
            from.hurry();
        }
        let flags = SendFlags { no_signal: true, ..SendFlags::default() };
        assert_eq!(from.send(&[IoSlice::new(b"unread")], flags), Ok(6));
        let data_path = to.attached().unwrap();
        let doorbell = &data_path.ring.doorbell;
        to.fall_back_now(data_path, Reason::Exec);
        doorbell.quiet();
        assert_eq!(to.take_all(data_path), Ok(true));
        let is_rung = || poll::look(doorbell.fd(), Events::READ).unwrap().read;
        assert!(is_rung(), "nobody is woken");
        // Another waiter is faster.
        data_path.ring.arm(Events::READ);
        to.quiet_doorbell();
        assert!(is_rung(), "silenced for a waiter that has not looked yet");
        data_path.ring.disarm(Events::READ);
        to.quiet_doorbell();
        assert!(!is_rung());
        to.settings().set_recv_timeout(Some(NAP));
        let (call, limit) = (to.begin_call(), Limit::receive());
        // As if it had looked at the ring just before.
        let waited = to.wait_to_receive(data_path, Carrier::Ring, &limit, (None, None), &call);
        assert_eq!(waited, Ok(false));
        let mut bytes = [0; 6];
        let received = to.recv(&mut [IoSliceMut::new(&mut bytes)], RecvFlags::default());
        assert_eq!((received, &bytes), (Ok(6), b"unread"));
    }
}
