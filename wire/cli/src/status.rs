//! `seekwire status`: the live connections of the user's processes; for root, those of all.
//!
//! /proc knows which processes have the library loaded, every TCP connection that they hold, and the
//! file that each has mapped as its registry. The registry knows the connections that passed the
//! threshold, with their counters; a connection that is not there is plain TCP. Nothing depends on
//! the environment of a process, which many servers overwrite.
//!
//! Why a connection found no peer is looked up here, at the other end: its process, which the
//! library must not spend time on.

mod machine;
mod member;
mod row;
mod table;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use seekwire_endpoint::Config;
use seekwire_endpoint::registry::{self, OpenError};
use seekwire_program::standard;
use seekwire_transport::sys::thread;

use self::machine::Machine;
use self::member::{Member, Registries};
use self::row::{Bytes, Rates, Row};
use self::table::render;
use crate::arguments;
use crate::foreign::Root;
use crate::proc;

pub(crate) use self::row::canonical;

/// Prints the table, once or until it is interrupted.
///
/// # Errors
///
/// Those of writing to standard output; the registry being another user's or damaged.
pub(crate) fn status(options: &arguments::StatusArguments) -> Result<()> {
    let mut out = standard::output()?.lock();
    let redraws = options.watch.is_some() && !options.json && out.is_terminal();
    let mut before: Option<(Instant, Vec<Row>)> = None;
    loop {
        let (now, mut rows) = (Instant::now(), rows(options)?);
        if let Some((then, before)) = &before {
            add_rates(&mut rows, before, now.duration_since(*then));
        }
        let text = if options.json { serde_json::to_string(&rows)? + "\n" } else { render(&rows) };
        if redraws {
            // Home, and erase the display (ECMA-48).
            out.write_all(b"\x1b[H\x1b[2J")?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        let Some(period) = options.watch else {
            return Ok(());
        };
        before = Some((now, rows));
        if reader_left_within(period.get())? {
            return Ok(());
        }
    }
}

/// Adds the rates of connections that `before` has as well.
fn add_rates(rows: &mut [Row], before: &[Row], elapsed: Duration) {
    let before: HashMap<_, Bytes> =
        before.iter().filter_map(|row| Some((row.key(), row.bytes?))).collect();
    for row in rows {
        let (Some(now), Some(then)) = (row.bytes, before.get(&row.key())) else { continue };
        // A later connection with the same addresses begins at zero again.
        let rate = |now: u64, then: u64| {
            (now.saturating_sub(then) as f64 / elapsed.as_secs_f64().max(1e-9)) as u64
        };
        row.bytes_per_second =
            Some(Rates { tx: rate(now.tx(), then.tx()), rx: rate(now.rx(), then.rx()) });
    }
}

/// Waits; true as soon as the reader of standard output has gone.
fn reader_left_within(period: Duration) -> Result<bool> {
    let out = io::stdout();
    // No events asked for: only errors and hang-ups are reported.
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    let period = Timespec::try_from(period)?;
    match poll(&mut watched, Some(&period)) {
        Ok(ready) => Ok(ready > 0),
        // Stopped and continued: redraw early.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The rows of the processes whose directory was chosen; if none was, of all that this user may
/// inspect.
fn rows(options: &arguments::StatusArguments) -> Result<Vec<Row>> {
    let own = directory(options.dir.as_deref())?;
    let mut registries = Registries::default();
    let members = proc::inspectable().into_iter();
    let members = members.filter_map(|process| Member::of(process, &mut registries));
    let is_shown = |member: &Member| options.dir.is_none() || member.directory() == own;
    let members: Vec<Member> = members.filter(is_shown).collect();
    if options.dir.is_some() && members.is_empty() && !own.exists() {
        bail!("{}: no such directory, and no program has it as its SEEKWIRE_DIR", own.display());
    }

    let mut machine = Machine::default();
    let mut rows: Vec<Row> =
        members.iter().flat_map(|member| member.rows(machine.table_of(&member.process))).collect();
    rows.extend(unseen(&own, &members)?);
    let mut rows = join(rows);
    if rows.iter().any(Machine::may_explain) {
        machine.look_everywhere(&mut registries);
        rows.iter_mut().for_each(|row| machine.explain(row));
    }
    rows.sort_by_key(Row::key);
    Ok(rows)
}

/// Gives processes that share a socket the same state, since only one of them has entered it into
/// the registry, and leaves out the library's own connections to other machines.
fn join(rows: Vec<Row>) -> Vec<Row> {
    let entered = rows.iter().filter(|row| row.bytes.is_some());
    let entered: HashMap<_, Row> =
        entered.filter_map(|row| Some(((row.namespace, row.socket?), row.clone()))).collect();
    // Forks share these.
    let wake_channels: HashSet<_> = rows.iter().filter_map(Row::wake_channel).collect();
    let shown = rows.into_iter().filter(|row| !wake_channels.contains(&row.ends()));
    let joined = shown.map(|mut row| {
        let same = row.socket.and_then(|socket| entered.get(&(row.namespace, socket)));
        if let Some(other) = same.filter(|_| row.bytes.is_none()) {
            row.share(other);
        }
        row
    });
    joined.collect()
}

/// The connections of processes that /proc does not show, in the registry of a directory of this
/// user.
fn unseen(directory: &Path, members: &[Member]) -> Result<Vec<Row>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let user = rustix::process::geteuid();
    if !user.is_root() && !proc::is_private_directory(directory)? {
        bail!(OpenError::NotPrivate(directory.to_owned()));
    }
    let file = Root::own().open(&directory.join(registry::file_name()), &[user.as_raw()]);
    let Ok(entries) = file.and_then(|file| registry::read(&file)) else { return Ok(Vec::new()) };
    let namespace = std::fs::metadata("/proc/self/ns/pid").map(|about| about.ino()).ok();
    let rows = entries.iter().filter(|entry| !members.iter().any(|member| member.entered(entry)));
    let rows = rows.filter_map(|entry| {
        // None: an entry of an earlier build, or of a process without /proc.
        let is_here = entry.pid_namespace == 0 || Some(entry.pid_namespace) == namespace;
        let is_alive = match is_here {
            true => thread::process_is_alive(entry.pid),
            false => entry.listens_in(directory),
        };
        let mut row = Row::plain(canonical(entry.local), canonical(entry.peer));
        row.pid = is_here.then_some(entry.pid);
        row.program = row.pid.and_then(proc::name_of).unwrap_or_else(|| entry.program.clone());
        row.fill(entry);
        is_alive.then_some(row)
    });
    Ok(rows.collect())
}

/// The directory in which processes find each other: `chosen`, else that of this environment.
pub(crate) fn directory(chosen: Option<&Path>) -> Result<PathBuf> {
    match chosen {
        Some(chosen) => Ok(std::path::absolute(chosen)?),
        None => Ok(Config::get().dir.clone()),
    }
}

#[cfg(test)]
mod tests;
