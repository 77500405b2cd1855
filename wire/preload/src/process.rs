//! Distinguishes the process that tracks the sockets from its children.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// The progress of the library in leaving this process: one of the constants below.
static STAGE: AtomicU8 = AtomicU8::new(HERE);
const HERE: u8 = 0;
/// The connections go back to TCP, and there will be no new ones.
const CLOSING: u8 = 1;
/// Calls that sleep for the library have to return, and become the application's own.
const LEAVING: u8 = 2;
const LEFT: u8 = 3;

/// The program has installed a filter of system calls that allows those that connections need. Its
/// effect on other calls is unknown.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

static PID: AtomicI32 = AtomicI32::new(0);
/// A byte that the kernel clears in a child which gets a copy of the memory, and only there.
static MARK: AtomicPtr<AtomicU8> = AtomicPtr::new(ptr::null_mut());

/// Marks this process as the one that tracks the sockets.
pub(crate) fn start() {
    PID.store(getpid(), Ordering::Relaxed);
    MARK.store(mark().unwrap_or(ptr::null_mut()), Ordering::Relaxed);
    set_mark();
}

/// From now on the library makes no system call in this process.
pub(crate) fn retreat() {
    STAGE.store(LEFT, Ordering::SeqCst);
}

/// From now on no new sockets are tracked.
pub(crate) fn close_down() {
    STAGE.store(CLOSING, Ordering::SeqCst);
}

/// From now on no call continues in the library.
pub(crate) fn begin_retreat() {
    STAGE.store(LEAVING, Ordering::SeqCst);
}

/// True if no new sockets are to be tracked.
pub(crate) fn is_closing_down() -> bool {
    STAGE.load(Ordering::SeqCst) != HERE
}

/// True if the library has left or is about to: no call continues in it.
#[inline]
pub(crate) fn retreats() -> bool {
    STAGE.load(Ordering::SeqCst) >= LEAVING
}

/// True if the library has [left](retreat).
pub(crate) fn has_retreated() -> bool {
    STAGE.load(Ordering::SeqCst) == LEFT
}

/// Called before the program installs a filter of system calls that connections can live with.
pub(crate) fn note_filter() {
    IS_FILTERED.store(true, Ordering::Relaxed);
}

/// True if the program has installed such a filter.
pub(crate) fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed)
}

/// The relation of this process to the tracked sockets.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum ProcessKind {
    /// It tracks them.
    Own,
    /// A child that uses its parent's memory until it calls exec, but has its own fds.
    Vfork,
    /// A child with a copy of the memory, created without fork handlers.
    RawFork,
}

/// Called only before the table would change, because the answer costs a system call: nothing in
/// memory distinguishes a child of vfork from its parent.
pub(crate) fn kind() -> ProcessKind {
    if has_retreated() {
        // No need to ask.
        return ProcessKind::RawFork;
    }
    if getpid() == PID.load(Ordering::Relaxed) {
        return ProcessKind::Own;
    }
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: null, or a page that is never unmapped.
    let cleared = unsafe { mark.as_ref() }.is_some_and(|mark| mark.load(Ordering::Relaxed) == 0);
    if cleared { ProcessKind::RawFork } else { ProcessKind::Vfork }
}

/// The id of this process, or of the parent of a vfork child. No system call.
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

/// Called in the child of a fork.
pub(crate) fn after_fork_child() {
    PID.store(getpid(), Ordering::Relaxed);
    set_mark();
    // The thread that was about to finish leaving does not exist here.
    let closing = |stage| (stage == CLOSING || stage == LEAVING).then_some(LEFT);
    let _ = STAGE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, closing);
}
