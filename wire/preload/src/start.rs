//! The life of the process: start and end.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use seekwire_endpoint::{Config, Connection};
use seekwire_transport::sys::filter::{self, Trial};
use seekwire_transport::sys::{fd, limit};

use crate::ffi::{self, guarded, keeping_errno};
use crate::process::{self, ProcessKind};
use crate::{
    cancel, fork, found_spill, hazard, loader, log, real, spawn_actions, stats, syscall, table,
    tracking, unknown_rings, unwinder,
};

static STARTED: Once = Once::new();

/// Runs before main, and before or after the constructors of the program's other libraries: no code
/// relies on the order.
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

/// True if sockets are tracked when they are made. If switched off, every function is libc's,
/// because the table contains only sockets in which the program itself seeks.
#[inline]
pub(crate) fn is_on() -> bool {
    if !STARTED.is_completed() {
        // Called from a constructor that runs before this library's.
        guarded(start);
    }
    tracking::is_on()
}

/// True if sockets are or may be tracked.
#[inline]
pub(crate) fn is_tracking() -> bool {
    is_on() || tracking::is_ready()
}

fn start() {
    STARTED.call_once(|| {
        keeping_errno(unwinder::start);
        syscall::start();
        loader::start();
        let config = keeping_errno(Config::get);
        if config.enabled
            && let Some(obstacle) = keeping_errno(|| filtered(config.seccomp))
        {
            keeping_errno(|| {
                fd::set_floor(floor());
                log::start();
                log::warn!("nothing is accelerated: {obstacle}");
            });
        } else if config.enabled {
            prepare();
            unknown_rings::start();
            tracking::switch_on();
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
    if tracking::is_on() {
        FOUND.call_once(|| keeping_errno(found_spill::start));
    }
}

/// Why nothing can be accelerated under the filters of system calls that the process began under.
/// At most `tried` filters are known to be harmless.
fn filtered(tried: u32) -> Option<String> {
    match filter::installed() {
        Some(filters) if filters <= tried => None,
        None => Some(
            "/proc/self/status cannot be read, so it is unknown whether system calls are filtered; \
             mount /proc"
                .to_owned(),
        ),
        Some(_) => {
            let trial = filter::trial();
            if matches!(trial, Trial::AllowedWithoutHandOvers(_)) {
                process::note_filter();
            }
            if trial != Trial::Allowed {
                seekwire_endpoint::machine_links::forbid();
            }
            trial.obstacle()
        }
    }
}

/// Called by another copy of this library that is linked into the program itself and comes before
/// this preloaded one: otherwise each would take the other for the C library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn seekwire_stand_back() {
    // Waits until this copy has finished what it began.
    STARTED.call_once(|| {});
    tracking::stand_down();
}

/// Prepares for tracking sockets.
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
            fork::start([spawn_actions::lock(), stats::lock()]);
            Connection::leave_calls_if(cancel::leaves);
            // Handlers run in the reverse order, so that the program's come before this one.
            // SAFETY: a function that is never unloaded, and ignores its argument.
            unsafe { __cxa_at_quick_exit(quick_end, ptr::null_mut()) };
            tracking::set_ready();
        });
    });
}

/// Start of the library's own fds: above those that the application may use, if the hard limit
/// leaves room, but low enough to keep the kernel's descriptor table small.
fn floor() -> c_int {
    const HIGHEST: u64 = 16384;
    let (soft, hard) = limit::descriptor_limit();
    let floor = if hard > soft { soft } else { soft / 4 * 3 };
    floor.min(HIGHEST) as c_int
}

/// Called when the process ends, or becomes another program.
pub(crate) fn end() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    if tracking::is_ready()
        && process::kind() == ProcessKind::Own
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

/// _exit(2): also writes the counters.
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(status: c_int) -> ! {
    end();
    loop {
        // The C library's call, because the program may have forbidden those from elsewhere.
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
