//! `seekwire run`: executes a program with the library loaded.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use seekwire_endpoint::Config;
use seekwire_program::library;
use seekwire_transport::sys::filter;
use seekwire_values::{Log, LogTarget};

use crate::arguments;
use crate::executable::{self, Unrunnable};
use crate::summary::{self, Summary};
use crate::{registry, supervise, unknown_variables};

/// The exit status for options that cannot be obeyed.
const USAGE: u8 = 2;
const DIR: &str = "SEEKWIRE_DIR";
// The exit statuses of env(1) and of the shells.
const OWN_FAILURE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs the program. Without a summary it replaces this process; then this returns only if that
/// fails.
pub(crate) fn run(options: &arguments::RunArguments) -> ExitCode {
    let variables = match variables(options) {
        Ok(variables) => variables,
        Err(error) => return fail(USAGE, &format!("{error:#}")),
    };
    let complaints = complaints(&variables);
    if !complaints.is_empty() {
        return fail(USAGE, &complaints.join("\nseekwire: "));
    }
    for complaint in unknown_variables::unknown(env::vars_os().map(|(name, _)| name)) {
        say(&format!("warning: {complaint}"));
    }
    let name = &options.command[0];
    let program = match executable::resolve(name) {
        Ok(program) => program,
        Err(Unrunnable::NotFound) if name.is_empty() => {
            return fail(USAGE, "the name of the program is empty");
        }
        Err(Unrunnable::NotFound) => {
            return fail(NOT_FOUND, &format!("{}: not found", name.to_string_lossy()));
        }
        Err(Unrunnable::NotExecutable) => {
            return fail(
                NOT_EXECUTABLE,
                &format!(
                    "{}: not an executable file, or permission denied",
                    name.to_string_lossy()
                ),
            );
        }
    };
    let has_summary = has_summary(options);
    let Prepared { mut command, loads } = match prepare(&program, options, variables) {
        Ok(prepared) => prepared,
        Err(error) => return fail(OWN_FAILURE, &format!("{error:#}")),
    };
    let failed =
        |error: io::Error| fail(NOT_EXECUTABLE, &format!("{}: {error}", program.display()));
    if !has_summary || !loads {
        return failed(command.exec());
    }
    let summary = match Summary::new() {
        Ok(summary) => summary,
        Err(error) => {
            say(&format!("warning: no summary: cannot make a temporary directory: {error}"));
            return failed(command.exec());
        }
    };
    command.env(summary::VARIABLE, summary.directory());
    match supervise::run(&command, &options.command) {
        Ok(ended) => {
            seekwire_program::tell(summary.text(name, &ended));
            // No destructor runs if this process ends by a signal.
            drop(summary);
            supervise::end_like(ended.status)
        }
        Err(error) => failed(error),
    }
}

/// Whether a summary follows the program.
fn has_summary(options: &arguments::RunArguments) -> bool {
    let is_expected = || {
        let is_above = env::var_os(summary::VARIABLE).is_some_and(|value| !value.is_empty());
        io::stderr().is_terminal() && !is_above && !options.off && Config::get().enabled
    };
    if options.no_summary || !(options.summary || is_expected()) {
        return false;
    }
    let is_possible = supervise::is_possible();
    if !is_possible && options.summary {
        say(
            "warning: no summary: SIGCHLD is ignored here, so the end of the program would not be seen",
        );
    }
    is_possible
}

fn fail(status: u8, message: &str) -> ExitCode {
    say(message);
    ExitCode::from(status)
}

/// Prints to standard error, and ignores failures.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "seekwire: {message}");
}

/// Settings that the library could not obey. It would report them only in its log.
fn complaints(variables: &[(&'static str, OsString)]) -> Vec<String> {
    let config = Config::of(|name| {
        let option = variables.iter().find(|(variable, _)| *variable == name);
        option.map(|(_, value)| value.clone()).or_else(|| env::var_os(name))
    });
    let mut complaints = config.complaints;
    let log = config.log.and_then(|log| match log.target {
        LogTarget::File(file) => Some(file),
        LogTarget::StandardError => None,
    });
    for (name, file) in [("SEEKWIRE_LOG", log), ("SEEKWIRE_STATS", config.stats)] {
        let Some(file) = file else { continue };
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        if directory.is_some_and(|directory| !directory.is_dir()) {
            complaints.push(format!("{name}={}: no such directory", file.display()));
        }
    }
    // An unusable default leaves the program on TCP, as without the command.
    let is_chosen = variables.iter().any(|(name, _)| *name == DIR) || env::var_os(DIR).is_some();
    if is_chosen && config.enabled {
        if let Err(unusable) = registry::look_at(&config.dir) {
            complaints.push(format!("{DIR}={}: {unusable}", config.dir.display()));
        }
    }
    complaints
}

/// A program that can be started.
struct Prepared {
    command: Command,
    /// Whether it can load the library.
    loads: bool,
}

fn prepare(
    program: &Path,
    options: &arguments::RunArguments,
    variables: Vec<(&'static str, OsString)>,
) -> Result<Prepared> {
    let library = library::find()?;
    let mut command = Command::new(program);
    command.arg0(&options.command[0]).args(&options.command[1..]);

    if let Some(obstacle) = executable::obstacle(program, &library) {
        say(&format!("warning: {} runs unaccelerated: it {obstacle}", program.display()));
        return Ok(Prepared { command, loads: false });
    }
    let existing = env::var_os("LD_PRELOAD").unwrap_or_default();
    let preload = library::preload(&library, &existing)?;
    if !options.off {
        let obstacle = match filter::installed() {
            Some(filters) if filters <= Config::get().seccomp => None,
            Some(_) => filter::trial().obstacle(),
            None => Some("/proc/self/status cannot be read; mount /proc".to_owned()),
        };
        if let Some(obstacle) = obstacle {
            say(&format!("warning: {} runs unaccelerated: {obstacle}", program.display()));
        }
    }
    let sanitizer = executable::sanitizer(program);
    if sanitizer.is_some() {
        command.env(TSAN_OPTIONS, ignoring_ours(env::var_os(TSAN_OPTIONS)));
    }
    command.env("LD_PRELOAD", after_sanitizer(sanitizer, preload));
    command.envs(variables);
    Ok(Prepared { command, loads: true })
}

/// The list of libraries to load, with the runtime of a sanitizer before all others.
fn after_sanitizer(sanitizer: Option<OsString>, preload: OsString) -> OsString {
    let Some(mut list) = sanitizer else { return preload };
    list.push(":");
    list.push(preload);
    list
}

const TSAN_OPTIONS: &str = "TSAN_OPTIONS";

/// ThreadSanitizer does not see how the library, which it has not instrumented, orders its copies:
/// the program has no race there.
fn ignoring_ours(options: Option<OsString>) -> OsString {
    let mut options = options.unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push("ignore_noninstrumented_modules=1");
    options
}

/// The options as the environment variables that the library reads.
fn variables(options: &arguments::RunArguments) -> Result<Vec<(&'static str, OsString)>> {
    let mut variables = Vec::new();
    if options.off {
        variables.push(("SEEKWIRE", "off".into()));
    }
    if let Some(log) = &options.log {
        let target = match &log.target {
            LogTarget::File(file) => LogTarget::File(from_root(file)?),
            LogTarget::StandardError => LogTarget::StandardError,
        };
        variables.push(("SEEKWIRE_LOG", Log { target, level: log.level }.text()));
    }
    if let Some(file) = &options.stats {
        variables.push(("SEEKWIRE_STATS", from_root(file)?.into()));
    }
    if let Some(directory) = &options.dir {
        variables.push((DIR, from_root(directory)?.into()));
    }
    if let Some(time) = options.spin_us {
        variables.push(("SEEKWIRE_SPIN_US", time.to_string().into()));
    }
    if let Some(calls) = options.threshold {
        variables.push(("SEEKWIRE_THRESHOLD", calls.to_string().into()));
    }
    Ok(variables)
}

/// Servers change their working directory before the library uses the name.
fn from_root(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot make {} absolute", path.display()))
}
