//! Two machines in one: a region in a file, and a state directory for each side.
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod hostile;

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use seekwire_link::{
    Access, Attached, Definition, EnterError, Link, LinkEntry, LinkError, Provider, Side,
};
use seekwire_protocol::{FourTuple, Role};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const PAGE: usize = 4096;
pub(crate) const ACCESS: Access = Access { mode: 0o600, group: None };

pub(crate) struct Bed {
    path: PathBuf,
    _directory: Option<TempDir>,
}

impl Bed {
    pub(crate) fn new(length: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bed = Self { path: directory.path().to_owned(), _directory: Some(directory) };
        bed.make_region(length);
        bed
    }

    /// Opens the bed of another process.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), _directory: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn region(&self) -> PathBuf {
        self.path.join("region")
    }

    pub(crate) fn make_region(&self, length: u64) {
        File::create(self.region()).unwrap().set_len(length).unwrap();
    }

    pub(crate) fn definition(&self, side: Side) -> Definition {
        let provider = Provider::File(self.region());
        Definition { name: "test".to_owned(), provider, side }
    }

    pub(crate) fn state(&self, side: Side) -> PathBuf {
        self.path.join(format!("state-of-{side}"))
    }

    pub(crate) fn attach(&self, side: Side) -> Result<Attached, LinkError> {
        Link::attach(&self.definition(side), &self.state(side), ACCESS)
    }

    pub(crate) fn open(&self, side: Side) -> Result<Link, LinkError> {
        Link::open(&self.definition(side), &self.state(side))
    }

    /// Attaches and opens both sides.
    pub(crate) fn both(&self) -> [Link; 2] {
        [Side::First, Side::Second].map(|side| {
            self.attach(side).unwrap();
            self.open(side).unwrap()
        })
    }
}

/// A connection from the first side to the second, as the first one sees it.
pub(crate) fn tuple(port: u16) -> FourTuple {
    let local: SocketAddr = ([10, 0, 0, 1], port).into();
    let peer: SocketAddr = ([10, 0, 0, 2], 80).into();
    FourTuple { local: local.into(), peer: peer.into(), namespace: 7 }
}

/// Retries while others choose an entry.
pub(crate) fn enter(link: &Link, tuple: &FourTuple, role: Role) -> LinkEntry {
    loop {
        match link.enter(tuple, role, 0) {
            Err(EnterError::Busy) => {}
            entered => return entered.unwrap(),
        }
    }
}

/// Set in another process, which runs this program again: the path of the bed.
pub(crate) const OTHER: &str = "SEEKWIRE_TEST_BED";

/// Another process, which has run one test of this program until it was ready.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    /// Kept open, so that the process can go on writing.
    _output: Lines<BufReader<ChildStdout>>,
    /// The lines that it has written.
    pub(crate) lines: Vec<String>,
}

impl Process {
    /// Starts the process without waiting for it.
    pub(crate) fn begin(bed: &Bed, test: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(OTHER, bed.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Waits until the process is ready.
    pub(crate) fn ready(mut child: Child) -> Self {
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut is_ready = false;
        let lines: Vec<String> = output
            .by_ref()
            .map(Result::unwrap)
            .take_while(|line| {
                is_ready = line.ends_with("ready");
                !is_ready
            })
            .collect();
        assert!(is_ready, "{lines:#?}");
        let input = child.stdin.take();
        Self { child, input, _output: output, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets the process end.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the other process: reports that it is ready, and waits for permission to end.
pub(crate) fn wait() {
    println!("ready");
    std::io::stdin().lines().for_each(drop);
}
