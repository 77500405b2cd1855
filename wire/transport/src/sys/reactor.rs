//! A descriptor in the reactor of a tokio runtime, edge-triggered: each event wakes once, whatever
//! is pending already.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::{Context, Poll};

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{Interest, Ready};

use super::Fd;
use super::fd::PrivateFd;

/// Another descriptor of a file, which the reactor watches while this lives.
#[derive(Debug)]
pub struct Watched(AsyncFd<Own>);

#[derive(Debug)]
struct Own(PrivateFd);

impl AsRawFd for Own {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Watched {
    /// Watches a socket for bytes to read and room to write.
    ///
    /// # Errors
    /// Those of epoll_ctl(2); EMFILE.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or in one without I/O.
    pub fn socket(fd: Fd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches a doorbell for rings. It need not be silenced.
    ///
    /// # Errors
    /// As [`Watched::socket`].
    ///
    /// # Panics
    /// As [`Watched::socket`].
    pub fn doorbell(fd: Fd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE)
    }

    fn new(fd: Fd, interest: Interest) -> io::Result<Self> {
        let own = Own(PrivateFd::duplicate(fd)?);
        // SAFETY: the descriptor is `own`'s, which gives it to nobody, never changes it, and closes
        // it when it is dropped: after the reactor has forgotten it.
        let watched = unsafe { AsyncFd::register_with_interest(own, interest) };
        Ok(Self(watched?))
    }

    /// Forgets the events so far; from now on events wake only the task of `cx`. A direction that
    /// has ended wakes it no more: a receive or a send returns that at once.
    ///
    /// # Errors
    /// If the runtime is gone.
    pub fn listen(&self, cx: &mut Context<'_>) -> io::Result<()> {
        while let Poll::Ready(guard) = self.0.poll_read_ready(cx) {
            if !forget(guard?) {
                break;
            }
        }
        while let Poll::Ready(guard) = self.0.poll_write_ready(cx) {
            if !forget(guard?) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether there was an event to forget; the end of a direction is never forgotten.
fn forget(mut guard: AsyncFdReadyGuard<'_, Own>) -> bool {
    let events = guard.ready() - Ready::READ_CLOSED - Ready::WRITE_CLOSED;
    guard.clear_ready();
    !events.is_empty()
}
