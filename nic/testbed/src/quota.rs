//! Limits processes to a share of the processors: cpu.max of cgroup v2, cpu.cfs_quota_us of v1
//! (Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst).

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::Error;

/// Prefix of our directories' names; the process id and a counter follow.
const PREFIX: &str = "seekwire-quota-";
/// Short, so that a process that has used up its share waits a few milliseconds, not a hundred; not
/// shorter than the slices that the kernel distributes (5 ms).
const PERIOD_US: u64 = 10_000;
/// The kernel takes no less (min_cfs_quota_period).
const LEAST_QUOTA_US: u64 = 1_000;
/// Nor more (max_cfs_quota_period).
const LONGEST_PERIOD_US: u64 = 1_000_000;

/// Microseconds of every so many, for a share in percent.
fn quota_and_period(percent: f64) -> (u64, u64) {
    let quota = (percent / 100.0 * PERIOD_US as f64) as u64;
    if quota >= LEAST_QUOTA_US {
        return (quota, PERIOD_US);
    }
    let period = (LEAST_QUOTA_US as f64 * 100.0 / percent) as u64;
    (LEAST_QUOTA_US, period.clamp(PERIOD_US, LONGEST_PERIOD_US))
}

/// A cgroup whose processes together get a share of the time of one processor. Dropping it kills
/// those that are still in it and removes it.
#[derive(Debug)]
pub struct CpuQuota {
    group: Group,
}

impl CpuQuota {
    /// Creates a group with a share in percent of one processor: 50 is half of one, 200 all of two.
    /// A share of 10 is one millisecond of every ten; a smaller one is one millisecond of a longer
    /// period. The least is 0.1. Groups left behind by killed processes are also removed.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuota`]: no cgroup with the cpu controller, or no permission.
    pub fn new(percent: f64) -> Result<Self, Error> {
        let hierarchy = Hierarchy::of_this_process()?;
        hierarchy.sweep();
        let quota = Self { group: Group::new(&hierarchy)? };
        quota.set(percent)?;
        Ok(quota)
    }

    /// Changes the share.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuota`].
    pub fn set(&self, percent: f64) -> Result<(), Error> {
        let (quota, period) = quota_and_period(percent);
        let group = &self.group;
        let done = match group.version {
            Version::Two => group.write("cpu.max", &format!("{quota} {period}")),
            Version::One => group
                .write("cpu.cfs_period_us", &period.to_string())
                .and_then(|()| group.write("cpu.cfs_quota_us", &quota.to_string())),
        };
        done.map_err(|source| Error::NoQuota(format!("{}: {source}", group.path.display())))
    }

    /// Puts a process with all its threads into the group. Processes that it starts from now on
    /// also belong to the group.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuota`]: there is no such process, or it is not this user's.
    pub fn add(&self, process: u32) -> Result<(), Error> {
        let put = self.group.write("cgroup.procs", &process.to_string());
        put.map_err(|source| Error::NoQuota(format!("process {process}: {source}")))
    }

    /// The directory of the cgroup.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.group.path
    }

    /// How often the processes were throttled because they had used up their share, and for how
    /// many nanoseconds in total.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuota`]: the kernel does not report it.
    pub fn throttled(&self) -> Result<(u64, u64), Error> {
        let path = self.group.path.join("cpu.stat");
        let text = fs::read_to_string(&path)
            .map_err(|source| Error::NoQuota(format!("{}: {source}", path.display())))?;
        let value = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let time = value("throttled_time ")
            .or_else(|| value("throttled_usec ").map(|microseconds| microseconds * 1000));
        let times = value("nr_throttled ");
        times
            .zip(time)
            .ok_or_else(|| Error::NoQuota(format!("{} is not understood", path.display())))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A hierarchy in which groups with the cpu controller can be created.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// Candidate parents of a new group, from the innermost outwards.
    parents: Vec<PathBuf>,
}

impl Hierarchy {
    fn of_this_process() -> Result<Self, Error> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|source| Error::NoQuota(format!("{path}: {source}")))
        };
        Self::find(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?).ok_or_else(|| {
            Error::NoQuota("no cgroup with the cpu controller is mounted".to_owned())
        })
    }

    /// From proc_pid_mountinfo(5) and cgroups(7), /proc/PID/cgroup.
    fn find(mounts: &str, membership: &str) -> Option<Self> {
        for mount in mounts.lines().filter_map(Mount::understand) {
            let member = |controller: &str| -> Option<PathBuf> {
                membership.lines().find_map(|line| {
                    let mut fields = line.splitn(3, ':').skip(1);
                    let controllers = fields.next()?;
                    controllers
                        .split(',')
                        .any(|name| name == controller)
                        .then(|| mount.inside(fields.next()?))?
                })
            };
            match mount.kind {
                "cgroup" if mount.options.split(',').any(|option| option == "cpu") => {
                    let group = member("cpu")?;
                    return Some(Self { version: Version::One, parents: vec![group] });
                }
                "cgroup2" => {
                    // A group with processes cannot pass controllers on, but one above it may do so
                    // already.
                    let group = member("")?;
                    let parents =
                        group.ancestors().take_while(|path| path.starts_with(mount.point));
                    let parents: Vec<PathBuf> =
                        parents.filter(|path| passes_cpu_on(path)).map(Path::to_owned).collect();
                    if !parents.is_empty() {
                        return Some(Self { version: Version::Two, parents });
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Removes groups whose owners died without removing them.
    fn sweep(&self) {
        let entries =
            self.parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
        for path in ours.map(|entry| entry.path()) {
            // Another process may also be sweeping.
            let Ok(lock) = File::open(&path) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                drop(Group { version: self.version, path, _lock: lock });
            }
        }
    }
}

fn passes_cpu_on(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.subtree_control"))
        .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "cpu"))
}

/// A line of mountinfo.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn understand(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut filesystem = filesystem.split(' ');
        Some(Self {
            root: mount.next()?,
            point: mount.next()?,
            kind: filesystem.next()?,
            options: filesystem.nth(1)?,
        })
    }

    /// The path at which a group of the hierarchy is visible.
    fn inside(&self, group: &str) -> Option<PathBuf> {
        let below = Path::new(group).strip_prefix(self.root).ok()?;
        // Joining an empty path would add a slash.
        Some(Path::new(self.point).components().chain(below.components()).collect())
    }
}

/// A directory of the hierarchy, locked while its process lives.
#[derive(Debug)]
struct Group {
    version: Version,
    path: PathBuf,
    _lock: File,
}

impl Group {
    fn new(hierarchy: &Hierarchy) -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut reason = String::new();
        for parent in &hierarchy.parents {
            loop {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
                match make(&path) {
                    Ok(Some(lock)) => {
                        return Ok(Self { version: hierarchy.version, path, _lock: lock });
                    }
                    // Another process is sweeping this name.
                    Ok(None) => {}
                    Err(error) => {
                        reason = format!("{}: {error}", path.display());
                        break;
                    }
                }
            }
        }
        Err(Error::NoQuota(reason))
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.path.join(file), text)
    }

    /// Kills all processes of the group and waits until they have ended.
    fn clear(&self) -> io::Result<()> {
        loop {
            let processes = self.processes()?;
            if processes.is_empty() {
                return Ok(());
            }
            let mut handles: Vec<(Pid, OwnedFd)> = Vec::new();
            for process in processes {
                match pidfd_open(process, PidfdFlags::empty()) {
                    Ok(handle) => handles.push((process, handle)),
                    Err(Errno::SRCH) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            // A process id may have been reused before pidfd_open, but not since.
            let still = self.processes()?;
            for (_, handle) in handles.iter().filter(|(process, _)| still.contains(process)) {
                match pidfd_send_signal(handle, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(error) => return Err(error.into()),
                }
                rustix::event::poll(&mut [PollFd::new(handle, PollFlags::IN)], None)?;
            }
        }
    }

    fn processes(&self) -> io::Result<Vec<Pid>> {
        let text = fs::read_to_string(self.path.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // If it cannot be removed now, the next quota removes it.
        let _ = self.clear();
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns `None` if a sweep intervened between the creation and the lock.
fn make(path: &Path) -> io::Result<Option<File>> {
    fs::create_dir(path)?;
    let locked = File::open(path).and_then(|lock| {
        Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).map(|()| lock)?)
    });
    match locked {
        Ok(lock) => Ok(path.exists().then_some(lock)),
        Err(error) if [ErrorKind::NotFound, ErrorKind::WouldBlock].contains(&error.kind()) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
";

    #[test]
    fn small_shares_are_of_longer_times() {
        let shares = [200.0, 25.0, 10.0, 4.0, 0.1, 0.0];
        let milliseconds = shares.map(|percent| {
            let (quota, period) = quota_and_period(percent);
            (quota as f64 / 1e3, period / 1000)
        });
        let expected = [(20.0, 10), (2.5, 10), (1.0, 10), (1.0, 25), (1.0, 1000), (1.0, 1000)];
        assert_eq!(milliseconds, expected);
    }

    #[test]
    fn the_first_version_is_found_where_it_has_the_controller() {
        let hierarchy =
            Hierarchy::find(V1, "4:cpu,cpuacct:/user.slice\n1:cpuset:/\n0::/user.slice\n").unwrap();
        let group = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/user.slice");
        assert_eq!(hierarchy, Hierarchy { version: Version::One, parents: vec![group] });
        let hierarchy = Hierarchy::find(V1, "4:cpu,cpuacct:/\n0::/\n").unwrap();
        assert_eq!(hierarchy.parents, [PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")]);
    }

    #[test]
    fn a_container_sees_its_own_part() {
        let mounts = "33 30 0:29 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let hierarchy = Hierarchy::find(mounts, "4:cpu:/docker/1/job\n").unwrap();
        assert_eq!(hierarchy.parents, [PathBuf::from("/sys/fs/cgroup/cpu/job")]);
        assert_eq!(Hierarchy::find(mounts, "4:cpu:/elsewhere\n"), None);
    }

    #[test]
    fn of_the_second_version_those_count_that_pass_the_controller_on() {
        let root = std::env::temp_dir().join(format!("{PREFIX}test-{}", std::process::id()));
        let group = root.join("user.slice/session.scope");
        fs::create_dir_all(&group).unwrap();
        fs::write(root.join("cgroup.subtree_control"), "cpuset cpu io\n").unwrap();
        fs::write(root.join("user.slice/cgroup.subtree_control"), "memory cpu\n").unwrap();
        fs::write(group.join("cgroup.subtree_control"), "memory\n").unwrap();
        let mounts =
            format!("30 25 0:26 / {} rw - cgroup2 cgroup2 rw,nsdelegate\n", root.display());
        let hierarchy = Hierarchy::find(&mounts, "0::/user.slice/session.scope\n");
        fs::remove_dir_all(&root).unwrap();
        let hierarchy = hierarchy.unwrap();
        assert_eq!(
            hierarchy,
            Hierarchy { version: Version::Two, parents: vec![root.join("user.slice"), root] }
        );
    }

    #[test]
    fn without_the_controller_there_is_none() {
        assert_eq!(Hierarchy::find("1 1 0:1 / / rw - ext4 /dev/vda rw\n", "0::/\n"), None);
        assert_eq!(Hierarchy::find("", ""), None);
    }
}
