//! Any program as a filter: blocks go to its standard input, and what it writes to its standard
//! output goes on.
//!
//! Both pipes are looked at together. A program that writes before it has read everything would
//! otherwise wait for us while we wait for it.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use seekwire_flow::{Block, Ended, Filter, FilterError, Outputs, Ports};

use super::Built;
use crate::options::{Fault, Options};

/// A pipe holds so much by default.
const BLOCK: usize = 64 << 10;

pub(super) fn exec(options: &mut Options<'_>) -> Result<Built, Fault> {
    let command = options.strings("command")?.unwrap_or_default();
    let success = options.numbers("success")?.unwrap_or_else(|| vec![0]);
    if command.first().is_none_or(String::is_empty) {
        let message = "exec needs command: a list of the program and its arguments".to_owned();
        return Err((options.span(), message));
    }
    if success.is_empty() || success.iter().any(|status| *status > 255) {
        let message = "success must list exit statuses from 0 to 255, at least one".to_owned();
        return Err((options.span(), message));
    }
    let built = Built::new(Ports::step(), move || Exec {
        command: command.clone(),
        success: success.clone(),
        process: None,
    });
    // Nothing tells for which block it has written something.
    Ok(Built { knows_order: false, ..built })
}

struct Exec {
    command: Vec<String>,
    success: Vec<u64>,
    process: Option<Process>,
}

struct Process {
    child: Child,
    /// Until it closes its standard input, or has all of it.
    input: Option<ChildStdin>,
    /// Until it closes its standard output. It may read on after that.
    output: Option<ChildStdout>,
}

impl Exec {
    fn error(&self, what: impl std::fmt::Display) -> FilterError {
        format!("{}: {what}", self.command[0]).into()
    }

    fn judge(&self, status: ExitStatus) -> Result<(), FilterError> {
        let code = status.code().and_then(|code| u64::try_from(code).ok());
        match (code, status.signal()) {
            (Some(code), _) if self.success.contains(&code) => Ok(()),
            (Some(code), _) => Err(self.error(format!("ended with exit status {code}"))),
            (_, Some(signal)) => Err(self.error(format!("was ended by signal {signal}"))),
            _ => Err(self.error(status)),
        }
    }
}

impl Filter for Exec {
    fn init(&mut self, _: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut alive = alive();
        let mut child = command.spawn().map_err(|error| self.error(error))?;
        alive.insert(pid_of(&child));
        drop(alive);
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let Process { input, output, .. } = self.process.insert(Process { child, input, output });
        let pipes = [input.as_ref().map(AsFd::as_fd), output.as_ref().map(AsFd::as_fd)];
        for pipe in pipes.into_iter().flatten() {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut rest = &block[..];
        while !rest.is_empty() {
            // One that wants no more, as head(1), is not fed any more.
            let Some(input) = &mut process.input else { return Ok(()) };
            match input.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => process.forward(out)?,
                Err(error) if error.kind() == ErrorKind::BrokenPipe => process.input = None,
                Err(error) => return Err(error.into()),
            }
        }
        // What it has made of that goes on at once.
        while process.receive(out)? {}
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.input = None;
        while process.output.is_some() {
            if !process.receive(out)? {
                process.wait(out)?;
            }
        }
        self.judge(process.end()?)
    }
}

impl Process {
    /// Sends on what it has written, or waits until it reads or writes.
    fn forward(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        if !self.receive(out)? {
            self.wait(out)?;
        }
        Ok(())
    }

    /// Sends on what it has written; false if that is nothing now, or for ever.
    fn receive(&mut self, out: &mut Outputs<'_>) -> Result<bool, FilterError> {
        let Some(output) = &mut self.output else { return Ok(false) };
        let mut block = BytesMut::zeroed(BLOCK);
        loop {
            match output.read(&mut block) {
                Ok(0) => {
                    self.output = None;
                    return Ok(false);
                }
                Ok(count) => {
                    block.truncate(count);
                    out.send(0, block)?;
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Until it reads or writes, or the unit ends.
    fn wait(&self, out: &Outputs<'_>) -> Result<(), FilterError> {
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if out.is_ended() {
            return Err(Ended.into());
        }
        let output = self.output.iter().map(|output| PollFd::new(output, PollFlags::IN));
        let input = self.input.iter().map(|input| PollFd::new(input, PollFlags::OUT));
        let mut pipes: Vec<PollFd<'_>> = output.chain(input).collect();
        match poll(&mut pipes, Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for its end. While it is among those that run, its id is nobody else's.
    fn end(&mut self) -> Result<ExitStatus, FilterError> {
        if let Some(pid) = Pid::from_raw(pid_of(&self.child)) {
            let its_end = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), its_end), Err(Errno::INTR)) {}
        }
        alive().remove(&pid_of(&self.child));
        Ok(self.child.wait()?)
    }
}

/// Its id, as kill(2) wants it; 0, which is nobody's, if it had none.
fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap_or(0)
}

/// Those that run, by their ids.
static ALIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn alive() -> MutexGuard<'static, BTreeSet<i32>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all of them, and lets no other begin: this process is about to end.
pub(crate) fn end_all() {
    let alive = alive();
    for pid in alive.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    std::mem::forget(alive);
}

/// Where the unit has ended early, nobody reads what it writes.
impl Drop for Process {
    fn drop(&mut self) {
        alive().remove(&pid_of(&self.child));
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
