//! Views of a running pipeline.
//!
//! ```text
//! status       the counts at one moment
//! view         a table of the changes between two statuses
//! screen       the part of a terminal that shows it
//! prometheus   a status in the format of Prometheus
//! server       serves the status by HTTP
//! client       asks for it
//! sockets      where the pipelines of this user answer
//! top          the command `flow top`
//! trace        what each copy did when, for a viewer of traces
//! ```

mod client;
mod prometheus;
pub(crate) mod screen;
pub(crate) mod server;
pub(crate) mod sockets;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod trace;
mod view;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::monitor::screen::TerminalStream;
use crate::monitor::status::Watched;
use crate::monitor::view::StatusTable;

/// Interval between two drawings of a view.
const EVERY: Duration = Duration::from_secs(1);

/// Shows the pipeline on standard error until the screen is closed.
pub(crate) fn show(watched: Arc<Watched>) {
    screen::open(TerminalStream::Error);
    let mut view = StatusTable::new(watched.status());
    let draw = move || {
        loop {
            thread::sleep(EVERY);
            screen::draw(&view.next(watched.status()));
        }
    };
    // If it fails, only the view is lost.
    let _ = thread::Builder::new().name("view".to_owned()).spawn(draw);
}
