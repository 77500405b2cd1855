//! A rendezvous of our own, where no launcher carries values: files in a directory that all
//! processes of the job can reach.
//!
//! ```text
//!   JOB.RANK.here     this rank is taken
//!   JOB.RANK.ROUND    what it has published before its exchange of this number; it has come there
//!   JOB.RANK.done     it looks nothing up any more
//!   JOB.stop          the job is over, and why
//!   JOB.RANK.new      a file that is being written
//! ```
//!
//! A file gets its name when it is whole. Rank 0 removes all of them when everybody is done. Others
//! may be able to list the directory, but not to write in it, and nobody else reads the files.
//! Waiting means looking again: the directory may be on another host (NFS), which inotify(7) does
//! not see.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, shown};
use crate::text;

/// Bytes of a file: some hundreds of the longest values.
const LONGEST: usize = 16 << 20;

/// Between two looks, at first and at last.
const SOON: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(50);

/// What is said of a process that has left without [`Rendezvous::finish`].
const LEFT: &str = "it left without finishing";

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
    /// Lines that the next exchange takes along.
    pending: String,
    /// What has been read of each rank, and up to which exchange.
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
        let what = format!("open the directory {}, where the processes meet", path.display());
        let directory =
            rustix::fs::open(path, flags, Mode::empty()).map_err(Error::system(&what))?;
        let status = rustix::fs::fstat(&directory).map_err(Error::system(&what))?;
        let refuse = |why: String| Err(Error::Unsafe { path: path.into(), why });
        let user = rustix::process::geteuid().as_raw();
        if status.st_uid != user {
            return refuse(format!("it belongs to user {}, not to {user}", status.st_uid));
        }
        // An access list that lets others write shows in the group's bits, too.
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
        let line = format!("{key} {}\n", text::encode(value));
        let length = self.pending.len() + line.len();
        if length > LONGEST {
            return Err(Error::TooLong { key: key.into(), length, limit: LONGEST });
        }
        self.pending.push_str(&line);
        Ok(())
    }

    pub(crate) fn exchange(&mut self) -> Result<(), Error> {
        self.round += 1;
        let round = self.round.to_string();
        self.write(&self.name(self.rank, &round), self.pending.as_bytes())?;
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

    /// Rank 0 waits for all, to remove the files that they may be reading.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.write(&self.name(self.rank, "done"), b"")?;
        if self.rank != 0 {
            return Ok(());
        }
        let waited = self.wait_for_all("done", "finish");
        match waited {
            // Somebody may not have read yet why it is over.
            Err(Error::Aborted { .. }) => self.remove(&format!("{}.{}.", self.job, self.rank))?,
            _ => self.remove(&format!("{}.", self.job))?,
        }
        waited
    }

    /// Nobody reads the files any more.
    pub(crate) fn finish_settled(&mut self) -> Result<(), Error> {
        if self.rank == 0 { self.remove(&format!("{}.", self.job)) } else { Ok(()) }
    }

    /// Lets the others know that the job is over.
    pub(crate) fn abort(&mut self, message: &str) -> Result<(), Error> {
        let text = format!("rank {}: {}", self.rank, shown(message.as_bytes()));
        self.write(&self.stop(), text.as_bytes())?;
        self.remove(&format!("{}.{}.", self.job, self.rank))
    }

    /// A process that has not finished.
    pub(crate) fn leave(&mut self) -> Result<(), Error> {
        // The first to leave is the one whose reason counts.
        if self.read(&self.stop())?.is_some() {
            return self.remove(&format!("{}.{}.", self.job, self.rank));
        }
        self.abort(LEFT)
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
                Some((key.to_owned(), text::decode(value)?))
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

    fn is_stopped(&self) -> Result<(), Error> {
        let name = self.stop();
        match self.read(&name)? {
            None => Ok(()),
            Some(text) => Err(Error::Aborted { why: shown(&text), path: self.path.join(name) }),
        }
    }

    fn is_there(&self, name: &str) -> Result<bool, Error> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.system("look for", name)(errno)),
        }
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        // Something that is no file must not keep us waiting.
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

    /// A file that nobody sees before it is whole.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let new = self.name(self.rank, "new");
        let mut file = self.create(&new)?;
        file.write_all(content).map_err(self.system("write", &new))?;
        // On NFS, closing may be what fails.
        file.sync_all().map_err(self.system("write", &new))?;
        drop(file);
        rustix::fs::renameat(&self.directory, &new, &self.directory, name)
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
        for name in names {
            match rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(Error::system(&what)(errno)),
            }
        }
        Ok(())
    }

    fn system<E: Into<std::io::Error>>(&self, verb: &str, name: &str) -> impl FnOnce(E) -> Error {
        Error::system(format!("{verb} {}", self.path.join(name).display()))
    }
}

/// The first few of those that are missing.
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
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    fn join(path: &Path, rank: u32, limit: Duration) -> Result<Rendezvous, Error> {
        Rendezvous::join(path, "job", rank, 2, limit)
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A directory like those of mktemp.
    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[test]
    fn values_are_exchanged_in_rounds_and_nothing_remains() {
        let directory = directory();
        let path = directory.path();
        thread::scope(|scope| {
            for rank in 0..2 {
                scope.spawn(move || {
                    let mut meeting = join(path, rank, LIMIT).unwrap();
                    meeting.put("address", &format!("of {rank}\n")).unwrap();
                    meeting.exchange().unwrap();
                    let other = 1 - rank;
                    let value = meeting.get(other, "address").unwrap();
                    assert_eq!(value, Some(format!("of {other}\n")));
                    assert_eq!(meeting.get(other, "later").unwrap(), None);
                    meeting.put("later", "").unwrap();
                    let mode = fs::metadata(path.join(format!("job.{rank}.1"))).unwrap();
                    assert_eq!(mode.permissions().mode() & 0o7777, 0o600);
                    meeting.exchange().unwrap();
                    assert_eq!(meeting.get(other, "later").unwrap(), Some(String::new()));
                    assert_eq!(meeting.get(other, "address").unwrap(), value);
                    meeting.finish().unwrap();
                });
            }
        });
        assert_eq!(names(path), [""; 0]);
    }

    #[test]
    fn a_directory_in_which_others_can_write_is_refused() {
        let directory = directory();
        for mode in [0o720, 0o702, 0o777, 0o1777] {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            let error = join(directory.path(), 0, LIMIT).unwrap_err();
            assert!(matches!(error, Error::Unsafe { .. }), "{mode:o}: {error}");
        }
        assert_eq!(names(directory.path()), [""; 0]);
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        join(directory.path(), 0, LIMIT).unwrap();
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        // Of root where a user runs this, and of nobody where root does.
        let directory = directory();
        let path = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
            directory.path()
        } else {
            Path::new("/usr")
        };
        let error = join(path, 0, LIMIT).unwrap_err();
        assert!(matches!(error, Error::Unsafe { .. }), "{error}");
    }

    #[test]
    fn what_is_no_directory_is_named() {
        let directory = directory();
        let path = directory.path().join("none");
        let error = join(&path, 0, LIMIT).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
        fs::write(&path, "").unwrap();
        let error = join(&path, 0, LIMIT).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
    }

    #[test]
    fn a_rank_is_taken_once() {
        let directory = directory();
        let _first = join(directory.path(), 0, LIMIT).unwrap();
        let error = join(directory.path(), 0, LIMIT).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error}");
    }

    #[test]
    fn who_does_not_come_is_named() {
        let directory = directory();
        let mut meeting = join(directory.path(), 0, SHORT).unwrap();
        let text = meeting.exchange().unwrap_err().to_string();
        assert!(text.contains("rank 1") && text.contains("exchange 1"), "{text}");
        let text = meeting.finish().unwrap_err().to_string();
        assert!(text.contains("rank 1 to finish"), "{text}");
        assert_eq!(names(directory.path()), [""; 0]);
        assert_eq!(ranks(&[3]), "rank 3");
        let many: Vec<u32> = (0..10).collect();
        assert_eq!(ranks(&many), "rank 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }

    #[test]
    fn who_ends_the_job_ends_it_for_all() {
        let directory = directory();
        let mut first = join(directory.path(), 0, LIMIT).unwrap();
        let mut second = join(directory.path(), 1, LIMIT).unwrap();
        second.abort("no memory").unwrap();
        let text = first.exchange().unwrap_err().to_string();
        assert!(text.contains("rank 1: no memory") && text.contains("job.stop"), "{text}");
        first.leave().unwrap();
        assert_eq!(names(directory.path()), ["job.stop"]);
    }

    #[test]
    fn files_that_nobody_of_us_has_written_are_refused() {
        let directory = directory();
        let mut meeting = join(directory.path(), 0, LIMIT).unwrap();
        let file = directory.path().join("job.1.1");
        for content in [&b"key"[..], b"key %zz\n", b"\xff \n"] {
            fs::write(&file, content).unwrap();
            meeting.round = 1;
            let error = meeting.get(1, "key").unwrap_err();
            assert!(matches!(error, Error::Unsafe { .. }), "{content:?}: {error}");
        }
        fs::File::create(&file).unwrap().set_len(LONGEST as u64 + 1).unwrap();
        let error = meeting.get(1, "key").unwrap_err();
        assert!(matches!(error, Error::Unsafe { .. }), "{error}");
        fs::remove_file(&file).unwrap();
        symlink("/etc/passwd", &file).unwrap();
        let error = meeting.get(1, "key").unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error}");
        fs::remove_file(&file).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, Mode::RUSR).unwrap();
        let error = meeting.get(1, "key").unwrap_err();
        assert!(matches!(error, Error::Unsafe { .. }), "{error}");
        fs::remove_file(&file).unwrap();
        let error = meeting.get(1, "key").unwrap_err();
        assert!(matches!(error, Error::Unsafe { .. }), "{error}");
    }
}
