//! A role ends with the laboratory, also if that was killed and could end nothing.

use std::thread;

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{self, Pid, PidfdFlags, Signal};

/// Kills this process when its parent `parent` has ended.
///
/// Not by PR_SET_PDEATHSIG (prctl(2)): that signal comes when the thread that started the child
/// ends, and children in network namespaces are started by threads that end at once.
///
/// # Errors
///
/// If `parent` is not the parent (any more), or cannot be watched.
pub(super) fn end_with(parent: &str) -> Result<()> {
    let parent = parent.parse().ok().and_then(Pid::from_raw).context("--of has no process")?;
    let watched = process::pidfd_open(parent, PidfdFlags::empty());
    // Looked at afterwards: while it is the parent, its number is not another process's.
    if process::getppid() != Some(parent) {
        bail!("the laboratory that started this has ended");
    }
    let watched = watched.context("cannot watch the laboratory")?;
    thread::Builder::new().name("parent".to_owned()).spawn(move || {
        while poll(&mut [PollFd::new(&watched, PollFlags::IN)], None).is_err() {}
        // As the laboratory would have ended it.
        let _ = process::kill_process(process::getpid(), Signal::KILL);
    })?;
    Ok(())
}
