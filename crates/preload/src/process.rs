//! The life of the process: start, fork, and end.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Once};

use endpoint::Config;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use transport::sys::{call, fd, host};

use crate::border::{self, guarded, keeping_errno};
use crate::calls;
use crate::lock::Lock;
use crate::table::{self, Object};
use crate::{hazard, log, real, stats};

static ON: AtomicBool = AtomicBool::new(false);
static READY: AtomicBool = AtomicBool::new(false);
static STARTED: Once = Once::new();
static PID: AtomicI32 = AtomicI32::new(0);
/// A byte that the kernel clears in a child which gets a copy of the memory, and only there.
static MARK: AtomicPtr<AtomicU8> = AtomicPtr::new(ptr::null_mut());

/// Runs before main, and before the constructors of the program's other libraries or after them: nothing
/// relies on which.
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

/// Whether sockets are tracked as soon as they are made. Switched off, every function is libc's, because nothing is found in the
/// table but what the program itself seeks in.
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
        calls::start();
        if keeping_errno(|| Config::get().enabled) {
            prepare();
            ON.store(true, Ordering::Release);
        }
        real::let_next_copy_stand_back();
    });
}

/// Another copy of this library, linked into the program itself, comes before this one, which was preloaded: two would
/// each take the other for the C library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn seekwire_stand_back() {
    // What this one has begun is over first.
    STARTED.call_once(|| {});
    ON.store(false, Ordering::Release);
    READY.store(false, Ordering::Release);
}

/// Makes everything ready for sockets to be tracked.
pub(crate) fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        keeping_errno(|| {
            border::hush_panics();
            hazard::start();
            fd::set_floor(floor());
            log::start();
            stats::start();
            PID.store(getpid(), Ordering::Relaxed);
            MARK.store(mark().unwrap_or(ptr::null_mut()), Ordering::Relaxed);
            set_mark();
            // SAFETY: three functions that live as long as the library, which is never unloaded before exit.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child))
            };
            READY.store(true, Ordering::Release);
        });
    });
}

/// Where the library's own fds begin: above what the application may use, where the hard limit leaves
/// room, but not so high that the kernel's table of fds grows large.
fn floor() -> c_int {
    const HIGHEST: u64 = 16384;
    let (soft, hard) = host::descriptor_limit();
    let floor = if hard > soft { soft } else { soft / 4 * 3 };
    floor.min(HIGHEST) as c_int
}

/// What this process is to the tracked sockets.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Kind {
    /// It tracks them.
    Own,
    /// A child that borrows the memory of the parent until it calls exec, but has fds of its own.
    Vfork,
    /// A child with a copy of the memory which no fork handler knows of.
    Stranger,
}

/// Asked only where the table would change, because the answer costs a system call: nothing in memory
/// tells a child of vfork from its parent.
pub(crate) fn kind() -> Kind {
    if getpid() == PID.load(Ordering::Relaxed) {
        return Kind::Own;
    }
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: null, or a page that is never unmapped.
    let cleared = unsafe { mark.as_ref() }.is_some_and(|mark| mark.load(Ordering::Relaxed) == 0);
    if cleared { Kind::Stranger } else { Kind::Vfork }
}

fn getpid() -> c_int {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn mark() -> rustix::io::Result<*mut AtomicU8> {
    const LEN: usize = 4096;
    // SAFETY: a new private mapping at an address of the kernel's choice; only its treatment at fork is
    // changed.
    unsafe {
        let page =
            mmap_anonymous(ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?;
        madvise(page, LEN, Advice::LinuxWipeOnFork)?;
        Ok(page.cast())
    }
}

fn set_mark() {
    // SAFETY: null, or a page that is never unmapped.
    if let Some(mark) = unsafe { MARK.load(Ordering::Relaxed).as_ref() } {
        mark.store(1, Ordering::Relaxed);
    }
}

/// The objects of which a fork under way holds the locks.
static HELD: Lock<Vec<Arc<Object>>> = Lock::new(Vec::new());

extern "C" fn before_fork() {
    guarded(|| {
        let mut held = HELD.lock();
        held.clear();
        held.extend(
            table::entries().filter(|(fd, object)| object.is_known_by(*fd)).map(|(_, object)| object.share()),
        );
        let sockets = || held.iter().filter_map(|object| object.as_socket());
        let sets = || held.iter().filter_map(|object| object.as_set());
        sockets().for_each(|socket| socket.registrations().acquire());
        sets().for_each(|set| set.before_fork());
        held.iter().for_each(|object| object.numbers().acquire());
        sockets().for_each(|socket| socket.loans().acquire());
        stats::before_fork();
        // First: what is said to a plain connection or an attached one must not reach it in the middle of the change.
        endpoint::fork::before_fork();
        sockets().filter(|socket| !socket.is_listening()).for_each(|socket| socket.connection.before_fork());
        // Until the fork is over: two threads may fork at once.
        std::mem::forget(held);
    });
}

extern "C" fn after_fork_parent() {
    endpoint::fork::after_fork_parent();
    after_fork(|object| {
        if let Some(socket) = object.as_socket().filter(|socket| !socket.is_listening()) {
            socket.connection.after_fork_parent();
        }
        if let Some(set) = object.as_set() {
            set.after_fork_parent();
        }
    });
}

extern "C" fn after_fork_child() {
    PID.store(getpid(), Ordering::Relaxed);
    set_mark();
    hazard::after_fork_child();
    endpoint::fork::after_fork_child();
    after_fork(|object| {
        if let Some(socket) = object.as_socket().filter(|socket| !socket.is_listening()) {
            socket.after_fork_child();
        }
        if let Some(set) = object.as_set() {
            set.after_fork_child();
        }
    });
    stats::after_fork_child();
}

fn after_fork(each: impl Fn(&Object)) {
    guarded(|| {
        stats::after_fork();
        // SAFETY: `before_fork`, which ran in this thread, left it held.
        let mut held = unsafe { HELD.adopt() };
        for object in held.iter() {
            object.numbers().release();
            if let Some(socket) = object.as_socket() {
                socket.loans().release();
                socket.registrations().release();
            }
            each(object);
        }
        held.clear();
    });
}

/// The process ends, or becomes another program.
pub(crate) fn end() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    if READY.load(Ordering::Acquire) && kind() == Kind::Own && !ENDED.swap(true, Ordering::Relaxed) {
        guarded(|| {
            stats::write();
            for (_, object) in table::entries() {
                if let Some(socket) = object.as_socket().filter(|socket| !socket.is_listening()) {
                    socket.connection.settle_debt();
                }
            }
            endpoint::leave();
        });
    }
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
        // SAFETY: takes an integer; does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
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
