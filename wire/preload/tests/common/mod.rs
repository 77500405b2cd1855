//! Runs C programs with and without the library.

#[path = "../../../../program/shared/current.rs"]
mod current;

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use current::is_current;
use rustix::process::{Pid, Signal, kill_process_group};

/// A program that runs longer than this is considered to hang: the longest take four minutes on a
/// busy machine.
const LIMIT: Duration = Duration::from_secs(900);

/// The library of this build. Cargo does not build it for the tests.
pub(crate) fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // target/PROFILE/deps/this-test
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let profile = deps.parent().unwrap();
        let path = profile.join("libseekwire.so");
        assert!(
            is_current(&path, &path.with_extension("d")),
            "no libseekwire.so of these sources in {}: build it first, with \
             cargo build -p seekwire-preload",
            profile.display()
        );
        path
    });
    library.clone()
}

/// Compiles a program of `tests/c` from its single file, or from all files in its directory.
pub(crate) fn compile(name: &str, directory: &Path, arguments: &[&str]) -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = crate_directory.join("tests/c").join(name);
    let sources: Vec<PathBuf> = match place.read_dir() {
        Ok(files) => files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "c"))
            .collect(),
        Err(_) => vec![place.with_extension("c")],
    };
    let program = directory.join(name);
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-D_FORTIFY_SOURCE=2", "-pthread", "-o"])
        .arg(&program)
        .args(&sources)
        .arg("-I")
        .arg(crate_directory.join("../include"))
        .args(arguments)
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "{name}.c: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Like `Command::output`, without input, but the output ends with the program: a process that it
/// leaves behind when it fails would keep the pipes open. A program that does not end is killed,
/// and the output includes where it was.
pub(crate) fn output(mut command: Command) -> Output {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().expect("the program starts");
    let group = Pid::from_child(&program);
    let (mut stdout, mut stderr) = (program.stdout.take().unwrap(), program.stderr.take().unwrap());
    let read = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    };
    thread::scope(|scope| {
        let stdout = scope.spawn(move || read(&mut stdout));
        let stderr = scope.spawn(move || read(&mut stderr));
        let (ended, end) = mpsc::channel::<()>();
        scope.spawn(move || {
            if end.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{command:?}: not done after {LIMIT:?}\n{}", whereabouts(group));
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
        let status = program.wait().unwrap();
        drop(ended);
        let _ = kill_process_group(group, Signal::KILL);
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    })
}

/// Where each thread of these processes is, according to proc(5).
fn whereabouts(group: Pid) -> String {
    let said = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let group = group.as_raw_nonzero().to_string();
    let mut lines = String::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = said(process.path().join("stat"));
        // After the name in parentheses: state, parent, group.
        let is_in_group =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(2)) == Some(&group);
        let threads = fs::read_dir(process.path().join("task")).into_iter().flatten().flatten();
        for thread in threads.filter(|_| is_in_group) {
            let [name, asleep, call] =
                ["comm", "wchan", "syscall"].map(|file| said(thread.path().join(file)));
            lines += &format!("{} {name}: {asleep}, {call}\n", thread.path().display());
        }
    }
    lines
}
