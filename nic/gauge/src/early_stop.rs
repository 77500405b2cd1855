//! Checks for an early end of a test, on behalf of the thread that moves its bytes.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::limits::{ANSWER_LIMIT, GLANCE};

/// Returns true when the caller wants to stop.
pub(crate) type Interrupted<'a> = &'a dyn Fn() -> bool;

/// A check for an early end, made by the thread that moves the bytes.
pub(crate) trait EarlyStop {
    /// Timeout of one call on the connection; [`ANSWER_LIMIT`] is a multiple of it.
    const SLICE: Duration;

    /// Fails when the test has to end. Called after each call on the connection.
    fn look(&self) -> Result<(), Error>;
}

/// The check of a server, which ends a test by shutting its connection down.
pub(crate) struct Closing;

impl EarlyStop for Closing {
    const SLICE: Duration = ANSWER_LIMIT;

    fn look(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The check of a client.
pub(crate) struct Caller<'a> {
    interrupted: Interrupted<'a>,
    /// Deadline of the test, even if the other end keeps sending.
    until: Instant,
    /// When to call `interrupted` again: it may take longer than a message.
    next: Cell<Instant>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(interrupted: Interrupted<'a>, until: Instant) -> Self {
        Self { interrupted, until, next: Cell::new(Instant::now()) }
    }
}

impl EarlyStop for Caller<'_> {
    const SLICE: Duration = GLANCE;

    fn look(&self) -> Result<(), Error> {
        let now = Instant::now();
        if now < self.next.get() {
            return Ok(());
        }
        self.next.set(now + GLANCE);
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        if now > self.until {
            let reason = "the test takes far longer than it should";
            return Err(Error::Gone(io::Error::new(ErrorKind::TimedOut, reason)));
        }
        Ok(())
    }
}
