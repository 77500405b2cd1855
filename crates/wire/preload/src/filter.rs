//! Filters of system calls (seccomp(2)): where one does not let through what the library needs,
//! the process is left as it would be without it.
//!
//! Nothing tells what a filter does that was there before: then nothing is tracked, unless
//! SEEKWIRE_SECCOMP says that it was tried ([`start`]). One that the program installs is looked at
//! first. If it is not harmless, every connection goes back to TCP, and all that belongs to the
//! library goes away, while it still may.

use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libc::sock_fprog;
use seekwire_endpoint::{Reason, Until};
use seekwire_transport::sys::{filter, thread};

use crate::departure::Departure;
use crate::ffi::guarded;
use crate::numbers::Last;
use crate::process::{self, Kind};
use crate::table::Object;
use crate::{hand_over, log, pointers, relay, start, stats, table, track};

const NAP: Duration = Duration::from_millis(1);

/// How long all connections together may take to go back to TCP.
const LIMIT: Duration = Duration::from_secs(5);

/// The program has installed a filter which lets through what connections need. What it does to
/// other calls is not known.
static IS_IN_PLACE: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_in_place() -> bool {
    IS_IN_PLACE.load(Ordering::Relaxed)
}

/// A mode of seccomp is about to be set; `program` is that of a filter.
///
/// # Safety
///
/// As for seccomp(2).
#[cold]
pub(crate) unsafe fn prepare(mode: c_ulong, program: *const sock_fprog) {
    guarded(|| {
        if !start::is_tracking() {
            return;
        }
        // SAFETY: as the caller promises.
        if mode == libc::SECCOMP_MODE_FILTER.into() && unsafe { is_harmless(program) } {
            log::debug!("a filter of system calls lets through what is needed");
            seekwire_endpoint::across::forbid();
            IS_IN_PLACE.store(true, Ordering::Relaxed);
            return;
        }
        match process::kind() {
            Kind::Own => retreat(),
            // Another thread has not done with it.
            Kind::Stranger if process::has_retreated() => retreat(),
            Kind::Stranger => forget(),
            // The table is its parent's, and it is about to become another program.
            Kind::Vfork => {}
        }
    });
}

/// # Safety
///
/// As for seccomp(2).
unsafe fn is_harmless(program: *const sock_fprog) -> bool {
    if !pointers::can_read(program, 1) {
        // The kernel says EFAULT.
        return true;
    }
    // SAFETY: it can be read.
    let program = unsafe { program.read_unaligned() };
    let (first, len) = (program.filter.cast_const(), usize::from(program.len));
    if !pointers::can_read(first, len) {
        return true;
    }
    // SAFETY: so many can be read. Should another thread change them meanwhile, the kernel may see
    // others than this does.
    let all = (0..len).map(|at| unsafe { first.add(at).read_unaligned() });
    filter::is_harmless(&all.collect::<Vec<_>>())
}

/// Everything goes back to TCP and to the kernel, and the library makes no call any more.
fn retreat() {
    /// Two threads may install filters at once; the second waits until nothing is left to do, but
    /// not for ever, since it may be a signal handler of the first. Not a lock of the library's: to
    /// a thread that holds one of those, all that follows is left for later.
    static RETREAT: Mutex<()> = Mutex::new(());
    let until = Until::after(Some(LIMIT * 2));
    let _alone = loop {
        match RETREAT.try_lock() {
            Ok(alone) => break alone,
            Err(_) if until.is_over() => return,
            Err(_) => thread::nap(NAP),
        }
    };
    if process::is_closing_down() {
        return;
    }
    log::warn!(
        "the program filters system calls, and not all that are needed come through: connections \
         go on by TCP"
    );
    start::stand_back();
    process::close_down();
    let objects: Vec<_> = table::entries().map(|(fd, object)| (fd, object.share())).collect();
    to_tcp(&objects);
    stats::write();
    // What was closed meanwhile may be in use.
    let retired = table::RETIRED.rest();
    let departure = Departure::begin(&objects, &retired);
    // The epoll sets last: until then they are told to watch for the kernel's events again.
    let (sockets, others): (Vec<_>, Vec<_>) =
        table::numbers().partition(|fd| table::socket(*fd).is_some());
    for fd in sockets.into_iter().chain(others) {
        track::untrack(fd, Last::Kept);
    }
    departure.end();
    table::RETIRED.reclaim();
    for object in objects.into_iter().map(|(_, object)| object).chain(retired) {
        if Arc::strong_count(&object) > 1 {
            // In a call of another thread, which must not be the one that frees it.
            std::mem::forget(object);
        }
    }
    seekwire_endpoint::leave();
    start::stand_down();
    table::close_up();
}

/// All connections go back to TCP, those that had not come to shared memory yet, too.
fn to_tcp(objects: &[(c_int, Arc<Object>)]) {
    let until = Until::after(Some(LIMIT));
    for &(fd, _) in objects {
        let Some(socket) = table::socket(fd).filter(|socket| !socket.is_listening()) else {
            continue;
        };
        if socket.connection.has_rest() && relay::is_read(&socket, |_| true) {
            if relay::goes_on_in_place(fd) == Ok(true) {
                continue;
            }
            if relay::has_found(&socket) {
                log::error!(
                    fd,
                    "unread bytes cannot be brought past the filter; receive them before"
                );
                relay::replace_numbers(socket, None, |_| true);
                continue;
            }
        }
        if !socket.connection.is_attached() && !socket.connection.is_seeking() {
            let _ = socket.fall_back(Reason::Filtered);
            if !socket.connection.is_attached() {
                continue;
            }
        }
        if hand_over::to_tcp_until(&socket, Reason::Filtered, until).is_err() {
            // What was sought in it is lost for the program; the log has told.
            let _ = socket.fall_back(Reason::Filtered);
        }
        socket.connection.finish_retransmission();
    }
}

/// The same in a child that has a copy of the memory and nothing else: nothing is its own.
fn forget() {
    start::stand_back();
    for fd in table::numbers() {
        track::forget(fd);
    }
    process::retreat();
    start::stand_down();
    table::close_up();
}
