//! The life of the process: start and end.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use seekwire_endpoint::Config;
use seekwire_transport::sys::{fd, filter, limit};

use crate::ffi::{self, guarded, keeping_errno};
use crate::process::{self, Kind};
use crate::{fork, found, hazard, loader, log, real, stats, syscall, table, unseen, unwinder};

static ON: AtomicBool = AtomicBool::new(false);
static READY: AtomicBool = AtomicBool::new(false);
static STARTED: Once = Once::new();

/// Runs before main, and before the constructors of the program's other libraries or after them:
/// nothing relies on which.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        guarded(start);
    }
    constructor
};

/// Runs after exit()'s handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destructor() {
        end();
    }
    destructor
};

/// Whether sockets are tracked as soon as they are made. Switched off, every function is libc's,
/// because nothing is found in the table but what the program itself seeks in.
#[inline]
pub(crate) fn is_on() -> bool {
    if !STARTED.is_completed() {
        // A constructor that runs before ours.
        guarded(start);
    }
    ON.load(Ordering::Relaxed)
}

/// Whether sockets are, or may be, tracked.
#[inline]
pub(crate) fn is_tracking() -> bool {
    is_on() || READY.load(Ordering::Relaxed)
}

fn start() {
    STARTED.call_once(|| {
        keeping_errno(unwinder::start);
        syscall::start();
        loader::start();
        let config = keeping_errno(Config::get);
        // Of filters that are there already nobody can say what they do.
        let filters = if config.enabled { keeping_errno(filter::installed) } else { Some(0) };
        if filters.is_none_or(|filters| filters > config.seccomp) {
            keeping_errno(|| {
                fd::set_floor(floor());
                log::start();
                match filters {
                    None => log::warn!(
                        "/proc/self/status cannot be read, so nobody knows whether system calls are \
                         filtered: nothing is accelerated; mount /proc"
                    ),
                    Some(_) => log::warn!(
                        "system calls are filtered (seccomp), and what the library needs may not come \
                         through: nothing is accelerated; see SEEKWIRE_SECCOMP in seekwire(7)"
                    ),
                }
            });
        } else if config.enabled {
            prepare();
            unseen::start();
            ON.store(true, Ordering::Release);
        } else if !config.complaints.is_empty() {
            // Perhaps it was not meant to be off.
            keeping_errno(|| {
                fd::set_floor(floor());
                log::start();
            });
        }
        real::let_next_copy_stand_back();
    });
    static FOUND: Once = Once::new();
    if ON.load(Ordering::Relaxed) {
        FOUND.call_once(|| keeping_errno(found::start));
    }
}

/// Another copy of this library, linked into the program itself, comes before this one, which was
/// preloaded: two would each take the other for the C library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn seekwire_stand_back() {
    // What this one has begun is over first.
    STARTED.call_once(|| {});
    stand_down();
}

/// No further socket is tracked.
pub(crate) fn stand_down() {
    stand_back();
    READY.store(false, Ordering::Release);
}

/// No further socket is tracked, but those that the program seeks in.
pub(crate) fn stand_back() {
    ON.store(false, Ordering::Release);
}

/// Makes everything ready for sockets to be tracked.
pub(crate) fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        keeping_errno(|| {
            ffi::hush_panics();
            hazard::start();
            fd::set_floor(floor());
            log::start();
            stats::start();
            process::start();
            fork::start();
            // Handlers run in the reverse order, so that the program's come before this one.
            // SAFETY: a function that is never unloaded, which takes what is given with it, and
            // ignores it.
            unsafe { __cxa_at_quick_exit(quick_end, ptr::null_mut()) };
            READY.store(true, Ordering::Release);
        });
    });
}

/// Where the library's own fds begin: above what the application may use, where the hard limit
/// leaves room, but not so high that the kernel's table of fds grows large.
fn floor() -> c_int {
    const HIGHEST: u64 = 16384;
    let (soft, hard) = limit::descriptor_limit();
    let floor = if hard > soft { soft } else { soft / 4 * 3 };
    floor.min(HIGHEST) as c_int
}

/// The process ends, or becomes another program.
pub(crate) fn end() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    if READY.load(Ordering::Acquire)
        && process::kind() == Kind::Own
        && !ENDED.swap(true, Ordering::Relaxed)
    {
        guarded(|| {
            stats::write();
            for (_, object) in table::entries() {
                if let Some(socket) = object.as_socket().filter(|socket| !socket.is_listening()) {
                    socket.connection.begin_last_look();
                    socket.connection.finish_retransmission();
                }
            }
            seekwire_endpoint::leave();
        });
    }
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Runs after quick_exit()'s other handlers.
extern "C" fn quick_end(_argument: *mut c_void) {
    end();
}

/// _exit(2): the counters are written here too.
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    end();
    loop {
        // The C library's call: the program may have forbidden those from elsewhere.
        // SAFETY: takes an integer; does not return.
        let _ = unsafe { syscall::next(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// _Exit(3)
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function.
    unsafe { _exit(status) }
}
