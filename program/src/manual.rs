//! Manual pages, one for each command. clap_mangen renders them, except for the usage, which is the
//! one of `--help`, and for the text after the options, which becomes sections that keep its lines.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;

/// Writes a page for the command `definitions` and for each subcommand at any depth. It leaves out
/// hidden subcommands, and what `is_own` rejects of the command and its direct subcommands: their
/// pages belong to other programs. `directory` is created if it does not exist.
///
/// # Errors
///
/// A page or the directory cannot be written.
pub fn write(
    definitions: Command,
    is_own: impl Fn(&str) -> bool,
    directory: &Path,
) -> anyhow::Result<()> {
    let mut command = definitions.disable_help_subcommand(true);
    command.build();
    let write = || {
        fs::create_dir_all(directory)?;
        if is_own(command.get_name()) {
            write_page(&command, directory)?;
        }
        visible(&command)
            .filter(|below| is_own(below.get_name()))
            .try_for_each(|below| write_all(below, directory))
    };
    write().with_context(|| format!("cannot write manual pages into {}", directory.display()))
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn write_all(command: &Command, directory: &Path) -> io::Result<()> {
    write_page(command, directory)?;
    visible(command).try_for_each(|below| write_all(below, directory))
}

fn write_page(command: &Command, directory: &Path) -> io::Result<()> {
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
    if visible(command).next().is_some() {
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
        let sections = sections(text);
        let titles: Vec<_> = sections.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["Notes", "Exit status", "Examples"]);
        let mut page = Vec::new();
        section(&mut page, "EXAMPLES", &sections[2].1).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert_eq!(page, ".SH \"EXAMPLES\"\n.nf\n  a \\-b 'c\\en'\n.fi\n");
    }

    #[test]
    fn each_program_writes_its_own_visible_commands() {
        let other = Command::new("lab").about("Of another program");
        let below = Command::new("deep").about("Below");
        let run = Command::new("run").about("Run").subcommand(below);
        let hidden = Command::new("peer").hide(true);
        let command = Command::new("seekwire").subcommands([run, other, hidden]);
        let directory = tempfile::tempdir().unwrap();
        let written = |is_own: fn(&str) -> bool, folder: &str| {
            let folder = directory.path().join(folder);
            write(command.clone(), is_own, &folder).unwrap();
            let files = fs::read_dir(folder).unwrap();
            let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let without_lab = written(|name| name != "lab", "without-lab");
        assert_eq!(without_lab, ["seekwire-run-deep.1", "seekwire-run.1", "seekwire.1"]);
        assert_eq!(written(|name| name == "lab", "other"), ["seekwire-lab.1"]);
        let page = fs::read_to_string(directory.path().join("without-lab/seekwire.1")).unwrap();
        assert!(page.contains("seekwire\\-lab(1)"), "{page}");
    }
}
