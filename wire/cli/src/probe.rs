//! The exchange that `doctor` tries: two processes, each with the library loaded, and one
//! connection.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Deserialize;

use crate::arguments;

/// The subcommand that makes this command one side.
pub(crate) const NAME: &str = "probe";
/// Enough calls to pass the threshold.
const ROUNDS: usize = 1000;
const MESSAGE: usize = 1024;
/// On a working host, the exchange takes milliseconds.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(10);

/// The counters that the library of one side wrote at its end; the file of SEEKWIRE_STATS.
#[derive(Debug, Deserialize)]
pub(crate) struct Stats {
    pub(crate) bytes: RingBytes,
    #[serde(default)]
    pub(crate) version: Option<String>,
    #[serde(default)]
    pub(crate) reasons: BTreeMap<String, u64>,
    /// Warnings from the libraries of both sides.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RingBytes {
    pub(crate) tx_ring: u64,
    pub(crate) rx_ring: u64,
}

/// Runs both sides with `LD_PRELOAD=preload`. Returns the counters of the calling side's library.
pub(crate) fn exchange(preload: &OsStr, registry: &Path) -> Result<Stats> {
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    let stats = directory.path().join("call.json");
    let side = |arguments: &[&str]| -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(NAME).args(arguments);
        command.env("LD_PRELOAD", preload).env("SEEKWIRE_DIR", registry).env_remove("SEEKWIRE");
        command.env_remove("SEEKWIRE_STATS").env_remove("SEEKWIRE_SUMMARY");
        command.env_remove("SEEKWIRE_FALLBACK_AFTER");
        command.env_remove("SEEKWIRE_THRESHOLD");
        Ok(command)
    };

    let logs = ["serve.log", "call.log"].map(|name| directory.path().join(name));
    let log = |log: &Path| {
        let mut value = log.as_os_str().to_owned();
        value.push(":warn");
        value
    };
    let mut serve = side(&["serve"])?;
    serve.env("SEEKWIRE_LOG", log(&logs[0]));
    let mut server = Reaped(serve.stdout(Stdio::piped()).spawn().context("cannot start a child")?);
    let port = first_line(&mut server.0)?;
    let errors = directory.path().join("errors");
    let mut command = side(&["call", &port])?;
    command.env("SEEKWIRE_LOG", log(&logs[1]));
    command.env("SEEKWIRE_STATS", &stats).stderr(File::create(&errors)?);
    let mut client = Reaped(command.spawn().context("cannot start a child")?);
    let status = end_of(&mut client.0)?;
    ensure!(status.success(), "the exchange failed: {}", fs::read_to_string(&errors)?.trim());
    let text = fs::read_to_string(&stats)
        .context("the library wrote no counters: it did not load, or it is switched off")?;
    let mut stats: Stats = serde_json::from_str(&text)
        .context("the library wrote counters that this command does not understand")?;
    stats.warnings = logs.iter().flat_map(|log| warnings(log)).collect();
    Ok(stats)
}

/// The warnings and errors in a log, without the time and the place in the code.
fn warnings(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let said = |line: &str| {
        let (_, said) = line.split_once(" WARN ").or_else(|| line.split_once(" ERROR "))?;
        let (_, said) = said.split_once(": ")?;
        Some(said.to_owned())
    };
    text.lines().filter_map(said).collect()
}

fn first_line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    let out = child.stdout.take().context("no standard output")?;
    if is_ready_in_time(&out)? {
        BufReader::new(out).read_line(&mut line)?;
    }
    ensure!(!line.is_empty(), "a child with the library loaded did not start");
    Ok(line.trim().to_owned())
}

fn end_of(child: &mut Child) -> Result<ExitStatus> {
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    ensure!(
        is_ready_in_time(&handle)?,
        "two children with the library loaded could not finish their exchange"
    );
    Ok(child.wait()?)
}

fn is_ready_in_time(source: &impl AsFd) -> Result<bool> {
    let patience = Timespec::try_from(EXCHANGE_LIMIT)?;
    loop {
        match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&patience)) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// A child that does not outlive this value.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // It may have ended by itself; both calls then do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One side of the exchange, in its own process.
pub(crate) fn side(side: &arguments::Probe) -> Result<()> {
    match *side {
        arguments::Probe::Serve => serve(),
        arguments::Probe::Call { port } => call(port),
    }
}

fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    let (mut stream, _) = listener.accept()?;
    let mut message = [0; MESSAGE];
    loop {
        match stream.read(&mut message)? {
            0 => return Ok(()),
            length => stream.write_all(&message[..length])?,
        }
    }
}

fn call(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(EXCHANGE_LIMIT))?;
    stream.set_write_timeout(Some(EXCHANGE_LIMIT))?;
    stream.set_nodelay(true)?;
    let mut answer = [0; MESSAGE];
    for round in 0..ROUNDS {
        let message = [round as u8; MESSAGE];
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        if answer != message {
            bail!("message {round} came back changed");
        }
    }
    stream.shutdown(Shutdown::Write)?;
    ensure!(stream.read(&mut answer)? == 0, "bytes came that nobody sent");
    Ok(())
}
