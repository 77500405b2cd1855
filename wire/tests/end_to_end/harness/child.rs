//! Children: started in a process group of their own, waited for with patience, gone when their
//! handle is gone.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::HANG_AFTER;

/// A running program. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct Child {
    inner: std::process::Child,
    shown: String,
    errors: PathBuf,
    reader: BufReader<std::process::ChildStdout>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    shown: String,
}

impl Child {
    /// Starts `command` with its standard input and output on pipes and its standard error in the
    /// file `errors`.
    pub(crate) fn start(command: &mut Command, errors: PathBuf) -> Self {
        use std::os::unix::process::CommandExt;
        let shown = format!("{command:?}");
        let sink = File::create(&errors).expect("a file for standard error");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(sink).process_group(0);
        let mut inner =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        let reader = BufReader::new(inner.stdout.take().expect("a pipe"));
        Self { inner, shown, errors, reader }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.inner.id()
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.inner)
    }

    /// The next line of standard output, without its end.
    pub(crate) fn line(&mut self) -> String {
        if self.reader.buffer().is_empty() && !readable_within(self.reader.get_ref(), HANG_AFTER) {
            self.fail("says nothing");
        }
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("text on standard output");
        if line.is_empty() {
            self.fail("ended its output");
        }
        line.trim_end().to_owned()
    }

    /// Writes a line to standard input.
    pub(crate) fn tell(&mut self, line: &str) {
        let mut input = self.inner.stdin.as_ref().expect("standard input is open");
        if !ready_within(input, PollFlags::OUT, HANG_AFTER) {
            self.fail("does not read its standard input");
        }
        // A pipe that poll(2) calls writable takes PIPE_BUF bytes at once.
        if let Err(error) = input.write_all(format!("{line}\n").as_bytes()) {
            self.fail(&format!("has closed its standard input: {error}"));
        }
    }

    /// Writes a line to standard input; the line that answers.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }

    /// Ends standard input.
    pub(crate) fn end_input(&mut self) {
        drop(self.inner.stdin.take());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.group(), signal).expect("the child has not been waited for");
    }

    /// Waits until a socket of the child's network namespace listens on `port`, without connecting:
    /// some servers serve one client only.
    pub(crate) fn wait_until_listening(&mut self, port: u16) {
        let deadline = Instant::now() + HANG_AFTER;
        while !is_listening(self.pid(), port) {
            if let Ok(Some(status)) = self.inner.try_wait() {
                self.fail(&format!("ended with {status} instead of listening on port {port}"));
            }
            if Instant::now() > deadline {
                self.fail(&format!("does not listen on port {port}"));
            }
            // /proc cannot be waited on.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends standard input and waits for the end.
    pub(crate) fn finish(mut self) -> Finished {
        self.end_input();
        let mut stdout = String::new();
        // Reading to the end before waiting: a full pipe would stop the program. A hang shows in
        // the wait for output.
        loop {
            if self.reader.buffer().is_empty()
                && !readable_within(self.reader.get_ref(), HANG_AFTER)
            {
                self.fail("does not end");
            }
            let mut chunk = [0; 4096];
            match self.reader.read(&mut chunk).expect("a pipe can be read") {
                0 => break,
                length => stdout.push_str(&String::from_utf8_lossy(&chunk[..length])),
            }
        }
        let handle = pidfd_open(self.group(), PidfdFlags::empty()).expect("a handle of the child");
        if !readable_within(&handle, HANG_AFTER) {
            self.fail("does not end");
        }
        let status = self.inner.wait().expect("the child can be waited for");
        Finished { status, stdout, stderr: self.stderr(), shown: self.shown.clone() }
    }

    /// Sends `signal` and waits for the end.
    pub(crate) fn stop(self, signal: Signal) -> Finished {
        self.signal(signal);
        self.finish()
    }

    fn stderr(&self) -> String {
        read_lossy(&self.errors)
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{} {what}; its standard error:\n{}", self.shown, self.stderr());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // All of the group: servers leave children behind. It may be gone already; that is what is
        // wanted.
        let _ = kill_process_group(self.group(), Signal::KILL);
        let _ = self.inner.wait();
    }
}

impl Finished {
    /// The program must have ended with status 0; its standard output.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert!(
            self.status.success(),
            "{} ended with {}\nstandard output:\n{}\nstandard error:\n{}",
            self.shown,
            self.status,
            self.stdout,
            self.stderr
        );
        self.stdout
    }
}

fn readable_within(source: &impl AsFd, patience: Duration) -> bool {
    ready_within(source, PollFlags::IN, patience)
}

fn ready_within(source: &impl AsFd, events: PollFlags, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("a short time");
        match poll(&mut [PollFd::new(source, events)], Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

fn is_listening(pid: u32, port: u16) -> bool {
    // proc(5): the local address is the second field, the state the fourth; 0A is LISTEN.
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default().lines().any(
            |line| {
                let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
                matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&suffix))
            },
        )
    })
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
