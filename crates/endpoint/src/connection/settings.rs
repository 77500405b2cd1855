//! How long a call may wait, which is the socket's to say, not this process's.
//!
//! O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO and SO_RCVLOWAT belong to what a descriptor stands for; another process that has
//! the socket from a fork may set them. The kernel looks at them when a call begins. What this process last knew is good
//! enough for a call that finds what it wants; before it sleeps for the first time, or says that it would have to, the kernel is
//! asked. SO_RCVLOWAT says what a call finds: it is in the memory of the end, which processes share that have it from a fork.

use std::cell::Cell;
use std::time::Duration;

use seekwire_transport::sys::poll::Deadline;

use super::Connection;

#[derive(Clone, Copy, Debug)]
enum For {
    Receive,
    Send,
}

/// How long one call may wait.
#[derive(Debug)]
pub(super) struct Limit {
    /// Known once the call has slept.
    until: Cell<Option<Deadline>>,
    what: For,
}

impl Limit {
    /// Of a call that receives.
    pub(super) fn receive() -> Self {
        Self { until: Cell::new(None), what: For::Receive }
    }

    /// Of a call that sends.
    pub(super) fn send() -> Self {
        Self { until: Cell::new(None), what: For::Send }
    }

    /// Of a call of which it is known already.
    pub(super) fn known(until: Deadline) -> Self {
        Self { until: Cell::new(Some(until)), what: For::Receive }
    }

    /// Whether the kernel was asked.
    pub(super) fn is_known(&self) -> bool {
        self.until.get().is_some()
    }

    /// Whether a call that found nothing may not wait at all.
    pub(super) fn forbids(&self, connection: &Connection, dont_wait: bool) -> bool {
        dont_wait
            || (self.until.get().is_none() && connection.is_nonblocking() && {
                connection.read_settings();
                connection.is_nonblocking()
            })
    }

    /// To be asked before a sleep; `None` if the call has to look again at what it knows now: it may not wait, or not
    /// for so much.
    pub(super) fn until(&self, connection: &Connection) -> Option<Deadline> {
        if self.until.get().is_none() {
            let wanted = connection.recv_low_water();
            connection.read_settings();
            if connection.is_nonblocking() {
                return None;
            }
            let timeout = match self.what {
                For::Receive => connection.recv_timeout(),
                For::Send => connection.send_timeout(),
            };
            self.until.set(Some(Deadline::after(timeout)));
            if connection.recv_low_water() < wanted {
                return None;
            }
        }
        self.until.get()
    }

    /// As [`Limit::until`], for a call that asks for all that it wants in any case, and then whether that is forbidden.
    pub(super) fn once(&self, connection: &Connection) -> Deadline {
        let now = || Deadline::after(Some(Duration::ZERO));
        self.until(connection).or_else(|| self.until(connection)).unwrap_or_else(now)
    }
}
