//! Passes a data connection from the thread that accepted it to the thread that waits for it.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::error::Error;
use crate::limits::ANSWER_LIMIT;

/// A slot through which one connection is handed over.
pub(crate) struct Handover<T> {
    connection: Mutex<Option<T>>,
    came: OwnedFd,
}

impl<T> Handover<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let came = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { connection: Mutex::new(None), came })
    }

    /// Hands the connection over. If the waiting thread gave up, its handover drops the connection.
    pub(crate) fn give(&self, connection: T) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        // It fails only when the counter overflows, after 2^64 writes.
        let _ = rustix::io::write(&self.came, &1u64.to_ne_bytes());
    }

    /// Waits for the connection. Fails if the client closes its control connection or sends
    /// anything on it meanwhile.
    pub(crate) fn take(&self, control: &TcpStream) -> Result<T, Error> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            let ended = PollFlags::IN | PollFlags::RDHUP;
            let mut fds = [PollFd::new(&self.came, PollFlags::IN), PollFd::new(control, ended)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(Error::Silent(ANSWER_LIMIT.as_secs())),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    return Err(Error::host("cannot wait for a connection")(errno.into()));
                }
            }
            if let Some(connection) =
                self.connection.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                return Ok(connection);
            }
            return Err(match control.peek(&mut [0]) {
                Ok(0) => io::Error::from(ErrorKind::UnexpectedEof).into(),
                Ok(_) => Error::Protocol(
                    "it sent another request before it opened its data connection".to_owned(),
                ),
                Err(error) => error.into(),
            });
        }
    }
}
