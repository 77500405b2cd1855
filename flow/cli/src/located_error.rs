//! A location in a file, and the error there.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Columns of a line that are shown.
const WIDTH: usize = 100;

/// An error in a pipeline file, with its line.
#[derive(Debug, Error)]
pub(crate) struct LocatedError {
    file: PathBuf,
    /// Counted from 1.
    line: usize,
    column: usize,
    /// Position of the column in the shown text, from 0.
    indent: usize,
    text: String,
    message: String,
}

impl LocatedError {
    /// `span` in bytes of `source`, the whole file.
    pub(crate) fn new(file: &Path, source: &str, span: Range<usize>, message: String) -> Self {
        let start = span.start.min(source.len());
        let before = source.get(..start).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let text = source.get(begin..).unwrap_or_default().lines().next().unwrap_or_default();
        // Show a part of the line as wide as a screen, from a little before the location.
        let column = before.get(begin..).unwrap_or_default().chars().count();
        let skipped = if column < WIDTH { 0 } else { column - WIDTH / 2 };
        let text: String = text.chars().skip(skipped).take(WIDTH).collect();
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: column + 1,
            indent: column - skipped,
            text,
            message: seekwire_program::table::printable(&message),
        }
    }
}

impl LocatedError {
    /// As one line.
    pub(crate) fn line(&self) -> String {
        let Self { file, line, column, message, .. } = self;
        format!("{}:{line}:{column}: {message}", file.display())
    }
}

impl fmt::Display for LocatedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, indent, text, message, .. } = self;
        let margin = " ".repeat(line.to_string().len());
        let indent = " ".repeat(*indent);
        let file = self.file.display();
        let text = seekwire_program::table::printable(text);
        write!(f, "{message}\n{margin}--> {file}:{line}:{column}\n{margin} |\n{line} | {text}\n")?;
        write!(f, "{margin} | {indent}^")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_shown() {
        let source = "[filter.a]\nrun = \"nil\"\n";
        let wrong =
            LocatedError::new(Path::new("x.toml"), source, 17..22, "no filter nil".to_owned());
        let expected = "no filter nil\n --> x.toml:2:7\n  |\n2 | run = \"nil\"\n  |       ^";
        assert_eq!(wrong.to_string(), expected);
        assert_eq!(wrong.line(), "x.toml:2:7: no filter nil");
        let end = LocatedError::new(Path::new("x"), "a", 9..9, "short".to_owned());
        assert_eq!((end.line, end.column), (1, 2));
    }
}
