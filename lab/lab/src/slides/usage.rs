//! Processor time and memory of servers that may have several processes, from /proc.

use std::fs;
use std::time::Duration;

/// Resources used by the processes of some groups, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerUsage {
    /// User and system time, at a resolution of one clock tick for each process.
    pub(crate) cpu: Duration,
    /// Bytes of resident memory. Shared memory counts for each process.
    pub(crate) resident: u64,
    /// The peak of each process, added up.
    pub(crate) peak: u64,
}

/// The usage of all processes that live and are in one of these process groups.
pub(crate) fn of_groups(groups: &[u32]) -> ServerUsage {
    let mut sum = ServerUsage::default();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // A process may end at any time.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        let Some((group, ticks)) = group_and_ticks(&stat) else { continue };
        if groups.contains(&group) {
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            let per_second = rustix::param::clock_ticks_per_second() as f64;
            sum.cpu += Duration::from_secs_f64(ticks as f64 / per_second);
            sum.resident += kibibytes(&status, "VmRSS:") << 10;
            sum.peak += kibibytes(&status, "VmHWM:") << 10;
        }
    }
    sum
}

/// Fields 5, 14 and 15 of /proc/PID/stat (proc_pid_stat(5)).
fn group_and_ticks(stat: &str) -> Option<(u32, u64)> {
    // The second field, the program's name in parentheses, may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((fields.get(2)?.parse().ok()?, ticks(11)? + ticks(12)?))
}

/// A line of /proc/PID/status.
fn kibibytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Mode, Program};

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 42 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(group_and_ticks(stat), Some((42, 42)));
        assert_eq!(group_and_ticks("7 (a) S"), None);
        assert_eq!(kibibytes("VmHWM:\t  12 kB\nVmRSS:\t 7 kB\n", "VmRSS:"), 7);
    }

    #[test]
    fn all_processes_of_a_group_count() {
        let shell = Program::new("sh", &Mode::Plain).args(["-c", "cat & echo ready; cat"]);
        let running = shell.start().unwrap();
        running.wait_for_line(|line| line == "ready").unwrap();
        let both = of_groups(&[running.id()]);
        assert!(both.resident > 0 && both.peak >= both.resident, "{both:?}");
        assert_eq!(of_groups(&[]), ServerUsage::default());
    }
}
