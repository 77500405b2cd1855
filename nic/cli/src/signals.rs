//! Signals: holds an interface until a command ends or a signal arrives, and stops a search or a
//! server on ^C.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use seekwire_program::signals::ending;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT};

/// The signals that end a hold, caught.
pub(crate) struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// From now on they do not end this process.
    pub(crate) fn catch() -> Result<Self> {
        let signals = signal_hook::iterator::Signals::new(ending().into_iter().chain([SIGCHLD]));
        Ok(Self(signals.context("cannot catch signals")?))
    }

    /// Runs `command` to its end and returns its exit status. Without a command, waits for a
    /// signal.
    pub(crate) fn hold(mut self, command: &[OsString]) -> Result<Option<ExitCode>> {
        let Some((program, arguments)) = command.split_first() else {
            seekwire_program::tell(format_args!("seekwire: held until interrupted (^C)"));
            while !self.0.wait().any(|signal| signal != SIGCHLD) {}
            return Ok(None);
        };
        if let Some(signal) = self.0.pending().find(|signal| *signal != SIGCHLD) {
            return Ok(Some(ExitCode::from(status_of_signal(signal))));
        }
        let started = Command::new(program).args(arguments).spawn();
        let mut child =
            started.with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
        loop {
            for signal in self.0.wait() {
                if signal != SIGCHLD {
                    forward(&child, signal);
                }
            }
            if let Some(status) = child.try_wait()? {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                let code =
                    code.unwrap_or_else(|| status_of_signal(status.signal().unwrap_or_default()));
                return Ok(Some(ExitCode::from(code)));
            }
        }
    }
}

/// Records signals that end the work.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// From now on these signals do not end this process.
    pub(crate) fn catch() -> Result<Self> {
        let came = Arc::new(AtomicUsize::new(0));
        for signal in ending() {
            let number = usize::try_from(signal)?;
            signal_hook::flag::register_usize(signal, Arc::clone(&came), number)
                .context("cannot catch signals")?;
        }
        Ok(Self(came))
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The exit status, if a signal has arrived.
    pub(crate) fn status(&self) -> Option<ExitCode> {
        let signal = i32::try_from(self.0.load(Ordering::Relaxed)).unwrap_or_default();
        (signal != 0).then(|| ExitCode::from(status_of_signal(signal)))
    }
}

/// Calls `end` from another thread when a signal arrives.
pub(crate) fn at_interrupt(end: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new(ending()).context("cannot catch signals")?;
    std::thread::Builder::new().spawn(move || {
        if signals.forever().next().is_some() {
            end();
        }
    })?;
    Ok(())
}

/// The exit status that shells use.
fn status_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn forward(child: &Child, signal: i32) {
    // ^C at a terminal has also reached the command; a second one could make it abandon its work.
    if [SIGINT, SIGQUIT].contains(&signal) && is_in_foreground().unwrap_or(false) {
        return;
    }
    let process = Pid::from_child(child);
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The command has not been waited for, so its process id is still valid.
        let _ = kill_process(process, signal);
    }
}

/// True if this process is in the foreground of its terminal.
fn is_in_foreground() -> io::Result<bool> {
    let terminal = File::open("/dev/tty")?;
    Ok(rustix::termios::tcgetpgrp(&terminal)? == getpgrp())
}
