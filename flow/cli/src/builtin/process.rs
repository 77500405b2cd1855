//! The programs that filters start. None outlives its filter or this process.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};
use seekwire_flow::{FilterError, Outputs, UnitEnded};

use crate::options::{Fault, OptionTable};

/// A running program, with both pipes. Neither of them blocks: a program that writes before it
/// has read everything would otherwise wait for us while we wait for it.
pub(super) struct ChildProcess {
    child: Child,
    /// Open until the program closes its standard input, or has all of it.
    pub(super) input: Option<ChildStdin>,
    /// Open until the program closes its standard output. It may still read after that.
    pub(super) output: Option<ChildStdout>,
}

/// A program that a filter starts, and where the pipeline file names it.
pub(crate) struct ProgramName {
    name: String,
    at: Range<usize>,
}

impl ProgramName {
    /// Checks that this host has the program, with the lookup that starting it uses.
    ///
    /// # Errors
    /// The program is missing.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let name = &self.name;
        let is_program = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
        let has = if name.contains('/') {
            is_program(name.as_ref())
        } else {
            let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
            std::env::split_paths(&path).any(|directory| is_program(&directory.join(name)))
        };
        if has {
            return Ok(());
        }
        let location = if name.contains('/') { "" } else { " in the directories of PATH" };
        let why = format!(
            "there is no program {name}{location} that can be run: install it, or correct the name"
        );
        Err((self.at.clone(), why))
    }
}

/// Takes the option `command` of that filter.
pub(super) fn command(
    filter: &str,
    options: &mut OptionTable<'_>,
) -> Result<(Vec<String>, ProgramName), Fault> {
    let at = options.location("command");
    let command = options.strings("command")?.unwrap_or_default();
    if command.first().is_none_or(String::is_empty) {
        let message = format!("{filter} needs command: a list of the program and its arguments");
        return Err((options.span(), message));
    }
    let program = ProgramName { name: command[0].clone(), at };
    Ok((command, program))
}

/// How the program ended, unless with one of these exit statuses.
pub(super) fn ending(status: ExitStatus, success: &[u64]) -> Option<String> {
    let code = status.code().and_then(|code| u64::try_from(code).ok());
    match (code, status.signal()) {
        (Some(code), _) if success.contains(&code) => None,
        (Some(code), _) => Some(format!("ended with exit status {code}")),
        (_, Some(signal)) => Some(format!("was ended by signal {signal}")),
        _ => Some(status.to_string()),
    }
}

/// Longest wait before checking again whether the unit has ended.
pub(super) const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl ChildProcess {
    pub(super) fn start(command: &[String]) -> io::Result<Self> {
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut alive = alive();
        let mut child = program.spawn()?;
        alive.insert(pid_of(&child));
        drop(alive);
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let process = Self { child, input, output };
        let pipes =
            [process.input.as_ref().map(AsFd::as_fd), process.output.as_ref().map(AsFd::as_fd)];
        for pipe in pipes.into_iter().flatten() {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(process)
    }

    /// Waits until the program writes, or reads if it is being fed, or briefly. Fails if the unit
    /// ends.
    pub(super) fn wait(&self, is_fed: bool, out: &Outputs<'_>) -> Result<(), FilterError> {
        if out.is_ended() {
            return Err(UnitEnded.into());
        }
        let output = self.output.iter().map(|output| PollFd::new(output, PollFlags::IN));
        let input = self.input.iter().filter(|_| is_fed);
        let input = input.map(|input| PollFd::new(input, PollFlags::OUT));
        let mut pipes: Vec<PollFd<'_>> = output.chain(input).collect();
        match poll(&mut pipes, Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// True if the program has exited, even if other processes still hold its pipes.
    pub(super) fn has_ended(&self) -> bool {
        let its_end = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let pid = Pid::from_raw(pid_of(&self.child));
        pid.is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), its_end), Ok(None)))
    }

    /// Waits until the program exits or the unit ends: without its pipes the program may run
    /// forever.
    pub(super) fn end(&mut self, out: &Outputs<'_>) -> Result<ExitStatus, FilterError> {
        loop {
            if let Some(status) = self.end_within(LOOK)? {
                return Ok(status);
            }
            if out.is_ended() {
                return Err(UnitEnded.into());
            }
        }
    }

    /// The same, with a short limit: a program that has closed its pipes usually exits soon.
    pub(super) fn end_soon(&mut self) -> Result<Option<ExitStatus>, FilterError> {
        (self.input, self.output) = (None, None);
        self.end_within(Timespec { tv_sec: 2, tv_nsec: 0 })
    }

    fn end_within(&mut self, time: Timespec) -> Result<Option<ExitStatus>, FilterError> {
        let pid = Pid::from_raw(pid_of(&self.child));
        // Without a pidfd, this only checks once when the time has passed.
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let process = process.iter().map(|process| PollFd::new(process, PollFlags::IN));
        match poll(&mut process.collect::<Vec<_>>(), Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !self.has_ended() {
            return Ok(None);
        }
        // While it was in this set, its id could not be reused.
        alive().remove(&pid_of(&self.child));
        Ok(Some(self.child.wait()?))
    }
}

/// The process id as kill(2) takes it; 0, which no process has, if it does not fit.
fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap_or(0)
}

/// Process ids of the running programs.
static ALIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn alive() -> MutexGuard<'static, BTreeSet<i32>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all of them, and prevents new ones: this process is about to exit.
pub(crate) fn end_all() {
    let alive = alive();
    let pids = || alive.iter().filter_map(|pid| Pid::from_raw(*pid));
    for pid in pids() {
        let _ = kill_process(pid, Signal::KILL);
    }
    // Some systems have no init(8) that reaps what is left of them.
    for pid in pids() {
        while matches!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    }
    std::mem::forget(alive);
}

/// If the unit has ended early, nobody reads the output of the program.
impl Drop for ChildProcess {
    fn drop(&mut self) {
        alive().remove(&pid_of(&self.child));
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
