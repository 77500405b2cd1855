//! Tests of a program's definitions, for the crate of each program: `#[path]` includes this file
//! beside its function `definitions()`.

#[path = "documents.rs"]
mod documents;

use clap::Command;
use clap::error::ErrorKind;

use super::definitions;

#[test]
fn definitions_are_consistent() {
    assert!(definitions().has_subcommands());
    definitions().debug_assert();
}

/// Whether this program answers `seekwire WORD`.
fn is_own(word: &str) -> bool {
    // `seekwire` also answers words that no program knows. Of other programs' commands it has only
    // name and purpose.
    let has_content =
        |command: &Command| command.has_subcommands() || command.get_arguments().next().is_some();
    let is_front = env!("CARGO_PKG_NAME") == "seekwire-cli";
    definitions().find_subcommand(word).map_or(is_front, has_content)
}

#[test]
fn commands_in_the_documents_are_understood() {
    let mut checked = 0;
    for (path, text) in documents::documents() {
        for (line, mut words) in documents::commands(&text) {
            match words[..] {
                ["seekwire", _, ..] => {}
                [program, _, ..] if program.ends_with("/seekwire") => words[0] = "seekwire",
                _ => continue,
            }
            if !is_own(if words[1] == "help" { words.get(2).unwrap_or(&"") } else { words[1] }) {
                continue;
            }
            checked += 1;
            // It stands for a name that the reader chooses.
            let words = words.into_iter().filter(|word| *word != "NAME");
            // The text may mention an option without a program to go with it, and a command that
            // has others below it.
            let harmless = [
                ErrorKind::DisplayHelp,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ErrorKind::MissingRequiredArgument,
                ErrorKind::DisplayVersion,
            ];
            if let Err(error) = definitions().try_get_matches_from(words) {
                let is_harmless = harmless.contains(&error.kind());
                assert!(is_harmless, "{}: {line}\n{error}", path.display());
            }
        }
    }
    assert!(checked > 0, "no command of this program is in the documents");
}
