//! Signals that a system call of the library's own would send to the program: SIGXFSZ where a file would grow beyond
//! RLIMIT_FSIZE, SIGPIPE where nobody reads any more. Both end a program that knows of neither file nor pipe.

use std::io;

use super::call;
use crate::Errno;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

const OWN: u64 = bit(libc::SIGXFSZ) | bit(libc::SIGPIPE);

/// Makes system calls that fail with EFBIG or EPIPE and tell nobody else.
///
/// # Errors
/// Those of the calls.
pub fn without_signals<T>(calls: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = change(libc::SIG_BLOCK, OWN);
    // One that waits already, because the program blocks it, is the program's.
    let theirs = if before & OWN == 0 { 0 } else { pending() };
    let result = calls();
    let raised = match result.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(libc::EFBIG) => bit(libc::SIGXFSZ),
        Some(libc::EPIPE) => bit(libc::SIGPIPE),
        _ => 0,
    };
    if raised & !theirs != 0 {
        take(raised);
    }
    change(libc::SIG_SETMASK, before);
    result
}

/// Changes the mask of this thread; returns what it was.
fn change(how: i32, set: u64) -> u64 {
    let mut before = 0u64;
    let places = [(&raw const set).expose_provenance(), (&raw mut before).expose_provenance()];
    // SAFETY: the kernel reads a set of 8 bytes, and writes one.
    let _: Result<_, Errno> =
        unsafe { call(libc::SYS_rt_sigprocmask, [how as usize, places[0], places[1], 8, 0, 0]) };
    before
}

fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: the kernel writes a set of 8 bytes.
    let _ = unsafe { call(libc::SYS_rt_sigpending, [(&raw mut set).expose_provenance(), 8, 0, 0, 0, 0]) };
    set
}

/// Takes one of these signals, if one waits.
fn take(set: u64) {
    let at_once = [0u64; 2];
    let places = [(&raw const set).expose_provenance(), at_once.as_ptr().expose_provenance()];
    // SAFETY: the kernel reads a set of 8 bytes and a timespec of 16.
    let _ = unsafe { call(libc::SYS_rt_sigtimedwait, [places[0], 0, places[1], 8, 0, 0]) };
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn break_pipe() -> io::Result<usize> {
        let (read, write) = rustix::pipe::pipe()?;
        drop(read);
        without_signals(|| Ok(rustix::io::write(write.as_fd(), b"x")?))
    }

    /// Rust's programs ignore SIGPIPE, and nobody is told of a signal that is ignored.
    fn with_default_action(test: impl FnOnce()) {
        // SAFETY: no handler of Rust's own is involved.
        let ignored = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        test();
        // SAFETY: puts back what was there.
        unsafe { libc::signal(libc::SIGPIPE, ignored) };
    }

    #[test]
    fn an_own_broken_pipe_ends_nobody_and_takes_no_signal_of_others() {
        with_default_action(|| {
            assert_eq!(break_pipe().unwrap_err().raw_os_error(), Some(libc::EPIPE));
            assert_eq!(pending() & OWN, 0);

            let before = change(libc::SIG_BLOCK, bit(libc::SIGPIPE));
            super::super::thread::raise_broken_pipe();
            assert!(break_pipe().is_err());
            assert_eq!(pending() & OWN, bit(libc::SIGPIPE), "the program's own");
            take(bit(libc::SIGPIPE));
            assert!(break_pipe().is_err());
            assert_eq!(pending() & OWN, 0);
            change(libc::SIG_SETMASK, before);
        });
    }
}
