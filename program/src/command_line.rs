//! The form that the command lines of all programs have in common: their settings, and options that
//! mean the same in each command. A test of the laboratory compares the definitions of all.

use std::path::Path;

use clap::Command;
use clap::builder::{OsStringValueParser, TypedValueParser};
use seekwire_values::Log;

/// Columns of the widest line of a help text.
pub const WIDTH: usize = 80;

/// Help of `--json`; the command's help has a section that describes the JSON.
pub const JSON: &str = "Print JSON, as described below";

/// Help of `--quiet`.
pub const QUIET: &str = "Report nothing on standard error but errors";

/// The definitions of a program, with the settings of all: each program answers as `seekwire`, and
/// each command has `--version`. Colours, and suggestions for mistyped words, are clap's defaults,
/// so NO_COLOR is obeyed.
#[must_use]
pub fn command_line(definitions: Command) -> Command {
    definitions
        .name("seekwire")
        .bin_name("seekwire")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .max_term_width(WIDTH)
}

/// The parser of `--log DEST:LEVEL`.
#[must_use]
pub fn log() -> impl TypedValueParser<Value = Log> {
    OsStringValueParser::new().try_map(|text| Log::parse(&text))
}

/// Whether the FILE of an option stands for standard output.
#[must_use]
pub fn is_standard_output(file: &Path) -> bool {
    file.as_os_str() == "-"
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::{Arg, ArgAction};

    use super::*;

    #[test]
    fn every_command_has_a_version_and_suggestions() {
        let option = Arg::new("watch").long("watch").action(ArgAction::SetTrue);
        let status = Command::new("status").arg(option);
        let parse = |line: &str| {
            let definitions = command_line(Command::new("any").subcommand(status.clone()));
            definitions.try_get_matches_from(line.split(' ')).unwrap_err()
        };
        for line in ["seekwire --version", "seekwire status --version", "seekwire status -V"] {
            assert_eq!(parse(line).kind(), ErrorKind::DisplayVersion, "{line}");
        }
        let said = parse("seekwire stauts").to_string();
        assert!(said.contains("'status'"), "{said}");
        let said = parse("seekwire status --wtach").to_string();
        assert!(said.contains("'--watch'") && !said.contains('\u{1b}'), "{said}");
    }
}
