//! Which process this is: the one that tracks the sockets, or a child of it.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// How far the library has left this process: one of the constants below.
static STAGE: AtomicU8 = AtomicU8::new(HERE);
const HERE: u8 = 0;
/// Its connections go back to TCP, and there will be no others.
const CLOSING: u8 = 1;
/// Calls that sleep for the library are to end, and to be the application's own.
const LEAVING: u8 = 2;
const LEFT: u8 = 3;

static PID: AtomicI32 = AtomicI32::new(0);
/// A byte that the kernel clears in a child which gets a copy of the memory, and only there.
static MARK: AtomicPtr<AtomicU8> = AtomicPtr::new(ptr::null_mut());

/// This process is the one that tracks the sockets.
pub(crate) fn start() {
    PID.store(getpid(), Ordering::Relaxed);
    MARK.store(mark().unwrap_or(ptr::null_mut()), Ordering::Relaxed);
    set_mark();
}

/// From now on this process makes no system call of the library's.
pub(crate) fn retreat() {
    STAGE.store(LEFT, Ordering::SeqCst);
}

/// From now on nothing new is tracked.
pub(crate) fn close_down() {
    STAGE.store(CLOSING, Ordering::SeqCst);
}

/// From now on no call goes on in the library.
pub(crate) fn begin_retreat() {
    STAGE.store(LEAVING, Ordering::SeqCst);
}

/// Whether nothing new is to be tracked.
pub(crate) fn is_closing_down() -> bool {
    STAGE.load(Ordering::SeqCst) != HERE
}

/// Whether it has retreated, or is about to: no call goes on in the library.
#[inline]
pub(crate) fn retreats() -> bool {
    STAGE.load(Ordering::SeqCst) >= LEAVING
}

/// Whether it has [retreated](retreat).
pub(crate) fn has_retreated() -> bool {
    STAGE.load(Ordering::SeqCst) == LEFT
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

/// Asked only where the table would change, because the answer costs a system call: nothing in
/// memory tells a child of vfork from its parent.
pub(crate) fn kind() -> Kind {
    if has_retreated() {
        // Without asking.
        return Kind::Stranger;
    }
    if getpid() == PID.load(Ordering::Relaxed) {
        return Kind::Own;
    }
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: null, or a page that is never unmapped.
    let cleared = unsafe { mark.as_ref() }.is_some_and(|mark| mark.load(Ordering::Relaxed) == 0);
    if cleared { Kind::Stranger } else { Kind::Vfork }
}

/// This process, or the parent of a child of vfork. No system call.
pub(crate) fn id() -> u64 {
    PID.load(Ordering::Relaxed) as u64
}

fn getpid() -> c_int {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn mark() -> rustix::io::Result<*mut AtomicU8> {
    const LEN: usize = 4096;
    // SAFETY: a new private mapping at an address of the kernel's choice; only its treatment at
    // fork is changed.
    unsafe {
        let page = mmap_anonymous(
            ptr::null_mut(),
            LEN,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )?;
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

/// This process is the child of a fork.
pub(crate) fn after_fork_child() {
    PID.store(getpid(), Ordering::Relaxed);
    set_mark();
    // The thread that was about to say so is not here.
    let closing = |stage| (stage == CLOSING || stage == LEAVING).then_some(LEFT);
    let _ = STAGE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, closing);
}
