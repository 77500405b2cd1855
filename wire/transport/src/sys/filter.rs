//! Filters of system calls (seccomp(2)): a call that one does not allow may end the process at
//! once, which cannot be caught. So the library checks before the first call that the program would
//! not have made without it.
//!
//! The program of a filter that is about to be installed is available: it is run here for the
//! library's calls. Of filters that were there when the process began, only the number is known: a
//! copy of the process, which the filter may end, [tries](trial) each of these calls.

mod calls;
mod program;

use libc::sock_filter;
use rustix::fs::{CWD, Mode, OFlags, openat};

use self::calls::{CALLS, CALLS_OF_HAND_OVERS, CALLS_OF_LINKS, Call};
use self::program::lets_through;
use super::fd::LibraryFd;
use super::{call, process};
use crate::Errno;

/// Number of filters on this process, inherited or installed; in strict mode, which allows nothing,
/// the largest number. None if /proc does not show it.
///
/// Makes no call that the dynamic linker has not made.
#[must_use]
pub fn installed() -> Option<u32> {
    read_status().ok().map(|status| number_in(&String::from_utf8_lossy(&status)))
}

fn read_status() -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY.union(OFlags::CLOEXEC);
    let file = LibraryFd::from(openat(CWD, c"/proc/self/status", flags, Mode::empty())?);
    let mut status = Vec::new();
    let mut piece = [0; 1024];
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut piece))? {
            0 => return Ok(status),
            n => status.extend_from_slice(&piece[..n]),
        }
    }
}

/// As [`installed`], for the process with this `status` file.
#[must_use]
pub fn number_in(status: &str) -> u32 {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().parse())
    };
    match field("Seccomp:") {
        // A kernel without filters.
        None | Some(Ok(0)) => 0,
        // Before Linux 5.9 their number is not shown.
        Some(Ok(2)) => field("Seccomp_filters:").map_or(1, |number| number.unwrap_or(u32::MAX)),
        Some(_) => u32::MAX,
    }
}

/// Whether a filter allows all calls that the library makes.
#[must_use]
pub fn is_harmless(program: &[sock_filter]) -> bool {
    CALLS.iter().all(|call| lets_through(program, call.number, call.first))
}

/// The effect of the filters that were there when the process began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trial {
    /// They allow all calls of the library.
    Allowed,
    /// They allow all but this one, which only links between machines need.
    AllowedWithoutLinks(&'static str),
    /// They allow all but this one, which only hand-overs to other programs need.
    AllowedWithoutHandOvers(&'static str),
    /// They block this call.
    Blocked(&'static str),
    /// They end a process that makes one of the calls.
    Kills,
    /// No process could be started that tries the calls.
    Untried(Errno),
}

impl Trial {
    /// Why the library cannot work, and the next step; `None` if it can.
    #[must_use]
    pub fn obstacle(self) -> Option<String> {
        match self {
            Self::Allowed | Self::AllowedWithoutLinks(_) | Self::AllowedWithoutHandOvers(_) => None,
            Self::Blocked(call) => Some(format!(
                "a filter of system calls (seccomp) blocks {call}, which the library needs; allow it \
                 where the filter is set (SystemCallFilter= or RestrictAddressFamilies= of a unit, \
                 the profile of a container)"
            )),
            Self::Kills => Some(
                "a filter of system calls (seccomp) ends processes for a call that the library \
                 needs; run seekwire doctor under the same filter, which names the call"
                    .to_owned(),
            ),
            Self::Untried(error) => Some(format!(
                "system calls are filtered (seccomp), and no process could be started to try them \
                 ({error}); see SEEKWIRE_SECCOMP in seekwire(7)"
            )),
        }
    }
}

/// Tries each call of the library in a copy of this process, with arguments that the kernel refuses
/// or that have no effect.
///
/// The caller itself makes three calls that the dynamic linker may not have made: clone(2), wait4(2)
/// and newfstatat(2). A filter that ends processes for one of these ends the caller.
#[must_use]
pub fn trial() -> Trial {
    if process::begins_namespace() {
        // The namespace of processes would end with the copy.
        return Trial::Untried(Errno::NOTSUP);
    }
    match try_calls(0) {
        Ok(Some(0)) => Trial::Allowed,
        Ok(Some(blocked)) => {
            let place = blocked as usize - 1;
            let name = all_calls().nth(place).map_or("a call", Call::name);
            match place {
                _ if place < CALLS.len() => Trial::Blocked(name),
                _ if place < CALLS.len() + CALLS_OF_HAND_OVERS.len() => {
                    Trial::AllowedWithoutHandOvers(name)
                }
                _ => Trial::AllowedWithoutLinks(name),
            }
        }
        Ok(None) => Trial::Kills,
        Err(error) => Trial::Untried(error),
    }
}

/// A call for which the filters end a process. Starts up to a hundred processes, of which one is
/// ended.
#[must_use]
pub fn deadly_call() -> Option<&'static str> {
    let is_deadly_from = |from: usize| matches!(try_calls(from), Ok(None));
    let at = (0..all_calls().count()).rev().find(|&from| is_deadly_from(from))?;
    all_calls().nth(at).map(Call::name)
}

fn all_calls() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(CALLS_OF_HAND_OVERS).chain(CALLS_OF_LINKS)
}

/// Tries the calls from this one on, in a copy of this process. Returns 0 or the place of the first
/// call that is blocked, beginning with 1; `None` if the copy was ended.
fn try_calls(from: usize) -> Result<Option<i32>, Errno> {
    // SAFETY: the copy makes only system calls, which take no locks, and ends.
    let copy = unsafe { process::copy() }?;
    if copy == 0 {
        // A limit of one byte also keeps the program that core(5) names from being started.
        let limit = [1u64; 2].as_ptr().expose_provenance();
        let no_dump = [0, libc::RLIMIT_CORE as usize, limit, 0, 0, 0];
        // SAFETY: the kernel reads two numbers.
        let _ = unsafe { call(libc::SYS_prlimit64, no_dump) };
        let blocked = all_calls().enumerate().skip(from).find(|(_, call)| !call.is_allowed());
        process::exit(blocked.map_or(0, |(at, _)| at as i32 + 1));
    }
    Ok(process::status(copy))
}

impl Call {
    fn name(&self) -> &'static str {
        self.name.trim_start_matches("SYS_")
    }

    /// Makes the call. True if the kernel executed it, or refused its arguments.
    fn is_allowed(&self) -> bool {
        /// No address, descriptor, process, clock or command.
        const NONE: u64 = u64::MAX;
        let first = match (self.number, self.first) {
            // It is the last call of the copy.
            (libc::SYS_exit_group, _) => return true,
            // To the own process group; it sends nothing.
            (libc::SYS_kill, [_, signal, _]) => [Some(0), signal, None],
            // Without a time limit, it would wait for ever.
            (libc::SYS_ppoll, _) => [None, None, Some(NONE)],
            (_, first) => first,
        };
        let [a, b, c] = first;
        let arguments = [a.unwrap_or(NONE), b.unwrap_or(0), c.unwrap_or(0), 0, NONE, 0];
        // SAFETY: no call has an address that can be read or written: they are NONE or null.
        match unsafe { call(self.number, arguments.map(|argument| argument as usize)) } {
            Ok(_) => true,
            // Older kernels lack it, and the library then does without.
            Err(Errno::NOSYS) => self.number == libc::SYS_close_range,
            Err(error) => REFUSALS.contains(&error),
        }
    }
}

/// How the kernel refuses these arguments. Filters answer otherwise.
const REFUSALS: [Errno; 6] =
    [Errno::BADF, Errno::FAULT, Errno::INVAL, Errno::SRCH, Errno::CHILD, Errno::SOCKTNOSUPPORT];

#[cfg(test)]
mod tests {
    use super::program::MACHINE;
    use super::*;

    const ALLOW: sock_filter = sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 };
    const KILL: sock_filter = sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x8000_0000 };

    fn load(k: u32) -> sock_filter {
        sock_filter { code: 0x20, jt: 0, jf: 0, k }
    }

    fn equal(k: u32, jt: u8, jf: u8) -> sock_filter {
        sock_filter { code: 0x15, jt, jf, k }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri starts no processes")]
    fn without_a_filter_that_matters_all_calls_are_allowed() {
        assert_eq!(trial(), Trial::Allowed);
        assert_eq!(deadly_call(), None);
    }

    #[test]
    fn what_lets_all_through_is_harmless_and_what_kills_is_not() {
        assert!(is_harmless(&[ALLOW]));
        assert!(!is_harmless(&[KILL]));
        assert!(!is_harmless(&[]));
        // Programs that never return, that jump out of themselves, or that have unknown
        // instructions.
        assert!(!is_harmless(&[load(0)]));
        assert!(!is_harmless(&[sock_filter { code: 0x05, jt: 0, jf: 0, k: 9 }, ALLOW]));
        assert!(!is_harmless(&[sock_filter { code: 0xff, jt: 0, jf: 0, k: 0 }, ALLOW]));
    }

    #[test]
    fn a_filter_against_other_calls_or_machines_is_harmless() {
        let reboot = libc::SYS_reboot as u32;
        assert!(is_harmless(&[load(0), equal(reboot, 0, 1), KILL, ALLOW]));
        let eventfd = libc::SYS_eventfd2 as u32;
        assert!(!is_harmless(&[load(0), equal(eventfd, 0, 1), KILL, ALLOW]));
        assert!(is_harmless(&[load(4), equal(MACHINE, 1, 0), KILL, ALLOW]));
        assert!(!is_harmless(&[load(4), equal(MACHINE, 0, 1), KILL, ALLOW]));
    }

    #[test]
    fn arguments_count_where_they_are_known_and_otherwise_all_ways_do() {
        let socket = libc::SYS_socket as u32;
        // By the family: the first argument.
        let against = |family: i32| {
            [load(0), equal(socket, 0, 3), load(16), equal(family as u32, 0, 1), KILL, ALLOW]
        };
        assert!(is_harmless(&against(libc::AF_VSOCK)));
        assert!(!is_harmless(&against(libc::AF_NETLINK)));
        // By unknown data: the third argument of write, the address of the call.
        let write = libc::SYS_write as u32;
        for place in [32, 8] {
            let program = [load(0), equal(write, 0, 3), load(place), equal(0, 0, 1), KILL, ALLOW];
            assert!(!is_harmless(&program));
        }
    }

    #[test]
    fn numbers_are_computed_as_in_the_kernel() {
        let alu = |op: u16, k: u32| sock_filter { code: 0x04 | op, jt: 0, jf: 0, k };
        let ret_a = sock_filter { code: 0x16, jt: 0, jf: 0, k: 0 };
        let load = sock_filter { code: 0x00, jt: 0, jf: 0, k: 0x7fff };
        let store = sock_filter { code: 0x02, jt: 0, jf: 0, k: 3 };
        let reload = sock_filter { code: 0x60, jt: 0, jf: 0, k: 3 };
        assert!(is_harmless(&[load, alu(0x60, 16), store, alu(0x50, 0), reload, ret_a]));
        assert!(!is_harmless(&[load, alu(0x60, 16), store, alu(0x50, 0), ret_a]));
        assert!(!is_harmless(&[load, alu(0x30, 0), ret_a]));
    }

    #[test]
    fn the_number_of_filters_is_read_and_what_is_not_understood_counts_as_many() {
        assert_eq!(number_in("Name:\tx\n"), 0);
        assert_eq!(number_in("Seccomp:\t0\nSeccomp_filters:\t0\n"), 0);
        assert_eq!(number_in("Seccomp:\t2\nSeccomp_filters:\t3\n"), 3);
        assert_eq!(number_in("Seccomp:\t2\n"), 1);
        assert_eq!(number_in("Seccomp:\t1\n"), u32::MAX);
        assert_eq!(number_in("Seccomp:\tx\n"), u32::MAX);
    }
}
