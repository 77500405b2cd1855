//! The definition of the whole command, joined from those of its programs.

use clap::Command;

/// What the command `seekwire` understands.
pub(crate) fn definitions() -> Command {
    parts().into_iter().fold(seekwire_cli::definitions(), |whole, part| {
        let name = part.get_name().to_owned();
        whole.mut_subcommand(name, |_| part)
    })
}

/// The subcommands that are programs of their own.
fn parts() -> Vec<Command> {
    let programs = [
        seekwire_flow_cli::definitions(),
        seekwire_lab::command::definitions(),
        seekwire_nic_cli::definitions(),
        seekwire_slides::definitions(),
    ];
    let subcommands = programs.iter().flat_map(Command::get_subcommands);
    subcommands.filter(|command| !command.is_hide_set()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn definitions_are_consistent() {
        definitions().debug_assert();
    }

    #[test]
    fn the_command_lists_what_its_parts_do_in_their_words() {
        let about = |commands: &mut dyn Iterator<Item = &Command>| -> BTreeMap<String, String> {
            let line = |command: &Command| {
                command.get_about().map(ToString::to_string).unwrap_or_default()
            };
            commands.map(|command| (command.get_name().to_owned(), line(command))).collect()
        };
        let (whole, parts) = (seekwire_cli::definitions(), parts());
        let own = ["run", "status", "doctor", "vm"];
        let mut others = whole
            .get_subcommands()
            .filter(|one| !one.is_hide_set() && !own.contains(&one.get_name()));
        assert_eq!(about(&mut others), about(&mut parts.iter()));
    }
}
