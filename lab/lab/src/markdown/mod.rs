//! Parts of Markdown pages that show results, between markers that define them:
//!
//! ```text
//! <!-- seekwire lab report: {"setting": "sockets"} -->
//! <!-- seekwire lab report: end -->
//! ```
//!
//! [`PageBlock`] lists all that a marker can request. The rest of a page stays as it is.
//!
//! ```text
//! block     the blocks, from the results
//! cases     names of cases, taken apart by a pattern
//! table     tables in Markdown
//! ```

mod block;
mod cases;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use self::block::{PageBlock, Results};
use crate::output;
use crate::site::read;

const BEGIN: &str = "<!-- seekwire lab report: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- seekwire lab report: end -->";

/// How pages are treated that differ from the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// They are rewritten.
    Write,
    /// They stay as they are.
    Check,
}

/// Fills the blocks of `pages` from the results below `directory`. A page that is a directory
/// stands for all pages in it. Returns those that differed.
///
/// # Errors
///
/// If a result that a page names is missing or cannot be read, a marker cannot be parsed, or a page
/// cannot be read or written. In that case no page is changed.
pub fn write(directory: &Path, pages: &[PathBuf], what: Pages) -> Result<Vec<PathBuf>> {
    let results = Results::new(read::read(directory)?);
    let mut changed = Vec::new();
    for page in all(pages)? {
        let old =
            output::read_file(&page).with_context(|| format!("cannot read {}", page.display()))?;
        let new = filled(&old, &results).with_context(|| page.display().to_string())?;
        if new != old {
            changed.push((page, new));
        }
    }
    if what == Pages::Write {
        for (page, new) in &changed {
            let name = page.file_name().unwrap_or_default().to_string_lossy();
            let parent = page.parent().filter(|parent| !parent.as_os_str().is_empty());
            output::write_file(parent.unwrap_or(Path::new(".")), &name, new)?;
        }
    }
    Ok(changed.into_iter().map(|(page, _)| page).collect())
}

/// The pages, with those in directories.
fn all(pages: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for page in pages {
        if !page.is_dir() {
            all.push(page.clone());
            continue;
        }
        let cannot = || format!("cannot look into {}", page.display());
        let mut within = Vec::new();
        for entry in fs::read_dir(page).with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                within.push(path);
            }
        }
        within.sort();
        all.extend(within);
    }
    Ok(all)
}

/// Rewrites everything between the markers of `page`.
fn filled(page: &str, results: &Results) -> Result<String> {
    let mut new = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(start) = rest.find(BEGIN) {
        let (before, marker) = rest.split_at(start);
        let line = marker.lines().next().unwrap_or_default();
        let Some(length) = marker.find(CLOSE) else { bail!("`{line}` is never closed") };
        let Some(end) = marker.find(END).filter(|end| *end > length) else {
            bail!("`{END}` is missing after `{line}`");
        };
        let words = &marker[BEGIN.len()..length];
        let block: PageBlock = serde_json::from_str(words)
            .with_context(|| format!("`{line}` requests no known block"))?;
        let text = block.text(results).with_context(|| line.to_owned())?;
        new.push_str(before);
        new.push_str(&marker[..length + CLOSE.len()]);
        new.push_str(&format!("\n\n{}\n\n{END}", text.trim()));
        rest = &marker[end + END.len()..];
    }
    new.push_str(rest);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(page: &str) -> Result<String> {
        filled(page, &Results::default())
    }

    #[test]
    fn a_page_is_written_anew_between_its_markers_only() {
        let page = format!("# Title\n{BEGIN}\"goals\"{CLOSE}\nstale\n{END}\nby hand\n");
        let new = fill(&page).unwrap();
        assert!(new.starts_with(&format!("# Title\n{BEGIN}\"goals\"{CLOSE}\n\n| ")), "{new}");
        assert!(new.ends_with(&format!("|\n\n{END}\nby hand\n")), "{new}");
        assert!(!new.contains("stale"), "{new}");
        assert_eq!(fill(&new).unwrap(), new);
        assert_eq!(fill("no marker\n").unwrap(), "no marker\n");
    }

    #[test]
    fn markers_that_cannot_be_followed_are_errors() {
        let error = |page: String| format!("{:#}", fill(&page).unwrap_err());
        assert!(error(format!("{BEGIN}\"goals\"{CLOSE}\n")).contains("is missing"));
        assert!(error(format!("{BEGIN}\"goals\"\n")).contains("never closed"));
        assert!(
            error(format!("{BEGIN}{{\"sum\": 1}}{CLOSE}\n{END}\n")).contains("unknown variant")
        );
        let absent = format!("{BEGIN}{{\"setting\": \"sockets\"}}{CLOSE}\n{END}\n");
        assert!(error(absent).contains("no result `sockets`"));
        // An end without a beginning is an error.
        assert!(fill(&format!("{END}\n")).is_err());
    }
}
