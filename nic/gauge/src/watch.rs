//! Watches for what ends a test early, on behalf of the thread that moves its bytes.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::limits::{ANSWER_LIMIT, GLANCE};

/// Whether the caller wants no more.
pub(crate) type Interrupted<'a> = &'a dyn Fn() -> bool;

/// What one who moves bytes looks at.
pub(crate) trait Watch {
    /// Longest time that one call on the connection takes; [`ANSWER_LIMIT`] is a multiple of it.
    const SLICE: Duration;

    /// Fails when it is to end. Called after each call on the connection.
    fn look(&self) -> Result<(), Error>;
}

/// A server's: who ends its test closes its connections.
pub(crate) struct Closing;

impl Watch for Closing {
    const SLICE: Duration = ANSWER_LIMIT;

    fn look(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A client's.
pub(crate) struct Caller<'a> {
    interrupted: Interrupted<'a>,
    /// When the other end has taken too long, though it has never been silent.
    until: Instant,
    /// When to ask the caller again, who may take longer to answer than a message does.
    next: Cell<Instant>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(interrupted: Interrupted<'a>, until: Instant) -> Self {
        Self { interrupted, until, next: Cell::new(Instant::now()) }
    }
}

impl Watch for Caller<'_> {
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
            let reason = "it takes far longer than the test should";
            return Err(Error::Gone(io::Error::new(ErrorKind::TimedOut, reason)));
        }
        Ok(())
    }
}
