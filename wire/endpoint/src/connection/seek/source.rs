//! A connection as a source: the kernel's socket and the ring, in the order in which the sender
//! used them.

use std::cell::OnceCell;
use std::sync::atomic::Ordering;

use seekwire_protocol::span::Span;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::iov::Scatter;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Rx, Violation};
use seekwire_transport::ring::Receiving;
use seekwire_transport::seek::{
    KernelCursor, KernelSource, LookAhead, RingSource, SegmentLoans, Source, Take, cost,
};
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket::{self, KernelRecv};

use crate::connection::data_path::DataPath;
use crate::connection::next_source::{NextSource, between_looks};
use crate::connection::plain::Plain;
use crate::connection::state::Connection;

/// The source of the next bytes: it cannot change while this is held.
pub(super) enum ReceivePath<'c> {
    /// The kernel's socket alone.
    Plain(Plain<'c>),
    /// The receiving half, which knows the source of the next byte.
    Attached(&'c DataPath, Receiving<'c>),
}

/// A [`ReceivePath`] that is entered when it is first needed: bytes in library memory need none.
pub(super) struct LazyReceivePath<'c> {
    connection: &'c Connection,
    path: OnceCell<ReceivePath<'c>>,
}

impl<'c> LazyReceivePath<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, path: OnceCell::new() }
    }

    pub(super) fn get(&self) -> Result<&ReceivePath<'c>, Errno> {
        if self.path.get().is_none() {
            let _ = self.path.set(self.connection.receive_path()?);
        }
        self.path.get().ok_or(Errno::IO)
    }

    /// The path, if it was needed.
    pub(super) fn entered(self) -> Option<ReceivePath<'c>> {
        self.path.into_inner()
    }
}

/// The bytes of a connection as the engine takes them, along its receive path, for one call.
pub(super) struct ReceivePathSource<'s, 'c> {
    pub(super) connection: &'c Connection,
    pub(super) path: &'s LazyReceivePath<'c>,
    pub(super) cursor: &'s mut KernelCursor,
    pub(super) loans: &'s SegmentLoans,
    /// Position of the first byte that was not received.
    pub(super) front: u64,
    /// If the ring is empty, ask the kernel's socket whether the stream has ended.
    pub(super) asks_kernel: bool,
    /// Set if the peer has violated the protocol.
    pub(super) violation: &'s mut Option<Violation>,
}

impl Connection {
    fn receive_path(&self) -> Result<ReceivePath<'_>, Errno> {
        if let Some(plain) = self.enter_plain() {
            return Ok(ReceivePath::Plain(plain));
        }
        let data_path = self.attached().ok_or(Errno::NOTCONN)?;
        if data_path.is_violated() {
            return Err(Errno::CONNRESET);
        }
        Ok(ReceivePath::Attached(data_path, self.rx(data_path)?))
    }

    /// The kernel's socket reports the end of the stream. That is not its end if this library has
    /// received the error that ended it.
    fn believe_end(&self) -> Result<(), Errno> {
        self.attached().and_then(DataPath::take_kept_error).map_or(Ok(()), Err)
    }

    /// Announces to the peer the bytes that were taken.
    pub(super) fn leave(&self, path: ReceivePath<'_>, before_sleep: bool) {
        let ReceivePath::Attached(data_path, rx) = path else { return };
        if before_sleep {
            rx.before_sleep();
        }
        drop(rx);
        self.show_received(data_path);
    }
}

impl<'s, 'c> ReceivePathSource<'s, 'c> {
    fn is_on_ring(&self) -> bool {
        self.connection.attached().is_some_and(|data_path| data_path.ring.queue.rx_on_ring())
    }

    fn kernel(&mut self) -> KernelSource<'_> {
        KernelSource { fd: self.connection.fd(), cursor: self.cursor }
    }

    fn checked<T>(&mut self, result: Result<T, Violation>) -> Result<T, Errno> {
        result.map_err(|violation| {
            *self.violation = Some(violation);
            Errno::CONNRESET
        })
    }

    fn ring<'r>(&self, rx: &'r Rx<'c, Own, Peer>) -> RingSource<'r, 'c>
    where
        's: 'r,
    {
        RingSource::new(rx, self.loans, self.front)
    }

    /// Where the stream goes on. With `asks_kernel`, an empty ring is the end if TCP has ended.
    fn step<'r>(&mut self, rx: &'r Rx<'c, Own, Peer>) -> Result<NextSource<'r, 'c>, Errno> {
        let mut kernel_has_news = false;
        loop {
            let next = NextSource::of(rx);
            let next = self.checked(next)?;
            if !(matches!(next, NextSource::Empty) && self.asks_kernel) {
                return Ok(next);
            }
            if kernel_has_news {
                // Bytes that the peer held back come before the end: the next look finds them.
                let held = |data_path: &DataPath| data_path.ring.queue.unhold();
                let is_end =
                    self.kernel_says_end()? && !self.connection.attached().is_some_and(held);
                return Ok(if is_end { NextSource::End } else { NextSource::Empty });
            }
            if !self.kernel_has_news()? {
                return Ok(NextSource::Empty);
            }
            kernel_has_news = true;
        }
    }

    /// Whether TCP has news, most likely its end. That ends the stream only if the ring is found
    /// empty afterwards: the peer publishes first. Takes nothing from the kernel, which reports an
    /// error only once.
    fn kernel_has_news(&self) -> Result<bool, Errno> {
        between_looks();
        let look = poll::look(
            self.connection.fd(),
            Events { read: true, hangup: true, ..Events::default() },
        )?;
        between_looks();
        Ok(look.read || look.hangup || look.dead)
    }

    /// Whether the kernel's news is that TCP has ended.
    fn kernel_says_end(&mut self) -> Result<bool, Errno> {
        match socket::recv(self.connection.fd(), &mut [0], KernelRecv::PEEK) {
            Ok(0) => Ok(true),
            Ok(_) => {
                *self.violation = Some(Violation);
                Err(Errno::CONNRESET)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the next bytes can be received at once, by the other carrier.
    fn goes_on_elsewhere(&self) -> bool {
        let Ok(ReceivePath::Attached(data_path, rx)) = self.path.get() else { return false };
        data_path.ring.queue.has_record()
            && match rx.step() {
                Ok(RxStep::Ring) => true,
                Ok(RxStep::Tcp(_) | RxStep::TcpUnbounded) => {
                    socket::unread(self.connection.fd()).is_ok_and(|bytes| bytes > 0)
                }
                _ => false,
            }
    }

    /// A receive from the kernel, of at most `bound` bytes.
    fn by_kernel<T>(
        &mut self,
        bound: u64,
        call: impl FnOnce(&mut KernelSource<'_>) -> Result<T, Errno>,
        received: impl FnOnce(&T) -> u64,
    ) -> Result<T, Errno> {
        let result = call(&mut self.kernel())?;
        let n = received(&result);
        match self.path.get()? {
            ReceivePath::Plain(bracket) => bracket.received(n as usize),
            ReceivePath::Attached(data_path, rx) => {
                rx.received_by_tcp(n as usize);
                // Bytes that the peer put on the ring after these can be read from now on, and it
                // rang for them before: waiters have to be woken again.
                if n == bound && data_path.ring.queue.has_readers() {
                    rx.calls().own();
                }
            }
        }
        self.front += n;
        Ok(result)
    }
}

impl ReceivePathSource<'_, '_> {
    /// One receive, from one carrier.
    fn receive_once(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        let from_kernel = |source: &mut Self, into: &mut Scatter<'_, '_>, bound: u64| {
            source.by_kernel(bound, |kernel| kernel.receive(into, most.min(bound)), |n| *n as u64)
        };
        loop {
            let rx = match self.path.get()? {
                ReceivePath::Plain(_) => return from_kernel(self, into, u64::MAX),
                ReceivePath::Attached(_, rx) => rx,
            };
            let received = match self.step(rx)? {
                NextSource::Ring => {
                    let received = self.ring(rx).receive(into, most);
                    let n = self.checked(received)?;
                    self.front += n as u64;
                    return Ok(n);
                }
                NextSource::Tcp(bound) => match from_kernel(self, into, bound) {
                    Ok(0) => Err(Errno::CONNRESET),
                    received => received,
                },
                NextSource::TcpUnbounded(announced) => {
                    between_looks();
                    let received = from_kernel(self, into, u64::MAX);
                    drop(announced);
                    // The sender may have entered the ring, and shut TCP down, since the ring was
                    // looked at.
                    if received == Ok(0) && rx.has_more() {
                        continue;
                    }
                    received
                }
                NextSource::Empty => Err(Errno::AGAIN),
                NextSource::End => Ok(0),
            };
            if received == Ok(0) {
                self.connection.believe_end()?;
            }
            return received;
        }
    }
}

impl Source for ReceivePathSource<'_, '_> {
    fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        let mut done = self.receive_once(into, most)?;
        // If the stream goes on by the other carrier, a short receive would wrongly mean that no
        // more bytes are there.
        while done > 0 && (done as u64) < most && into.remaining() > 0 && self.goes_on_elsewhere() {
            match self.receive_once(into, most - done as u64) {
                Ok(n) if n > 0 => done += n,
                _ => break,
            }
        }
        Ok(done)
    }

    fn receive_behind(
        &mut self,
        skip: &mut [u8],
        into: &mut Scatter<'_, '_>,
        most: u64,
    ) -> Result<Option<usize>, Errno> {
        match self.path.get()? {
            ReceivePath::Plain(_) => {
                let received = |n: &Option<usize>| n.unwrap_or(0) as u64;
                self.by_kernel(u64::MAX, |kernel| kernel.receive_behind(skip, into, most), received)
            }
            ReceivePath::Attached(..) => Ok(None),
        }
    }

    fn begins_small(&mut self) -> Result<bool, Errno> {
        let ReceivePath::Attached(_, rx) = self.path.get()? else { return Ok(false) };
        let step = rx.step();
        if self.checked(step)? != RxStep::Ring {
            return Ok(false);
        }
        let begins = rx.begins_inline();
        self.checked(begins)
    }

    fn receive_small(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        let ReceivePath::Attached(_, rx) = self.path.get()? else { return Ok(0) };
        let received = self.ring(rx).receive_small(into, most);
        let n = self.checked(received)?;
        self.front += n as u64;
        Ok(n)
    }

    fn look(
        &mut self,
        ahead: u64,
        most: u64,
        into: &mut Scatter<'_, '_>,
    ) -> Result<LookAhead, Errno> {
        let mut kernel_has_news = false;
        loop {
            let (q, rx) = match self.path.get()? {
                ReceivePath::Plain(_) => return self.kernel().look(ahead, most, into),
                ReceivePath::Attached(data_path, rx) => (&data_path.ring.queue, rx),
            };
            return match self.step(rx)? {
                NextSource::Ring => {
                    let begin = into.filled();
                    let mark = q.published_mark();
                    between_looks();
                    let looked = rx.look(ahead, most, into);
                    match self.checked(looked)? {
                        LookAhead::Missing if kernel_has_news && self.kernel_says_end()? => {
                            // Bytes that the peer held back come before the end.
                            let holds = q.is_holding();
                            q.unhold();
                            if !holds && q.published_mark() == mark {
                                return Ok(LookAhead::Ended);
                            }
                            into.rewind(into.filled() - begin);
                            continue;
                        }
                        LookAhead::Missing
                            if self.asks_kernel
                                && !kernel_has_news
                                && self.kernel_has_news()? =>
                        {
                            kernel_has_news = true;
                            into.rewind(into.filled() - begin);
                            continue;
                        }
                        look => Ok(look),
                    }
                }
                NextSource::Tcp(bound) if ahead >= bound => Ok(LookAhead::Behind(bound)),
                NextSource::Tcp(bound) => {
                    let here = most.min(bound - ahead);
                    match self.kernel().look(ahead, here, into)? {
                        LookAhead::Done if here < most => Ok(LookAhead::Behind(bound)),
                        LookAhead::Behind(bytes) => Ok(LookAhead::Behind(bytes.min(bound))),
                        LookAhead::Ended => Err(Errno::CONNRESET),
                        look => Ok(look),
                    }
                }
                NextSource::TcpUnbounded(announced) => {
                    let begin = into.filled();
                    between_looks();
                    let looked = self.kernel().look(ahead, most, into);
                    drop(announced);
                    if looked == Ok(LookAhead::Ended) && rx.has_more() {
                        into.rewind(into.filled() - begin);
                        continue;
                    }
                    looked
                }
                NextSource::Empty => Ok(LookAhead::Missing),
                NextSource::End => Ok(LookAhead::Ended),
            };
        }
    }

    fn take(
        &mut self,
        ahead: u64,
        most: u64,
        partial: bool,
        into: &mut Scatter<'_, '_>,
    ) -> Result<Option<Take>, Errno> {
        match self.path.get()? {
            ReceivePath::Plain(_) => self.kernel().take(ahead, most, partial, into),
            // If the stream goes on by the ring, the end of TCP is not its end.
            ReceivePath::Attached(..) => Ok(None),
        }
    }

    fn cut(&mut self, span: Span) -> Result<(), Errno> {
        let rx = match self.path.get()? {
            ReceivePath::Plain(_) => return self.kernel().cut(span),
            ReceivePath::Attached(_, rx) => rx,
        };
        match self.step(rx)? {
            NextSource::Tcp(_) => self.kernel().cut(span),
            NextSource::TcpUnbounded(announced) => {
                let cut = self.kernel().cut(span);
                drop(announced);
                cut
            }
            NextSource::Ring | NextSource::Empty | NextSource::End => Ok(()),
        }
    }

    fn discard(&mut self, n: u64) -> Result<u64, Errno> {
        let rx = match self.path.get()? {
            ReceivePath::Plain(_) => {
                return self.by_kernel(u64::MAX, |kernel| kernel.discard(n), |n| *n);
            }
            ReceivePath::Attached(_, rx) => rx,
        };
        match self.step(rx)? {
            NextSource::Ring => {
                let passed = self.ring(rx).pass(n, true);
                let n = self.checked(passed)?;
                self.front += n;
                Ok(n)
            }
            NextSource::Tcp(bound) => {
                self.by_kernel(bound, |kernel| kernel.discard(n.min(bound)), |n| *n)
            }
            NextSource::TcpUnbounded(announced) => {
                let discarded = self.by_kernel(u64::MAX, |kernel| kernel.discard(n), |n| *n);
                drop(announced);
                discarded
            }
            NextSource::Empty | NextSource::End => Ok(0),
        }
    }

    fn release(&mut self, span: Span, is_taken: &dyn Fn(Span) -> bool) -> Result<(), Errno> {
        let ReceivePath::Attached(data_path, rx) = self.path.get()? else { return Ok(()) };
        if !data_path.ring.queue.rx_on_ring() {
            return Ok(());
        }
        let released = self.ring(rx).release(span, is_taken);
        self.checked(released)
    }

    fn arrived(&mut self) -> Result<u64, Errno> {
        let rx = match self.path.get()? {
            ReceivePath::Plain(_) => return self.kernel().arrived(),
            ReceivePath::Attached(_, rx) => rx,
        };
        // The kernel's socket is not asked for the end: the next receive needs its error, which is
        // reported once.
        let next = NextSource::of(rx);
        match self.checked(next)? {
            NextSource::Ring => {
                let arrived = rx.arrived();
                Ok(self.checked(arrived)?.1)
            }
            NextSource::Tcp(bound) => Ok(self.kernel().arrived()?.min(bound)),
            NextSource::TcpUnbounded(announced) => {
                let arrived = self.kernel().arrived();
                drop(announced);
                arrived
            }
            NextSource::Empty | NextSource::End => Ok(0),
        }
    }

    fn arrived_in_all(&mut self) -> Result<u64, Errno> {
        let here = self.arrived()?;
        let ReceivePath::Attached(data_path, rx) = self.path.get()? else { return Ok(here) };
        let step = rx.step();
        let elsewhere = match self.checked(step)? {
            RxStep::Ring => {
                let arrived = rx.arrived();
                match self.checked(arrived)?.0 {
                    LookAhead::Behind(_) => (socket::unread(self.connection.fd())? as u64)
                        .saturating_sub(rx.discard_left()),
                    _ => 0,
                }
            }
            RxStep::Tcp(bound) if here >= bound => data_path.ring.queue.unread() as u64,
            _ => 0,
        };
        Ok(here + elsewhere)
    }

    fn has_ended(&mut self) -> Result<bool, Errno> {
        let rx = match self.path.get()? {
            ReceivePath::Plain(_) => return self.kernel().has_ended(),
            ReceivePath::Attached(_, rx) => rx,
        };
        match self.step(rx)? {
            NextSource::TcpUnbounded(announced) => {
                between_looks();
                let ended = self.kernel().has_ended();
                drop(announced);
                // The sender may have entered the ring, and shut TCP down, since the ring was
                // looked at.
                Ok(ended? && !rx.has_more())
            }
            NextSource::End => Ok(true),
            NextSource::Ring | NextSource::Tcp(_) | NextSource::Empty => Ok(false),
        }
    }

    fn has_only_error(&mut self, behind: u64) -> Result<bool, Errno> {
        let has_error = match self.path.get()? {
            ReceivePath::Plain(_) => return self.kernel().has_only_error(behind),
            ReceivePath::Attached(_, rx) if behind == 0 && rx.has_more() => return Ok(false),
            ReceivePath::Attached(..) => poll::look(self.connection.fd(), Events::default())?.dead,
        };
        // The peer publishes before TCP ends.
        Ok(has_error && self.arrived_in_all()? <= behind)
    }

    fn bulk_below(&self) -> u32 {
        // Another process could not receive bytes that this one has moved to its library memory.
        if self.connection.is_shared.load(Ordering::Relaxed) {
            return 0;
        }
        if self.is_on_ring() { cost::switch_on_ring() } else { cost::switch() }
    }

    fn discards_cheaply(&self) -> bool {
        // If another process may also have the socket, it would receive the bytes that were taken.
        self.is_on_ring()
            || self.cursor.leaves_holes()
            || self.connection.is_shared.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
