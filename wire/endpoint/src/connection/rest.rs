//! The rest ([`Rest`]): the bytes that programs receive which inherit the socket over exec.
//!
//! Before such a program begins, the process that has the ring requests TCP, waits until earlier
//! sends of the peer have finished, and moves all bytes on the ring into the rest, with those that
//! come by TCP between them. From then on nothing comes by the ring, whatever the peer does: the
//! stream is the rest, then the kernel's socket. A process that has the ring looks at the rest
//! first, under the lock of the receiving half; a process that has executed another program has
//! only the rest and the socket.
//!
//! Every holder of the end must have the rest, or it would miss bytes. So room for it is made by a
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
use seekwire_transport::sys::rest::Rest;
use seekwire_transport::sys::socket::{self, KernelRecv};
use seekwire_transport::sys::{Fd, thread};

use super::back::HandedOver;
use super::limit::Limit;
use super::link::Link;
use super::recv::Failure;
use super::state::Connection;
use super::terms::RecvFlags;
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
    /// Number of bytes of the rest that were not received yet.
    ///
    /// # Errors
    /// EIO if this process does not have it.
    pub(super) fn rest_left(&self) -> Result<u64, Errno> {
        let written = self.attached().map(|link| link.ring.queue.rest());
        match (self.rest.get(), written) {
            (Some(rest), written) => rest.left(written.or(rest.found()).unwrap_or(0)),
            (None, None | Some(0)) => Ok(0),
            (None, Some(_)) => Err(Errno::IO),
        }
        .map_err(|_| Errno::IO)
    }

    /// Whether bytes were taken off the ring that were not received yet.
    #[inline]
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.rest.get().is_some() && self.rest_left() != Ok(0)
    }

    /// Whether receives go through the library, because the next bytes are not all in the kernel's
    /// socket.
    #[inline]
    #[must_use]
    pub fn receives_by_library(&self) -> bool {
        self.is_attached() || self.is_seeking() || self.has_rest()
    }

    /// The outcome of a hand-over: EAGAIN if there is a rest.
    pub(super) fn without_rest(&self) -> Result<HandedOver, Errno> {
        if self.has_rest() { Err(Errno::AGAIN) } else { Ok(HandedOver::All) }
    }

    /// Makes room for the rest, if this process holds the end alone: before a fork, whose child may
    /// execute another program.
    pub fn make_room_for_rest(&self) {
        if let Some(link) = self.attached().filter(|link| !link.is_across()) {
            self.room_for_rest(link);
        }
    }

    fn room_for_rest(&self, link: &Link) -> Option<&Rest> {
        if self.rest.get().is_none() && self.is_only_holder(link) {
            let _inside = fork::enter();
            let rest = Rest::new(self.fd())
                .inspect_err(|error| tracing::debug!("fd {}: no rest: {error}", self.fd().raw()));
            let _ = self.rest.set(rest.ok()?);
        }
        self.rest.get()
    }

    /// As [`Connection::hand_over_later`], for a program that inherits the socket and loads this
    /// library: the unread bytes go to the rest, which that program also has. The peer need not
    /// act, and retransmits nothing.
    ///
    /// # Errors
    /// As for [`Connection::hand_over_later`], if there is no room for the rest.
    pub fn leave_rest(
        &self,
        why: Reason,
        is_ending: impl Fn(u32) -> bool,
    ) -> Result<HandedOver, Errno> {
        let is_here = |link: &&Link| !link.is_across() && !self.is_seeking();
        let Some(link) = self.attached().filter(is_here) else {
            // A program that has found a rest leaves it there.
            return match self.hand_over_later(why, is_ending) {
                Err(Errno::AGAIN) if !self.is_attached() => Ok(HandedOver::All),
                handed_over => handed_over,
            };
        };
        self.set_shared();
        if link.ring.queue.wants_tcp() {
            // The peer takes bytes of other processes from the kernel only if this end has left the
            // ring.
            self.attend();
        } else {
            self.fall_back_now(link, why);
        }
        self.expect_others_to_send(link, why);
        if self.take_all(link)? {
            return Ok(HandedOver::All);
        }
        self.wish_for_all(link, is_ending)
    }

    /// Moves the bytes on the ring into the rest. False if some are left there, or may still come,
    /// though the peer has seen the wish for TCP.
    fn take_all(&self, link: &Link) -> Result<bool, Errno> {
        let q = &link.ring.queue;
        let mut is_empty = false;
        for _ in 0..ROUNDS {
            // Sends that begin from now on go by TCP.
            let has_ended = self.await_send(link);
            if q.unread() == 0 {
                is_empty = has_ended;
                break;
            }
            let room = self.room_for_rest(link).filter(|rest| rest.is_found());
            let Some(rest) = room else { break };
            let rx = self.rx(link)?;
            let taken = self.take_to_rest(link, &rx, rest);
            drop(rx);
            match taken {
                Ok(()) => {}
                Err(Failure::Violation(violation)) => return Err(self.violated(link, violation)),
                // The bytes that were taken are in the rest, and the others where they were.
                Err(Failure::Kernel(error)) => {
                    tracing::warn!("fd {}: no more for the rest: {error}", self.fd().raw());
                    break;
                }
            }
        }
        // Another thread or process may be adding to the rest for another program.
        let rx = self.rx(link)?;
        if let Some(rest) = self.rest.get().filter(|_| q.rest() > 0) {
            rest.finish(q.rest()).map_err(|_| Errno::IO)?;
        }
        // Otherwise the new program would receive bytes twice that come again by TCP.
        Ok(self.discard_void(&rx)? && is_empty)
    }

    /// Waits until a send of the peer that is under way has finished; false if it does not.
    fn await_send(&self, link: &Link) -> bool {
        let q = &link.ring.queue;
        let until = Deadline::after(Some(AT_WORK));
        for look in 0.. {
            if !q.peer_is_sending() {
                return true;
            }
            if look < LOOKS {
                std::thread::yield_now();
            } else if until.is_over() {
                return false;
            } else if link.peer_is_dead() {
                return true;
            } else {
                thread::nap(NAP);
            }
        }
        false
    }

    fn take_to_rest(
        &self,
        link: &Link,
        rx: &Rx<'_, Own, Peer>,
        rest: &Rest,
    ) -> Result<(), Failure> {
        let q = &link.ring.queue;
        let most = q.unread().clamp(1, PIECE);
        let mut piece = zeros(most).map_err(|_| Errno::NOMEM)?;
        loop {
            let step = rx.step()?;
            let len = q.rest();
            match step {
                RxStep::Ring => {
                    let seen = rx.peek(&mut Scatter::new(&mut [IoSliceMut::new(&mut piece)]))?;
                    rest.append(len, &piece[..seen]).map_err(|_| Errno::NOSPC)?;
                    let taken = rx.discard(seen)?;
                    q.set_rest(len + taken as u64);
                }
                RxStep::Tcp(bound) => {
                    if rx.void_left() > 0 && !self.discard_void(rx)? {
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
                                Err(error) => return Err(Failure::Kernel(error)),
                            }
                        }
                        seen => seen?,
                    };
                    rest.append(len, &piece[..seen]).map_err(|_| Errno::NOSPC)?;
                    let taken = socket::recv(self.fd(), &mut piece[..seen], KernelRecv::empty())?;
                    rx.received_by_tcp(taken);
                    q.set_rest(len + taken as u64);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Receives from the rest, with the receiving half held.
    #[cold]
    pub(super) fn recv_rest(
        &self,
        link: &Link,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
    ) -> Result<usize, Failure> {
        let Some(rest) = self.rest.get() else {
            tracing::error!("fd {}: the unread bytes are not to be had here", self.fd().raw());
            return Err(Failure::Kernel(Errno::IO));
        };
        let len = link.ring.queue.rest();
        self.recv_from(rest, len, scatter, flags.peek).map_err(Failure::Kernel)
    }

    fn recv_from(
        &self,
        rest: &Rest,
        len: u64,
        scatter: &mut Scatter<'_, '_>,
        peeks: bool,
    ) -> Result<usize, Errno> {
        let before = scatter.filled();
        while scatter.remaining() > 0 {
            let skip = (scatter.filled() - before) as u64;
            let room = scatter.next_room(usize::MAX);
            let n = if peeks { rest.peek(len, skip, room) } else { rest.receive(len, room) };
            match n.map_err(|_| Errno::IO)? {
                0 => break,
                n => scatter.filled_in_place(n),
            }
        }
        Ok(scatter.filled() - before)
    }

    /// Peeks at the rest of an attached connection.
    pub(super) fn peek_rest(&self, scatter: &mut Scatter<'_, '_>) -> Result<(), Errno> {
        let len = self.attached().map_or(0, |link| link.ring.queue.rest());
        match self.rest.get().filter(|_| len > 0) {
            Some(rest) => self.recv_from(rest, len, scatter, true).map(drop),
            None => Ok(()),
        }
    }

    // ---- in a program that has found it -------------------------------------------------------

    /// Notes that this process was started with a rest: bytes of this connection, which stays on
    /// TCP.
    pub fn find_rest(&self, rest: Rest) {
        self.set_shared();
        self.stay_plain(Reason::Exec);
        let _ = self.rest.set(rest);
        let _ = self.found.set(Box::default());
    }

    /// Sets whether the next program gets the rest.
    pub fn pass_rest_on(&self, on: bool) {
        if let Some(rest) = self.rest.get() {
            rest.pass_on(on);
        }
    }

    /// recv(2) in a process that has found the rest: from that, then from the socket.
    #[cold]
    pub(super) fn recv_found_rest(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let (rest, len) =
            self.rest.get().and_then(|rest| Some((rest, rest.found()?))).ok_or(Errno::NOTCONN)?;
        let mut scatter = Scatter::new(bufs);
        let (room, call, limit) = (scatter.remaining(), self.begin_call(), Limit::receive());
        if room == 0 {
            return Ok(0);
        }
        loop {
            if flags.peek {
                scatter.begin_again();
            }
            let is_over = self.try_recv_found(rest, len, &mut scatter, flags)?;
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
            if let Err(error) = call.begin_wait().and_then(|_| call.not_interrupted()) {
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
    fn try_recv_found(
        &self,
        rest: &Rest,
        len: u64,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
    ) -> Result<bool, Errno> {
        if scatter.filled() == 0 {
            self.recv_from(rest, len, scatter, flags.peek)?;
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
