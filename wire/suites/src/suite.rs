//! A suite: a script that fetches and runs another project's tests, and the facts in its first
//! comment.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Time limit of a suite that sets none.
const LIMIT: Duration = Duration::from_secs(600);

/// A script below the directory of suites.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) script: PathBuf,
    /// Its description, in a line.
    pub(crate) about: String,
    /// How long its tests may take.
    pub(crate) limit: Duration,
    /// Whether `make test` runs it, or the part of it that is fast.
    pub(crate) fast: bool,
    /// Debian packages that it needs.
    pub(crate) packages: Vec<String>,
    /// Whether connections should come to the ring; false for programs that do not load the
    /// library.
    pub(crate) ring: bool,
}

impl Suite {
    fn parse(name: String, script: PathBuf, text: &str) -> Result<Self> {
        let mut suite = Self {
            name,
            script,
            about: String::new(),
            limit: LIMIT,
            fast: false,
            packages: Vec::new(),
            ring: true,
        };
        for line in text.lines().skip(1).map_while(|line| line.strip_prefix('#')) {
            let line = line.trim();
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.trim();
            match key {
                "about" => suite.about = value.to_owned(),
                "limit" => {
                    suite.limit = Duration::from_secs(value.parse().context("limit: seconds")?)
                }
                "fast" => suite.fast = true,
                "debian" => suite.packages.extend(value.split_whitespace().map(str::to_owned)),
                "ring" => suite.ring = value != "none",
                _ => {}
            }
        }
        if suite.about.is_empty() {
            bail!("no line \"# about: ...\" at its beginning");
        }
        Ok(suite)
    }
}

/// The suites below `directory`, by name.
pub(crate) fn all(directory: &Path) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    let entries = fs::read_dir(directory)
        .with_context(|| format!("the suites in {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let script = std::path::absolute(&path)?;
        let parsed = fs::read_to_string(&path)
            .map_err(Into::into)
            .and_then(|text| Suite::parse(name, script, &text));
        suites.push(parsed.with_context(|| path.display().to_string())?);
    }
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Suite> {
        Suite::parse("name".to_owned(), "name".into(), text)
    }

    #[test]
    fn the_first_comment_says_what_a_suite_needs() {
        let text = "#!/usr/bin/env bash\n# about: a: b\n# limit: 30\n# fast\n# debian: one two\n# ring: none\n\n# about: late\n";
        let suite = parse(text).unwrap();
        assert_eq!(suite.about, "a: b");
        assert_eq!(suite.limit, Duration::from_secs(30));
        assert!(suite.fast && !suite.ring);
        assert_eq!(suite.packages, ["one", "two"]);
    }

    #[test]
    fn a_script_that_says_nothing_of_itself_is_none() {
        assert!(parse("#!/usr/bin/env bash\ntrue\n").is_err());
    }
}
