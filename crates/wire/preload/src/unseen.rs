//! Rings of io_uring(7) that were made without a call to libc, and those of kinds that are not
//! known here, are not understood. What the program does by them is not seen, so nothing is
//! accelerated in a process that has one.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use seekwire_endpoint::{Reason, permission};
use seekwire_transport::sys::file;

use crate::ffi::guarded;
use crate::hand_over::to_tcp;
use crate::{log, table};

/// There is a ring that is not understood: whatever is accelerated goes back to TCP, and nothing is
/// from now on.
#[cold]
pub(crate) fn give_up() {
    if permission::is_forbidden() {
        return;
    }
    permission::forbid();
    log::warn!("this program has an io_uring that is not understood: its connections stay on TCP");
    for fd in table::numbers() {
        if let Some(socket) = table::socket(fd)
            && socket.connection.is_attached()
        {
            let _ = to_tcp(&socket, Reason::Bypassed);
        }
    }
}

/// A ring was made by somebody who may not have called libc for it.
pub(crate) fn look() {
    guarded(|| {
        if has_unknown() {
            give_up();
        }
    });
}

/// To be called when the process starts.
pub(crate) fn start() {
    permission::look_before(|| {
        /// Connections that came to shared memory, and at how many to look again. A look costs the
        /// more, the more there are, so all of them get by with a few steps for each.
        static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let connections = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        if connections < NEXT.load(Ordering::Relaxed) {
            return;
        }
        NEXT.store(connections + (connections / 8).max(1), Ordering::Relaxed);
        if has_unknown() {
            log::warn!(
                "this program has an io_uring that is not understood: its connections stay on TCP"
            );
            permission::forbid();
            // A connection that is about to be attached is asked for, and must not be waited for.
            for fd in table::numbers() {
                if let Some(socket) =
                    table::socket(fd).filter(|socket| socket.connection.is_attached())
                {
                    let _ = socket.connection.fall_back(Reason::Bypassed);
                }
            }
        }
    });
}

/// Whether this process has a ring that was made unseen.
fn has_unknown() -> bool {
    const NUMBERS: &str = "/proc/self/fd";
    let is_uring = |fd: c_int| {
        let name = std::fs::read_link(PathBuf::from(NUMBERS).join(fd.to_string()));
        name.is_ok_and(|name| name.as_os_str() == "anon_inode:[io_uring]")
    };
    let names = file::names(NUMBERS.as_ref()).unwrap_or_default();
    let mut numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    numbers.any(|fd| is_uring(fd) && table::uring(fd).is_none())
}
