//! The machine and the build behind a result: numbers without them mean nothing.

use std::fs;

use serde::{Deserialize, Serialize};

/// The commit this binary was built from (`git describe`), or `unknown`.
pub const COMMIT: &str = env!("LAB_COMMIT");

/// The machine that was measured. Fields that cannot be read are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: Option<String>,
    /// Logical processors this process may run on.
    pub cores: usize,
    /// Caches of the first processor, e.g. `L1 Data 32K`.
    pub caches: Vec<String>,
    /// Frequency governor of the first processor.
    pub governor: Option<String>,
    /// Whether it runs under a hypervisor.
    pub virtualised: bool,
    /// Main memory in bytes.
    pub memory: Option<u64>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Distribution.
    pub system: Option<String>,
    /// Congestion control of TCP, which also governs loopback connections.
    pub congestion_control: Option<String>,
    /// Load averages over 1, 5 and 15 minutes before the first run.
    pub load_before: Option<String>,
    /// The same after the last run.
    pub load_after: Option<String>,
}

impl Machine {
    /// Reads the description; [`Machine::finish`] completes it after the last run.
    pub fn describe() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "Hardware")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            virtualised: field(&cpuinfo, "flags")
                .is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor")),
            memory: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            kernel: line("/proc/sys/kernel/osrelease"),
            system: system(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
            congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_before: load(),
            load_after: None,
        }
    }

    /// Notes the load after the last run.
    pub fn finish(&mut self) {
        self.load_after = load();
    }
}

/// First line of a file of `/proc` or `/sys`.
fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned)
}

/// Value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn memory(meminfo: &str) -> Option<u64> {
    let kibibytes = field(meminfo, "MemTotal")?;
    Some(kibibytes.split(' ').next()?.parse::<u64>().ok()? * 1024)
}

fn system(os_release: &str) -> Option<String> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn load() -> Option<String> {
    line("/proc/loadavg").map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

fn caches() -> Vec<String> {
    (0..8)
        .map_while(|index| {
            let read =
                |name| line(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}"));
            Some(format!("L{} {} {}", read("level")?, read("type")?, read("size")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_proc_text() {
        let text = "processor\t: 0\nmodel name\t: Example CPU: 3 GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Example CPU: 3 GHz"));
        assert_eq!(field(text, "absent"), None);
        assert_eq!(memory("MemTotal:       24684120 kB\n"), Some(24_684_120 * 1024));
        assert_eq!(system("ID=x\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_core() {
        let machine = Machine::describe();
        assert!(machine.cores >= 1);
        assert!(machine.kernel.is_some());
        assert!(!COMMIT.is_empty());
    }
}
