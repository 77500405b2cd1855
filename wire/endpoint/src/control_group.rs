//! The memory that control groups leave to this process (Documentation/admin-guide/cgroup-v2.rst
//! and cgroup-v1/memory.rst).
//!
//! The kernel charges a page of shared memory to the group of the process that touches it first. If
//! a group has no room left, the kernel kills a process in it, which cannot be caught. So a
//! connection is attached only if the group has room for all shared memory that this process holds,
//! with some to spare for the program: a quarter of the limit, but no more than [`SPARE`].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seekwire_transport::sys::file;

/// Maximum room to spare. A large group, such as that of all containers of a host, is mostly full
/// and needs no more.
const SPARE: u64 = 64 << 20;

/// How long the result for a process without a limit stays valid.
const TRUST: Duration = Duration::from_secs(1);

/// Shared memory of this process itself: of all connections that are attached or about to be.
static HELD: AtomicU64 = AtomicU64::new(0);

/// A part of that memory, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Held(u64);

impl Held {
    /// Counts the part, if there is room for it.
    ///
    /// # Errors
    /// The group that has no room.
    pub(crate) fn take(bytes: u64) -> Result<Held, Full> {
        let held = Held(bytes);
        let all = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
        match fullest() {
            Some(group) if group.room() < all => Err(Full(group)),
            _ => Ok(held),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A group that has no room for more shared memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "the memory of a control group is limited to {} MiB, of which {} MiB are left: give it more, or \
     set fewer segments (SEEKWIRE_SEGMENTS)",
    .0.limit >> 20,
    .0.left() >> 20
)]
pub(crate) struct Full(Usage);

/// The memory of one group, in bytes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
struct Usage {
    limit: u64,
    used: u64,
    /// Memory that the kernel reclaims on demand: cached files.
    cached: u64,
}

impl Usage {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.saturating_sub(self.cached))
    }

    /// How much shared memory may take.
    fn room(&self) -> u64 {
        self.left().saturating_sub((self.limit / 4).min(SPARE))
    }
}

/// The group with the least room, among those with a limit that this process is in.
fn fullest() -> Option<Usage> {
    /// When this was last found to be none, in milliseconds since the first time.
    static UNLIMITED: AtomicU64 = AtomicU64::new(u64::MAX);
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let now = FIRST.get_or_init(Instant::now).elapsed();
    let asked = UNLIMITED.load(Ordering::Relaxed);
    if asked != u64::MAX && now.saturating_sub(Duration::from_millis(asked)) < TRUST {
        return None;
    }
    let text = |path: &str| {
        let bytes = file::read(Path::new(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let fullest = groups(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
        .into_iter()
        .filter_map(|(group, version)| version.usage(&group))
        .min_by_key(Usage::room);
    if fullest.is_none() {
        let now = u64::try_from(now.as_millis()).unwrap_or(0);
        UNLIMITED.store(now, Ordering::Relaxed);
    }
    fullest
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Version {
    One,
    Two,
}

/// The directories of the groups with the memory controller that this process is in, from the
/// inmost outwards: from proc_pid_mountinfo(5), and from cgroups(7), /proc/PID/cgroup.
fn groups(mounts: &str, membership: &str) -> Vec<(PathBuf, Version)> {
    let member = |controller: &str| {
        membership.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            let path = fields.next()?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    };
    let mut groups = Vec::new();
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let mut place = place.split(' ').skip(3);
        let (Some(root), Some(point)) = (place.next(), place.next()) else { continue };
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next().unwrap_or(""), kind.nth(1).unwrap_or(""));
        let (version, path) = match name {
            "cgroup2" => (Version::Two, member("")),
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                (Version::One, member("memory"))
            }
            _ => continue,
        };
        // Only the part of a namespace below its root is mounted.
        let inside = path.and_then(|path| Path::new(path).strip_prefix(root).ok());
        let (Some(inside), point) = (inside, Path::new(point)) else { continue };
        let group = point.join(inside);
        let outwards = group.ancestors().take_while(|path| path.starts_with(point));
        groups.extend(outwards.map(|path| (path.to_owned(), version)));
    }
    groups
}

impl Version {
    /// `None` if there is no limit, or it cannot be read.
    fn usage(self, group: &Path) -> Option<Usage> {
        /// Version 1 has no word for "none", but the largest number of pages.
        const NONE: u64 = 1 << 60;
        let [limit, used, caches] = match self {
            Self::One => ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_"],
            Self::Two => ["memory.max", "memory.current", ""],
        };
        let text = |name: &str| String::from_utf8(file::read(&group.join(name)).ok()?).ok();
        let number = |name: &str| text(name)?.trim().parse().ok();
        let limit = number(limit).filter(|limit| *limit < NONE)?;
        let statistics = text("memory.stat").unwrap_or_default();
        let cached = |name: &str| {
            let mut lines = statistics.lines().filter_map(|line| line.split_once(' '));
            lines.find_map(|(key, value)| {
                (key.strip_prefix(caches) == Some(name)).then(|| value.parse::<u64>().ok())?
            })
        };
        let cached = ["inactive_file", "active_file"].into_iter().filter_map(cached).sum();
        Some(Usage { limit, used: number(used)?, cached })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_groups_of_both_versions_are_found() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n\
            32 30 0:28 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu\n\
            33 30 0:29 /outer /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n";
        let membership =
            "9:name=systemd:/\n4:memory,hugetlb:/outer/job\n1:cpu:/x\n0::/slice/unit\n";
        let found = groups(mounts, membership);
        let expected = [
            ("/sys/fs/cgroup/unified/slice/unit", Version::Two),
            ("/sys/fs/cgroup/unified/slice", Version::Two),
            ("/sys/fs/cgroup/unified", Version::Two),
            ("/sys/fs/cgroup/memory/job", Version::One),
            ("/sys/fs/cgroup/memory", Version::One),
        ];
        assert_eq!(found, expected.map(|(path, version)| (PathBuf::from(path), version)));
        assert_eq!(groups(mounts, "4:memory:/elsewhere\n"), []);
    }

    #[test]
    fn a_large_group_that_is_mostly_full_has_room() {
        let group = |limit, used| Usage { limit, used, cached: 0 };
        assert_eq!(group(64 << 30, 63 << 30).room(), (1 << 30) - SPARE);
        assert_eq!(group(32 << 20, 20 << 20).room(), 4 << 20);
        assert_eq!(group(32 << 20, 30 << 20).room(), 0);
    }

    #[test]
    fn what_is_left_counts_no_files_in_the_cache() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        assert_eq!(Version::Two.usage(group.path()), None);
        write("memory.current", "900\n");
        write("memory.max", "max\n");
        assert_eq!(Version::Two.usage(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(Version::Two.usage(group.path()).unwrap().left(), 100);
        write("memory.stat", "anon 5\ninactive_file 300\nactive_file 100\nshmem 50\n");
        assert_eq!(Version::Two.usage(group.path()).unwrap().left(), 500);
        write("memory.usage_in_bytes", "900\n");
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(Version::One.usage(group.path()), None);
        write("memory.limit_in_bytes", "1000\n");
        write("memory.stat", "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n");
        assert_eq!(Version::One.usage(group.path()).unwrap().left(), 400);
    }
}
