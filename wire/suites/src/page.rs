//! The page of results: it is read, joined with new results and written again, so that a suite that
//! runs alone changes only its own part.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

const HEAD: &str = "# Compatibility\n\n\
    Test suites of other projects, or workloads from the documentation where a project ships no tests, run on plain TCP and \
    accelerated. `make test-suites` writes this file from the results.\n";

const METHOD: &str = "A suite runs *plain*, without the library; *default*, with the default settings; *early*, where every connection is \
    attached as early as possible; and *fallback*, where in addition each connection goes back to TCP after 1000 bytes. A test that \
    passes plain and not accelerated is repeated three times each way. Bytes are those of processes that exited by themselves: a \
    killed process writes no counters. A connection moves to the ring in calls that both ends make on it. It stays on TCP if it ends \
    after a few calls, or if its client has sent everything before the server accepts it, as in most tests of libuv and in requests to a \
    web server without keep-alive: its ends then find it below the threshold, or the other end missing, or the connection closed.\n\n\
    | suite | mode | passed | failed | skipped | attached | bytes by the ring | differ |\n\
    |-------|------|-------:|-------:|--------:|---------:|------------------:|-------:|\n";

const WHAT: &str = "## What they are";
const DIFFERENCES: &str = "## Differences";
const PLAIN: &str = "## Tests that also fail plain";

/// The parts of the page, by suite.
#[derive(Debug, Default)]
pub(crate) struct Page(pub(crate) BTreeMap<String, PageSection>);

/// The part about one suite, in lines of Markdown.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PageSection {
    /// When, at which commit and where it was run.
    pub(crate) runs: Vec<String>,
    pub(crate) rows: Vec<String>,
    pub(crate) what: String,
    pub(crate) differences: Vec<String>,
    pub(crate) fails_plain: Option<String>,
}

impl Page {
    /// Parses a page that [`Page`] has written; lines that it would not write are left out.
    pub(crate) fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut runs = Vec::new();
        let (mut section, mut suite) = ("", String::new());
        for line in text.lines() {
            if line.starts_with("## ") {
                section = line;
            } else if let Some(run) = line.strip_prefix("Run on ") {
                let run = run.trim_end_matches('.');
                let (run, names) = run.split_once(": ").unwrap_or((run, ""));
                runs.push((run.to_owned(), names.to_owned()));
            } else if let Some(row) = line.strip_prefix("| ").filter(|_| section.is_empty()) {
                match row.split(" |").next().unwrap_or_default() {
                    "suite" => continue,
                    "" => {}
                    name => suite = name.to_owned(),
                }
                page.part(&suite).rows.push(line.to_owned());
            } else if let Some(item) = line.strip_prefix("- ") {
                let name = item.trim_start_matches('*');
                let end = name.find([',', ':', '*']).unwrap_or(name.len());
                let part = page.part(&name[..end]);
                match section {
                    WHAT => line.clone_into(&mut part.what),
                    DIFFERENCES => part.differences.push(line.to_owned()),
                    PLAIN => part.fails_plain = Some(line.to_owned()),
                    _ => {}
                }
            }
        }
        page.0.retain(|_, part| !part.rows.is_empty());
        for (name, part) in &mut page.0 {
            let is_here =
                |names: &str| names.is_empty() || names.split(", ").any(|one| one == name);
            let here = runs.iter().filter(|(_, names)| is_here(names));
            part.runs.extend(here.map(|(run, _)| run.clone()));
        }
        page
    }

    pub(crate) fn part(&mut self, suite: &str) -> &mut PageSection {
        self.0.entry(suite.to_owned()).or_default()
    }

    /// Keeps the parts of `earlier` about suites that this page does not have.
    pub(crate) fn keep(&mut self, earlier: Page) {
        for (name, part) in earlier.0 {
            self.0.entry(name).or_insert(part);
        }
    }

    fn runs(&self) -> Vec<(&str, Vec<&str>)> {
        let mut runs: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, part) in &self.0 {
            for run in &part.runs {
                match runs.iter_mut().find(|(one, _)| one == run) {
                    Some((_, names)) => names.push(name),
                    None => runs.push((run, vec![name])),
                }
            }
        }
        runs
    }
}

impl Display for Page {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        writeln!(to, "{HEAD}")?;
        let runs = self.runs();
        for (run, names) in &runs {
            match names.join(", ") {
                _ if runs.len() == 1 => writeln!(to, "Run on {run}.\n")?,
                names => writeln!(to, "Run on {run}: {names}.\n")?,
            }
        }
        to.write_str(METHOD)?;
        let parts = || self.0.values();
        parts().flat_map(|part| &part.rows).try_for_each(|line| writeln!(to, "{line}"))?;
        writeln!(to, "\n{WHAT}\n")?;
        parts().try_for_each(|part| writeln!(to, "{}", part.what))?;
        writeln!(to, "\n{DIFFERENCES}\n")?;
        list(
            to,
            parts().flat_map(|part| &part.differences),
            "None: every test that passes plain passes accelerated.",
        )?;
        writeln!(to, "\n{PLAIN}\n")?;
        list(to, parts().filter_map(|part| part.fails_plain.as_ref()), "Nothing.")
    }
}

fn list<'a>(
    to: &mut Formatter<'_>,
    lines: impl Iterator<Item = &'a String>,
    if_none: &str,
) -> fmt::Result {
    let mut any = false;
    for line in lines {
        any = true;
        writeln!(to, "{line}")?;
    }
    if any { Ok(()) } else { writeln!(to, "{if_none}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(run: &str, name: &str) -> PageSection {
        PageSection {
            runs: vec![run.to_owned()],
            rows: vec![
                format!("| {name} | plain | 1 | 1 | 0 |  |  |  |"),
                "|  | early | 0 | 2 | 0 | 1 of 1 | 5 | 1 |".to_owned(),
            ],
            what: format!("- **{name}**: Tests of it: all (1.0)."),
            differences: vec![format!("- {name}, early: a: b, fails.")],
            fails_plain: Some(format!("- {name}: t\\|x, y: z.")),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for runs in [["2026, Linux"; 2], ["2026, Linux", "2027, Linux"]] {
            let mut page = Page::default();
            for (name, run) in ["one", "two"].into_iter().zip(runs) {
                page.0.insert(name.to_owned(), part(run, name));
            }
            page.part("two").fails_plain = None;
            let text = page.to_string();
            let again = Page::read(&text);
            assert_eq!(again.0, page.0);
            assert_eq!(again.to_string(), text);
        }
    }

    #[test]
    fn what_was_not_run_stays() {
        let (mut now, mut earlier) = (Page::default(), Page::default());
        now.0.insert("one".to_owned(), part("2027", "one"));
        earlier.0.insert("one".to_owned(), part("2026", "one"));
        earlier.0.insert("two".to_owned(), part("2026", "two"));
        now.keep(earlier);
        let text = now.to_string();
        assert!(text.contains("Run on 2027: one.\n\nRun on 2026: two.\n"), "{text}");
        assert_eq!(text.matches("| plain |").count(), 2, "{text}");
    }

    #[test]
    fn the_page_in_the_tree_is_one() {
        let text = include_str!("../../docs/compatibility.md");
        assert_eq!(Page::read(text).to_string(), text);
    }
}
