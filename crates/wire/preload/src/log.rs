//! SEEKWIRE_LOG: tracing to a file or to standard error.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::signal::without_signals;
use tracing::level_filters::LevelFilter;
pub(crate) use tracing::{debug, warn};

/// Writes go to the kernel directly: the library's own fds are none of the application's. A line is
/// one write, so no lock is needed, which a fork could find held by another thread.
struct Sink(Placed);

impl Write for &Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        without_signals(|| Ok(rustix::io::write(self.0.as_fd(), line)?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Installs the subscriber if SEEKWIRE_LOG asks for one. It is `stderr` or a file, and optionally
/// `:` and a level (error, warn, info, debug, trace; info if there is none).
pub(crate) fn start() {
    let Ok(wanted) = std::env::var("SEEKWIRE_LOG") else { return };
    let (target, level) = parse(&wanted);
    let Some(sink) = open(target) else { return };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        // It would say so on the program's standard error.
        .log_internal_errors(false)
        .with_writer(std::sync::Arc::new(sink))
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
}

fn parse(wanted: &str) -> (&str, LevelFilter) {
    match wanted.rsplit_once(':').and_then(|(target, level)| Some((target, level.parse().ok()?))) {
        Some(parsed) => parsed,
        None => (wanted, LevelFilter::INFO),
    }
}

fn open(target: &str) -> Option<Sink> {
    let fd: OwnedFd = match target {
        "" => return None,
        "stderr" => rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3).ok()?,
        file => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
            rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR).ok()?
        }
    };
    Placed::new(fd).ok().map(Sink)
}
