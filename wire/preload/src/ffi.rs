//! The FFI between C and Rust: panics stop here, and errno has the value that the kernel's own call
//! would have set.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use seekwire_transport::Errno;

/// Runs `work`. A panic is logged once per process and gives `None`, upon which the caller makes
/// the real call. errno stays unchanged: an error is returned by value, and the function that ends
/// the call sets errno ([`fail`]).
///
/// Functions of libc that are cancellation points, such as opening a file, do not cancel the thread
/// inside: `pthread_cancel` unwinds the stack, and that kind of unwinding cannot be caught. The
/// thread is cancelled later, outside the library's frames.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    uncancelled(|| guarded_raw(work))
}

/// For functions that libc does not have, so it cannot do the work instead: a panic becomes EIO.
pub(crate) fn guarded_own<T>(work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    guarded(work).unwrap_or(Err(Errno::IO))
}

/// Runs `work` with cancellation of the thread disabled.
pub(crate) fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: writes the state before to a live integer.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let result = work();
    // SAFETY: as above; null means that the old state is not wanted.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    result
}

/// Whether this thread can be cancelled now.
pub(crate) fn is_cancellable() -> bool {
    const ENABLE: c_int = 0;
    const DISABLE: c_int = 1;
    let mut before = DISABLE;
    // SAFETY: as in `uncancelled`.
    unsafe {
        pthread_setcancelstate(DISABLE, &raw mut before);
        pthread_setcancelstate(before, std::ptr::null_mut());
    }
    before == ENABLE
}

/// Like [`guarded`], without the cost of disabling cancellation: for work on an object that makes
/// raw system calls only, even for closing its own files.
#[inline]
pub(crate) fn guarded_raw<T>(work: impl FnOnce() -> T) -> Option<T> {
    keeping_errno(|| match catch_unwind(AssertUnwindSafe(work)) {
        Ok(value) => Some(value),
        Err(_) => {
            panicked();
            None
        }
    })
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

#[cold]
fn panicked() {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Ordering::Relaxed) {
        let _ = catch_unwind(|| {
            tracing::error!(
                "a panic inside libseekwire was stopped; a call of libc went to libc instead, one of the library's own failed"
            )
        });
    }
}

/// Keeps panic messages out of the application's standard error.
pub(crate) fn hush_panics() {
    std::panic::set_hook(Box::new(|info| tracing::error!("{info}")));
}

/// The calling thread's errno.
#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: __errno_location returns a valid pointer to this thread's errno for as long as the
    // thread lives.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
#[inline]
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as in `errno`; no other thread reads or writes it.
    unsafe { *libc::__errno_location() = value }
}

/// Restores errno after `work`: for bookkeeping after the kernel's answer.
#[inline]
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: __errno_location returns a valid pointer to this thread's errno for as long as the
    // thread lives; no other thread reads or writes it.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { place.read() };
    let value = work();
    // SAFETY: as above; `work` returns in this thread.
    unsafe { place.write(before) };
    value
}

/// The return value of a failed libc function.
pub(crate) trait FailureValue {
    /// -1, or a null pointer.
    const FAILURE: Self;
}

impl FailureValue for c_int {
    const FAILURE: c_int = -1;
}

impl FailureValue for () {
    const FAILURE: () = ();
}

/// SIG_ERR.
impl FailureValue for usize {
    const FAILURE: usize = usize::MAX;
}

impl FailureValue for isize {
    const FAILURE: isize = -1;
}

impl<T> FailureValue for *mut T {
    const FAILURE: *mut T = std::ptr::null_mut();
}

/// Fails a call the way libc does.
#[inline]
pub(crate) fn fail<T: FailureValue>(error: Errno) -> T {
    set_errno(error.raw_os_error());
    T::FAILURE
}

/// The return value of a call that moves bytes.
#[inline]
pub(crate) fn count(result: Result<usize, Errno>) -> isize {
    match result {
        // A slice is never longer than isize::MAX, so neither is the number of bytes moved.
        Ok(bytes) => bytes as isize,
        Err(error) => fail(error),
    }
}

/// The return value of a call that returns 0 on success.
#[inline]
pub(crate) fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}
