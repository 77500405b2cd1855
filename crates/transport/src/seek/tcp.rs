//! Seeking in a stock kernel's TCP.
//!
//! Bytes in the middle are copied from the socket's receive queue straight into the caller's buffer by
//! MSG_PEEK at SO_PEEK_OFF (Linux 6.9, commit 05ea491641d3) and thrown away by MSG_TRUNC when the head
//! reaches them. What keeps the kernel from accepting more, or cannot be peeked at on an older kernel, is
//! drained into library memory.

use std::io::IoSliceMut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::holes::{HoleError, Holes};
use protocol::span::Span;

use super::drained::{CHUNK, Drained};
use super::{At, Extent, Seek, SeekFlags};
use crate::Errno;
use crate::iov::Scatter;
use crate::sys::Fd;
use crate::sys::poll::{self, Deadline, Events};
use crate::sys::socket::{self, KernelRecv};

/// How bytes are taken out of the middle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// SO_PEEK_OFF and MSG_PEEK into the caller's buffer.
    Peek,
    /// By library memory.
    Drain,
}

/// A connected TCP socket that can be received from out of order, as long as all receives go through here.
#[derive(Debug)]
pub struct SeekTcp {
    fd: Fd,
    /// Bytes of library memory that may be used.
    most_drained: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    way: Way,
    holes: Holes,
    /// Position of the first byte in the kernel's queue. What lies before it was received, taken or
    /// drained; what lies behind it and was taken is still there and will be thrown away.
    kernel: u64,
    /// The kernel's SO_PEEK_OFF, as far as it is known.
    peek_offset: Option<u64>,
    drained: Drained,
    /// What those who sleep need in the kernel's queue, and SO_RCVLOWAT as the application set it.
    needs: Vec<u64>,
    low_water: u32,
}

impl SeekTcp {
    /// For the connected socket `fd`, whose next byte gets position `head`. At most `most_drained` bytes of
    /// memory are used for what keeps other bytes away.
    #[must_use]
    pub fn new(fd: Fd, head: u64, most_drained: usize) -> Self {
        let way = if socket::set_peek_offset(fd, 0).is_ok() { Way::Peek } else { Way::Drain };
        Self::by(way, fd, head, most_drained)
    }

    /// As [`SeekTcp::new`], by this way.
    #[must_use]
    pub fn by(way: Way, fd: Fd, head: u64, most_drained: usize) -> Self {
        let low_water = socket::receive_low_water(fd).map_or(1, |bytes| bytes as u32);
        let state = State {
            way,
            holes: Holes::new(head),
            kernel: head,
            peek_offset: None,
            drained: Drained::default(),
            needs: Vec::new(),
            low_water,
        };
        Self { fd, most_drained, state: Mutex::new(state) }
    }

    /// How bytes are taken out of the middle.
    #[must_use]
    pub fn way(&self) -> Way {
        self.state().way
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves everything that has arrived into library memory.
    fn drain(&self, state: &mut State) -> Result<usize, Errno> {
        state.discard_taken(self.fd)?;
        let mut moved = 0;
        loop {
            if state.drained.bytes() + CHUNK > self.most_drained {
                return if moved > 0 { Ok(moved) } else { Err(Errno::NOBUFS) };
            }
            let mut buffer = state.drained.buffer();
            let read = socket::recv(self.fd, &mut buffer, KernelRecv::empty());
            match read {
                Ok(n) if n > 0 => {
                    state.keep(buffer, n);
                    moved += n;
                    if n < CHUNK {
                        return Ok(moved);
                    }
                }
                _ => {
                    state.drained.put_back(buffer);
                    return match read {
                        Err(error) if moved == 0 && error != Errno::AGAIN => Err(error),
                        _ => Ok(moved),
                    };
                }
            }
        }
    }
}

impl State {
    fn locate(&self, at: At, len: u64, partial: bool) -> Result<Span, Errno> {
        let start = match at {
            At::Offset(offset) => self.holes.head().checked_add(offset).ok_or(Errno::INVAL)?,
            At::Position(position) => position,
        };
        let live = self.holes.live_from(start, len).map_err(errno)?;
        if partial || live.len() == len { Ok(live) } else { Err(Errno::NXIO) }
    }

    /// The kernel gave `n` bytes of its queue away.
    fn received(&mut self, n: usize) {
        self.kernel += n as u64;
        self.peek_offset = self.peek_offset.map(|offset| offset.saturating_sub(n as u64));
    }

    /// Keeps the first `len` bytes of a buffer, which come from the front of the kernel's queue.
    fn keep(&mut self, buffer: Vec<u8>, len: usize) {
        let span = Span { start: self.kernel, end: self.kernel + len as u64 };
        let live = self.holes.live_bytes(span.end) - self.holes.live_bytes(span.start);
        self.received(len);
        self.drained.keep(span.start, buffer, len, live);
    }

    /// Throws away what was taken at the front of the kernel's queue.
    fn discard_taken(&mut self, fd: Fd) -> Result<(), Errno> {
        while self.kernel < self.holes.head() {
            let n = socket::discard(fd, (self.holes.head() - self.kernel) as usize)?;
            if n == 0 {
                // Nobody else may receive from the socket, so what was seen must be there.
                return Err(Errno::IO);
            }
            self.received(n);
        }
        Ok(())
    }

    /// Copies the bytes of `rest` that are in the kernel's queue. Returns whether the stream ends there.
    fn peek_kernel(&mut self, fd: Fd, mut rest: Span, into: &mut Scatter<'_, '_>) -> Result<bool, Errno> {
        while !rest.is_empty() {
            match self.peek_once(fd, rest, into) {
                Ok(0) => return Ok(true),
                Ok(n) => rest.start += n,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Copies bytes from the start of `span` on, as one recv(2) does.
    fn peek_once(&mut self, fd: Fd, span: Span, into: &mut Scatter<'_, '_>) -> Result<u64, Errno> {
        let offset = span.start - self.kernel;
        if self.peek_offset != Some(offset) {
            socket::set_peek_offset(fd, offset)?;
            self.peek_offset = Some(offset);
        }
        let most = usize::try_from(span.len()).unwrap_or(usize::MAX);
        let n = socket::recv(fd, into.next_room(most), KernelRecv::PEEK)?;
        into.filled_in_place(n);
        self.peek_offset = self.peek_offset.map(|offset| offset + n as u64);
        Ok(n as u64)
    }

    /// The lowest of what is needed decides when the kernel wakes a sleeper.
    fn set_low_water(&self, fd: Fd) {
        let least = self.needs.iter().copied().min();
        let bytes = least.map_or(self.low_water, |need| u32::try_from(need).unwrap_or(u32::MAX));
        // A failure costs wake-ups that come too early.
        let _ = socket::set_receive_low_water(fd, bytes);
    }
}

impl Seek for SeekTcp {
    fn try_seek(&self, at: At, into: &mut [IoSliceMut<'_>], flags: SeekFlags) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        let wanted = scatter.remaining() as u64;
        let mut state = self.state();
        let state = &mut *state;
        let span = state.locate(at, wanted, flags.partial)?;
        if !flags.peek {
            state.holes.may_take(span).map_err(errno)?;
        }
        if state.way == Way::Drain {
            match self.drain(state) {
                Ok(_) | Err(Errno::NOBUFS) => {}
                Err(error) if state.kernel < span.end => return Err(error),
                Err(_) => {}
            }
        }
        let here = Span { start: span.start, end: span.end.min(state.kernel).max(span.start) };
        state.drained.read(here, |piece| scatter.put(piece));
        let ended = match state.way {
            _ if scatter.remaining() == 0 => false,
            Way::Peek => {
                let rest = Span { start: here.end.max(state.kernel), end: span.end };
                state.peek_kernel(self.fd, rest, &mut scatter)?
            }
            Way::Drain => ends(self.fd),
        };
        let enough = if flags.partial { 1 } else { span.len() };
        if (scatter.filled() as u64) < enough && !ended {
            return Err(Errno::AGAIN);
        }
        let taken = Span { start: span.start, end: span.start + scatter.filled() as u64 };
        if !flags.peek {
            state.holes.take(taken).map_err(errno)?;
            state.drained.forget(taken);
        }
        Ok(scatter.filled())
    }

    fn try_recv(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        let mut state = self.state();
        let state = &mut *state;
        if peek && state.way == Way::Drain {
            // Only library memory can be looked at more than once.
            self.drain(state)?;
        }
        // What is looked at is taken from a copy, so that it stays.
        let mut ahead = state.holes.clone();
        while scatter.remaining() > 0 {
            let front = ahead.front(scatter.remaining() as u64);
            let here = Span { start: front.start, end: front.end.min(state.kernel).max(front.start) };
            let read = if !here.is_empty() {
                state.drained.read(here, |piece| scatter.put(piece));
                Ok(here.len())
            } else if peek && state.way == Way::Drain {
                if ends(self.fd) { Ok(0) } else { Err(Errno::AGAIN) }
            } else if peek {
                state.peek_once(self.fd, front, &mut scatter)
            } else {
                state.discard_taken(self.fd)?;
                let room = scatter.next_room(front.len() as usize);
                socket::recv(self.fd, room, KernelRecv::empty()).map(|n| {
                    state.received(n);
                    scatter.filled_in_place(n);
                    n as u64
                })
            };
            let n = match read {
                Ok(n) => n,
                Err(_) if scatter.filled() > 0 => break,
                Err(error) => return Err(error),
            };
            let done = Span { start: front.start, end: front.start + n };
            ahead.received(n);
            if !peek {
                state.holes.received(n);
                state.drained.forget(done);
            }
            if n == 0 {
                break;
            }
        }
        Ok(scatter.filled())
    }

    fn wait(&self, at: At, len: u64, until: Deadline) -> Result<(), Errno> {
        let mut state = self.state();
        let span = state.locate(at, len, false)?;
        let need = span.end.saturating_sub(state.kernel);
        if need == 0 {
            return Ok(());
        }
        state.needs.push(need);
        state.set_low_water(self.fd);
        drop(state);
        let read = Events { read: true, hangup: true, ..Events::default() };
        let waited = poll::wait(Fd::new(-1), self.fd, read, until);
        let mut state = self.state();
        if let Some(at) = state.needs.iter().position(|&other| other == need) {
            state.needs.swap_remove(at);
        }
        state.set_low_water(self.fd);
        let (_, events) = waited?;
        // The kernel says "readable" before all is there when its memory is nearly full, or the window
        // nearly shut: nothing more would come until something is taken out.
        let ends = events.hangup || events.dead;
        if !ends && (socket::unread(self.fd)? as u64) < span.end.saturating_sub(state.kernel) {
            self.drain(&mut state)?;
        }
        Ok(())
    }

    fn make_room(&self) -> Result<(), Errno> {
        self.drain(&mut self.state()).map(drop)
    }

    fn extent(&self) -> Result<Extent, Errno> {
        let state = self.state();
        let arrived = state.kernel + socket::unread(self.fd)? as u64;
        Ok(Extent { head: state.holes.head(), arrived, holes: state.holes.spans().to_vec() })
    }
}

/// Whether nothing but the end of the stream is left in the kernel's queue.
fn ends(fd: Fd) -> bool {
    socket::recv(fd, &mut [0], KernelRecv::PEEK) == Ok(0)
}

fn errno(error: HoleError) -> Errno {
    match error {
        HoleError::Taken => Errno::NXIO,
        HoleError::TooMany => Errno::NOBUFS,
        HoleError::OutOfRange => Errno::INVAL,
    }
}
