//! Whether the kernel or the library makes a call on a tracked socket, and how it ends.

use std::cell::Cell;
use std::time::Duration;

use seekwire_endpoint::{Plain, Reason, Settings};
use seekwire_transport::Errno;
use seekwire_transport::sys::signal::HeldBack;

use crate::socket::Socket;
use crate::table::{self, SocketRef};
use crate::{ffi, process, signals};

/// The way of a call.
pub(crate) enum CallPath<'c> {
    /// Through the kernel's own call, inside this bracket.
    Plain(Plain<'c>),
    /// Through the library: the connection is attached, or seeks.
    Library,
    /// Through the kernel's own call, untracked: the library has panicked.
    Unseen,
}

impl<'c> CallPath<'c> {
    /// Through a bracket of the connection, if it provides one.
    fn choose(enter: impl FnOnce() -> Option<Plain<'c>>) -> Self {
        ffi::guarded(|| enter().map_or(CallPath::Library, CallPath::Plain))
            .unwrap_or(CallPath::Unseen)
    }
}

impl SocketRef {
    /// The way of a call that begins now.
    #[inline]
    pub(crate) fn enter(&self) -> CallPath<'_> {
        if self.connection.is_attached() {
            return CallPath::Library;
        }
        match self.connection.enter_plain_at_once() {
            Some(plain) => CallPath::Plain(plain),
            None => self.with_sets_updated(CallPath::choose(|| self.connection.enter_plain())),
        }
    }

    /// The connection may have attached just now. Sets that contain it learn of that at once, since
    /// the call may take long.
    fn with_sets_updated<'c>(&self, path: CallPath<'c>) -> CallPath<'c> {
        if matches!(path, CallPath::Library) {
            self.update_sets();
        }
        path
    }

    /// Like [`Self::enter`], for poll and select.
    #[inline]
    pub(crate) fn enter_to_wait(&self) -> CallPath<'_> {
        self.connection.note_poll();
        self.enter()
    }

    /// Like [`Self::enter`], for a call that receives. It goes through the library if the
    /// connection seeks, because the kernel's socket then lacks some of the next bytes, and has
    /// bytes that were already taken; and if there is a spill, which comes first.
    #[inline]
    pub(crate) fn enter_to_receive(&self) -> CallPath<'_> {
        if self.connection.receives_by_library() {
            return CallPath::Library;
        }
        match self.connection.enter_plain_to_receive_at_once() {
            Some(plain) => CallPath::Plain(plain),
            None => self
                .with_sets_updated(CallPath::choose(|| self.connection.enter_plain_to_receive())),
        }
    }

    /// Leaves the bracket that [`Self::enter`] returned.
    #[inline]
    pub(crate) fn leave_plain(&self, plain: Plain<'_>) {
        if plain.leave() && !process::retreats() {
            ffi::guarded(|| self.connection.catch_up());
        }
    }

    /// Ends a call through the library: updates the sets, and takes the connection back to TCP if
    /// the program is about to wait for it out of the library's sight. Returns true if it did: the
    /// call must be made again, because the peer may have sent something in the meantime.
    #[inline]
    pub(crate) fn end_call(&self, error: Option<Errno>) -> bool {
        let has_left = error == Some(Errno::AGAIN)
            && ffi::guarded(|| self.connection.note_would_block()) == Some(true);
        self.update_sets();
        has_left
    }

    /// Moves the connection to TCP for good, before the caller sends with a call of its own. Returns
    /// false if these bytes would overtake earlier ones.
    pub(crate) fn send_by_tcp(&self, why: Reason) -> bool {
        let _ = self.fall_back(why);
        let is_free = ffi::guarded(|| self.connection.stay_on_tcp()).unwrap_or(true);
        // It is unknown whether the caller finds room.
        self.note_starved();
        self.update_sets();
        is_free
    }

    /// Moves the connection to TCP for good. Bytes that the peer has already put on the ring come
    /// first.
    pub(crate) fn fall_back(&self, why: Reason) -> Result<(), Errno> {
        let result = ffi::guarded(|| self.connection.fall_back(why)).unwrap_or(Err(Errno::IO));
        self.update_sets();
        result
    }

    /// Prepares to restart a call that a signal has interrupted, as the kernel would: by number.
    /// Returns false if only the kernel can know the number now.
    ///
    /// # Errors
    /// EBADF if the number stands for another object of the library.
    pub(crate) fn begin_again(&self) -> Result<bool, Errno> {
        let fd = self.number();
        match table::lookup(fd) {
            _ if !self.connection.is_closed()
                && self.numbers().lock_in_handler().is_none_or(|now| now.has(fd)) =>
            {
                Ok(true)
            }
            None => Ok(false),
            Some(_) => Err(Errno::BADF),
        }
    }
}

/// A part of an application's call.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Part {
    /// The whole call, or its first part.
    First,
    /// A part after others that have moved something.
    Later,
}

/// An application's call that is made in parts.
///
/// A signal that arrives after something was moved, also between two parts, ends the call at its
/// next wait. So signals are admitted only during its sleeps.
pub(crate) struct Parts {
    now: Cell<Part>,
    signals: Cell<Option<HeldBack>>,
}

impl Parts {
    /// For a call that may have several parts.
    pub(crate) fn new(are_several: bool) -> Parts {
        Parts { now: Cell::new(Part::First), signals: Cell::new(are_several.then(HeldBack::new)) }
    }

    /// Begins the next part; all previous ones have moved something.
    pub(crate) fn next(&self) -> Part {
        self.now.replace(Part::Later)
    }

    /// The kernel makes this part, and admits signals itself.
    pub(crate) fn leave_to_kernel(&self) {
        self.signals.take();
    }
}

/// A call in progress. A call with a time limit, or that has moved something, is never restarted
/// after a signal, whatever limit has been set since.
pub(crate) struct StartedCall {
    timeout: fn(&Settings) -> Option<Duration>,
    part: Part,
    is_limited: bool,
    limits_set: u32,
}

impl StartedCall {
    pub(crate) fn receive(socket: &Socket, part: Part) -> StartedCall {
        StartedCall::new(socket, Settings::recv_timeout, part)
    }

    pub(crate) fn send(socket: &Socket, part: Part) -> StartedCall {
        StartedCall::new(socket, Settings::send_timeout, part)
    }

    fn new(socket: &Socket, timeout: fn(&Settings) -> Option<Duration>, part: Part) -> StartedCall {
        let is_limited = timeout(socket.connection.settings()).is_some();
        StartedCall { timeout, part, is_limited, limits_set: socket.limits_set() }
    }

    /// Whether the call is restarted after a signal has interrupted it.
    pub(crate) fn restarts(&self, socket: &Socket) -> bool {
        self.part == Part::First && !self.was_limited(socket) && signals::restart()
    }

    fn was_limited(&self, socket: &Socket) -> bool {
        let is_as_it_was = || socket.limits_set() == self.limits_set;
        // The call has found out about limits that another process had set before.
        self.is_limited
            || ((self.timeout)(socket.connection.settings()).is_some() && is_as_it_was())
    }
}
