//! A rendezvous for launchers that carry no values: files in a directory that all processes of the
//! job can reach.
//!
//! ```text
//!   JOB.RANK.here     this rank is taken
//!   JOB.RANK.ROUND    values published before exchange ROUND, which this rank has reached
//!   JOB.RANK.done     it makes no more lookups
//!   JOB.stop          the job has ended; the content gives the reason
//!   JOB.RANK.new      a file that is being written
//! ```
//!
//! A file gets its name when it is complete. Rank 0 removes all of them when every process is done.
//! Others may be able to list the directory, but not to write in it, and only this user reads the
//! files. Waiting is polling: the directory may be on another host (NFS), where inotify(7) does not
//! see changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::encoding;
use crate::error::{Error, shown};

/// Most bytes of a file: some hundreds of the longest values.
const LONGEST: usize = 16 << 20;

/// Polling intervals, the first and the longest.
const SOON: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(50);

/// Reason given for a process that has left without [`Rendezvous::finish`].
const LEFT: &str = "it left without finishing";

/// Reason given if the process could not even write that.
const UNSAID: &str = "a process that had no room in the directory to say who it is, nor why";

#[derive(Debug)]
pub(crate) struct Rendezvous {
    directory: OwnedFd,
    path: PathBuf,
    job: String,
    rank: u32,
    size: u32,
    limit: Duration,
    /// Exchanges so far.
    round: u32,
    /// Lines to publish with the next exchange.
    pending: String,
    /// For each rank, the number of exchanges read so far, and their values.
    seen: BTreeMap<u32, (u32, BTreeMap<String, String>)>,
}

impl Rendezvous {
    pub(crate) fn join(
        path: &Path,
        job: &str,
        rank: u32,
        size: u32,
        limit: Duration,
    ) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let what =
            format!("open the directory {}, where the processes exchange values", path.display());
        let directory =
            rustix::fs::open(path, flags, Mode::empty()).map_err(Error::system(&what))?;
        let status = rustix::fs::fstat(&directory).map_err(Error::system(&what))?;
        let refuse = |why: String| Err(Error::Unsafe { path: path.into(), why });
        let user = rustix::process::geteuid().as_raw();
        if status.st_uid != user {
            return refuse(format!("it belongs to user {}, not to {user}", status.st_uid));
        }
        // An access list that lets others write also shows in the group's bits.
        if status.st_mode & 0o022 != 0 {
            return refuse(format!("others can write in it (mode {:o})", status.st_mode & 0o7777));
        }
        let rendezvous = Self {
            directory,
            path: path.into(),
            job: job.into(),
            rank,
            size,
            limit,
            round: 0,
            pending: String::new(),
            seen: BTreeMap::new(),
        };
        let name = rendezvous.name(rank, "here");
        drop(rendezvous.create(&name)?);
        Ok(rendezvous)
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let line = format!("{key} {}\n", encoding::encode(value));
        let length = self.pending.len() + line.len();
        if length > LONGEST {
            return Err(Error::TooLong { key: key.into(), length, limit: LONGEST });
        }
        self.pending.push_str(&line);
        Ok(())
    }

    pub(crate) fn exchange(&mut self) -> Result<(), Error> {
        let round = (self.round + 1).to_string();
        self.write(&self.name(self.rank, &round), self.pending.as_bytes())?;
        self.round += 1;
        self.pending.clear();
        self.wait_for_all(&round, &format!("come to exchange {round}"))
    }

    pub(crate) fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, Error> {
        let (mut read, mut values) = self.seen.remove(&rank).unwrap_or_default();
        let mut come = Ok(());
        while read < self.round && come.is_ok() {
            come = self.values(rank, read + 1).map(|more| values.extend(more));
            read += u32::from(come.is_ok());
        }
        let value = values.get(key).cloned();
        self.seen.insert(rank, (read, values));
        come.map(|()| value)
    }

    /// Rank 0 waits for all others before it removes the files that they may be reading.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        if self.rank != 0 {
            return self.write(&self.name(self.rank, "done"), b"").inspect_err(|_| {
                // Rank 0 need not wait for this process.
                let _ = self.leave();
            });
        }
        let waited = self.wait_for_all("done", "finish");
        match waited {
            // Another process may not have read yet why the job has ended.
            Err(Error::Aborted { .. }) => self.remove(&self.name(self.rank, ""))?,
            _ => self.remove(&format!("{}.", self.job))?,
        }
        waited
    }

    /// The same when no process reads the files any more.
    pub(crate) fn finish_settled(&mut self) -> Result<(), Error> {
        if self.rank == 0 { self.remove(&format!("{}.", self.job)) } else { Ok(()) }
    }

    /// Tells the others that the job has ended.
    pub(crate) fn abort(&self, message: &str) -> Result<(), Error> {
        let text = format!("rank {}: {}", self.rank, shown(message.as_bytes()));
        let written = self.tell(&text);
        let removed = self.remove(&self.name(self.rank, ""));
        // Removing its own files may have made room.
        written.or_else(|_| self.tell(&text)).and(removed)
    }

    /// Leaves without having finished.
    pub(crate) fn leave(&self) -> Result<(), Error> {
        // The first process that leaves gives the reason.
        if matches!(self.read(&self.stop()), Ok(Some(_))) {
            return self.remove(&self.name(self.rank, ""));
        }
        self.abort(LEFT)
    }

    /// Writes why the job has ended. That it has ended matters more than the reason: without room
    /// for the reason, the file is empty.
    fn tell(&self, why: &str) -> Result<(), Error> {
        let stop = self.stop();
        self.write(&stop, why.as_bytes()).or_else(|_| match self.create(&stop) {
            Ok(_) | Err(Error::InUse { .. }) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// A second view of the rendezvous, which only checks whether a process has ended the job.
    pub(crate) fn observer(&self) -> Result<Self, Error> {
        let what = format!("keep the directory {} open", self.path.display());
        Ok(Self {
            directory: self.directory.try_clone().map_err(Error::system(what))?,
            path: self.path.clone(),
            job: self.job.clone(),
            rank: self.rank,
            size: self.size,
            limit: self.limit,
            round: 0,
            pending: String::new(),
            seen: BTreeMap::new(),
        })
    }

    fn name(&self, rank: u32, what: &str) -> String {
        format!("{}.{rank}.{what}", self.job)
    }

    fn stop(&self) -> String {
        format!("{}.stop", self.job)
    }

    fn values(&self, rank: u32, round: u32) -> Result<BTreeMap<String, String>, Error> {
        let name = self.name(rank, &round.to_string());
        let Some(content) = self.read(&name)? else {
            self.is_stopped()?;
            let why = format!("{name} has gone out of it");
            return Err(Error::Unsafe { path: self.path.clone(), why });
        };
        let values = String::from_utf8(content).ok().and_then(|content| {
            let pairs = content.lines().map(|line| {
                let (key, value) = line.split_once(' ')?;
                Some((key.to_owned(), encoding::decode(value)?))
            });
            pairs.collect()
        });
        let why = "it is not what Seekwire writes".to_owned();
        values.ok_or(Error::Unsafe { path: self.path.join(name), why })
    }

    fn wait_for_all(&self, what: &str, doing: &str) -> Result<(), Error> {
        let end = Instant::now() + self.limit;
        let mut missing: Vec<u32> = (0..self.size).filter(|rank| *rank != self.rank).collect();
        let mut pause = SOON;
        loop {
            let mut failed = None;
            missing.retain(|rank| match self.is_there(&self.name(*rank, what)) {
                Ok(there) => !there,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if missing.is_empty() {
                return Ok(());
            }
            self.is_stopped()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited = format!("{} to {doing} in {}", ranks(&missing), self.path.display());
                return Err(Error::Silent { waited, seconds: self.limit.as_secs() });
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LATE);
        }
    }

    pub(crate) fn is_stopped(&self) -> Result<(), Error> {
        let name = self.stop();
        let Some(text) = self.read(&name)? else { return Ok(()) };
        let why = if text.is_empty() { UNSAID.to_owned() } else { shown(&text) };
        Err(Error::Aborted { why, path: self.path.join(name) })
    }

    fn is_there(&self, name: &str) -> Result<bool, Error> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.system("look for", name)(errno)),
        }
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        // A special file must not block us.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.system("open", name)(errno)),
        };
        let status = rustix::fs::fstat(&file).map_err(self.system("read", name))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            let why = "it is not a file".to_owned();
            return Err(Error::Unsafe { path: self.path.join(name), why });
        }
        let mut content = Vec::new();
        let mut file = File::from(file).take(LONGEST as u64 + 1);
        file.read_to_end(&mut content).map_err(self.system("read", name))?;
        if content.len() > LONGEST {
            let why = format!("it has more than {LONGEST} bytes");
            return Err(Error::Unsafe { path: self.path.join(name), why });
        }
        Ok(Some(content))
    }

    /// Creates a file that others see only when it is complete. On failure nothing is left.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let new = self.name(self.rank, "new");
        let file = self.create(&new)?;
        self.fill(file, &new, content, name).inspect_err(|_| {
            // The name is needed again, to report that this process leaves.
            let _ = rustix::fs::unlinkat(&self.directory, &new, AtFlags::empty());
        })
    }

    fn fill(&self, mut file: File, new: &str, content: &[u8], name: &str) -> Result<(), Error> {
        file.write_all(content).map_err(self.system("write", new))?;
        // On NFS, closing may be what fails.
        file.sync_all().map_err(self.system("write", new))?;
        drop(file);
        rustix::fs::renameat(&self.directory, new, &self.directory, name)
            .map_err(self.system("name", name))
    }

    fn create(&self, name: &str) -> Result<File, Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::openat(&self.directory, name, flags, mode) {
            Ok(file) => Ok(file.into()),
            Err(Errno::EXIST) => Err(Error::InUse { path: self.path.join(name) }),
            Err(errno) => Err(self.system("make", name)(errno)),
        }
    }

    fn remove(&self, prefix: &str) -> Result<(), Error> {
        let what = format!("remove the files of the job in {}", self.path.display());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory).map_err(Error::system(&what))? {
            let entry = entry.map_err(Error::system(&what))?;
            if entry.file_name().to_bytes().starts_with(prefix.as_bytes()) {
                names.push(entry.file_name().to_owned());
            }
        }
        let mut removed = Ok(());
        for name in names {
            match rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                // Remove the others all the same.
                Err(errno) => removed = Err(Error::system(&what)(errno)),
            }
        }
        removed
    }

    fn system<E: Into<std::io::Error>>(&self, verb: &str, name: &str) -> impl FnOnce(E) -> Error {
        Error::system(format!("{verb} {}", self.path.join(name).display()))
    }
}

/// The first few of the missing ranks.
fn ranks(missing: &[u32]) -> String {
    const MOST: usize = 8;
    let list: Vec<String> = missing.iter().take(MOST).map(u32::to_string).collect();
    let more = match missing.len().checked_sub(MOST) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    format!("rank {}{more}", list.join(", "))
}

#[cfg(test)]
mod tests;
