//! Signals: those that arrive during a call, and those that a system call of the library itself
//! would send to the program: SIGXFSZ if a file would grow beyond RLIMIT_FSIZE, SIGPIPE if nobody
//! reads any more. Both end a program that knows of neither file nor pipe.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Pid;

use super::call;
use crate::Errno;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals for a thread's own faults kill if they have to wait; glibc's own (to cancel a thread, to
/// change the user of all) end no call; and two cannot be blocked.
const NEVER_HELD: u64 = bit(libc::SIGKILL)
    | bit(libc::SIGSTOP)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS)
    | bit(32)
    | bit(33);

/// Signals that do nothing unless the program changes their action (signal(7)). SIGCONT is not one
/// of them: it continues a stopped process, after which epoll_wait ends with EINTR anyway.
const MOSTLY_IGNORED: [i32; 3] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH];

/// The action of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Its default action.
    Default,
    /// Nothing.
    Ignore,
    /// It runs a handler.
    Handler {
        /// Whether system calls that it interrupts start again (SA_RESTART).
        restarts: bool,
    },
}

/// struct sigaction of the kernel on x86-64 and aarch64.
#[repr(C)]
pub(super) struct KernelAction {
    pub(super) handler: usize,
    pub(super) flags: libc::c_ulong,
    restorer: usize,
    /// One word of signals, in room for two.
    mask: [u64; 2],
}

impl KernelAction {
    /// The present action of a signal.
    pub(super) fn of(signal: i32) -> Result<Self, Errno> {
        let mut action = Self { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: [0; 2] };
        let places =
            [ptr::null::<Self>().expose_provenance(), (&raw mut action).expose_provenance()];
        // SAFETY: the kernel writes a struct that is no larger than this one.
        unsafe { call(libc::SYS_rt_sigaction, [signal as usize, places[0], places[1], 8, 0, 0]) }?;
        Ok(action)
    }

    pub(super) fn mask(&self) -> u64 {
        self.mask[0]
    }
}

/// The present action of a signal.
///
/// # Errors
/// EINVAL if there is no such signal.
pub fn action(signal: i32) -> Result<Action, Errno> {
    let action = KernelAction::of(signal)?;
    Ok(match action.handler {
        libc::SIG_DFL => Action::Default,
        libc::SIG_IGN => Action::Ignore,
        _ => Action::Handler { restarts: action.flags & libc::SA_RESTART as libc::c_ulong != 0 },
    })
}

/// Resets a signal to its default action.
pub(super) fn set_default(signal: i32) {
    let default = KernelAction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: [0; 2] };
    let place = (&raw const default).expose_provenance();
    // SAFETY: the kernel reads a struct that is no larger than this one.
    let _ = unsafe { call(libc::SYS_rt_sigaction, [signal as usize, place, 0, 8, 0, 0]) };
}

/// Sends a signal to this thread.
pub(super) fn raise(signal: i32) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let arguments = [process as usize, thread as usize, signal as usize, 0, 0, 0];
    // SAFETY: a process may send itself any signal.
    let _ = unsafe { call(libc::SYS_tgkill, arguments) };
}

/// kill(2), also for a signal without a name, such as a real-time signal.
///
/// # Errors
/// Those of kill(2).
pub fn send(process: Pid, signal: i32) -> Result<(), Errno> {
    let process = process.as_raw_nonzero().get();
    // SAFETY: the call touches no memory.
    unsafe { call(libc::SYS_kill, [process as usize, signal as usize, 0, 0, 0, 0]) }.map(drop)
}

/// Runs code that no handler of this thread interrupts.
pub(super) fn with_all_blocked<T>(work: impl FnOnce() -> T) -> T {
    let before = change(libc::SIG_BLOCK, u64::MAX);
    let result = work();
    change(libc::SIG_SETMASK, before);
    result
}

/// The signals that the program has ever ignored, valid once `IS_ASKED`: asking for each of the 64
/// takes too long.
static EVER_IGNORED: AtomicU64 = AtomicU64::new(0);
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// To be called before the program begins to ignore a signal.
pub fn note_ignored(signal: i32) {
    if (1..=64).contains(&signal) {
        EVER_IGNORED.fetch_or(bit(signal), Ordering::Relaxed);
    }
}

fn ever_ignored() -> u64 {
    if !IS_ASKED.load(Ordering::Acquire) {
        let is_ignored = |signal: &i32| action(*signal) == Ok(Action::Ignore);
        (1..=64).filter(is_ignored).for_each(note_ignored);
        IS_ASKED.store(true, Ordering::Release);
    }
    EVER_IGNORED.load(Ordering::Relaxed)
}

/// The signals that do nothing at present. Code that blocks signals for a while should leave these
/// out.
///
/// The kernel drops such a signal at once, unless the thread to which it goes (for SIGCHLD the one
/// that has forked) blocks it. Then it waits, and interrupts any other thread of the process, where
/// epoll_wait, unlike poll, ends with EINTR although no handler runs.
pub fn ignored() -> impl Iterator<Item = i32> {
    let mostly = MOSTLY_IGNORED.into_iter().fold(0, |set, signal| set | bit(signal));
    let asked = mostly | ever_ignored();
    (1..=64).filter(move |&signal| {
        asked & bit(signal) != 0
            && match action(signal) {
                Ok(Action::Ignore) => true,
                Ok(Action::Default) => mostly & bit(signal) != 0,
                Ok(Action::Handler { .. }) | Err(_) => false,
            }
    })
}

thread_local! {
    /// The mask of the thread while signals are held back, and its mask during a sleep; 0 before
    /// the first time.
    static HELD: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Holds back the signals of this thread while it lives.
///
/// A system call that a signal interrupts ends with EINTR, or with the bytes it has moved, wherever
/// in the call the signal comes. A call that sleeps several times, and is awake in this library in
/// between, holds them back, and lets them in only during its sleeps
/// ([`Deadline::letting_in`](super::poll::Deadline::letting_in)): a handler that ran in between
/// would not end the next sleep. Within another call, as when a receive goes on in another way, a
/// sleep lets in the signals of the outer one.
///
/// Signals that are [`ignored`] are not held back.
#[derive(Debug)]
pub struct HeldBack {
    /// The mask that the thread gets back when this is dropped.
    before: u64,
    /// Its mask during a sleep.
    mask: u64,
    outer: (u64, u64),
    of_this_thread: PhantomData<*const ()>,
}

impl HeldBack {
    /// Holds signals back from now on.
    #[expect(clippy::new_without_default, reason = "it does something")]
    #[must_use]
    pub fn new() -> Self {
        let set = ignored().map(bit).fold(!NEVER_HELD, |set, bit| set & !bit);
        let before = change(libc::SIG_BLOCK, set);
        let outer = HELD.get();
        // This is a call within another one only if the thread still has the mask that the outer
        // one set: a handler that a sleep let in has a mask of its own, and so has the code after a
        // longjmp out of one.
        let mask = if outer.0 != 0 && outer.0 == before { outer.1 } else { before };
        HELD.set((before | set, mask));
        Self { before, mask, outer, of_this_thread: PhantomData }
    }

    /// The signals that the thread had blocked before.
    #[must_use]
    pub fn mask(&self) -> &u64 {
        &self.mask
    }

    /// Whether a signal waits that the thread had not blocked before.
    #[must_use]
    pub fn has_come(&self) -> bool {
        pending() & !self.mask != 0
    }

    /// Lets the waiting signals in.
    ///
    /// # Errors
    /// EINTR if a handler ran.
    pub fn let_in(&self) -> Result<(), Errno> {
        let at_once = [0u64; 2];
        let places =
            [at_once.as_ptr().expose_provenance(), (&raw const self.mask).expose_provenance()];
        // SAFETY: no descriptors; the kernel reads a timespec of 16 bytes, which is zero and so is
        // not written to, and a set of 8.
        let looked = unsafe { call(libc::SYS_ppoll, [0, 0, places[0], places[1], 8, 0]) };
        looked.map(drop)
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        HELD.set(self.outer);
        change(libc::SIG_SETMASK, self.before);
    }
}

const OWN: u64 = bit(libc::SIGXFSZ) | bit(libc::SIGPIPE);

/// Makes system calls that fail with EFBIG or EPIPE without sending a signal.
///
/// # Errors
/// Those of the calls.
pub fn without_signals<T>(calls: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = change(libc::SIG_BLOCK, OWN);
    // A signal that waits already, because the program blocks it, is the program's.
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

/// Changes the mask of this thread; returns the previous one.
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
    let _ = unsafe {
        call(libc::SYS_rt_sigpending, [(&raw mut set).expose_provenance(), 8, 0, 0, 0, 0])
    };
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
    use std::time::Duration;

    use super::*;
    use crate::sys::Fd;
    use crate::sys::poll::{self, Deadline, Events};

    fn break_pipe() -> io::Result<usize> {
        let (read, write) = rustix::pipe::pipe()?;
        drop(read);
        without_signals(|| Ok(rustix::io::write(write.as_fd(), b"x")?))
    }

    /// Rust programs ignore SIGPIPE, and an ignored signal reaches no handler.
    fn with_default_action(test: impl FnOnce()) {
        // SAFETY: no handler of Rust's own is involved.
        let ignored = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        test();
        // SAFETY: restores the previous action.
        unsafe { libc::signal(libc::SIGPIPE, ignored) };
    }

    #[test]
    fn a_signal_that_comes_between_two_sleeps_ends_the_next() {
        extern "C" fn handler(_: libc::c_int) {}
        // SAFETY: the handler does nothing; nobody else uses the signal.
        let before =
            unsafe { libc::signal(libc::SIGUSR2, handler as *const () as libc::sighandler_t) };
        let none = Fd::new(-1);
        let mask = change(libc::SIG_BLOCK, 0);
        let held = HeldBack::new();
        let soon = Deadline::after(Some(Duration::from_secs(60))).letting_in(&held);
        assert_eq!(held.let_in(), Ok(()));
        let within = HeldBack::new();
        for sleep in [0, 1, 2] {
            // SAFETY: to this thread.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
            let ended = match sleep {
                0 => poll::wait(none, none, Events::default(), soon).map(drop),
                1 => held.let_in(),
                _ => within.let_in(),
            };
            assert_eq!(ended, Err(Errno::INTR));
        }
        drop(within);
        assert_ne!(change(libc::SIG_BLOCK, 0), mask);
        drop(held);
        assert_eq!(change(libc::SIG_BLOCK, 0), mask);
        // SAFETY: restores the previous action.
        unsafe { libc::signal(libc::SIGUSR2, before) };
    }

    #[test]
    fn an_ignored_signal_neither_waits_nor_ends_epoll_wait() {
        extern "C" fn handler(_: libc::c_int) {}
        // SAFETY: no arguments.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let sleep = |held: &HeldBack| {
            let mut events = [0u32; 4];
            let places = [
                events.as_mut_ptr().expose_provenance(),
                ptr::from_ref(held.mask()).expose_provenance(),
            ];
            // SAFETY: the kernel writes one event of at most 16 bytes, and reads a set of 8.
            unsafe { call(libc::SYS_epoll_pwait, [set as usize, places[0], 1, 1, places[1], 8]) }
        };
        // SAFETY: to this thread.
        let raise = |signal| unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
        for signal in MOSTLY_IGNORED {
            assert_eq!(action(signal), Ok(Action::Default));
            let held = HeldBack::new();
            raise(signal);
            assert!(!held.has_come(), "signal {signal}");
            assert_eq!(sleep(&held), Ok(0), "signal {signal}");
        }

        // The same holds for a signal that the program ignores.
        note_ignored(libc::SIGIO);
        // SAFETY: no handler is involved; no other test uses the signal.
        let before = unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let held = HeldBack::new();
        raise(libc::SIGIO);
        assert!(!held.has_come());
        assert_eq!(sleep(&held), Ok(0));
        drop(held);
        // SAFETY: restores the previous action.
        unsafe { libc::signal(libc::SIGIO, before) };

        // With a handler it waits, and ends the sleep.
        let address = handler as *const () as libc::sighandler_t;
        // SAFETY: the handler does nothing; no other test uses the signal.
        let before = unsafe { libc::signal(libc::SIGURG, address) };
        assert_eq!(action(libc::SIGURG), Ok(Action::Handler { restarts: true }));
        let held = HeldBack::new();
        raise(libc::SIGURG);
        assert!(held.has_come());
        assert_eq!(sleep(&held), Err(Errno::INTR));
        drop(held);
        // SAFETY: restores the previous action; closes the descriptor that this test has opened.
        unsafe { (libc::signal(libc::SIGURG, before), libc::close(set)) };
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
