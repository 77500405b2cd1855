//! Where a pipeline is written: in a file, or on the command line.

use std::path::Path;

/// Where a pipeline is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    File(&'a Path),
    /// On the command line.
    Expression(&'a str),
}

impl Origin<'_> {
    /// The path of the file, or the whole pipeline.
    pub(crate) fn name(self) -> String {
        match self {
            Self::File(file) => file.display().to_string(),
            Self::Expression(expression) => expression.to_owned(),
        }
    }
}
