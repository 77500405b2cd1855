//! The files below a directory, always in the same order.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use seekwire_flow::FilterError;

/// Adds the name of the file to an error.
pub(super) fn named(path: &Path) -> impl Fn(io::Error) -> FilterError + '_ {
    move |error| format!("{}: {error}", path.display()).into()
}

/// Walks directories one by one, each in the order of its names.
#[derive(Clone)]
pub(super) struct Tree {
    patterns: Vec<String>,
    /// Paths still to visit, the next one last, and whether each is a directory.
    left: Vec<(PathBuf, bool)>,
}

impl Tree {
    pub(super) fn new(root: &OsStr, patterns: &[String]) -> Self {
        Self { patterns: patterns.to_vec(), left: vec![(root.into(), true)] }
    }

    pub(super) fn next(&mut self) -> Result<Option<PathBuf>, FilterError> {
        while let Some((path, is_directory)) = self.left.pop() {
            if !is_directory {
                return Ok(Some(path));
            }
            self.enter(&path)?;
        }
        Ok(None)
    }

    /// Links to directories are not followed: they could lead back.
    fn enter(&mut self, directory: &Path) -> Result<(), FilterError> {
        let before = self.left.len();
        for entry in fs::read_dir(directory).map_err(named(directory))? {
            let entry = entry.map_err(named(directory))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(named(&path))?;
            if kind.is_dir() {
                self.left.push((path, true));
            } else if self.is_wanted(entry.file_name().as_encoded_bytes())
                && (kind.is_file()
                    || kind.is_symlink() && fs::metadata(&path).map_err(named(&path))?.is_file())
            {
                self.left.push((path, false));
            }
        }
        self.left[before..].sort_unstable_by(|one, other| other.cmp(one));
        Ok(())
    }

    fn is_wanted(&self, name: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern.as_bytes(), name))
    }
}

/// Whether the name matches the pattern: `*` is any number of bytes, `?` any one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // Position of the last `*`, and the end of the text that it matches.
    let mut star = None;
    while of < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || *wanted == name[of] => {
                at += 1;
                of += 1;
            }
            _ => {
                let Some((back, end)) = star else { return false };
                star = Some((back, end + 1));
                (at, of) = (back + 1, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|left| *left == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "any", true),
            ("*.log", "a.log", true),
            ("*.log", "a.log.gz", false),
            ("*.log", ".log", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*ab", "aab", true),
            ("*ab*c", "ababxc", true),
            ("*ab*c", "axbxc", false),
            ("", "", true),
            ("", "a", false),
            ("A", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
