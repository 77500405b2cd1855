//! A stage: the place of one scenario, with its own loopback address, registry, counters and files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::current::is_current;

use super::{Child, Finished, Stats, python, source};

/// How the programs of a scenario are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Without the library.
    Plain,
    /// Under `seekwire run`, as a user would.
    Accelerated,
    /// Under `seekwire run`; each connection goes to the ring at once and back to TCP after some
    /// bytes.
    TakenBack,
}

/// Where a scenario plays.
#[derive(Debug)]
pub(crate) struct Stage {
    mode: Mode,
    directory: TempDir,
    /// An address of 127.0.0.0/8 that no other scenario uses: programs that cannot ask the kernel
    /// for a port get one that was free a moment ago, and here nobody else can take it.
    pub(crate) address: Ipv4Addr,
    variables: BTreeMap<&'static str, String>,
    started: AtomicU32,
}

/// The command under test, as it is installed: not the one that cargo builds for this test.
pub(crate) fn seekwire() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let own = Path::new(env!("CARGO_BIN_EXE_seekwire"));
        let path = own.parent().expect("a directory").join("../end_to_end/seekwire");
        path.canonicalize()
            .unwrap_or_else(|_| panic!("no {}: run scripts/build tests", path.display()))
    })
}

/// The build directory, with the command and libseekwire.so.
pub(crate) fn library_directory() -> &'static Path {
    let directory = seekwire().parent().expect("a directory");
    static IS_CURRENT: OnceLock<bool> = OnceLock::new();
    let is_current = || {
        is_current(
            &directory.join("libseekwire.so"),
            &directory.with_file_name("release").join("libseekwire.d"),
        )
    };
    assert!(
        *IS_CURRENT.get_or_init(is_current),
        "no libseekwire.so of these sources in {}: run scripts/build tests",
        directory.display()
    );
    directory
}

/// Another program of the command, beside it.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = library_directory().join(name);
    assert!(path.is_file(), "no {}: run scripts/build tests", path.display());
    path
}

/// An example of the Rust API.
pub(crate) fn example(name: &str) -> PathBuf {
    let path = seekwire().parent().expect("a directory").join("examples").join(name);
    assert!(path.is_file(), "no {}: run scripts/build tests", path.display());
    path
}

/// Plays `scenario` in `mode`, and checks afterwards that the ring was used just when it should
/// have been.
pub(crate) fn in_mode(mode: Mode, scenario: fn(&mut Stage)) {
    let mut stage = Stage::new(mode);
    scenario(&mut stage);
    let stats = stage.stats();
    match mode {
        Mode::Plain => {
            assert_eq!(stats.connections.tracked, 0, "a plain program loaded the library")
        }
        Mode::Accelerated => assert!(stats.ring() > 0, "nothing went through the ring: {stats:?}"),
        Mode::TakenBack => {
            assert!(stats.ring() > 0, "nothing went through the ring: {stats:?}");
            assert!(stats.connections.fell_back > 0, "no connection went back to TCP: {stats:?}");
        }
    }
}

impl Stage {
    pub(crate) fn new(mode: Mode) -> Self {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 64 + (high & 63), low, 1 + (number % 250) as u8);

        let directory =
            tempfile::Builder::new().prefix("seekwire-").tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("stats")).expect("a directory for counters");
        if mode != Mode::Plain {
            library_directory();
        }
        let mut variables = BTreeMap::new();
        if mode == Mode::TakenBack {
            variables.insert("SEEKWIRE_THRESHOLD", "1".to_owned());
            variables.insert("SEEKWIRE_FALLBACK_AFTER", "20000".to_owned());
        }
        Self { mode, directory, address, variables, started: AtomicU32::new(0) }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Sets a variable for the accelerated programs that are started from now on.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.variables.insert(name, value.to_owned());
    }

    /// A path in the scenario's own directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of `length` bytes that do not repeat.
    pub(crate) fn file(&self, name: &str, length: usize) -> PathBuf {
        let path = self.path(name);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ length as u64;
        let mut content = Vec::with_capacity(length + 8);
        while content.len() < length {
            // xorshift64 (Marsaglia 2003)
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            content.extend_from_slice(&state.to_le_bytes());
        }
        content.truncate(length);
        fs::write(&path, content).expect("room for a file");
        path
    }

    /// A port of [`Stage::address`] on which nobody listens.
    pub(crate) fn port(&self) -> u16 {
        let listener = TcpListener::bind((self.address, 0)).expect("a free port");
        listener.local_addr().expect("a bound socket").port()
    }

    /// `program` as this mode runs it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match self.mode {
            Mode::Plain => self.plain_command(program),
            Mode::Accelerated | Mode::TakenBack => self.accelerated_command(program),
        }
    }

    /// `program` without the library, in every mode.
    pub(crate) fn plain_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        clean(&mut command);
        command
    }

    /// `program` under `seekwire run`, in every mode.
    pub(crate) fn accelerated_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(seekwire());
        clean(&mut command);
        command
            .env("SEEKWIRE_DIR", self.path("registry"))
            .env("SEEKWIRE_STATS", self.path("stats"));
        command.envs(&self.variables);
        command.arg("run").arg("--").arg(program);
        command
    }

    /// A script of wire/tests/programs as this mode runs it.
    pub(crate) fn script(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(python());
        command.arg(source(name)).args(arguments);
        command
    }

    /// A script of wire/tests/programs without the library.
    pub(crate) fn plain_script(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.plain_command(python());
        command.arg(source(name)).args(arguments);
        command
    }

    /// Compiles a C program of wire/tests/programs.
    pub(crate) fn compile(&self, name: &str, output: &str, flags: &[&str]) -> PathBuf {
        let path = self.path(output);
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        command
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&path)
            .arg(source(name))
            .args(flags);
        self.run(&mut command).success();
        path
    }

    /// Starts a program that goes on beside the scenario.
    pub(crate) fn start(&self, command: &mut Command) -> Child {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        Child::start(command, self.path(&format!("errors.{number}")))
    }

    /// Starts a server and waits until it listens on `port`, which the command names.
    pub(crate) fn serve(&self, command: &mut Command, port: u16) -> Child {
        let mut server = self.start(command);
        server.wait_until_listening(port);
        server
    }

    /// Starts a server that prints its port.
    pub(crate) fn serve_printing_port(&self, command: &mut Command) -> (Child, String) {
        let mut server = self.start(command);
        let port = server.line();
        (server, port)
    }

    /// Runs a program to its end, with nothing on its standard input.
    pub(crate) fn run(&self, command: &mut Command) -> Finished {
        self.start(command).finish()
    }

    /// The counters of the programs that have ended.
    pub(crate) fn stats(&self) -> Stats {
        Stats::sum(&self.path("stats"))
    }
}

/// Removes the settings of the user who runs the tests from the environment.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("SEEKWIRE")) {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").env("LC_ALL", "C.UTF-8").env("PYTHONUNBUFFERED", "1");
}
