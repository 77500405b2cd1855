//! All experiments of a directory as one site: pages that need no server, no script and nothing
//! from elsewhere.
//!
//! ```text
//! read      the contents of the directories, whoever wrote them
//! verdict   the judgements of an experiment in a line
//! index     the first page
//! page      the page of an experiment
//! ```

mod index;
mod page;
pub(crate) mod read;
mod verdict;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use maud::{Markup, PreEscaped, html};
use rustix::fs::OFlags;

use self::read::{ResultContents, ResultEntry};
use crate::output::{self, Destination, RAW, RESULT};
use crate::report::parts;

/// The first page, and the mark of a directory that is ours.
const INDEX: &str = "index.html";
const MARK: &str = "<meta name=\"generator\" content=\"seekwire lab report\">";

/// A browser runs and fetches nothing, whatever a result contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A site that has been written.
#[derive(Debug)]
pub struct Site {
    /// Its first page.
    pub index: PathBuf,
    /// Experiments that have a page of their own.
    pub experiments: usize,
    /// Results that could not be read, and why.
    pub problems: Vec<(String, String)>,
}

/// Joins the results of the directories below `directory` into one site in `out`, or in
/// `directory/report`.
///
/// A result that cannot be read is listed on the first page with the reason; the others are shown.
/// The site contains the data that it shows: raw data and results are copied.
///
/// # Errors
///
/// If there is no result at all, or `out` cannot be written to or holds something else.
pub fn write(directory: &Path, out: Option<&Path>) -> Result<Site> {
    let run = format!("run `seekwire lab run all --quick --out {}` first", directory.display());
    let tree =
        read::read(directory).with_context(|| format!("{run}, or name another directory"))?;
    if tree.entries.is_empty() {
        bail!("no results of experiments below {}: {run}", directory.display());
    }
    let out = match out {
        Some(out) => out.to_owned(),
        None => own_directory(directory.join("report"))?,
    };
    let destination = Destination::prepare_marked(&out, INDEX, is_site)?;
    // The mark of ownership goes first: if anything below fails, the next report may still take the
    // directory over.
    destination
        .write(INDEX, &document("Seekwire: experiments", &html! { p { "Being written." } }))?;
    for (position, entry) in tree.entries.iter().enumerate() {
        let Ok(contents) = &entry.contents else { continue };
        let neighbour =
            |entry: Option<&ResultEntry>| entry.map(|entry| (entry.page(), entry.name.clone()));
        let is_page = |entry: &&ResultEntry| entry.contents.is_ok();
        let previous = neighbour(tree.entries[..position].iter().rfind(is_page));
        let next = neighbour(tree.entries[position + 1..].iter().find(is_page));
        let raw = copy_data(&out, entry, contents)?;
        destination.write(&entry.page(), &page::html(entry, contents, &raw, previous, next))?;
    }
    let index = destination.write(INDEX, &index::html(&tree))?;
    let problems = tree.entries.iter().filter_map(|entry| {
        let why = entry.contents.as_ref().err()?;
        Some((entry.directory.display().to_string(), why.clone()))
    });
    let experiments = tree.entries.iter().filter(|entry| entry.contents.is_ok()).count();
    Ok(Site { index, experiments, problems: problems.collect() })
}

/// Copies the files that a page links to; returns the links and their texts.
fn copy_data(
    out: &Path,
    entry: &ResultEntry,
    contents: &ResultContents,
) -> Result<Vec<(String, &'static str)>> {
    let files = [(RAW, "every single reading"), (RESULT, "everything on this page")];
    let mut links = Vec::new();
    if let Some(raw) = &contents.raw {
        let to = own_directory(own_directory(out.join("data"))?.join(&entry.slug))?;
        output::write_file(&to, RAW, raw)?;
        output::write_file(&to, RESULT, &(serde_json::to_string_pretty(&contents.result)? + "\n"))?;
        return Ok(files.map(|(file, what)| (format!("data/{}/{file}", entry.slug), what)).into());
    }
    for (file, what) in files {
        let from = entry.directory.join(file);
        if !fs::symlink_metadata(&from).is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let open = OpenOptions::new().read(true).custom_flags(flags).open(&from);
        let mut source = open.with_context(|| format!("cannot read {}", from.display()))?;
        let to = own_directory(own_directory(out.join("data"))?.join(&entry.slug))?;
        output::copy_file(&to, file, &mut source)?;
        links.push((format!("data/{}/{file}", entry.slug), what));
    }
    Ok(links)
}

/// Creates a directory of the site. The author of the results may have put a link there that leads
/// out of it.
fn own_directory(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path)
        .with_context(|| format!("cannot make the directory {}", path.display()))?;
    let metadata = fs::symlink_metadata(&path)
        .with_context(|| format!("cannot look at {}", path.display()))?;
    if !metadata.is_dir() {
        bail!("{} is a link; remove it, or name another directory with --out", path.display());
    }
    Ok(path)
}

fn is_site(index: &Path) -> bool {
    output::read_file(index).is_ok_and(|text| text.contains(MARK))
}

/// A page with this in its body.
fn document(title: &str, body: &Markup) -> String {
    let head = html! {
        (PreEscaped(MARK))
        meta http-equiv="Content-Security-Policy" content=(POLICY);
        link rel="icon" href="data:,";
    };
    let body = html! {
        a.skip href="#content" { "To the content" }
        (body)
    };
    parts::document(title, &head, &body)
}

/// Links to other pages, (address, text), without the missing ones.
fn navigation(links: &[Option<(String, String)>]) -> Markup {
    html! {
        nav aria-label="Pages" {
            @for (address, text) in links.iter().flatten() { a href=(address) { (text) } " " }
        }
    }
}

/// A plot, which contains its title.
fn figure(title: &str, svg: &str, caption: &str) -> Markup {
    let attributes = html! { svg role="img" aria-label={ "Plot: " (title) } {} }.into_string();
    let opening = attributes.trim_end_matches("></svg>").to_owned() + " ";
    let svg = parts::inline(svg).replacen("<svg ", &opening, 1);
    html! {
        figure tabindex="0" {
            (PreEscaped(svg))
            @if !caption.is_empty() { figcaption.soft { (caption) } }
        }
    }
}
