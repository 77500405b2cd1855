//! Seeking in a stock kernel's TCP.

use std::cell::Cell;
use std::io::IoSliceMut;

use super::engine::{Attempt, Engine};
use super::kernel::{KernelSource, PeekCursor, Way};
use super::lock::{SeekGuard, SeekLock};
use super::waits::{KernelWaits, sleep_on_socket};
use super::{At, Extent, Seek, SeekFlags, until_there};
use crate::Errno;
use crate::iov::Scatter;
use crate::sys::poll::Deadline;
use crate::sys::{Fd, socket};

/// A connected TCP socket that can be received from out of order, as long as all receives go through here.
#[derive(Debug)]
pub struct SeekTcp {
    fd: Fd,
    state: SeekLock<State>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    cursor: PeekCursor,
    waits: KernelWaits,
}

impl SeekTcp {
    /// For the connected socket `fd`, whose next byte gets position `head`. At most `memory` bytes are used for
    /// what keeps other bytes away, and for what is moved in bulk.
    #[must_use]
    pub fn new(fd: Fd, head: u64, memory: usize) -> Self {
        Self::with(PeekCursor::new(fd), fd, head, memory)
    }

    /// As [`SeekTcp::new`], by this way.
    #[must_use]
    pub fn by(way: Way, fd: Fd, head: u64, memory: usize) -> Self {
        Self::with(PeekCursor::by(way), fd, head, memory)
    }

    fn with(cursor: PeekCursor, fd: Fd, head: u64, memory: usize) -> Self {
        let state = State { engine: Engine::new(head, memory), cursor, waits: KernelWaits::default() };
        Self { fd, state: SeekLock::new(state) }
    }

    /// How bytes are taken out of the middle.
    ///
    /// # Errors
    /// As all methods, EAGAIN in a signal handler that interrupted another one.
    pub fn way(&self) -> Result<Way, Errno> {
        Ok(self.state.lock()?.cursor.way())
    }

    /// Calls the engine, and tells those who sleep if bytes have left the kernel.
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
        let front = engine.front();
        let result = call(engine, &mut KernelSource { fd: self.fd, cursor });
        if engine.front() != front {
            waits.moved(self.fd, engine.front());
        }
        result
    }

    /// Sleeps until the attempt may succeed.
    fn wait_for(&self, attempt: &Attempt, until: Deadline) -> Result<(), Errno> {
        let mut state = self.state.lock()?;
        if state.engine.needs(attempt) == 0 {
            return Ok(());
        }
        // What was taken out opens the window.
        self.call(&mut state, |engine, source| engine.discard_taken(source))?;
        let (front, end) = (state.engine.front(), state.engine.needed_end(attempt));
        let wait = state.waits.begin(self.fd, front, end)?;
        drop(state);
        let slept = sleep_on_socket(&wait, self.fd, until);
        let mut state = self.state.lock()?;
        let front = state.engine.front();
        let need = wait.position().saturating_sub(front);
        let asked_for_it = state.waits.end(self.fd, front, wait);
        let has_something = slept?;
        if has_something && asked_for_it && (socket::unread(self.fd)? as u64) < need {
            // The kernel keeps the rest away.
            self.call(&mut state, |engine, source| engine.drain(source))?;
        }
        Ok(())
    }
}

impl Seek for SeekTcp {
    fn try_seek(&self, at: At, into: &mut [IoSliceMut<'_>], flags: SeekFlags) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        self.with_engine(|engine, source| {
            let attempt = engine.begin(at, scatter.remaining() as u64, flags)?;
            engine.attempt(source, attempt, &mut scatter)
        })
    }

    fn seek(
        &self,
        at: At,
        into: &mut [IoSliceMut<'_>],
        flags: SeekFlags,
        until: &dyn Fn() -> Result<Deadline, Errno>,
    ) -> Result<usize, Errno> {
        let len = into.iter().map(|buf| buf.len() as u64).sum();
        let begun = Cell::new(None);
        until_there(
            into,
            |scatter| {
                self.with_engine(|engine, source| {
                    let attempt = match begun.get() {
                        Some(attempt) => attempt,
                        None => engine.begin(at, len, flags)?,
                    };
                    begun.set(Some(attempt));
                    engine.attempt(source, attempt, scatter)
                })
            },
            |deadline| begun.get().map_or(Ok(()), |attempt| self.wait_for(&attempt, deadline)),
            until,
        )
    }

    fn try_recv(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        self.with_engine(|engine, source| match peek {
            true => engine.peek(source, &mut scatter),
            false => engine.recv(source, &mut scatter),
        })
    }

    fn wait(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno> {
        let flags = SeekFlags { peek: true, partial: false };
        let attempt = self.state.lock()?.engine.begin(at, len, flags)?;
        self.wait_for(&attempt, until)
    }

    fn make_room(&self) -> Result<(), Errno> {
        self.with_engine(|engine, source| engine.drain(source)).map(drop)
    }

    fn extent(&self) -> Result<Extent, Errno> {
        self.with_engine(|engine, source| engine.extent(source))
    }
}
