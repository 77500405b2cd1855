//! How a call on a tracked socket is made, by the kernel or by the library, and how it ends.

use std::time::Duration;

use seekwire_endpoint::{Plain, Reason, Settings};
use seekwire_transport::Errno;

use crate::socket::Socket;
use crate::table::{self, SocketRef};
use crate::{ffi, process};

/// By which way a call goes.
pub(crate) enum Way<'c> {
    /// By the kernel's own call, inside this bracket.
    Plain(Plain<'c>),
    /// By the library: the connection is attached, or seeks.
    Library,
    /// By the kernel's own call, unseen: the library has panicked.
    Unseen,
}

impl<'c> Way<'c> {
    /// By a bracket of the connection's, if it gives one.
    fn choose(enter: impl FnOnce() -> Option<Plain<'c>>) -> Self {
        ffi::guarded(|| enter().map_or(Way::Library, Way::Plain)).unwrap_or(Way::Unseen)
    }
}

impl SocketRef {
    /// By which way a call goes now.
    #[inline]
    pub(crate) fn enter(&self) -> Way<'_> {
        if self.connection.is_attached() {
            return Way::Library;
        }
        match self.connection.enter_plain_at_once() {
            Some(plain) => Way::Plain(plain),
            None => Way::choose(|| self.connection.enter_plain()),
        }
    }

    /// As [`Self::enter`] for poll and select.
    #[inline]
    pub(crate) fn enter_to_wait(&self) -> Way<'_> {
        self.connection.note_poll();
        self.enter()
    }

    /// As [`Self::enter`] for a call that receives: by the library also if the connection seeks,
    /// because the kernel's socket then does not have all that comes next, and has what was taken
    /// before; or if there is a rest, which comes first.
    #[inline]
    pub(crate) fn enter_to_receive(&self) -> Way<'_> {
        if self.connection.receives_by_library() {
            return Way::Library;
        }
        match self.connection.enter_plain_to_receive_at_once() {
            Some(plain) => Way::Plain(plain),
            None => Way::choose(|| self.connection.enter_plain_to_receive()),
        }
    }

    /// Leaves the bracket that [`Self::enter`] gave.
    #[inline]
    pub(crate) fn leave_plain(&self, plain: Plain<'_>) {
        if plain.leave() && !process::retreats() {
            ffi::guarded(|| self.connection.catch_up());
        }
    }

    /// Ends a call of the library's: tells the sets what has changed, and takes the connection back
    /// to TCP if the program is to wait for it unseen. True if it did: the call is to be made again,
    /// for what the peer has done meanwhile.
    #[inline]
    pub(crate) fn end_call(&self, error: Option<Errno>) -> bool {
        let has_left = error == Some(Errno::AGAIN)
            && ffi::guarded(|| self.connection.note_would_block()) == Some(true);
        self.update_sets();
        has_left
    }

    /// Moves the connection to TCP for good, before the caller sends by a call of its own.
    pub(crate) fn send_by_tcp(&self, why: Reason) {
        let _ = self.fall_back(why);
        ffi::guarded(|| self.connection.stay_on_tcp());
        // Whether the caller finds room is not seen.
        self.note_starved();
    }

    /// Moves the connection to TCP for good. The bytes that the peer has put on the ring by now
    /// come first.
    pub(crate) fn fall_back(&self, why: Reason) -> Result<(), Errno> {
        let result = ffi::guarded(|| self.connection.fall_back(why)).unwrap_or(Err(Errno::IO));
        self.update_sets();
        result
    }

    /// A call that a signal interrupted begins again, as the kernel would have it: by its number.
    /// False: that is for the kernel alone to know now, if anybody.
    ///
    /// # Errors
    /// EBADF when the number stands for another object of the library's.
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

/// A call that has begun. One with a time limit is never started again after a signal, whatever has
/// been set since it began.
pub(crate) struct Begun {
    timeout: fn(&Settings) -> Option<Duration>,
    is_limited: bool,
    limits_set: u32,
}

impl Begun {
    pub(crate) fn receive(socket: &Socket) -> Begun {
        Begun::new(socket, Settings::recv_timeout)
    }

    pub(crate) fn send(socket: &Socket) -> Begun {
        Begun::new(socket, Settings::send_timeout)
    }

    fn new(socket: &Socket, timeout: fn(&Settings) -> Option<Duration>) -> Begun {
        let is_limited = timeout(socket.connection.settings()).is_some();
        Begun { timeout, is_limited, limits_set: socket.limits_set() }
    }

    pub(crate) fn was_limited(&self, socket: &Socket) -> bool {
        let is_as_it_was = || socket.limits_set() == self.limits_set;
        // What another process had set before, the call has found out.
        self.is_limited
            || ((self.timeout)(socket.connection.settings()).is_some() && is_as_it_was())
    }
}
