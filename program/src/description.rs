//! Definitions of commands that pass from one program to another, as JSON: `seekwire` joins those
//! of all programs and generates the completions of each shell from them. A description has
//! everything that clap_complete reads from a definition.

use clap::builder::{PossibleValue, PossibleValuesParser, Resettable, Str, StyledStr};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A command that is not hidden.
#[derive(Debug, Serialize, Deserialize)]
pub struct Description {
    name: String,
    about: Option<String>,
    /// Text that only `--help` prints; with it, the help of `-h` refers to `--help`.
    details: Option<String>,
    arguments: Vec<Argument>,
    below: Vec<Description>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Argument {
    id: String,
    short: Option<char>,
    long: Option<String>,
    help: Option<String>,
    takes_values: bool,
    repeats: bool,
    required: bool,
    last: bool,
    trailing: bool,
    /// Least and most values for each use.
    values: Option<(usize, usize)>,
    value_names: Vec<String>,
    /// Name and help.
    possible_values: Vec<(String, Option<String>)>,
    hint: String,
    conflicts: Vec<String>,
}

impl Description {
    /// Describes `command`, which clap must not have built yet.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        let visible = command.get_subcommands().filter(|below| !below.is_hide_set());
        Self {
            name: command.get_name().to_owned(),
            about: command.get_about().map(ToString::to_string),
            details: command
                .get_long_about()
                .or(command.get_after_long_help())
                .map(ToString::to_string),
            arguments: command.get_arguments().map(|arg| Argument::of(command, arg)).collect(),
            below: visible.map(Self::of).collect(),
        }
    }

    /// A command that clap_complete completes like the described one. It is not for parsing.
    #[must_use]
    pub fn into_command(self) -> Command {
        let command = Command::new(self.name)
            .args(self.arguments.into_iter().map(Argument::into_arg))
            .subcommands(self.below.into_iter().map(Self::into_command));
        command.about(styled(self.about)).long_about(styled(self.details))
    }
}

impl Argument {
    fn of(command: &Command, arg: &Arg) -> Self {
        let possible = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
        let conflicts = command.get_arg_conflicts_with(arg).into_iter();
        Self {
            id: arg.get_id().to_string(),
            short: arg.get_short(),
            long: arg.get_long().map(ToOwned::to_owned),
            help: arg.get_help().map(ToString::to_string),
            takes_values: arg.get_action().takes_values(),
            repeats: matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
            required: arg.is_required_set(),
            last: arg.is_last_set(),
            trailing: arg.is_trailing_var_arg_set(),
            values: arg.get_num_args().map(|range| (range.min_values(), range.max_values())),
            value_names: arg
                .get_value_names()
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect(),
            possible_values: possible
                .map(|value| {
                    (value.get_name().to_owned(), value.get_help().map(ToString::to_string))
                })
                .collect(),
            hint: format!("{:?}", arg.get_value_hint()),
            conflicts: conflicts.map(|other| other.get_id().to_string()).collect(),
        }
    }

    fn into_arg(self) -> Arg {
        let action = match (self.takes_values, self.repeats) {
            (true, true) => ArgAction::Append,
            (true, false) => ArgAction::Set,
            (false, true) => ArgAction::Count,
            (false, false) => ArgAction::SetTrue,
        };
        let arg = Arg::new(self.id)
            .action(action)
            .short(self.short)
            .long(Resettable::from(self.long.map(Str::from)))
            .help(styled(self.help))
            .required(self.required)
            .last(self.last)
            .trailing_var_arg(self.trailing)
            .conflicts_with_all(self.conflicts);
        let arg = match self.values {
            Some((least, most)) => arg.num_args(least..=most),
            None => arg,
        };
        // clap refuses the rest for flags.
        if !self.takes_values {
            return arg;
        }
        let arg = arg.value_names(self.value_names).value_hint(self.hint.parse::<ValueHint>().ok());
        if self.possible_values.is_empty() {
            return arg;
        }
        let possible = self.possible_values.into_iter();
        let possible = possible.map(|(name, help)| PossibleValue::new(name).help(styled(help)));
        arg.value_parser(PossibleValuesParser::new(possible))
    }
}

fn styled(text: Option<String>) -> Resettable<StyledStr> {
    text.map(StyledStr::from).into()
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;

    /// One argument of each kind that the shells distinguish.
    fn command() -> Command {
        let value = |name: &'static str| PossibleValue::new(name).help("One of several");
        let run = Command::new("run").about("Run it's \"thing\"").args([
            Arg::new("quick").long("quick").short('q').help("Quick").action(ArgAction::SetTrue),
            Arg::new("verbose").short('v').action(ArgAction::Count),
            Arg::new("from").long("from").value_names(["A", "B"]).num_args(2),
            Arg::new("also").long("also").action(ArgAction::Append).conflicts_with("quick"),
            Arg::new("watch").long("watch").num_args(0..=1),
            Arg::new("way").long("way").value_parser([value("here"), value("gone").hide(true)]),
            Arg::new("file").required(true).value_hint(ValueHint::FilePath),
            Arg::new("command")
                .last(true)
                .num_args(1..)
                .value_hint(ValueHint::CommandWithArguments),
        ]);
        let with = Arg::new("program").num_args(1..).trailing_var_arg(true);
        let with = with.value_hint(ValueHint::CommandWithArguments);
        Command::new("seekwire").subcommands([run, Command::new("with").arg(with)])
    }

    #[test]
    fn a_described_command_is_completed_alike() {
        let hidden = Command::new("peer").hide(true);
        let description = Description::of(&command().subcommand(hidden));
        let text = serde_json::to_string(&description).unwrap();
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let script = |mut command: Command| {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut command, "seekwire", &mut script);
                String::from_utf8(script).unwrap()
            };
            let described: Description = serde_json::from_str(&text).unwrap();
            assert_eq!(script(described.into_command()), script(command()), "{shell}");
        }
    }
}
