//! Seeking on a TCP socket that has no ring, by any method that the kernel offers.

use std::cell::Cell;
use std::io::IoSliceMut;

use super::engine::{Attempt, Engine};
use super::kernel::{KernelCursor, KernelSource, SeekMethod};
use super::lock::{SeekGuard, SeekLock};
use super::request::{At, Extent, SeekOptions, until_there};
use super::waits::KernelWaits;
use crate::Errno;
use crate::iov::Scatter;
use crate::sys::poll::Deadline;
use crate::sys::{Fd, socket};

/// Bytes that were taken and still lie at the front of the kernel's queue are discarded before a
/// sleep if there are this many; fewer occupy memory, but do not stop the sender. The smallest
/// usual receive buffer holds twice as many.
const DISCARD_BEFORE_SLEEP: u64 = 64 << 10;

/// A connected TCP socket that can be received from out of order, provided that all receives go
/// through here.
#[derive(Debug)]
pub struct SeekTcp {
    fd: Fd,
    state: SeekLock<State>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    cursor: KernelCursor,
    waits: KernelWaits,
}

impl SeekTcp {
    /// Seeks on the connected socket `fd`, whose next byte has position `head`, with at most
    /// `memory` bytes of library memory. Takes the best method that the kernel offers: `first`, or
    /// one that follows it in [`SeekMethod::ALL`].
    #[must_use]
    pub fn new(first: SeekMethod, fd: Fd, head: u64, memory: usize) -> Self {
        Self::with(KernelCursor::new(fd, first), fd, head, memory)
    }

    /// As [`SeekTcp::new`], but only by this method.
    ///
    /// # Errors
    /// Those of the kernel, if it does not offer the method for this socket.
    pub fn by(method: SeekMethod, fd: Fd, head: u64, memory: usize) -> Result<Self, Errno> {
        Ok(Self::with(KernelCursor::by(method, fd)?, fd, head, memory))
    }

    fn with(cursor: KernelCursor, fd: Fd, head: u64, memory: usize) -> Self {
        let state =
            State { engine: Engine::new(head, memory), cursor, waits: KernelWaits::default() };
        Self { fd, state: SeekLock::new(state) }
    }

    /// The method by which bytes are taken out of the middle.
    ///
    /// # Errors
    /// As all methods, EAGAIN in a signal handler that interrupted another one.
    pub fn method(&self) -> Result<SeekMethod, Errno> {
        Ok(self.state.lock()?.cursor.method())
    }

    /// Bytes that were moved into library memory so far.
    ///
    /// # Errors
    /// As [`SeekTcp::method`].
    pub fn moved(&self) -> Result<u64, Errno> {
        Ok(self.state.lock()?.engine.moved())
    }

    /// Calls the engine, and notifies sleepers if bytes have left the kernel.
    #[inline]
    fn with_engine<R>(
        &self,
        call: impl FnOnce(&mut Engine, &mut KernelSource<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut state = self.state.lock()?;
        self.call(&mut state, call)
    }

    #[inline]
    fn call<R>(
        &self,
        state: &mut SeekGuard<'_, State>,
        call: impl FnOnce(&mut Engine, &mut KernelSource<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let State { engine, cursor, waits } = &mut **state;
        let (front, leaves_holes) = (engine.front(), cursor.leaves_holes());
        let result = call(engine, &mut KernelSource { fd: self.fd, cursor });
        // A hole brings waiters for later bytes nearer to them.
        if engine.front() != front || leaves_holes {
            waits.moved(self.fd, engine.reach(leaves_holes));
        }
        result
    }

    /// For a socket that nobody else polls: SO_RCVLOWAT may stay as the last sleep needed it, until
    /// a call returns EAGAIN, after which the caller waits elsewhere, or [`SeekTcp::share`] is
    /// called.
    #[must_use]
    pub fn private(self) -> Self {
        if let Ok(mut state) = self.state.lock() {
            state.waits = KernelWaits::private();
        }
        self
    }

    /// From now on others may poll the socket.
    pub fn share(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.waits.share(self.fd);
        }
    }

    /// The caller is about to poll the socket.
    pub fn restore(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.waits.restore(self.fd);
        }
    }

    /// As [`SeekTcp::with_engine`], for a caller that will wait elsewhere.
    fn try_with_engine<R>(
        &self,
        call: impl FnOnce(&mut Engine, &mut KernelSource<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut state = self.state.lock()?;
        let result = self.call(&mut state, call);
        if matches!(result, Err(Errno::AGAIN)) {
            state.waits.restore(self.fd);
        }
        result
    }

    /// Sleeps until the attempt may succeed. True if the kernel has woken the caller as if the
    /// bytes were there. If the attempt still fails, they cannot arrive: then the caller passes
    /// true as `again` to the next call, which makes room.
    fn wait_for(&self, attempt: &Attempt, until: Deadline, again: bool) -> Result<bool, Errno> {
        let mut state = self.state.lock()?;
        if state.engine.needs(attempt) == 0 || (again && self.make_way(&mut state, attempt)?) {
            return Ok(false);
        }
        if state.engine.taken_at_front() >= DISCARD_BEFORE_SLEEP {
            self.call(&mut state, |engine, source| engine.discard_taken(source))?;
        }
        let State { engine, cursor, waits } = &mut *state;
        let reach = engine.reach(cursor.leaves_holes());
        let sleep = waits.begin(self.fd, reach, engine.needed_end(attempt))?;
        drop(state);
        let slept = sleep.sleep(self.fd, until);
        let mut state = self.state.lock()?;
        let State { engine, cursor, waits } = &mut *state;
        let reach = engine.reach(cursor.leaves_holes());
        let was_reported = waits.end(self.fd, reach, sleep, slept.unwrap_or_default());
        if slept?.is_late {
            // Without memory the range may still come, but more slowly.
            match self.call(&mut state, |engine, source| engine.drain(source)) {
                Err(Errno::NOBUFS) => state.waits.leave_there(),
                drained => drop(drained?),
            }
        }
        Ok(was_reported)
    }

    /// Makes room for bytes that cannot arrive: the kernel has reported the socket readable because
    /// no more can come (tcp(7)). Discards bytes that were taken, if there are any; otherwise moves
    /// all that have arrived to library memory. Returns whether another attempt is worthwhile.
    fn make_way(&self, state: &mut SeekGuard<'_, State>, attempt: &Attempt) -> Result<bool, Errno> {
        let reach = state.engine.reach(state.cursor.leaves_holes());
        if (socket::unread(self.fd)? as u64) >= reach.bytes_before(state.engine.needed_end(attempt))
        {
            return Ok(true);
        }
        let taken = state.engine.taken_at_front();
        self.call(state, |engine, source| match taken {
            0 => engine.drain(source),
            _ => engine.discard_taken(source).map(|()| false),
        })
    }
}

impl SeekTcp {
    /// Takes the bytes that begin at `at`, as many as `into` has room for, all or none; fewer only
    /// if the stream ends (0 after its end), or if `options` allow it. Returns the number of bytes
    /// that it put into `into`.
    ///
    /// # Errors
    /// EAGAIN if they have not all arrived; ENXIO if some were taken before; ENOBUFS if there would
    /// be too many holes; EINVAL if no such position can exist; those of recv(2).
    pub fn try_seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, Errno> {
        self.try_seek_again(&mut { at }, into, options)
    }

    /// As [`SeekTcp::try_seek`]; `at` becomes the absolute position, so that a further attempt is
    /// for the same bytes, wherever the head is by then.
    ///
    /// # Errors
    /// Those of [`SeekTcp::try_seek`].
    pub fn try_seek_again(
        &self,
        at: &mut At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
    ) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        self.try_with_engine(|engine, source| {
            let attempt = engine.begin(*at, scatter.remaining() as u64, options)?;
            *at = At::Position(attempt.position());
            engine.attempt(source, attempt, &mut scatter)
        })
    }

    /// As [`SeekTcp::try_seek`], but waits; calls `until` before it does. Makes room for the bytes
    /// if they cannot arrive otherwise.
    ///
    /// # Errors
    /// Those of [`SeekTcp::try_seek`] except EAGAIN; those of [`SeekTcp::wait`].
    pub fn seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        options: SeekOptions,
        until: &dyn Fn() -> Result<Deadline, Errno>,
    ) -> Result<usize, Errno> {
        let len = into.iter().map(|buf| buf.len() as u64).sum();
        let begun = Cell::new(None);
        let again = Cell::new(false);
        until_there(
            into,
            |scatter| {
                self.with_engine(|engine, source| {
                    let attempt = match begun.get() {
                        Some(attempt) => attempt,
                        None => engine.begin(at, len, options)?.before_a_sleep(),
                    };
                    begun.set(Some(attempt));
                    engine.attempt(source, attempt, scatter)
                })
            },
            |deadline| {
                let Some(attempt) = begun.get() else { return Ok(()) };
                match self.wait_for(&attempt, deadline, again.get()) {
                    // A signal does not change which bytes are addressed.
                    Err(Errno::INTR) => {}
                    reported => again.set(reported?),
                }
                Ok(())
            },
            until,
        )
    }

    /// Fills `into` with the bytes at the head, holes skipped; 0 is the end of the stream. With
    /// `peek` they stay.
    ///
    /// # Errors
    /// EAGAIN if there are none yet; those of recv(2).
    pub fn try_recv(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        self.try_with_engine(|engine, source| match peek {
            true => engine.peek(source, &mut scatter),
            false => engine.recv(source, &mut scatter),
        })
    }

    /// Sleeps until the `len` bytes that begin at `at` may have arrived, or cannot come any more;
    /// may return early. Makes room for them if they cannot arrive otherwise.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR; ENOBUFS if they cannot arrive before other bytes are received; as
    /// [`SeekTcp::try_seek`].
    pub fn wait(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno> {
        let options = SeekOptions::PEEK;
        let attempt = self.state.lock()?.engine.begin(at, len, options)?;
        if self.wait_for(&attempt, until, false)? {
            let mut state = self.state.lock()?;
            // For one byte, the kernel never reports that too early.
            if state.engine.needs(&attempt) > 1 {
                self.make_way(&mut state, &attempt)?;
            }
        }
        Ok(())
    }

    /// Moves the bytes that have arrived into memory of this process, so that more can come.
    ///
    /// # Errors
    /// ENOBUFS if no more memory may be used; those of recv(2).
    pub fn make_room(&self) -> Result<(), Errno> {
        self.with_engine(|engine, source| engine.drain(source)).map(drop)
    }

    /// The extent of the bytes that can be received.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn extent(&self) -> Result<Extent, Errno> {
        self.with_engine(|engine, source| engine.extent(source))
    }
}
