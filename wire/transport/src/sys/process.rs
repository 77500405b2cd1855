//! Processes of the library's own: copies of the caller that nobody has to wait for.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use super::{Fd, call, file, thread};
use crate::Errno;

/// A copy of this process with this thread alone, by clone(2): no handler of pthread_atfork(3)
/// runs, no SIGCHLD reports its end, and only waits with __WALL find it. Returns its id; 0 in the
/// copy.
///
/// # Errors
/// Those of clone(2).
///
/// # Safety
/// Locks that other threads hold stay taken in the copy for ever, so it may use nothing that takes
/// them: the caller holds those that it uses. The copy has to end with [`exit`].
pub unsafe fn copy() -> Result<i32, Errno> {
    // SAFETY: without CLONE_VM and a stack, the child goes on with a copy of this one. The order of
    // the other arguments, which differs between architectures, does not matter: all are null.
    unsafe { call(libc::SYS_clone, [0; 6]) }.map(|pid| pid as i32)
}

/// Whether the first child of this process would be the first one of a namespace of processes,
/// which ends when that child does: after unshare(CLONE_NEWPID).
#[must_use]
pub fn begins_namespace() -> bool {
    let space = |name: &str| rustix::fs::stat(format!("/proc/thread-self/ns/{name}"));
    match (space("pid"), space("pid_for_children")) {
        (Ok(own), Ok(childrens)) => own.st_ino != childrens.st_ino,
        // Before its first process begins, the kernel shows no such entry.
        (Ok(_), Err(error)) => error == Errno::NOENT,
        _ => false,
    }
}

/// Whether a process has a socket with this inode; `None` if that cannot be seen.
#[must_use]
pub fn has_socket(pid: u32, inode: u64) -> Option<bool> {
    match look_for(pid, &format!("socket:[{inode}]")) {
        // A process that has ended has none. Its descriptors seem hidden: they are root's until it is
        // waited for, and the kernel returns EACCES for a number of one that goes meanwhile.
        Err(_) | Ok(None) if !thread::process_is_alive(pid) => Some(false),
        Err(_) => None,
        Ok(has) => has,
    }
}

/// As [`has_socket`], for a file with that name.
///
/// # Errors
/// Those of [`lists`].
fn look_for(pid: u32, file: &str) -> io::Result<Option<bool>> {
    let process = format!("/proc/{pid}");
    let listed = |thread: &str| lists(&format!("{process}{thread}/fd"), file);
    if let Some(has) = listed("")? {
        return Ok(Some(has));
    }
    // Nor do the other threads list any, unless the first one has ended before them. Those of a
    // hidden process (hidepid in proc(5)) are not to be seen.
    let threads = file::names(format!("{process}/task").as_ref()).unwrap_or_default();
    for thread in threads.iter().filter_map(|name| name.to_str()) {
        if listed(&format!("/task/{thread}"))? == Some(true) {
            return Ok(Some(true));
        }
    }
    Ok((!threads.is_empty()).then_some(false))
}

/// Whether this process has a socket with this inode at another number than this one. True if that
/// cannot be seen.
#[must_use]
pub fn has_socket_beside(number: Fd, inode: u64) -> bool {
    const NUMBERS: &str = "/proc/thread-self/fd";
    let socket = format!("socket:[{inode}]");
    let numbers = file::names(NUMBERS.as_ref()).unwrap_or_default();
    let is_other = |name: &&std::ffi::OsString| name.to_str() != Some(&*number.raw().to_string());
    numbers.is_empty()
        || numbers.iter().filter(is_other).any(|name| {
            let file = std::fs::read_link(Path::new(NUMBERS).join(name));
            file.is_ok_and(|file| file.as_os_str() == socket.as_str())
        })
}

/// Whether a directory of descriptors lists this file; `None` if it lists nothing, as for a thread
/// that has ended or is the kernel's.
///
/// # Errors
/// Those of open(2) and readlink(2), for what is hidden.
fn lists(directory: &str, file: &str) -> io::Result<Option<bool>> {
    // Each look finds a number that stays open. A process may open and close files all the time, but
    // does not move a socket to an earlier number during all of these.
    const LOOKS: usize = 20;
    let is_gone = |error: &io::Error| {
        [Errno::NOENT, Errno::SRCH]
            .map(|gone| Some(gone.raw_os_error()))
            .contains(&error.raw_os_error())
    };
    for _ in 0..LOOKS {
        let names = match file::names(directory.as_ref()) {
            Ok(names) if names.is_empty() => return Ok(None),
            Err(error) if is_gone(&error) => return Ok(None),
            names => names?,
        };
        let mut has_changed = false;
        for name in names {
            match std::fs::read_link(Path::new(directory).join(name)) {
                Ok(path) if path.as_os_str() == file => return Ok(Some(true)),
                Err(error) if is_gone(&error) => has_changed = true,
                path => _ = path?,
            }
        }
        if !has_changed {
            break;
        }
    }
    Ok(Some(false))
}

/// Whether a process other than this one, whose name is not `but`, has inherited a socket with this
/// inode. `None` if none of those has whose descriptors can be seen, and there may be others: only
/// root sees those of all users. Looks through the descriptors of all processes.
#[must_use]
pub fn socket_is_elsewhere(inode: u64, but: Option<&CStr>) -> Option<bool> {
    const LOOKS: usize = 20;
    let is_but = |pid: u32| {
        let name = file::read(format!("/proc/{pid}/comm").as_ref()).unwrap_or_default();
        but.is_some_and(|but| name.strip_suffix(b"\n") == Some(but.to_bytes()))
    };
    let mut are_hidden = false;
    let mut seen = BTreeSet::from([thread::process_id()]);
    // One that ends meanwhile may have started another, which has the socket. Programs start all the
    // time, but none that has it does during all of these.
    for _ in 0..LOOKS {
        let names = file::names("/proc".as_ref()).unwrap_or_default();
        let listed = names.iter().filter_map(|name| name.to_str()?.parse::<u32>().ok());
        let listed: BTreeSet<u32> = listed.collect();
        // Those of others are hidden (hidepid in proc(5)), or there is no /proc.
        are_hidden |= !listed.contains(&1);
        let fresh = &listed - &seen;
        for pid in fresh.iter().copied() {
            match has_socket(pid, inode) {
                Some(true) if !is_but(pid) => return Some(true),
                // The first process of all has inherited nothing, and its descriptors are often
                // hidden.
                None if pid != 1 => are_hidden = true,
                _ => {}
            }
        }
        if fresh.is_empty() {
            break;
        }
        seen.extend(fresh);
    }
    (!are_hidden).then_some(false)
}

/// Waits until a [`copy`] has ended; returns its status, unless another thread has waited for it.
#[must_use]
pub fn status(pid: i32) -> Option<i32> {
    let mut status: libc::c_int = -1;
    let place = (&raw mut status).expose_provenance();
    loop {
        let arguments = [pid as usize, place, libc::__WALL as usize, 0, 0, 0];
        // SAFETY: the kernel writes one int.
        match unsafe { call(libc::SYS_wait4, arguments) } {
            Ok(_) => return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Ends this process at once, without any exit handlers.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: it does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Closes all descriptors but these.
pub fn close_all_but(kept: &[Fd]) {
    let mut kept: Vec<u32> = kept.iter().filter_map(|fd| u32::try_from(fd.raw()).ok()).collect();
    kept.sort_unstable();
    let mut first = 0;
    for number in kept {
        if number > first {
            close_range(first..=number - 1);
        }
        first = first.max(number + 1);
    }
    close_range(first..=u32::MAX);
}

fn close_range(numbers: RangeInclusive<u32>) {
    /// Older kernels have no close_range(2): the numbers that most programs may have.
    const MOST: u32 = 1 << 16;
    let (first, last) = (*numbers.start() as usize, *numbers.end() as usize);
    // SAFETY: the caller, a copy of a process that shares no descriptors, uses none of these.
    if unsafe { call(libc::SYS_close_range, [first, last, 0, 0, 0, 0]) } == Err(Errno::NOSYS) {
        for number in *numbers.start()..=(*numbers.end()).min(MOST) {
            // SAFETY: as above.
            let _ = unsafe { call(libc::SYS_close, [number as usize, 0, 0, 0, 0, 0]) };
        }
    }
}

/// Makes this process a separate one for terminals and shells, which ps(1) calls `name`. Signals
/// that ask it to end do so, whatever handlers the program had; all others except its own
/// [faults](super::fault) stay blocked.
pub fn stand_alone(name: &std::ffi::CStr) {
    let blocked: u64 = !(1 << (libc::SIGTERM - 1) | 1 << (libc::SIGBUS - 1));
    // The kernel's struct sigaction: the default, without flags, for SIGTERM.
    let default = [0u64; 4];
    let action = default.as_ptr().expose_provenance();
    let mask = (&raw const blocked).expose_provenance();
    // SAFETY: the kernel reads an action of 32 bytes, a mask of 8, and a name that ends with 0.
    let _ = unsafe {
        let _ = call(libc::SYS_setsid, [0; 6]);
        let name = name.as_ptr().expose_provenance();
        let _ = call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, name, 0, 0, 0, 0]);
        let _ = call(libc::SYS_rt_sigaction, [libc::SIGTERM as usize, action, 0, 8, 0, 0]);
        call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, mask, 0, 8, 0, 0])
    };
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, Uid, WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_process_that_nobody_has_waited_for_has_no_socket_to_any_user() {
        const NOBODY: u32 = 65534;
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        let ended = WaitIdOptions::EXITED.union(WaitIdOptions::NOWAIT);
        let of = Pid::from_raw(pid.cast_signed()).unwrap();
        waitid(WaitId::Pid(of), ended).unwrap();
        let ask = || {
            let nobody = Uid::from_raw(NOBODY);
            // The user of this thread alone; it stays the same if these tests are not run by root.
            let _ = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
            has_socket(pid, 1)
        };
        let seen = std::thread::scope(|scope| scope.spawn(ask).join().unwrap());
        child.wait().unwrap();
        assert_eq!((seen, has_socket(pid, 1)), (Some(false), Some(false)));
    }
}
