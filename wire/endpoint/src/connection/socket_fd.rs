//! The number of the socket, and the calls that sleep on it.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use std::sync::{Arc, Mutex};

use seekwire_transport::sys::Fd;

use crate::held_file::HeldFile;

/// The number that this process knows the socket by, and the calls that sleep on it.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) fd: AtomicI32,
    pub(super) hold: Mutex<Hold>,
    /// Whether calls that sleep hold the file: see [`Connection::hold_in_sleep`].
    ///
    /// [`Connection::hold_in_sleep`]: super::Connection::hold_in_sleep
    pub(super) holds_in_sleep: AtomicBool,
    /// Threads in a call that sleeps.
    pub(super) asleep: AtomicU32,
    /// The application has closed its last number of the socket.
    pub(super) is_closed: AtomicBool,
}

impl Number {
    pub(super) fn new(fd: Fd) -> Self {
        Self {
            fd: AtomicI32::new(fd.raw()),
            hold: Mutex::default(),
            holds_in_sleep: AtomicBool::new(false),
            asleep: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
        }
    }
}

/// State that calls which sleep, or have slept, share.
#[derive(Debug, Default)]
pub(super) struct Hold {
    pub(super) calls: u32,
    pub(super) file: Option<Arc<HeldFile>>,
    /// The application has closed its last number.
    pub(super) is_closing: bool,
}
