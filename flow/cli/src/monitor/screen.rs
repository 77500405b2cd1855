//! The part of a terminal that shows a view, below other output.
//!
//! Between two drawings the cursor stands where the view begins, on a line of its own: other output
//! stays, and the next view appears below it. The cursor is never hidden and no mode of the
//! terminal is changed, so nothing has to be restored when the process is killed.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, BorrowedFd};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// Erases from the cursor to the end of the screen.
const ERASE: &str = "\r\x1b[J";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminalStream {
    Output,
    Error,
}

impl TerminalStream {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Self::Output => rustix::stdio::stdout(),
            Self::Error => rustix::stdio::stderr(),
        }
    }

    fn write(self, text: &str) {
        // Errors are ignored: a terminal that takes nothing shows nothing.
        let _ = match self {
            Self::Output => {
                io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
            }
            Self::Error => io::stderr().write_all(text.as_bytes()),
        };
    }

    /// Whether a view can be drawn there.
    pub(crate) fn is_screen(self) -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
        self.fd().is_terminal() && !is_dumb
    }

    /// Whether this process may write there: not while it runs in the background of a shell.
    fn is_ours(self) -> bool {
        tcgetpgrp(self.fd().as_fd()).is_ok_and(|group| group == getpgrp())
    }

    /// Lines and columns.
    fn size(self) -> (usize, usize) {
        let size = tcgetwinsize(self.fd()).ok();
        let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
        size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()))
    }
}

struct State {
    /// Where the view is drawn, while there is one.
    target: Option<TerminalStream>,
    is_drawn: bool,
    /// True if the last output of the pipeline ended in the middle of a line.
    is_in_line: bool,
}

static STATE: Mutex<State> = Mutex::new(State { target: None, is_drawn: false, is_in_line: false });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, views are drawn there.
pub(crate) fn open(target: TerminalStream) {
    state().target = Some(target);
}

/// Draws a view in place of the last one.
pub(crate) fn draw(view: &str) {
    let mut state = state();
    let Some(target) = state.target.filter(|target| !state.is_in_line && target.is_ours()) else {
        return;
    };
    target.write(&drawing(view, target.size()));
    state.is_drawn = true;
}

/// The text that draws a view: an empty line, then as many lines of the view as fit.
fn drawing(view: &str, terminal_size: (usize, usize)) -> String {
    let (rows, columns) = terminal_size;
    let lines: Vec<&str> = view.lines().collect();
    let shown = lines.len().min(rows.saturating_sub(2));
    let mut text = String::from(ERASE);
    for line in &lines[..shown] {
        text.push('\n');
        text.extend(line.chars().take(columns.saturating_sub(1)));
    }
    if shown > 0 {
        text.push_str(&format!("\r\x1b[{shown}A"));
    }
    text
}

impl State {
    fn erase(&mut self) {
        if let Some(target) = self.target.filter(|_| std::mem::take(&mut self.is_drawn)) {
            target.write(ERASE);
        }
    }
}

/// Writes one line to standard error, above the view.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let mut state = state();
    state.erase();
    seekwire_program::tell(line);
}

/// Erases the view; none is drawn from now on.
pub(crate) fn close() {
    let mut state = state();
    state.erase();
    state.target = None;
}

/// The same for a process that a signal ends, which does not wait for a terminal that takes
/// nothing.
pub(crate) fn close_soon() {
    let until = Instant::now() + Duration::from_millis(200);
    loop {
        if let Ok(mut state) = STATE.try_lock() {
            state.erase();
            state.target = None;
            return;
        }
        if Instant::now() > until {
            return;
        }
        std::thread::yield_now();
    }
}

/// Standard output; if it is a terminal, output appears above the view.
pub(crate) fn output() -> Box<dyn Write + Send> {
    if io::stdout().is_terminal() { Box::new(Above) } else { Box::new(io::stdout()) }
}

struct Above;

impl Write for Above {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = state();
        state.erase();
        let count = io::stdout().write(bytes)?;
        if let Some(last) = count.checked_sub(1).and_then(|last| bytes.get(last)) {
            state.is_in_line = *last != b'\n';
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_cut_to_the_terminal_and_the_cursor_goes_back() {
        assert_eq!(drawing("one\ntwo\nthree\n", (4, 4)), "\r\x1b[J\none\ntwo\r\x1b[2A");
        assert_eq!(drawing("one", (1, 80)), "\r\x1b[J");
    }
}
