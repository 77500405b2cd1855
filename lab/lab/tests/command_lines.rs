//! The command lines of all programs have one form: an option means the same in each command that
//! has it, durations and sizes are read by one parser, and help fits a terminal.

use std::any::TypeId;
use std::collections::BTreeMap;

use clap::{Arg, Command};
use seekwire_program::command_line::{JSON, QUIET, WIDTH};
use seekwire_values::{Address, Log, Size, Time};

/// Kinds of values that have a parser of their own, by the word for them in the help.
const KINDS: [&str; 4] = ["TIME", "SIZE", "HOST:PORT", "DEST:LEVEL"];

/// Words that would stand for such a value in another form.
const FOREIGN: [&str; 9] =
    ["SECS", "SECONDS", "MS", "BYTES", "GB", "ADDR", "ADDR[:PORT]", "HOST[:PORT]", "LEVEL"];

/// All visible commands, with their whole names.
fn commands() -> Vec<(String, Command)> {
    let programs = [
        seekwire_cli::definitions(),
        seekwire_flow_cli::definitions(),
        seekwire_harness::command::definitions(),
        seekwire_lab::command::definitions(),
        seekwire_nic_cli::definitions(),
        seekwire_slides::definitions(),
    ];
    let mut found = Vec::new();
    for mut program in programs {
        program.build();
        let mut left = vec![("seekwire".to_owned(), program)];
        while let Some((name, command)) = left.pop() {
            let is_shown = |below: &&Command| !below.is_hide_set() && below.get_name() != "help";
            let below = command.get_subcommands().filter(is_shown);
            left.extend(below.map(|below| (format!("{name} {}", below.get_name()), below.clone())));
            found.push((name, command));
        }
    }
    assert!(found.len() > 40, "only {} commands", found.len());
    found
}

/// The options of all commands, with the names of these.
fn options() -> Vec<(String, Arg)> {
    let of = |(name, command): (String, Command)| -> Vec<(String, Arg)> {
        let options = command.get_arguments().filter(|option| option.get_long().is_some());
        options.map(|option| (name.clone(), option.clone())).collect()
    };
    let all: Vec<(String, Arg)> = commands().into_iter().flat_map(of).collect();
    assert!(all.len() > 100, "only {} options", all.len());
    all
}

/// The words for the values of an option, joined by blanks.
fn value(option: &Arg) -> String {
    if !option.get_action().takes_values() {
        return String::new();
    }
    let names = option.get_value_names().unwrap_or_default();
    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
}

/// The word for the values that the parser of an option makes, if it is one of [`KINDS`].
fn parsed(option: &Arg) -> Option<&'static str> {
    let made = option.get_value_parser().type_id();
    let types =
        [TypeId::of::<Time>(), TypeId::of::<Size>(), TypeId::of::<Address>(), TypeId::of::<Log>()];
    let kind = types.iter().position(|one| made == *one)?;
    Some(KINDS[kind])
}

#[test]
fn an_option_has_one_form_in_all_commands() {
    let mut seen: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (command, option) in options() {
        let long = option.get_long().unwrap();
        let form = format!("{:?} {:?} {:?}", option.get_short(), value(&option), parsed(&option));
        let (first, known) =
            seen.entry(long.to_owned()).or_insert_with(|| (command.clone(), form.clone()));
        assert_eq!(form, *known, "--{long} of `{command}` and of `{first}`");
        let common = [("json", JSON), ("quiet", QUIET)].into_iter().find(|(name, _)| *name == long);
        if let Some((_, help)) = common {
            let said = option.get_help().map(ToString::to_string);
            assert_eq!(said.as_deref(), Some(help), "--{long} of `{command}`");
        }
    }
}

#[test]
fn durations_sizes_addresses_and_logs_are_read_by_one_parser_each() {
    let mut counts = KINDS.map(|_| 0);
    for (command, option) in options() {
        let (long, value) = (option.get_long().unwrap(), value(&option));
        let expected = KINDS.iter().position(|kind| *kind == value);
        let which = format!("--{long} {value} of `{command}`");
        assert_eq!(parsed(&option), expected.map(|kind| KINDS[kind]), "{which}");
        assert!(!FOREIGN.contains(&value.as_str()), "{which}: one of {KINDS:?}");
        if let Some(kind) = expected {
            counts[kind] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 1), "{KINDS:?}: {counts:?}");
}

#[test]
fn no_line_of_a_help_is_wider_than_a_terminal() {
    let mut wide = Vec::new();
    for (name, mut command) in commands() {
        // clap breaks the lines of these texts, but does not fill the rest of a broken line.
        let own = [command.get_after_help(), command.get_after_long_help()];
        let own = own.into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        let whole =
            [command.render_help(), command.render_long_help()].map(|help| help.to_string());
        for line in own.iter().chain(&whole).flat_map(|help| help.lines()) {
            if line.chars().count() > WIDTH {
                wide.push(format!("{name}: {line}"));
            }
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn every_command_has_a_version() {
    for (name, command) in commands() {
        let has_it = command.get_arguments().any(|option| option.get_long() == Some("version"));
        assert!(has_it, "{name}");
    }
}
