//! System call filters (seccomp(2)): if one blocks calls that the library needs, the process
//! continues as it would without the library.
//!
//! The effect of a filter that was there before is unknown: then nothing is tracked, unless
//! SEEKWIRE_SECCOMP says that it was tried ([`start`](crate::start)). A filter that the program installs is
//! examined first. If it is not harmless, every connection goes back to TCP, and all that belongs
//! to the library is removed while that is still allowed.

use std::ffi::{c_int, c_ulong};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libc::sock_fprog;
use seekwire_endpoint::{HandedOver, Reason, Until};
use seekwire_transport::sys::{filter, socket as kernel, thread};

use crate::fd_numbers::Last;
use crate::ffi::guarded;
use crate::process::{self, ProcessKind};
use crate::table::{Object, SocketRef};
use crate::unload::Unload;
use crate::{fallback, fork, log, pointers, relay, replacement, stats, table, track, tracking};

const NAP: Duration = Duration::from_millis(1);

/// How long all connections together may take to go back to TCP.
const LIMIT: Duration = Duration::from_secs(5);

/// Called before a mode of seccomp is set in a process whose sockets are or may be tracked;
/// `program` is that of a filter.
///
/// # Safety
///
/// As for seccomp(2).
#[cold]
pub(crate) unsafe fn prepare(mode: c_ulong, program: *const sock_fprog) {
    guarded(|| {
        // SAFETY: as the caller promises.
        if mode == libc::SECCOMP_MODE_FILTER.into() && unsafe { is_harmless(program) } {
            log::debug!("the system call filter allows all calls that the library needs");
            seekwire_endpoint::machine_links::forbid();
            process::note_filter();
            return;
        }
        match process::kind() {
            ProcessKind::Own => retreat(),
            // Another thread has not finished leaving.
            ProcessKind::RawFork if process::has_retreated() => retreat(),
            ProcessKind::RawFork => forget(),
            // The table belongs to the parent, and this process is about to become another program.
            ProcessKind::Vfork => {}
        }
    });
}

/// # Safety
///
/// As for seccomp(2).
unsafe fn is_harmless(program: *const sock_fprog) -> bool {
    if !pointers::can_read(program, 1) {
        // The kernel returns EFAULT.
        return true;
    }
    // SAFETY: it can be read.
    let program = unsafe { program.read_unaligned() };
    let (first, len) = (program.filter.cast_const(), usize::from(program.len));
    if !pointers::can_read(first, len) {
        return true;
    }
    // SAFETY: this many can be read. If another thread changes them in the meantime, the kernel may
    // see others than this code.
    let all = (0..len).map(|at| unsafe { first.add(at).read_unaligned() });
    filter::is_harmless(&all.collect::<Vec<_>>())
}

/// Moves all connections back to TCP and to the kernel; the library makes no calls any more.
fn retreat() {
    /// Two threads may install filters at once. The second waits until the first has finished, but
    /// not for ever, because it may be a signal handler that interrupted the first. Not one of the
    /// library's own locks: a thread that holds one of those postpones all following work.
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
        "the program filters system calls, and blocks some that the library needs: connections go \
         back to TCP"
    );
    tracking::stand_back();
    process::close_down();
    let objects: Vec<_> = table::entries().map(|(fd, object)| (fd, object.share())).collect();
    to_tcp(&objects);
    stats::write();
    // Objects that were closed in the meantime may be in use.
    let retired = table::RETIRED.rest();
    let unload = Unload::begin(&objects, &retired);
    // A thread that forks uses no object.
    fork::await_end();
    // The epoll sets come last: until then they are updated to watch the kernel's events again.
    let (sockets, others): (Vec<_>, Vec<_>) =
        table::numbers().partition(|fd| table::socket(*fd).is_some());
    for fd in sockets.into_iter().chain(others) {
        track::untrack(fd, Last::Kept);
    }
    unload.end();
    table::RETIRED.reclaim();
    for object in objects.into_iter().map(|(_, object)| object).chain(retired) {
        if Arc::strong_count(&object) > 1 {
            // Another thread uses it in a call, and must not be the one that frees it.
            std::mem::forget(object);
        }
    }
    seekwire_endpoint::leave();
    tracking::stand_down();
    table::close_up();
}

/// Moves all connections back to TCP, also those that had not come to shared memory yet.
fn to_tcp(objects: &[(c_int, Arc<Object>)]) {
    let until = Until::after(Some(LIMIT));
    for &(fd, _) in objects {
        let Some(socket) = table::socket(fd).filter(|socket| !socket.is_listening()) else {
            continue;
        };
        if !socket.connection.receives_by_library() {
            let _ = socket.fall_back(Reason::Filtered);
            if !socket.connection.is_attached() {
                continue;
            }
        }
        let handed_over = fallback::to_tcp_until(&socket, Reason::Filtered, until);
        if handed_over.is_err() {
            // The log has reported that the program loses bytes that were received out of order.
            let _ = socket.fall_back(Reason::Filtered);
        }
        socket.connection.finish_retransmission();
        if handed_over == Ok(HandedOver::Later)
            && relay::would_miss(&socket)
            && relay::is_read(&socket, |_| true)
            && replacement::goes_on_in_place(fd) != Ok(true)
        {
            end_with_error(fd, socket);
        }
    }
    // Not before, because each may have the other end of another one.
    for socket in objects.iter().filter_map(|&(fd, _)| table::socket(fd)) {
        socket.connection.stay_on_tcp();
    }
}

/// The program finds an error in place of unread bytes that cannot reach it.
fn end_with_error(fd: c_int, socket: SocketRef) {
    log::error!(fd, "unread bytes cannot be received under the filter; receive them before");
    if relay::has_found(&socket) {
        // Other programs may go on with it.
        replacement::replace_numbers(socket, None, |_| true);
    } else {
        kernel::reset(socket.connection.fd());
    }
}

/// The same in a child with a mere copy of the memory: nothing belongs to it.
fn forget() {
    tracking::stand_back();
    for fd in table::numbers() {
        track::forget(fd);
    }
    process::retreat();
    tracking::stand_down();
    table::close_up();
}
