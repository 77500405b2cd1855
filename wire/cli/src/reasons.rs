//! `seekwire reasons`: why connections are on TCP, from the page that engineers read.

use std::io::Write;

use anyhow::{Result, bail};
use seekwire_program::standard;
use seekwire_program::table;

const PAGE: &str = include_str!("../../docs/reasons.md");

const INTRODUCTION: &str = "\
These are the reasons that `seekwire status` prints after WHY NOT, that the summary of `seekwire run` \
counts, and that the log names. Each end of a connection has its own, so look at both. Where no \
remedy (->) is named, TCP is right for the connection.";

/// Columns of the text.
const WIDTH: usize = 78;

/// A reason, for users.
struct Explanation {
    reason: String,
    meaning: String,
    remedy: Option<String>,
}

/// Prints all explanations, or the one of the reason in the arguments.
///
/// # Errors
///
/// There is no such reason; those of writing to standard output.
pub(crate) fn reasons(reason: &[String]) -> Result<()> {
    let wanted = reason.join(" ");
    let text = match (wanted.is_empty(), explanations().find(|found| found.reason == wanted)) {
        (true, _) => format!("{}\n\n{}", table::wrap(INTRODUCTION, WIDTH).join("\n"), page()),
        (false, Some(explanation)) => explanation.text(),
        (false, None) => bail!(
            "there is no reason \"{wanted}\"; `seekwire reasons` lists all, as WHY NOT of `seekwire \
             status` has them"
        ),
    };
    standard::output()?.lock().write_all(text.as_bytes())?;
    Ok(())
}

/// The remedy for a reason: a sentence without a capital letter.
pub(crate) fn remedy(reason: &str) -> Option<String> {
    explanations().find(|found| found.reason == reason)?.remedy
}

/// All explanations, in sections.
pub(crate) fn page() -> String {
    let mut text = String::new();
    for section in PAGE.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap_or_default();
        text += &format!("{title}:\n");
        text.extend(entries(section).map(|explanation| explanation.text()));
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn explanations() -> impl Iterator<Item = Explanation> {
    entries(PAGE)
}

/// The items of the lists in a part of the page.
fn entries(part: &str) -> impl Iterator<Item = Explanation> {
    part.split("\n- **").skip(1).filter_map(|item| {
        // It ends at the next section, or with the list.
        let item = item.split("\n\n").next()?;
        let (reason, text) = item.split_once("**: ")?;
        let text = without_links(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        let text = text.split(" Test: ").next()?.split(" Tests: ").next()?;
        let (meaning, remedy) = match text.split_once(" Remedy: ") {
            Some((meaning, remedy)) => (meaning, Some(remedy.to_owned())),
            None => (text, None),
        };
        Some(Explanation { reason: reason.to_owned(), meaning: meaning.to_owned(), remedy })
    })
}

impl Explanation {
    fn text(&self) -> String {
        let indented = |text: &str, first: &str, next: &str| -> String {
            let lines = table::wrap(text, WIDTH - next.len());
            let before = std::iter::once(first).chain(std::iter::repeat(next));
            before.zip(lines).map(|(before, line)| format!("{before}{line}\n")).collect()
        };
        let remedy = self.remedy.as_deref().map(|remedy| indented(remedy, "    -> ", "       "));
        let meaning = indented(&self.meaning, "    ", "    ");
        format!("  {}\n{meaning}{}", self.reason, remedy.unwrap_or_default())
    }
}

/// The text of a line of Markdown: links become their texts, and go where they are all that
/// parentheses hold.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, link) = rest.split_at(at);
        let group = before.ends_with(" (").then(|| end_of_links(link)).flatten();
        if let Some(end) = group {
            plain += before.trim_end_matches(" (");
            rest = &link[end..];
            continue;
        }
        plain += before;
        match parts(link) {
            Some((words, length)) => {
                plain += words;
                rest = &link[length..];
            }
            None => {
                plain.push('[');
                rest = &link[1..];
            }
        }
    }
    plain + rest
}

/// The text of the link at the beginning, and the length of the link.
fn parts(link: &str) -> Option<(&str, usize)> {
    let (words, target) = link.strip_prefix('[')?.split_once("](")?;
    let target = target.find(')')?;
    Some((words, words.len() + target + "[](".len() + 1))
}

/// The position behind a closing parenthesis, if only links come before it.
fn end_of_links(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += parts(&text[at..])?.1;
        match &text[at..] {
            rest if rest.starts_with(')') => return Some(at + 1),
            rest if rest.starts_with(", ") => at += 2,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use seekwire_endpoint::Reason;

    use super::*;

    #[test]
    fn every_reason_is_explained_in_plain_text() {
        let page = page();
        for reason in Reason::ALL {
            assert!(page.contains(&format!("\n  {reason}\n    ")), "{reason}: {page}");
        }
        assert_eq!(explanations().count(), Reason::ALL.len());
        for no in ["](", "**", "Test:", "Tests:", "Remedy:", " .", "( "] {
            assert!(!page.contains(no), "{no}: {page}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
    }

    #[test]
    fn the_remedy_for_a_plain_peer_is_to_start_it_with_the_command() {
        let remedy = remedy(&Reason::NoPeer.to_string()).unwrap();
        assert!(remedy.starts_with("start the other end under `seekwire run`"), "{remedy}");
        assert_eq!(super::remedy(&Reason::Over.to_string()), None);
        assert_eq!(super::remedy("no such reason"), None);
    }

    #[test]
    fn links_become_their_texts() {
        for (text, plain) in [
            ("too few ([plain.rs](../x.rs)). Next", "too few. Next"),
            ("a ([b](c), [d](e#f)); g", "a; g"),
            ("see [operation](o.md#p), too", "see operation, too"),
            ("raise it ([operation](o.md) lists them)", "raise it (operation lists them)"),
            ("x[0] [ y", "x[0] [ y"),
        ] {
            assert_eq!(without_links(text), plain);
        }
    }
}
