//! Network namespaces without names (network_namespaces(7)).

use std::fs::File;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::Error;

const CAPABILITY: &str = "CAP_SYS_ADMIN";

/// A network namespace, kept by an open file.
#[derive(Debug)]
pub(crate) struct Namespace(File);

impl Namespace {
    pub(crate) fn new() -> Result<Self, Error> {
        // unshare affects only the calling thread, so a thread of its own calls it.
        let file = in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        Ok(Self(file.map_err(|source| Error::new("make a network namespace", CAPABILITY, source))?))
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        in_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)
                .map_err(|source| Error::new("enter a network namespace", CAPABILITY, source))?;
            Ok(work())
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match thread::scope(|scope| scope.spawn(work).join()) {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
