//! A role ends with the laboratory, also if that was killed and could end nothing.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{self, Pid, PidfdFlags, Signal};

/// The role that watches another one.
pub(super) const WATCH: &str = "watch";

/// Has this process killed when its parent `parent` has ended: by a process of its own, since a
/// second thread would make every system call of what is measured dearer.
///
/// Not by PR_SET_PDEATHSIG (prctl(2)): that signal comes when the thread that started the child
/// ends, and children in network namespaces are started by threads that end at once.
///
/// # Errors
///
/// If `parent` is not the parent (any more), or nobody can watch it.
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

/// Kills the parent of this process, `role`, when the parent of that, `laboratory`, has ended.
pub(super) fn watch(laboratory: &str, role: &str) -> Result<()> {
    let pid = |text: &str| text.parse().ok().and_then(Pid::from_raw).context("no process");
    let (laboratory, role) = (pid(laboratory)?, pid(role)?);
    let open = |pid| process::pidfd_open(pid, PidfdFlags::empty());
    let role_end = open(role)?;
    // Looked at afterwards: while it is the parent, its number is not another process's.
    if process::getppid() != Some(role) {
        return Ok(());
    }
    // One that cannot be opened has ended.
    if let Ok(end) = open(laboratory) {
        let mut ends = [PollFd::new(&end, PollFlags::IN), PollFd::new(&role_end, PollFlags::IN)];
        while poll(&mut ends, None).is_err() {}
    }
    // As the laboratory would have ended it; if it has ended by itself, there is nobody to kill.
    let _ = process::pidfd_send_signal(&role_end, Signal::KILL);
    Ok(())
}
