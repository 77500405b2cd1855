//! Faults in mapped files that others can truncate.
//!
//! An access beyond the end of a mapped file raises SIGBUS, which ends the program. Anybody who may
//! write to an unsealed file can do that to all processes that have it mapped. So such a mapping is
//! guarded: at a fault there, the handler puts zeroed memory of this process in its place, and the
//! interrupted instruction goes on. The zeros mean nothing, so the user of the mapping asks
//! afterwards whether it is lost.
//!
//! All other faults are the program's. The handler is installed with the mask and the flags of the
//! program's own action, which is called next. If [`sigaction`] replaces that of the C library, it
//! does not matter which of the two was installed first.
//!
//! A thread that blocks SIGBUS cannot be helped: the kernel ends the process at its fault.

use std::ffi::{c_int, c_void};
use std::hint::spin_loop;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::signal::{self, KernelAction};
use super::thread;
use crate::Errno;

/// Maximum number of mappings that can be guarded at a time.
const MOST: usize = 256;
const PAGE: usize = 4096;

// ---- mappings ---------------------------------------------------------------------------------

/// Read by the handler, so without a lock. `begin` is 0 while the range is free, and `end` while it
/// is not valid.
struct Range {
    begin: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
}

static RANGES: [Range; MOST] = [const {
    Range { begin: AtomicUsize::new(0), end: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; MOST];

/// While this lives, faults in a mapping do not end the program.
#[derive(Debug)]
pub(crate) struct FaultGuard(usize);

impl FaultGuard {
    /// Guards `len` bytes of a mapping of this process that is readable and writable. The guard is
    /// dropped before the mapping.
    ///
    /// # Errors
    /// ENOMEM if there are too many; those of sigaction(2).
    pub(crate) fn new(base: *const u8, len: usize) -> io::Result<Self> {
        install()?;
        let begin = base.expose_provenance();
        let claim = |range: &Range| {
            range.begin.compare_exchange(0, begin, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let at = RANGES.iter().position(claim).ok_or(Errno::NOMEM)?;
        RANGES[at].is_lost.store(false, Ordering::Relaxed);
        RANGES[at].end.store(begin + len, Ordering::Release);
        Ok(Self(at))
    }

    /// Whether the file was truncated, and zeroed memory of this process is in its place.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        RANGES[self.0].is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        RANGES[self.0].end.store(0, Ordering::Release);
        RANGES[self.0].begin.store(0, Ordering::Release);
    }
}

/// Replaces the guarded mapping that has an address, if there is one, with zeroed memory.
fn replace(address: usize) -> bool {
    let range = RANGES.iter().find_map(|range| {
        let end = range.end.load(Ordering::Acquire);
        let begin = range.begin.load(Ordering::Acquire);
        (begin != 0 && (begin..end).contains(&address)).then_some((range, begin, end))
    });
    let Some((range, begin, end)) = range else { return false };
    range.is_lost.store(true, Ordering::Relaxed);
    let access = ProtFlags::READ.union(ProtFlags::WRITE);
    let how = MapFlags::PRIVATE.union(MapFlags::FIXED).union(MapFlags::NORESERVE);
    let zeroed = |begin: usize, len: usize| {
        // SAFETY: inside a mapping whose owner has it guarded, and reads and writes there only what
        // others may change at any time.
        unsafe { mmap_anonymous(ptr::with_exposed_provenance_mut(begin), len, access, how) }.is_ok()
    };
    // A machine without overcommit may not have memory for all of it.
    zeroed(begin, end - begin) || zeroed(address & !(PAGE - 1), PAGE)
}

// ---- the action -------------------------------------------------------------------------------

/// The program's own action for SIGBUS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Program {
    handler: usize,
    flags: c_int,
    mask: u64,
}

/// Number of looks for the end of another thread's change, which takes a moment. In the child of a
/// fork, that thread may not exist.
const LOOKS: u32 = 10_000;

/// Changed and read by any thread, including those that a signal has interrupted: the version is
/// odd during a change, which is made with all signals blocked.
struct Shared {
    version: AtomicU64,
    handler: AtomicUsize,
    flags: AtomicUsize,
    mask: AtomicU64,
    is_installed: AtomicBool,
}

static PROGRAM: Shared = Shared {
    version: AtomicU64::new(0),
    handler: AtomicUsize::new(libc::SIG_DFL),
    flags: AtomicUsize::new(0),
    mask: AtomicU64::new(0),
    is_installed: AtomicBool::new(false),
};

impl Shared {
    fn load(&self) -> Program {
        for look in 1.. {
            let before = self.version.load(Ordering::Acquire);
            let program = Program {
                handler: self.handler.load(Ordering::Relaxed),
                flags: self.flags.load(Ordering::Relaxed) as c_int,
                mask: self.mask.load(Ordering::Relaxed),
            };
            std::sync::atomic::fence(Ordering::Acquire);
            let is_whole = before % 2 == 0 && self.version.load(Ordering::Relaxed) == before;
            if is_whole || look == LOOKS {
                return program;
            }
            spin_loop();
        }
        unreachable!("the loop returns")
    }

    /// Changes it, and the kernel's action; no other thread does meanwhile.
    fn change<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        signal::with_all_blocked(|| {
            let mut looks = 0;
            let version = loop {
                let now = self.version.load(Ordering::Relaxed);
                let next = now + if now % 2 == 0 { 1 } else { 2 };
                looks += 1;
                let is_free = now % 2 == 0 || looks > LOOKS;
                let (ordering, failed) = (Ordering::Acquire, Ordering::Relaxed);
                if is_free && self.version.compare_exchange(now, next, ordering, failed).is_ok() {
                    break next;
                }
                thread::yield_now();
            };
            let result = change(self);
            self.version.store(version + 1, Ordering::Release);
            result
        })
    }

    fn store(&self, program: Program) {
        self.handler.store(program.handler, Ordering::Relaxed);
        self.flags.store(program.flags as usize, Ordering::Relaxed);
        self.mask.store(program.mask, Ordering::Relaxed);
    }
}

impl Program {
    fn of(action: &libc::sigaction) -> Self {
        let mask = (&raw const action.sa_mask).cast::<u64>();
        // SAFETY: a set of signals begins with the word that the kernel has.
        let mask = unsafe { mask.read() };
        Self { handler: action.sa_sigaction, flags: action.sa_flags, mask }
    }

    fn action(self) -> libc::sigaction {
        // SAFETY: it is made of numbers, and an address that may be null.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = self.handler;
        action.sa_flags = self.flags;
        // SAFETY: as in `of`.
        unsafe { (&raw mut action.sa_mask).cast::<u64>().write(self.mask) };
        action
    }

    /// The action to give to the kernel instead of this one: with it, the program's own handler is
    /// called as the kernel would call it.
    fn behind_ours(self) -> Self {
        let has_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&self.handler);
        let flags = if has_handler {
            self.flags & !libc::SA_RESETHAND
        } else {
            libc::SA_RESTART | libc::SA_ONSTACK
        };
        Self { handler: ours(), flags: flags | libc::SA_SIGINFO, mask: self.mask }
    }
}

fn ours() -> usize {
    on_fault as *const () as usize
}

/// Whether this is an action that [`install`] or [`sigaction`] gives to the kernel.
///
/// # Safety
/// `action` is null or one that can be read.
unsafe fn is_ours(action: *const libc::sigaction) -> bool {
    // SAFETY: the caller's own claim.
    unsafe { action.as_ref() }.is_some_and(|action| action.sa_sigaction == ours())
}

/// Makes faults come here, even if the program has installed a handler that [`sigaction`] did not
/// see since the last time.
fn install() -> Result<(), Errno> {
    PROGRAM.change(|program| {
        let now = KernelAction::of(libc::SIGBUS)?;
        if now.handler == ours() {
            return Ok(());
        }
        let now = Program { handler: now.handler, flags: now.flags as c_int, mask: now.mask() };
        program.store(now);
        let action = now.behind_ours().action();
        // SAFETY: the handler is one for SA_SIGINFO. Where this is `sigaction` of the preload
        // library, that hands it on.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
            return Err(Errno::INVAL);
        }
        program.is_installed.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// Whether the kernel has the handler of this library, so that [`sigaction`] has to be called
/// instead of libc's.
#[must_use]
pub fn is_installed() -> bool {
    PROGRAM.is_installed.load(Ordering::Relaxed)
}

/// sigaction(2) of SIGBUS, as the program calls it: it finds the action that it has installed.
/// `real` passes an action to the kernel. A process that only `borrows` this memory, as a child of
/// vfork does, has actions of its own.
///
/// # Safety
/// As for sigaction(2); `real` is sigaction(2) of SIGBUS.
pub unsafe fn sigaction(
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    borrows: bool,
    real: impl Fn(*const libc::sigaction, *mut libc::sigaction) -> c_int,
) -> c_int {
    // SAFETY: the caller's own argument.
    if !is_installed() || unsafe { is_ours(new) } {
        return real(new, old);
    }
    if borrows {
        let result = real(new, old);
        // SAFETY: the kernel has just written there.
        if result == 0 && unsafe { is_ours(old) } {
            // SAFETY: as above.
            unsafe { old.write(PROGRAM.load().action()) };
        }
        return result;
    }
    let before = PROGRAM.load();
    // SAFETY: the caller's own argument.
    if let Some(new) = unsafe { new.as_ref() } {
        let result = PROGRAM.change(|program| {
            let action = Program::of(new).behind_ours().action();
            let result = real(&raw const action, ptr::null_mut());
            if result == 0 {
                program.store(Program::of(new));
            }
            result
        });
        if result != 0 {
            return result;
        }
    }
    if !old.is_null() {
        // SAFETY: the caller's own argument.
        unsafe { old.write(before.action()) };
    }
    0
}

/// The handler. Only system calls by instruction, so errno stays as it is.
extern "C-unwind" fn on_fault(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes these arguments to a handler of SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // Another process has sent it; or the thread has raised it itself.
    let is_sent = code <= 0;
    if !is_sent && replace(address) {
        return;
    }
    let program = PROGRAM.load();
    match program.handler {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            signal::set_default(libc::SIGBUS);
            if is_sent {
                // It waits until this handler returns.
                signal::raise(libc::SIGBUS);
            }
            // Otherwise the instruction faults once more.
        }
        handler => {
            if program.flags & libc::SA_RESETHAND != 0 {
                PROGRAM.change(|shared| {
                    shared.store(Program { handler: libc::SIG_DFL, flags: 0, mask: 0 });
                });
            }
            if program.flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the program has given it as one of this kind.
                let handler: extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(number, info, context);
            } else {
                // SAFETY: as above.
                let handler: extern "C-unwind" fn(c_int) = unsafe { std::mem::transmute(handler) };
                handler(number);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::AtomicU32;

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;
    use crate::mem::{Common, Region};

    /// Set in another process, which runs this program again.
    const OTHER: &str = "SEEKWIRE_TEST_FAULT";

    fn file(pages: usize) -> OwnedFd {
        let file = rustix::fs::memfd_create(c"fault", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, (pages * PAGE) as u64).unwrap();
        file
    }

    /// A page that no longer exists, and has no guard.
    fn unguarded() -> *mut u8 {
        let file = file(1);
        let (prot, flags) = (ProtFlags::READ.union(ProtFlags::WRITE), MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe { rustix::mm::mmap(ptr::null_mut(), PAGE, prot, flags, &file, 0) };
        rustix::fs::ftruncate(&file, 0).unwrap();
        page.unwrap().cast()
    }

    fn real(new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        // SAFETY: what this is given.
        unsafe { libc::sigaction(libc::SIGBUS, new, old) }
    }

    #[test]
    fn a_file_that_is_cut_short_is_zeroed_memory_from_then_on() {
        let file = file(4);
        let maps = [(); 2].map(|()| Region::of_file(file.as_fd(), 4 * PAGE).unwrap());
        let words = Common::of_foreign_file(file.as_fd(), PAGE).unwrap();
        maps[0].word(3 * PAGE).store(7, Ordering::Relaxed);
        maps[0].word(0).store(8, Ordering::Relaxed);
        rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
        // The rest of the file can be read until the first fault.
        assert_eq!((maps[1].word(0).load(Ordering::Relaxed), maps[1].is_lost()), (8, false));
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = 77 };
        assert_eq!(maps[1].word(3 * PAGE).load(Ordering::Relaxed), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
        assert!(maps[1].is_lost() && !maps[0].is_lost());
        assert_eq!(maps[1].word(0).load(Ordering::Relaxed), 0);
        // A store, into what is nobody else's.
        maps[0].word(2 * PAGE).store(9, Ordering::Relaxed);
        assert_eq!(maps.map(|map| map.word(2 * PAGE).load(Ordering::Relaxed)), [9, 0]);
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert_eq!(words.word(0).load(Ordering::Relaxed), 0);
    }

    /// In a process of its own, where nobody else needs a guard.
    fn more_than_can_be_guarded_is_refused() {
        let file = file(1);
        let guard = || FaultGuard::new(ptr::without_provenance(usize::MAX - PAGE), 1);
        let guards: Vec<_> = std::iter::repeat_with(guard).map_while(Result::ok).collect();
        assert!(guards.len() == MOST && Region::of_file(file.as_fd(), PAGE).is_err());
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(Region::of_file(file.as_fd(), PAGE).is_ok());
    }

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        SEEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the page of the fault is that of the test.
        unsafe {
            let (page, flags) = ((*info).si_addr(), MapFlags::PRIVATE.union(MapFlags::FIXED));
            let prot = ProtFlags::READ.union(ProtFlags::WRITE);
            mmap_anonymous(page, PAGE, prot, flags).unwrap();
        }
    }

    /// In a process of its own: there is one handler for all threads.
    fn the_program_gets_its_own() {
        let lost = || {
            let file = file(1);
            let region = Region::of_file(file.as_fd(), PAGE).unwrap();
            rustix::fs::ftruncate(&file, 0).unwrap();
            assert_eq!((region.word(0).load(Ordering::Relaxed), region.is_lost()), (0, true));
        };
        // SAFETY: the pages are readable once the handler has run.
        let fault = || assert_eq!(unsafe { unguarded().read_volatile() }, 0);
        let mut mine = Program { handler: 0, flags: libc::SA_SIGINFO, mask: 1 << 9 };
        mine.handler = handler as *const () as usize;
        let action = mine.action();
        let none = ptr::null_mut();

        // Before the first guard.
        // SAFETY: the handler is one for SA_SIGINFO.
        assert_eq!(unsafe { sigaction(&raw const action, none, false, real) }, 0);
        fault();
        lost();
        fault();
        assert_eq!(SEEN.load(Ordering::Relaxed), 2);
        // It finds what it has installed, and what it installs later counts.
        for next in [Program { handler: libc::SIG_DFL, flags: 0, mask: 0 }, mine] {
            let mut before = mine.action();
            let action = next.action();
            // SAFETY: as above.
            assert_eq!(unsafe { sigaction(&raw const action, &raw mut before, false, real) }, 0);
            let other = if next == mine { libc::SIG_DFL } else { mine.handler };
            assert_eq!(Program::of(&before).handler, other);
            lost();
        }
        fault();
        // A handler that nobody saw is found with the next guard.
        assert_eq!(real(&raw const action, none), 0);
        lost();
        fault();
        // Once only, and ended by the default.
        let once = Program { flags: libc::SA_SIGINFO | libc::SA_RESETHAND, ..mine }.action();
        // SAFETY: as above.
        assert_eq!(unsafe { sigaction(&raw const once, none, false, real) }, 0);
        fault();
        assert_eq!(SEEN.load(Ordering::Relaxed), 5);
        lost();
        more_than_can_be_guarded_is_refused();
        println!("alive");
        fault();
    }

    #[test]
    fn all_other_faults_are_the_programs() {
        let name = "sys::fault::tests::all_other_faults_are_the_programs";
        if std::env::var_os(OTHER).is_some() {
            the_program_gets_its_own();
        }
        let other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(OTHER, "1")
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&other.stdout);
        assert!(stdout.contains("alive"), "{stdout}{}", String::from_utf8_lossy(&other.stderr));
        assert_eq!(other.status.signal(), Some(libc::SIGBUS), "{stdout}");
    }
}
