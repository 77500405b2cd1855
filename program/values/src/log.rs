//! The destination of a log, and its level.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tracing::level_filters::LevelFilter;

/// `DEST:LEVEL`, where either may be left out: `stderr:debug`, `/var/log/slides`, `debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Where the log goes; standard error unless it is named.
    pub target: LogTarget,
    /// The least important level that is logged; info unless it is named.
    pub level: LevelFilter,
}

/// The destination of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error, by the name `stderr`.
    StandardError,
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// There is no such level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// The destination, which can be used.
    pub target: LogTarget,
}

impl Log {
    /// Reads the settings of a log. A file whose name is that of a level, or has a colon, is named
    /// with the level after it.
    ///
    /// # Errors
    ///
    /// [`LogError`].
    pub fn parse(text: &OsStr) -> Result<Self, LogError> {
        if let Some(level) = level(text.as_bytes()) {
            return Ok(Self { target: LogTarget::StandardError, level });
        }
        let bytes = text.as_bytes();
        let colon = bytes.iter().rposition(|byte| *byte == b':');
        // A colon in a path may belong to a directory.
        let Some(colon) = colon.filter(|at| !bytes[*at..].contains(&b'/')) else {
            return Ok(Self { target: LogTarget::of(bytes), level: LevelFilter::INFO });
        };
        let target = LogTarget::of(&bytes[..colon]);
        match level(&bytes[colon + 1..]) {
            Some(level) => Ok(Self { target, level }),
            None => Err(LogError { target }),
        }
    }

    /// The text that [`Log::parse`] reads as this.
    #[must_use]
    pub fn text(&self) -> OsString {
        let mut text = match &self.target {
            LogTarget::StandardError => "stderr".into(),
            LogTarget::File(path) => path.as_os_str().to_owned(),
        };
        text.push(format!(":{}", self.level));
        text
    }
}

impl LogTarget {
    fn of(name: &[u8]) -> Self {
        match name {
            b"stderr" => Self::StandardError,
            _ => Self::File(OsStr::from_bytes(name).into()),
        }
    }
}

fn level(text: &[u8]) -> Option<LevelFilter> {
    // An empty text would also be a level.
    std::str::from_utf8(text).ok().filter(|text| !text.is_empty())?.parse().ok()
}

impl fmt::Display for LogError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("behind the colon must be one of error, warn, info, debug, trace, off")
    }
}

impl Error for LogError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_or_level_may_be_left_out() {
        let file = |name: &str| LogTarget::File(name.into());
        for (text, target, level) in [
            ("stderr", LogTarget::StandardError, LevelFilter::INFO),
            ("stderr:debug", LogTarget::StandardError, LevelFilter::DEBUG),
            ("debug", LogTarget::StandardError, LevelFilter::DEBUG),
            ("WARN", LogTarget::StandardError, LevelFilter::WARN),
            ("off", LogTarget::StandardError, LevelFilter::OFF),
            ("./debug", file("./debug"), LevelFilter::INFO),
            ("debug:info", file("debug"), LevelFilter::INFO),
            ("/a/b", file("/a/b"), LevelFilter::INFO),
            ("/a:b/c", file("/a:b/c"), LevelFilter::INFO),
            ("/a:b/c:d:trace", file("/a:b/c:d"), LevelFilter::TRACE),
        ] {
            let log = Log { target, level };
            assert_eq!(Log::parse(text.as_ref()), Ok(log.clone()), "{text}");
            assert_eq!(Log::parse(&log.text()), Ok(log), "{text}");
        }
    }

    #[test]
    fn an_unknown_level_is_refused_with_those_that_there_are() {
        for text in ["stderr:dbug", "stderr:"] {
            let error = Log::parse(text.as_ref()).unwrap_err();
            assert_eq!(error.target, LogTarget::StandardError);
            assert!(error.to_string().contains("error, warn, info, debug, trace"), "{error}");
        }
    }

    #[test]
    fn names_of_files_are_bytes() {
        let odd = OsStr::from_bytes(b"/run/\xff");
        assert_eq!(Log::parse(odd).unwrap().target, LogTarget::File(odd.into()));
    }
}
