//! Children of the laboratory: started plain or accelerated, watched, and never left behind.
//!
//! A child leads a process group of its own. The group is killed when its handle is dropped
//! (including on errors and panics), when it times out, and by [`interrupt`] on ^C. Nothing here
//! sleeps to wait: a child is ready when it prints a line or accepts a connection, and gone when
//! its pidfd reports it.

mod child;
mod error;
pub mod interrupt;
mod lines;
mod mode;

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Duration;

pub use child::{Finished, Running};
pub use error::Error;
pub use error::last_words;
pub use mode::{ACCELERATED, PLAIN, traffic_of_each};
pub use mode::{Mode, Registry, Traffic};

/// Precedes the number of the process that a role belongs to.
pub const OF: &str = "--of=";

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    mode: Mode,
    timeout: Duration,
}

impl Program {
    /// `program` (a path, or a name to look up in PATH), to be run in `mode`.
    pub fn new(program: impl Into<OsString>, mode: &Mode) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            mode: mode.clone(),
            timeout: Duration::from_secs(30),
        }
    }

    /// A role of this project, `lab-peer` of the command `path` (see [`crate::peer`]). It exits
    /// when this process has ended, however that happened.
    pub fn role(path: impl Into<OsString>, mode: &Mode) -> Self {
        let laboratory = format!("{OF}{}", std::process::id());
        Self::new(path, mode).args(["lab-peer", &laboratory])
    }

    /// Adds one argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the child's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the time that [`Program::run`], or each wait on a running child, may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts the program and leaves it running.
    ///
    /// # Errors
    ///
    /// [`Error::NotInstalled`] if there is no such program, [`Error::System`] if it cannot be
    /// started.
    pub fn start(self) -> Result<Running, Error> {
        let name = self.name();
        let mut command = Command::new(&self.program);
        let counters = self
            .mode
            .apply(&mut command)
            .map_err(|source| Error::system(format!("prepare {name}"), source))?;
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Running::start(name, command, counters, self.timeout)
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    ///
    /// As [`Program::start`] and [`Running::wait`].
    pub fn run(self) -> Result<Finished, Error> {
        self.start()?.wait()
    }

    fn name(&self) -> String {
        let path = std::path::Path::new(&self.program);
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }
}

/// A TCP port of 127.0.0.1 that was free a moment ago.
///
/// Another process may take it before the child binds it, so a server that fails to start deserves
/// a second port.
///
/// # Errors
///
/// [`Error::System`] if no port can be bound at all.
pub fn free_port() -> Result<u16, Error> {
    let port =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    port.map(|address| address.port())
        .map_err(|source| Error::system("find a free port on 127.0.0.1", source))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::event::{PollFd, PollFlags};
    use rustix::process::{Pid, PidfdFlags};

    use super::*;

    fn pidfd(pid: u32) -> OwnedFd {
        let pid = Pid::from_raw(pid as i32).unwrap();
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap()
    }

    fn shell(script: &str) -> Program {
        Program::new("sh", &Mode::Plain).arg("-c").arg(script)
    }

    #[test]
    fn output_and_success_are_reported() {
        let finished = shell("echo out; echo err >&2").run().unwrap();
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(finished.traffic, None);
    }

    #[test]
    fn failure_carries_the_last_words() {
        let error = shell("echo no such host >&2; exit 3").run().unwrap_err();
        assert!(error.to_string().contains("no such host"), "{error}");
        assert!(error.to_string().contains('3'), "{error}");
    }

    #[test]
    fn a_missing_program_is_distinguished() {
        let error = Program::new("no-such-program-at-all", &Mode::Plain).run().unwrap_err();
        assert!(matches!(error, Error::NotInstalled { .. }), "{error}");
    }

    #[test]
    fn hung_child_is_killed_with_its_children_and_reported() {
        // The grandchild would hold the pipe open forever if only its parent were killed.
        let running = shell("sleep 1000000 & echo $!; wait").start().unwrap();
        let printed = running.wait_for_line(|_| true).unwrap();
        let grandchild = pidfd(printed.parse().unwrap());
        let error = running.timeout(Duration::ZERO).wait().unwrap_err();
        let Error::TimedOut { stdout, .. } = &error else { panic!("{error}") };
        assert_eq!(stdout.trim(), printed);
        // Returns when the grandchild is gone; if it survived, this would wait forever.
        rustix::event::poll(&mut [PollFd::new(&grandchild, PollFlags::IN)], None).unwrap();
    }

    #[test]
    fn dropping_a_running_child_kills_it() {
        let running = shell("echo ready; sleep 1000000").start().unwrap();
        running.wait_for_line(|line| line == "ready").unwrap();
        let process = format!("/proc/{}", running.id());
        assert!(std::path::Path::new(&process).exists());
        drop(running);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn readiness_line_is_returned_and_its_absence_explained() {
        let running = shell("echo starting; echo listening on 4711; cat").start().unwrap();
        assert_eq!(
            running.wait_for_line(|line| line.contains("listening")).unwrap(),
            "listening on 4711"
        );
        let running = shell("echo cannot bind >&2; exit 1").start().unwrap();
        let error = running.wait_for_line(|line| line.contains("listening")).unwrap_err();
        assert!(error.to_string().contains("cannot bind"), "{error}");
    }

    #[test]
    fn line_can_be_sent_to_a_waiting_child() {
        let mut running = shell("read line; echo got $line").start().unwrap();
        running.send_line("go").unwrap();
        assert_eq!(running.wait().unwrap().stdout, "got go\n");
    }

    #[test]
    fn stop_asks_before_it_kills() {
        let script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
        let running = shell(script).start().unwrap();
        running.wait_for_line(|line| line == "ready").unwrap();
        assert_eq!(running.stop().unwrap().stdout, "ready\nbye\n");
    }

    #[test]
    fn child_that_died_has_an_obituary() {
        let running = shell("echo out of luck >&2; echo ready; kill -9 $$").start().unwrap();
        // No such line will come: the stream ends with the child.
        running.wait_for_line(|_| false).unwrap_err();
        rustix::event::poll(&mut [PollFd::new(&pidfd(running.id()), PollFlags::IN)], None).unwrap();
        assert_eq!(running.obituary().unwrap(), "sh was killed by signal 9: out of luck");
        assert_eq!(shell("cat").start().unwrap().obituary(), None);
    }

    #[test]
    fn processor_time_is_measured() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let finished = shell(script).timeout(Duration::from_secs(120)).run().unwrap();
        assert!(finished.cpu > Duration::ZERO);
    }

    #[test]
    fn free_ports_can_be_bound() {
        let port = free_port().unwrap();
        assert_ne!(port, 0);
    }
}
