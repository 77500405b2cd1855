//! The kernel's TCP socket as a source.
//!
//! With the module `tcp_seek`, the kernel itself takes bytes out of the middle, and frees their
//! memory.
//!
//! Without it, bytes in the middle are copied from the socket's receive queue straight into the
//! caller's buffer with MSG_PEEK at SO_PEEK_OFF (Linux 6.9, commit 05ea491641d3) and discarded with
//! MSG_TRUNC when the front reaches them. An older kernel looks only at the front: the bytes before
//! go to library memory first. So do those before an urgent byte, which SO_PEEK_OFF counts and the
//! stream does not.

use std::fmt;
use std::io::IoSliceMut;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use seekwire_protocol::span::Span;

use super::cost;
use super::source::{LookAhead, Source, Take};
use crate::Errno;
use crate::iov::Scatter;
use crate::sys::poll::{self, Events};
use crate::sys::socket::{self, KernelRecv};
use crate::sys::{Fd, seek};

/// No byte in the kernel is this far after the front: no window is as wide (RFC 7323, 2.3).
const FARTHEST: u64 = 1 << 30;

/// The method by which bytes are taken out of the middle of kernel TCP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SeekMethod {
    /// By the kernel module `tcp_seek`.
    Module,
    /// SO_PEEK_OFF and MSG_PEEK into the caller's buffer.
    Peek,
    /// Through library memory.
    Drain,
}

impl SeekMethod {
    /// All of them, the best one first.
    pub const ALL: [Self; 3] = [Self::Module, Self::Peek, Self::Drain];

    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Peek => "peek",
            Self::Drain => "drain",
        }
    }
}

impl fmt::Display for SeekMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SeekMethod {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|method| method.name() == name).ok_or(())
    }
}

/// The state that is kept from one use of a socket as a source to the next.
#[derive(Debug)]
pub struct KernelCursor {
    method: SeekMethod,
    /// The kernel's SO_PEEK_OFF, if it is known.
    offset: Option<u64>,
    /// Another process may have the socket, and set SO_PEEK_OFF between any two calls of this one.
    is_shared: bool,
    /// Number of bytes from the front on that have arrived without urgent data among them.
    unbroken: u64,
    /// The module's position of the front.
    front: u64,
}

impl KernelCursor {
    /// Uses the best method that the kernel offers for this socket, from `first` on.
    #[must_use]
    pub fn new(fd: Fd, first: SeekMethod) -> Self {
        let methods = SeekMethod::ALL.into_iter().skip_while(|&method| method != first);
        methods
            .into_iter()
            .find_map(|method| Self::by(method, fd).ok())
            .unwrap_or(Self::starting(SeekMethod::Drain, 0))
    }

    /// Uses this method.
    ///
    /// # Errors
    /// Those of the kernel, if it does not offer the method for this socket.
    pub fn by(method: SeekMethod, fd: Fd) -> Result<Self, Errno> {
        let front = match method {
            SeekMethod::Module => attach(fd)?,
            SeekMethod::Peek => socket::set_peek_offset(fd, 0).map(|()| 0)?,
            SeekMethod::Drain => 0,
        };
        Ok(Self::starting(method, front))
    }

    fn starting(method: SeekMethod, front: u64) -> Self {
        Self { method, offset: None, is_shared: false, unbroken: 0, front }
    }

    /// From now on another process may have the socket. After each look, SO_PEEK_OFF is reset to
    /// the value that the other process expects: that of a socket on which nobody looks ahead.
    pub fn share(&mut self, fd: Fd) {
        if !self.is_shared {
            self.is_shared = true;
            self.forget(fd);
        }
    }

    /// Makes MSG_PEEK begin at the front again.
    fn forget(&mut self, fd: Fd) {
        if self.method == SeekMethod::Peek {
            // The next look finds a failure.
            let _ = socket::forget_peek_offset(fd);
        }
        self.offset = None;
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> SeekMethod {
        self.method
    }

    /// Whether taken bytes are gone from the kernel: they neither count as unread nor have to be
    /// discarded.
    #[must_use]
    pub fn leaves_holes(&self) -> bool {
        self.method == SeekMethod::Module
    }

    /// Notes that `n` bytes at the front were received. The kernel moves its offset along with
    /// them, but never below 0.
    fn received(&mut self, n: u64) {
        self.offset = self.offset.map(|offset| offset.saturating_sub(n));
        self.unbroken = self.unbroken.saturating_sub(n);
        self.front += n;
    }

    /// The module's position of the byte `ahead` bytes after the front.
    fn position(&self, ahead: u64) -> u64 {
        self.front.saturating_add(ahead)
    }
}

/// Hands a socket to the module and returns its position of the front.
fn attach(fd: Fd) -> Result<u64, Errno> {
    /// Asked only once: each time, the kernel starts a program to look for a module that does not
    /// exist.
    static ABSENT: AtomicBool = AtomicBool::new(false);
    if ABSENT.load(Ordering::Relaxed) {
        return Err(Errno::NOENT);
    }
    match seek::attach(fd) {
        Ok(()) => Ok(0),
        // The socket has the module already. If bytes were taken out of it, this process does not
        // know which.
        Err(Errno::EXIST) => match seek::state(fd)? {
            state if state.holes == 0 => Ok(state.head),
            _ => Err(Errno::BUSY),
        },
        Err(error) => {
            ABSENT.fetch_or(error == Errno::NOENT, Ordering::Relaxed);
            Err(error)
        }
    }
}

/// A socket as a source, while nobody else receives from it.
#[derive(Debug)]
pub struct KernelSource<'c> {
    /// The socket.
    pub fd: Fd,
    /// The position at which the kernel looks.
    pub cursor: &'c mut KernelCursor,
}

impl KernelSource<'_> {
    /// Copies bytes that begin `ahead` bytes after the front, as one recv(2) does. `None` if those
    /// before them have to be received first.
    fn look_once(
        &mut self,
        ahead: u64,
        most: u64,
        into: &mut Scatter<'_, '_>,
    ) -> Result<Option<u64>, Errno> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let n = match self.cursor.method {
            SeekMethod::Module => {
                seek::look(self.fd, self.cursor.position(ahead), into.next_room(most))?
            }
            _ => loop {
                match self.unbroken(ahead, most)? {
                    0 => match self.peek(ahead, &mut [0])? {
                        0 => break 0,
                        // The byte has arrived between the two calls.
                        _ if self.unbroken(ahead, 1)? > 0 => {}
                        _ => return Ok(None),
                    },
                    there => break self.peek(ahead, into.next_room(there))?,
                }
            },
        };
        into.filled_in_place(n);
        Ok(Some(n as u64))
    }

    /// Number of these bytes that have arrived without an urgent one before them. An urgent byte is
    /// not part of the stream, but counts for SO_PEEK_OFF: after it, every look would be one byte
    /// short.
    fn unbroken(&mut self, ahead: u64, most: usize) -> Result<usize, Errno> {
        if self.cursor.is_shared || self.cursor.unbroken < ahead.saturating_add(most as u64) {
            // FIONREAD ends at the urgent mark (tcp(7)), and the kernel never sets a mark among
            // bytes that have arrived.
            self.cursor.unbroken = socket::unread(self.fd)? as u64;
        }
        let there = self.cursor.unbroken.saturating_sub(ahead);
        Ok(most.min(usize::try_from(there).unwrap_or(usize::MAX)))
    }

    fn peek(&mut self, ahead: u64, room: &mut [u8]) -> Result<usize, Errno> {
        let ahead = ahead.min(FARTHEST);
        if self.cursor.offset != Some(ahead) {
            socket::set_peek_offset(self.fd, ahead)?;
            self.cursor.offset = Some(ahead);
        }
        let n = socket::recv(self.fd, room, KernelRecv::PEEK);
        self.cursor.offset = n.ok().map(|n| ahead + n as u64);
        if self.cursor.is_shared {
            self.cursor.forget(self.fd);
        }
        n
    }

    /// Whether the module could have returned these bytes, but lacks memory to move those before
    /// them.
    fn has_arrived(&self, ahead: u64, n: u64) -> Result<bool, Errno> {
        Ok(seek::state(self.fd)?.arrived >= self.cursor.position(ahead).saturating_add(n))
    }
}

impl Source for KernelSource<'_> {
    fn receive(&mut self, into: &mut Scatter<'_, '_>, most: u64) -> Result<usize, Errno> {
        let room = into.next_room(usize::try_from(most).unwrap_or(usize::MAX));
        let n = socket::recv(self.fd, room, KernelRecv::empty())?;
        into.filled_in_place(n);
        self.cursor.received(n as u64);
        Ok(n)
    }

    fn receive_behind(
        &mut self,
        skip: &mut [u8],
        into: &mut Scatter<'_, '_>,
        most: u64,
    ) -> Result<Option<usize>, Errno> {
        let room = into.next_room(usize::try_from(most).unwrap_or(usize::MAX));
        if (room.len() as u64) < most {
            return Ok(None);
        }
        let skipped = skip.len();
        let n = match skipped {
            0 => socket::recv(self.fd, room, KernelRecv::empty())?,
            _ => {
                let bufs = &mut [IoSliceMut::new(skip), IoSliceMut::new(room)];
                socket::recv_vectored(self.fd, bufs, KernelRecv::empty())?
            }
        };
        into.filled_in_place(n.saturating_sub(skipped));
        self.cursor.received(n as u64);
        Ok(Some(n))
    }

    fn look(
        &mut self,
        ahead: u64,
        most: u64,
        into: &mut Scatter<'_, '_>,
    ) -> Result<LookAhead, Errno> {
        if self.cursor.method == SeekMethod::Drain {
            return Ok(LookAhead::Behind(u64::MAX));
        }
        let mut done = 0;
        while done < most {
            match self.look_once(ahead + done, most - done, into) {
                Ok(None) => return Ok(LookAhead::Behind(ahead.saturating_add(most))),
                Ok(Some(0)) => return Ok(LookAhead::Ended),
                Ok(Some(n)) => done += n,
                Err(Errno::AGAIN) => return Ok(LookAhead::Missing),
                Err(Errno::NOBUFS) if self.has_arrived(ahead + done, 1)? => {
                    return Ok(LookAhead::Behind(ahead.saturating_add(most)));
                }
                // They have not arrived, for lack of room, which the caller makes.
                Err(Errno::NOBUFS) => return Ok(LookAhead::Missing),
                Err(error) => return Err(error),
            }
        }
        Ok(LookAhead::Done)
    }

    fn take(
        &mut self,
        ahead: u64,
        most: u64,
        partial: bool,
        into: &mut Scatter<'_, '_>,
    ) -> Result<Option<Take>, Errno> {
        if self.cursor.method != SeekMethod::Module {
            return Ok(None);
        }
        let room = into.next_room(usize::try_from(most).unwrap_or(usize::MAX));
        if (room.len() as u64) < most {
            return Ok(None);
        }
        match seek::take(self.fd, self.cursor.position(ahead), room, partial) {
            Ok(n) => {
                into.filled_in_place(n);
                Ok(Some(Take::Taken(n as u64)))
            }
            Err(Errno::AGAIN) => Ok(Some(Take::Missing)),
            // They have arrived. Either TCP has no memory to move the bytes before them, which then
            // have to be received; or there would be too many holes, which `cut` reports.
            Err(Errno::NOBUFS)
                if self.has_arrived(ahead, if partial { most.min(1) } else { most })? =>
            {
                Ok(None)
            }
            Err(Errno::NOBUFS) => Ok(Some(Take::Missing)),
            Err(error) => Err(error),
        }
    }

    fn cut(&mut self, span: Span) -> Result<(), Errno> {
        if self.cursor.method == SeekMethod::Module {
            seek::discard(self.fd, self.cursor.position(span.start), span.len())?;
        }
        Ok(())
    }

    fn discard(&mut self, n: u64) -> Result<u64, Errno> {
        if self.cursor.method == SeekMethod::Module {
            // They are gone.
            self.cursor.received(n);
            return Ok(n);
        }
        let n = socket::discard(self.fd, usize::try_from(n).unwrap_or(usize::MAX))? as u64;
        self.cursor.received(n);
        Ok(n)
    }

    fn release(&mut self, _: Span, _: &dyn Fn(Span) -> bool) -> Result<(), Errno> {
        // The module has freed their memory. A stock kernel keeps it until the front reaches them.
        Ok(())
    }

    fn arrived(&mut self) -> Result<u64, Errno> {
        match self.cursor.method {
            SeekMethod::Module => {
                Ok(seek::state(self.fd)?.arrived.saturating_sub(self.cursor.front))
            }
            _ => Ok(socket::unread(self.fd)? as u64),
        }
    }

    fn has_only_error(&mut self, behind: u64) -> Result<bool, Errno> {
        Ok(poll::look(self.fd, Events::default())?.dead && self.arrived()? <= behind)
    }

    fn bulk_below(&self) -> u32 {
        cost::switch()
    }

    fn discards_cheaply(&self) -> bool {
        self.cursor.method == SeekMethod::Module
    }
}
