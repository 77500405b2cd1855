//! SEEKWIRE_LOG: tracing to a file or to standard error.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use seekwire_endpoint::Config;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::signal::without_signals;
use seekwire_values::LogTarget;
pub(crate) use tracing::{debug, error, info, warn};

/// Writes go directly to the kernel: the library's own fds are separate from the application's. A
/// line is a single write, so no lock is needed, which another thread could hold during a fork.
struct Sink(PrivateFd);

/// Set in a process that has closed the file, whose number may belong to another one by now.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called in a process that closes all files of the library.
pub(crate) fn stop() {
    IS_CLOSED.store(true, Ordering::Relaxed);
}

impl Write for &Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if IS_CLOSED.load(Ordering::Relaxed) {
            return Ok(line.len());
        }
        without_signals(|| Ok(rustix::io::write(self.0.as_fd(), line)?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Installs the subscriber if SEEKWIRE_LOG asks for one, and first reports the invalid settings in
/// the environment.
pub(crate) fn start() {
    let config = Config::get();
    let Some(log) = &config.log else { return };
    let Some(sink) = open(&log.target) else { return };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(log.level)
        .with_ansi(false)
        // Otherwise it would report them on the program's standard error.
        .log_internal_errors(false)
        .with_writer(std::sync::Arc::new(sink))
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        for complaint in &config.complaints {
            warn!("{complaint}; not obeyed");
        }
    }
}

fn open(target: &LogTarget) -> Option<Sink> {
    let fd: OwnedFd = match target {
        LogTarget::StandardError => rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3).ok()?,
        LogTarget::File(path) => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).ok()?
        }
    };
    PrivateFd::new(fd).ok().map(Sink)
}
