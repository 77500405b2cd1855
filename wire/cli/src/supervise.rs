//! Runs a program as a child, so that it looks as if this process had become the program.
//!
//! The child stays in this process's group. So the terminal sends ^C and ^Z to both, and only what
//! reaches this process alone is passed on. When the program stops, this process stops in the same
//! way, for the shell to see; when it ends, [`end_like`] ends in the same way.
//!
//! A signal that is sent to the whole group (`kill %1` of a shell) reaches the program twice, since
//! the kernel does not tell this process who else got it. SIGKILL reaches only this process.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use nix::errno::Errno;
use nix::libc::{
    SI_QUEUE, SI_TKILL, SI_USER, SIGALRM, SIGCONT, SIGHUP, SIGPROF, SIGVTALRM, signalfd_siginfo,
};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{self, DumpableBehavior, Pid, WaitOptions, WaitStatus};
use seekwire_transport::sys::signal;

use crate::proc;

/// A program that has ended.
pub(crate) struct Ended {
    pub(crate) pid: u32,
    pub(crate) status: ExitStatus,
}

/// Whether a child's end can be waited for. If SIGCHLD is ignored, as a program inherits it, the
/// kernel discards how the child has ended.
pub(crate) fn is_possible() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = proc::field(&status, "SigIgn");
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    ignored.is_some_and(|mask| mask >> (Signal::SIGCHLD as i32 - 1) & 1 == 0)
}

/// Runs the program to its end. `words` are its arguments, from the zeroth on; those of the command
/// are not used.
///
/// # Errors
///
/// Those of starting the program.
pub(crate) fn run(command: &Command, words: &[OsString]) -> io::Result<Ended> {
    let all = SigSet::all();
    // Before the program can start: it may answer a signal that would end this process.
    let inherited = all.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC)?;
    let program = spawn(command, words, &inherited)?;
    loop {
        let changes = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Some((_, status)) = process::waitpid(Some(program), changes)? {
            match stopping_signal(status) {
                Some(signal) => stop_by(signal),
                None => {
                    let status = ExitStatus::from_raw(status.as_raw());
                    return Ok(Ended {
                        pid: program.as_raw_nonzero().get().unsigned_abs(),
                        status,
                    });
                }
            }
        }
        // SIGCHLD reports the next change.
        if let Some(signal) = signals.read_signal()? {
            pass_on(&signal, program);
        }
    }
}

const SHELL: &str = "/bin/sh";

/// [`Command::spawn`] lets the program inherit the mask of this thread; this gives it another one.
fn spawn(command: &Command, words: &[OsString], mask: &SigSet) -> io::Result<Pid> {
    let mut environment: BTreeMap<OsString, OsString> = env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => environment.insert(name.to_owned(), value.to_owned()),
            None => environment.remove(name),
        };
    }
    let environment = environment.into_iter().map(|(mut entry, value)| {
        entry.push("=");
        entry.push(value);
        entry
    });
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(mask)?;
    // Rust's runtime ignores it in this process.
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    let (actions, environment) = (PosixSpawnFileActions::init()?, texts(environment)?);
    let start = |program: &OsStr, words: Vec<CString>| {
        nix::spawn::posix_spawn(Path::new(program), &actions, &attributes, &words, &environment)
    };
    let program = command.get_program();
    let started = match start(program, texts(words.iter().cloned())?) {
        // A script without a `#!` line, for which execvp(3) starts the shell.
        Err(Errno::ENOEXEC) => {
            let script = [SHELL.into(), program.to_owned()].into_iter();
            start(SHELL.as_ref(), texts(script.chain(words.iter().skip(1).cloned()))?)
        }
        started => started,
    };
    Ok(Pid::from_raw(started?.as_raw()).expect("a started program has a number"))
}

fn texts(words: impl Iterator<Item = OsString>) -> io::Result<Vec<CString>> {
    words.map(|word| Ok(CString::new(word.into_vec())?)).collect()
}

/// Sends the program a signal that has reached only this process.
fn pass_on(signal: &signalfd_siginfo, program: Pid) {
    let is_from_program = signal.ssi_pid == program.as_raw_nonzero().get().unsigned_abs();
    let number = signal.ssi_signo as i32;
    let is_for_this_one = match signal.ssi_code {
        SI_USER | SI_QUEUE | SI_TKILL => !is_from_program,
        _ => is_only_for_this_one(number),
    };
    if is_for_this_one {
        // It may have ended; then its end is reported next.
        let _ = signal::send(program, number);
    }
}

/// Whether the kernel sends a signal of its own to this process alone. Those of a terminal usually
/// reach the program as well, but a hang-up reaches only the process that leads the session
/// (`ssh -t HOST seekwire run ...`). A child does not inherit the timers of its parent.
fn is_only_for_this_one(signal: i32) -> bool {
    match signal {
        SIGHUP | SIGCONT => process::getsid(None).is_ok_and(|leader| leader == process::getpid()),
        SIGALRM | SIGVTALRM | SIGPROF => true,
        _ => false,
    }
}

fn stopping_signal(status: WaitStatus) -> Option<Signal> {
    Signal::try_from(status.stopping_signal()?).ok()
}

/// Stops this process, until a SIGCONT, by the signal that has stopped the program.
fn stop_by(signal: Signal) {
    let mut alone = SigSet::empty();
    alone.add(signal);
    // The signal waits until it is no longer blocked. SIGSTOP cannot be blocked.
    let _ = raise(signal);
    let _ = alone.thread_unblock();
    let _ = alone.thread_block();
}

/// Ends this process as the program has ended: by the same signal, or with the status that this
/// returns.
pub(crate) fn end_like(status: ExitStatus) -> ExitCode {
    let Some(signal) = status.signal() else {
        return ExitCode::from(status.code().unwrap_or_default() as u8);
    };
    // The first process of a container ignores a signal that it sends itself.
    if !process::getpid().is_init() {
        // The program has left its core file, and nobody needs that of this process.
        let _ = process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    // Shells also report a real-time signal in this way.
    ExitCode::from(128 + signal as u8)
}
