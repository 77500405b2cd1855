//! Signals that ask a program to end.

use rustix::process::Signal;

/// The numbers of SIGHUP, SIGINT, SIGQUIT and SIGTERM, without those that this process ignores.
/// These have been inherited, and stay ignored: nohup(1) ignores SIGHUP, and a script ignores SIGINT
/// and SIGQUIT for programs in the background.
#[must_use]
pub fn ending() -> Vec<i32> {
    not_ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// `status` is that of proc_pid_status(5).
fn not_ignored(status: &str) -> Vec<i32> {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let ending = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(Signal::as_raw);
    ending.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
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
    }
}
