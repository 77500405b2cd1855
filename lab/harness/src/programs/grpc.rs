//! The gRPC library that C++, Python, Ruby and others share: calls one after another, and a stream
//! of messages from the server. The client checks every message.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::pairs::{
    BANDWIDTH, Listening, PerMode, REQUESTS, Shared, WorkAmount, compare, is_plain, listen,
    with_package,
};
use crate::compiled::{self, SourceFile};
use crate::context::Context;
use crate::launch::{Error, Mode, Program, Running};
use crate::schedule::{Group, Trial};

/// A kind of call, and the bytes of its messages.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    call: &'static str,
    size: u64,
    /// Calls or messages of the first run.
    first: u64,
}

pub(super) const UNARY: &str = "gRPC unary, 64 B";
pub(super) const SMALL_STREAM: &str = "gRPC stream, 1 KiB";
pub(super) const STREAM: &str = "gRPC stream, 64 KiB";

const CASES: [Case; 3] = [
    Case { name: UNARY, call: "unary", size: 64, first: 1000 },
    Case { name: SMALL_STREAM, call: "download", size: 1 << 10, first: 20_000 },
    Case { name: STREAM, call: "download", size: 64 << 10, first: 1000 },
];

const SOURCE: SourceFile<'_> = SourceFile {
    name: "grpcbench",
    text: include_str!("../../peer/grpcbench.c"),
    flags: &["-std=gnu11", "-O2"],
    libraries: &["-lgrpc", "-lgpr"],
};

/// All cases; a plain run of one takes about `time`.
pub fn groups<'a>(context: &Context<'_>, time: Duration) -> Vec<Group<'a>> {
    let servers = PerMode::new();
    let group = |case: Case| {
        let work = WorkAmount::default();
        compare(context, case.name, |mode| {
            let (server, work) = (servers.of(&mode), work.clone());
            move |trial: &mut Trial| run(trial, &server, &mode, case, &work, time)
        })
    };
    CASES.into_iter().map(group).collect()
}

fn run(
    trial: &mut Trial,
    server: &Shared<Listening>,
    mode: &Mode,
    case: Case,
    work: &WorkAmount,
    time: Duration,
) -> Result<()> {
    let server = server.get(|| start(mode))?;
    let count = work.amount(trial, time, case.first);
    let client = program(mode)?
        .args([case.call, &server.port.to_string(), &count.to_string(), &case.size.to_string()])
        .timeout(Duration::from_secs(120));
    let finished = server.serve(client, explain)?;
    trial.count(finished.traffic);
    let seconds: f64 = finished.stdout.trim().parse().context("the client printed no time")?;
    ensure!(seconds > 0.0, "the client took no time");
    let rate = count as f64 / seconds;
    work.learn(is_plain(mode), rate);
    if case.name == UNARY {
        trial.record(case.name, None, REQUESTS, rate);
    } else {
        trial.record(case.name, None, BANDWIDTH, rate * case.size as f64 / 1e9);
    }
    Ok(())
}

fn start(mode: &Mode) -> Result<Listening> {
    let server = program(mode)?;
    let program = |port: u16| server.clone().args(["serve", &port.to_string()]);
    let ready = |process: &Running, port: u16| {
        process.wait_for_line(|line| line.trim() == port.to_string()).map(|_| ())
    };
    listen(program, ready).map_err(explain)
}

fn program(mode: &Mode) -> Result<Program> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    // The compiler's own output would fill a page.
    let path = PATH.get_or_init(|| {
        compiled::path(&SOURCE)
            .context("gRPC is not installed (Debian package: libgrpc-dev)")
            .map_err(|error| error.to_string())
    });
    let path: &Path = path.as_deref().map_err(|why| anyhow!("{why}"))?;
    Ok(Program::new(path, mode))
}

fn explain(error: Error) -> anyhow::Error {
    with_package(error, "libgrpc-dev")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_compiles_without_warnings_or_its_absence_is_explained() {
        match program(&Mode::Plain) {
            Ok(_) => crate::compiled::check(&SOURCE).unwrap(),
            Err(error) => assert!(error.to_string().contains("libgrpc-dev"), "{error}"),
        }
    }
}
