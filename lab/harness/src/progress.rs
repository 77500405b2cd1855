//! Progress on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The progress of some work.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    /// Reports under `title` (the experiment's name).
    pub fn new(title: &str) -> Self {
        let lines = !std::io::stderr().is_terminal();
        let bar = if lines { ProgressBar::hidden() } else { ProgressBar::no_length() };
        let template = "{prefix:.bold} [{bar:30}] {pos}/{len} {eta} {wide_msg}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(title.to_owned());
        if !lines {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, lines }
    }

    /// Reports nothing.
    pub fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), lines: false }
    }

    /// Announces `steps` more steps.
    pub fn expect(&self, steps: usize) {
        self.bar.set_length(self.bar.length().unwrap_or(0) + steps as u64);
    }

    /// Reports that a step begins.
    pub fn step(&self, what: &str) {
        self.bar.inc(1);
        self.note(what);
    }

    /// Reports an event between steps.
    pub fn note(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if self.lines {
            let (position, length) = (self.bar.position(), self.bar.length().unwrap_or(0));
            seekwire_program::tell(format_args!(
                "{} {position}/{length}: {what}",
                self.bar.prefix()
            ));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
