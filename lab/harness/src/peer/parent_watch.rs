//! A role ends with the laboratory, even if that was killed and could end nothing.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{self, Pid, PidfdFlags, Signal};

/// The role that watches another one.
pub(super) const WATCH: &str = "watch";

/// Starts a process that kills this one when its parent `parent` has ended. It is a process because
/// a second thread would make every measured system call slower.
///
/// PR_SET_PDEATHSIG (prctl(2)) does not work here: that signal arrives when the thread that started
/// the child ends, and children in network namespaces are started by threads that end at once.
///
/// # Errors
///
/// If `parent` is not the parent (any more), or no process can be started to watch it.
pub(super) fn end_with(parent: &str) -> Result<()> {
    let pid = parent.parse().ok().and_then(Pid::from_raw).context("--of has no process")?;
    if process::getppid() != Some(pid) {
        bail!("the laboratory that started this has ended");
    }
    let mut watch = Command::new(std::env::current_exe()?);
    let own = std::process::id().to_string();
    watch.args(["lab-peer", WATCH, parent, &own]).env_remove("LD_PRELOAD");
    watch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    watch.spawn().context("cannot watch the laboratory")?;
    Ok(())
}

/// Kills the parent of this process, `role`, when that process's parent, `laboratory`, has ended.
pub(super) fn watch(laboratory: &str, role: &str) -> Result<()> {
    let pid = |text: &str| text.parse().ok().and_then(Pid::from_raw).context("no process");
    let (laboratory, role) = (pid(laboratory)?, pid(role)?);
    let open = |pid| process::pidfd_open(pid, PidfdFlags::empty());
    let role_end = open(role)?;
    // Checked after opening: while it is the parent, its number is not another process's.
    if process::getppid() != Some(role) {
        return Ok(());
    }
    // A process that cannot be opened has ended.
    if let Ok(end) = open(laboratory) {
        let mut ends = [PollFd::new(&end, PollFlags::IN), PollFd::new(&role_end, PollFlags::IN)];
        while poll(&mut ends, None).is_err() {}
    }
    // As the laboratory would have ended it; if it has exited by itself, this kills no process.
    let _ = process::pidfd_send_signal(&role_end, Signal::KILL);
    Ok(())
}
