//! Starts and ends processes: those of the compared programs, and the ones around them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{SyscallResult, outcome};

/// Forks; 0 in the child.
pub(crate) fn fork() -> SyscallResult {
    // SAFETY: the child goes on in one thread. In lockstep no other thread is inside of anything
    // but a system call.
    outcome(|| unsafe { libc::fork() }.into())
}

/// Replaces this program by another; returns if that fails.
pub(crate) fn exec(path: &str, argument: &str, environment: &[(String, String)]) -> SyscallResult {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let (path, argument) = (text(path), text(argument));
    let variables: Vec<CString> =
        environment.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect();
    let arguments = [path.as_ptr(), argument.as_ptr(), std::ptr::null()];
    let mut pointers: Vec<_> = variables.iter().map(|variable| variable.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: strings end in zeros, arrays in null, and all live as long as the call.
    outcome(|| unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), pointers.as_ptr()) }.into())
}

/// Ends this process eventually, whatever happens to those that would end it.
pub(crate) fn limit() {
    // SAFETY: no memory is passed.
    unsafe { libc::alarm(90) };
}

pub(crate) fn thread_id() -> i32 {
    // SAFETY: no memory is passed.
    unsafe { libc::gettid() }
}

/// Ends the process at once and releases what it holds, without the C library's exit handlers.
pub(crate) fn leave() -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(0) }
}

pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is passed; the process is one that this one has started and not waited for.
    unsafe { libc::kill(pid, signal) };
}

pub(crate) fn kill_thread(pid: i32, thread: i32, signal: i32) {
    // SAFETY: no memory is passed.
    unsafe {
        libc::syscall(libc::SYS_tgkill, i64::from(pid), i64::from(thread), i64::from(signal))
    };
}

/// Makes orphaned descendants children of this process, which waits for them.
pub(crate) fn adopt_orphans() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Reaps all children that have exited already.
pub(crate) fn reap() {
    // SAFETY: no status is asked for.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// Makes this process end with its parent.
fn end_with_parent() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives a child descriptors under certain numbers.
pub(crate) fn give(command: &mut Command, descriptors: Vec<(OwnedFd, i32)>) {
    let above = descriptors.iter().map(|(_, number)| number + 1).max().unwrap_or(0);
    let mut descriptors: Vec<_> =
        descriptors.into_iter().map(|(fd, number)| (fd.as_raw_fd(), fd, number)).collect();
    let place = move || {
        end_with_parent()?;
        // First all of them move up, so that none overwrites another.
        for (fd, _, _) in &mut descriptors {
            // SAFETY: no memory is passed.
            *fd = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, above) };
            if *fd == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        for (fd, _, number) in &descriptors {
            // SAFETY: no memory is passed; this is the child, whose numbers are free up there.
            if unsafe { libc::dup2(*fd, *number) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the function calls prctl, fcntl and dup2 only.
    unsafe { command.pre_exec(place) };
}

/// Waits at most this many microseconds; true for each descriptor that is readable.
pub(crate) fn readable(descriptors: &[i32], microseconds: i64) -> Vec<bool> {
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 })
        .collect();
    let time = libc::timespec { tv_sec: 0, tv_nsec: microseconds * 1000 };
    // SAFETY: the number of entries is given, and the time lives as long as the call.
    unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            &raw const time,
            std::ptr::null(),
        )
    };
    polled.iter().map(|entry| entry.revents & libc::POLLIN != 0).collect()
}
