//! Rings of io_uring(7) that were made without a call to libc, or are of unknown kinds, cannot be
//! followed. The library does not see the program's operations on them, so nothing is accelerated
//! in a process that has one.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use seekwire_endpoint::{HandedOver, Reason, eligibility};
use seekwire_transport::sys::file;

use crate::fallback::to_tcp;
use crate::ffi::guarded;
use crate::{log, relay, replacement, table};

/// Called when there is a ring that cannot be followed: accelerated connections go back to TCP, and
/// no others are accelerated from now on.
#[cold]
pub(crate) fn give_up() {
    if eligibility::is_forbidden() {
        return;
    }
    eligibility::forbid();
    log::warn!("this program has an io_uring that cannot be followed: its connections stay on TCP");
    let attached = || {
        let sockets = table::numbers().filter_map(table::socket);
        sockets.filter(|socket| socket.connection.is_attached())
    };
    attached().for_each(|socket| {
        let handed_over = to_tcp(&socket, Reason::Bypassed);
        if handed_over == Ok(HandedOver::Later) && relay::would_miss(&socket) {
            // Operations on the socket itself would not find the bytes that are left.
            let _ = guarded(|| replacement::goes_on_in_place(socket.number()));
        }
    });
    // Not before, because each may have the other end of another one.
    attached().for_each(|socket| _ = guarded(|| socket.connection.stay_on_tcp()));
}

/// Checks for rings when one may have been made without calling libc.
pub(crate) fn look() {
    guarded(|| {
        if has_unknown() {
            give_up();
        }
    });
}

/// Call it when the process starts.
pub(crate) fn start() {
    eligibility::look_before(|| {
        /// Number of connections that came to shared memory; then the number at which to check
        /// again. A check costs more the more connections there are, so the intervals grow with
        /// their number.
        static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let connections = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        if connections < NEXT.load(Ordering::Relaxed) {
            return;
        }
        NEXT.store(connections + (connections / 8).max(1), Ordering::Relaxed);
        if has_unknown() {
            log::warn!(
                "this program has an io_uring that cannot be followed: its connections stay on TCP"
            );
            eligibility::forbid();
            // Falls back only for attached connections: the one that is about to be attached asked
            // for this check, and must not be waited for.
            for fd in table::numbers() {
                if let Some(socket) =
                    table::socket(fd).filter(|socket| socket.connection.is_attached())
                {
                    let _ = socket.connection.fall_back(Reason::Bypassed);
                    socket.connection.stay_on_tcp();
                }
            }
        }
    });
}

/// True if this process has a ring whose creation the library did not see.
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
