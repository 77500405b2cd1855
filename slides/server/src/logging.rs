//! The log of a server or a worker.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use anyhow::{Context, Result};
use seekwire_values::{Log, LogTarget};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Writes the log from now on where the options want it.
pub(crate) fn start(log: &Log) -> Result<()> {
    let writer = match &log.target {
        LogTarget::StandardError => BoxMakeWriter::new(io::stderr),
        LogTarget::File(path) => {
            // It has the addresses of clients.
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
            let file = file.with_context(|| format!("cannot log to {}", path.display()))?;
            BoxMakeWriter::new(Arc::new(file))
        }
    };
    tracing_subscriber::fmt()
        .with_max_level(log.level)
        .with_ansi(false)
        .with_writer(writer)
        // The reader of the log may be gone; that is no reason to panic.
        .log_internal_errors(false)
        .init();
    Ok(())
}
