//! A running child, and its output and counters when it has ended.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tempfile::TempDir;

use super::lines::{Awaited, Lines};
use super::{Error, Traffic, interrupt, mode};

/// How long a server may take to exit by itself before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A running child. Dropping it kills it and every process it has started.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    pidfd: OwnedFd,
    stdout: Lines,
    stderr: Lines,
    counters: Option<TempDir>,
    timeout: Duration,
    began: Instant,
    reaped: bool,
}

/// A child that has ended successfully.
#[derive(Debug)]
pub struct Finished {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How long it has run.
    pub wall: Duration,
    /// User and system time of all its threads, at a resolution of one clock tick (usually 10 ms).
    pub cpu: Duration,
    /// The carriers that its bytes took; `None` if it ran plain, or left no counters.
    pub traffic: Option<Traffic>,
}

impl Running {
    /// `counters` is the directory of the child's counters.
    pub(super) fn start(
        name: String,
        mut command: Command,
        counters: Option<TempDir>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let cannot =
            |what: &str, source: std::io::Error| Error::system(format!("{what} {name}"), source);

        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);

        // An interruption is either seen here, or finds the child among the groups.
        let mut groups = interrupt::groups();
        interrupt::check()?;
        let began = Instant::now();
        let mut child = command.spawn().map_err(|source| match source.kind() {
            ErrorKind::NotFound => Error::NotInstalled { program: name.clone() },
            _ => cannot("start", source),
        })?;
        groups.insert(child.id() as i32);
        drop(groups);

        let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let pidfd = match pidfd {
            Ok(pidfd) => pidfd,
            Err(source) => {
                // The error to report is the one that prevents watching it.
                let _ = reap(&mut child);
                return Err(cannot("watch", source.into()));
            }
        };
        let stdout = Lines::collect(child.stdout.take().expect("stdout is piped"));
        let stderr = Lines::collect(child.stderr.take().expect("stderr is piped"));
        Ok(Self { name, child, pidfd, stdout, stderr, counters, timeout, began, reaped: false })
    }

    /// Its process number, which is also the number of its process group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sets the time that each later wait may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Waits until the child has printed a line that satisfies `wanted` on standard output, and
    /// returns that line.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], or [`Error::EndedEarly`] if the child ended without such a line.
    pub fn wait_for_line(&self, wanted: impl Fn(&str) -> bool) -> Result<String, Error> {
        match self.stdout.wait_for(wanted, Instant::now() + self.timeout) {
            Awaited::Line(line) => Ok(line),
            awaited => {
                interrupt::check()?;
                let timed_out = matches!(awaited, Awaited::TimedOut);
                Err(self.not_ready(timed_out))
            }
        }
    }

    /// Waits until a process accepts connections at `address`, while the child lives.
    ///
    /// # Errors
    ///
    /// As [`Running::wait_for_line`].
    pub fn wait_for_port(&self, address: SocketAddr) -> Result<(), Error> {
        self.wait_until(|| TcpStream::connect_timeout(&address, self.timeout).is_ok())
    }

    /// Waits until `is_ready` returns true, while the child lives: for events without a
    /// notification, such as a socket that starts to listen.
    ///
    /// # Errors
    ///
    /// As [`Running::wait_for_line`].
    pub fn wait_until(&self, mut is_ready: impl FnMut() -> bool) -> Result<(), Error> {
        let deadline = Instant::now() + self.timeout;
        while !is_ready() {
            // Meanwhile it watches for the child's exit, not only the clock.
            if self.poll_exit(Instant::now() + Duration::from_millis(2))? {
                interrupt::check()?;
                return Err(self.not_ready(false));
            }
            if Instant::now() >= deadline {
                return Err(self.not_ready(true));
            }
        }
        Ok(())
    }

    fn not_ready(&self, timed_out: bool) -> Error {
        let (program, stdout) = (self.name.clone(), self.stdout.so_far());
        if timed_out {
            let (after, stderr) = (self.timeout, self.stderr.so_far());
            return Error::TimedOut { program, what: "was not ready", after, stdout, stderr };
        }
        // It has ended or is about to: its error message may still be on the way.
        let _ = self.stderr.wait_for(|_| false, Instant::now() + GRACE);
        Error::EndedEarly { program, stdout, stderr: self.stderr.so_far() }
    }

    /// Sends one line to the child's standard input.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the child does not read any more.
    pub fn send_line(&mut self, line: &str) -> Result<(), Error> {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|source| Error::system(format!("write to {}", self.name), source))
    }

    /// Waits for the child to exit.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] (the child has been killed), [`Error::Failed`] if it reported failure,
    /// [`Error::Interrupted`].
    pub fn wait(mut self) -> Result<Finished, Error> {
        drop(self.child.stdin.take());
        let in_time = self.poll_exit(Instant::now() + self.timeout)?;
        let (status, finished) = self.collect()?;
        interrupt::check()?;
        if !in_time {
            let (program, after) = (self.name.clone(), self.timeout);
            let Finished { stdout, stderr, .. } = finished;
            return Err(Error::TimedOut { program, what: "did not finish", after, stdout, stderr });
        }
        if !status.success() {
            let Finished { stdout, stderr, .. } = finished;
            return Err(Error::Failed { program: self.name.clone(), status, stdout, stderr });
        }
        Ok(finished)
    }

    /// Stops a server: sends SIGTERM, and kills it if that does not help. Its exit status does not
    /// matter.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if it cannot be waited for.
    pub fn stop(mut self) -> Result<Finished, Error> {
        // It is not reaped yet, so the number is still its own; it may have exited already, which
        // is just as well.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.poll_exit(Instant::now() + GRACE)?;
        Ok(self.collect()?.1)
    }

    /// How the child ended, and its last words, if it ended by itself: the likely reason for an
    /// error around it. `None` while it runs.
    pub fn obituary(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options).ok()??;
        let how = match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (None, Some(code)) => format!("ended with status {code}"),
            (None, None) => "ended".to_owned(),
        };
        Some(format!("{} {how}{}", self.name, super::error::last_words(&self.stderr.so_far())))
    }

    /// User and system time used so far by all threads.
    pub fn cpu(&self) -> Duration {
        cpu(self.child.id())
    }

    /// Waits for the exit without reaping; `false` if `deadline` came first.
    fn poll_exit(&self, deadline: Instant) -> Result<bool, Error> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = rustix::event::Timespec::try_from(left).unwrap_or_default();
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(source) => {
                    return Err(Error::system(format!("wait for {}", self.name), source));
                }
            }
        }
    }

    /// Kills the processes that still run, reaps the child and gathers its output and counters.
    fn collect(&mut self) -> Result<(ExitStatus, Finished), Error> {
        let wall = self.began.elapsed();
        // A child that has ended is a zombie until it is reaped, and its times can still be read.
        let cpu = self.cpu();
        let status = self.kill_and_reap();
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        let traffic =
            self.counters.as_ref().and_then(|directory| mode::read_traffic(directory.path()));
        let status =
            status.map_err(|source| Error::system(format!("wait for {}", self.name), source))?;
        Ok((status, Finished { stdout, stderr, wall, cpu, traffic }))
    }

    fn kill_and_reap(&mut self) -> std::io::Result<ExitStatus> {
        self.reaped = true;
        reap(&mut self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill_and_reap();
        }
    }
}

/// Kills the child's whole group, then reaps the child.
fn reap(child: &mut Child) -> std::io::Result<ExitStatus> {
    let group = child.id() as i32;
    {
        // While the leader is not reaped, the group's number cannot be reused.
        let mut groups = interrupt::groups();
        interrupt::kill(group);
        groups.remove(&group);
    }
    child.wait()
}

/// Fields 14 and 15 of /proc/PID/stat (proc_pid_stat(5)): time in user and kernel mode, in clock
/// ticks.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field, the program's name in parentheses, may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
