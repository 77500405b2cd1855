//! Manual pages, one for each command: as clap_mangen renders them, but with the usage as `--help`
//! has it, and with what stands behind the options in sections of their own, laid out as there.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// Writes `seekwire.1`, and a page for each command below it.
pub(crate) fn write(definitions: Command, directory: &Path) -> io::Result<()> {
    let mut command = definitions.disable_help_subcommand(true);
    command.build();
    write_all(&command, directory)
}

fn write_all(command: &Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_all(below, directory)?;
    }
    let man = Man::new(command.clone());
    fs::write(directory.join(man.get_filename()), page(command, man)?)
}

fn page(command: &Command, man: Man) -> io::Result<Vec<u8>> {
    let version = env!("CARGO_PKG_VERSION");
    let man = man.source(format!("Seekwire {version}")).manual("Seekwire");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    section(&mut page, "SYNOPSIS", &usage(command))?;
    // The short one is the name's.
    if command.get_long_about().is_some() {
        man.render_description_section(&mut page)?;
    }
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let behind = command.get_after_long_help().or_else(|| command.get_after_help());
    for (title, text) in sections(&behind.map(ToString::to_string).unwrap_or_default()) {
        section(&mut page, &title.to_uppercase(), &text)?;
    }
    Ok(page)
}

fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let lines = usage.trim_start_matches("Usage:").lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Blocks under a line that ends in a colon, and without an indentation; what has no such line
/// before it are notes.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let title = line.strip_suffix(':').filter(|title| !title.starts_with(' '));
        match (title, sections.last_mut()) {
            (Some(title), _) => sections.push((title.to_owned(), String::new())),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => sections.push(("Notes".to_owned(), format!("{line}\n"))),
        }
    }
    sections
}

/// A section whose lines stay as they are.
fn section(page: &mut Vec<u8>, title: &str, text: &str) -> io::Result<()> {
    writeln!(page, ".SH \"{title}\"\n.nf")?;
    for line in text.trim_end().lines() {
        // As roff(7) has it: a control character at the beginning, escapes, and hyphens.
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let control = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        writeln!(page, "{control}{line}")?;
    }
    writeln!(page, ".fi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_the_options_keeps_its_lines() {
        let text =
            "First words.\n\nExit status:\n  0  well\n  1  ill\n\nExamples:\n  a -b 'c\\n'\n";
        let found = sections(text);
        let titles: Vec<_> = found.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["Notes", "Exit status", "Examples"]);
        let mut page = Vec::new();
        section(&mut page, "EXAMPLES", &found[2].1).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert_eq!(page, ".SH \"EXAMPLES\"\n.nf\n  a \\-b 'c\\en'\n.fi\n");
    }

    #[test]
    fn every_page_has_a_synopsis_with_values() {
        let directory = tempfile::tempdir().unwrap();
        write(crate::definitions::definitions(), directory.path()).unwrap();
        let run = fs::read_to_string(directory.path().join("seekwire-run.1")).unwrap();
        assert!(run.contains(".SH \"SYNOPSIS\"\n.nf\nseekwire run"), "{run}");
        assert!(run.contains(".SH \"EXIT STATUS\"\n.nf\n  that of PROGRAM, or\n"), "{run}");
        assert!(fs::read_dir(directory.path()).unwrap().count() > 10);
    }
}
