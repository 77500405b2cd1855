//! The places of a socket, and of a set, in an epoll set.

use std::any::Any;
use std::ffi::c_int;
use std::sync::Weak;

use libc::epoll_event;
use seekwire_transport::sys::fd::PrivateFd;

/// Refers to a set, which may be gone, for code that knows the type of the table's objects.
pub(crate) type PlaceOfSet = Weak<dyn Any + Send + Sync>;

/// A set inside another one, as the application added it.
pub(crate) struct InnerSet {
    pub(crate) place: PlaceOfSet,
    /// The number with which it was added.
    pub(crate) number: c_int,
    pub(crate) event: epoll_event,
}

/// The registration as the application asked for it.
pub(crate) struct Registration {
    pub(crate) set: PlaceOfSet,
    /// The number with which the socket was added: the kernel distinguishes duplicates by number.
    pub(crate) fd: c_int,
    /// The application's events and data.
    pub(crate) events: u32,
    /// The application's data.
    pub(crate) data: u64,
    /// Index of the watch in the set, once the connection is attached.
    pub(crate) watch: Option<u32>,
    /// Index of the watch if the application has removed the socket from the set but the kernel
    /// does not know.
    pub(crate) parked: Option<u32>,
    /// The number that replaces the application's in the set, because that was closed while others
    /// stand for the socket.
    pub(crate) stand_in: Option<PrivateFd>,
    /// The library has seen a wait on the set. Until then the kernel's set stays as the application
    /// made it.
    pub(crate) is_seen: bool,
    /// Another program may be about to get the set, so only the kernel handles it.
    pub(crate) is_bare: bool,
}

impl Registration {
    /// `is_seen`: a wait on the set was seen.
    pub(crate) fn new(
        set: PlaceOfSet,
        is_seen: bool,
        fd: c_int,
        event: epoll_event,
    ) -> Registration {
        let (events, data) = (event.events, event.u64);
        Registration {
            set,
            is_seen,
            fd,
            events,
            data,
            watch: None,
            parked: None,
            stand_in: None,
            is_bare: false,
        }
    }

    /// The number with which it is in the kernel's set.
    pub(crate) fn number(&self) -> c_int {
        self.stand_in_number().unwrap_or(self.fd)
    }

    /// The number of the stand-in, if there is one.
    pub(crate) fn stand_in_number(&self) -> Option<c_int> {
        self.stand_in.as_ref().map(|stand_in| stand_in.fd().raw())
    }
}
