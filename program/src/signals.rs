//! Signals that ask a program to end.

use rustix::process::Signal;

/// The numbers of SIGHUP, SIGINT, SIGQUIT and SIGTERM, without those that this process ignores.
/// These have been inherited, and stay ignored: nohup(1) ignores SIGHUP, and a script ignores SIGINT
/// and SIGQUIT for programs in the background.
#[must_use]
pub fn ending() -> Vec<i32> {
    not_ignored(&status())
}

/// Whether this process ignores the signal with that number.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    is_in(ignored(&status()), signal)
}

/// The status of this process, as in proc_pid_status(5).
fn status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// The signals that it ignores, a bit for each.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

fn not_ignored(status: &str) -> Vec<i32> {
    let ignored = ignored(status);
    let ending = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(Signal::as_raw);
    ending.into_iter().filter(|signal| !is_in(ignored, *signal)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_stay_ignored() {
        let status =
            |mask: &str| format!("SigBlk:\t0000000000000007\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        assert_eq!(not_ignored(&status("0000000000001000")), [1, 2, 3, 15]);
        assert_eq!(not_ignored(&status("0000000000001001")), [2, 3, 15]);
        assert_eq!(not_ignored(&status("0000000000000006")), [1, 15]);
        assert_eq!(not_ignored(""), [1, 2, 3, 15]);
        assert!(is_in(ignored(&status("0000000000010000")), 17));
    }
}
