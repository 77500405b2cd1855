//! Options of `seekwire lab run` that only some experiments have.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use seekwire_program::command_line::WIDTH;

use super::arguments::ALL;
use crate::experiments;

/// The experiments that have an option; empty if all have it.
fn owners(option: &Arg) -> Vec<&'static str> {
    let long = option.get_long();
    let has_it = experiments()
        .iter()
        .filter(|one| one.file().own_options.iter().any(|name| long == Some(name.as_str())));
    has_it.map(|experiment| experiment.name()).collect()
}

/// `lab run` with headings that name the experiments to which an option belongs.
pub(super) fn under_headings(run: Command) -> Command {
    run.mut_args(|option| match &owners(&option)[..] {
        [] => option,
        names => option.help_heading(format!("Options of {}", names.join(", "))),
    })
}

/// `lab run` with only those options that belong to the experiments among `words`.
pub(super) fn for_words(run: Command, words: &[&str]) -> Command {
    run.mut_args(|option| {
        let owners = owners(&option);
        let is_wanted =
            owners.is_empty() || words.iter().any(|word| *word == ALL || owners.contains(word));
        option.hide(!is_wanted)
    })
}

/// The options of one experiment, as the help of `lab run` shows them.
pub(super) fn help(run: &Command, experiment: &str) -> String {
    let own = run.get_arguments().filter(|option| owners(option).contains(&experiment));
    let own: Vec<Arg> = own.map(|option| option.clone().help_heading("Options")).collect();
    if own.is_empty() {
        return String::new();
    }
    let shown = Command::new("run")
        .disable_help_flag(true)
        .max_term_width(WIDTH)
        .help_template("{all-args}");
    shown.args(own).render_long_help().to_string()
}

/// Fails if `matches` has an option that none of the named experiments has.
pub(super) fn check(run: &Command, matches: &ArgMatches) -> Result<(), String> {
    let names: Vec<&String> = matches.get_many("names").into_iter().flatten().collect();
    let is_known = |name: &&String| experiments().iter().any(|one| one.name() == **name);
    // `all` takes every option. Unknown experiments are reported where the names are parsed.
    if names.is_empty() || !names.iter().all(is_known) {
        return Ok(());
    }
    let is_given = |option: &&Arg| {
        let id = option.get_id().as_str();
        // The help option is not among them.
        matches.try_contains_id(id).unwrap_or(false)
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    for option in run.get_arguments().filter(is_given) {
        let owners = owners(option);
        if !owners.is_empty() && !names.iter().any(|name| owners.contains(&name.as_str())) {
            let asked: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            return Err(format!(
                "--{} is not an option of {}, but of {}; `seekwire lab show NAME` lists the options of an experiment",
                option.get_long().unwrap_or_default(),
                asked.join(" or "),
                owners.join(", ")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::definitions;
    use super::*;

    fn run() -> Command {
        let lab = definitions().find_subcommand("lab").unwrap().clone();
        lab.find_subcommand("run").unwrap().clone()
    }

    #[test]
    fn every_option_is_for_all_experiments_or_for_those_that_name_it() {
        let run = run();
        let longs: Vec<&str> = run.get_arguments().filter_map(Arg::get_long).collect();
        for experiment in experiments() {
            for name in &experiment.file().own_options {
                assert!(longs.contains(&&**name), "{}: there is no --{name}", experiment.name());
            }
        }
        let common = run.get_arguments().filter(|option| owners(option).is_empty());
        let common: Vec<&str> = common.map(|option| option.get_id().as_str()).collect();
        assert_eq!(common, ["names", "quick", "rounds", "out"]);
    }

    #[test]
    fn shells_can_complete_the_names() {
        let run = run();
        let names = run.get_arguments().find(|argument| argument.get_id() == "names").unwrap();
        let names = names.get_possible_values();
        let names: Vec<&str> = names.iter().map(|value| value.get_name()).collect();
        assert!(names.len() == experiments().len() + 1 && names.contains(&ALL), "{names:?}");
        assert!(!super::super::definitions().render_long_help().to_string().contains("values:"));
    }

    #[test]
    fn the_help_has_the_options_of_the_experiments_that_are_named() {
        let shown = |words: &[&str]| for_words(run(), words).render_long_help().to_string();
        let count = |words: &[&str]| {
            ["--weak-peer", "--repetitions", "--way"].map(|option| shown(words).contains(option))
        };
        assert_eq!(count(&["lab", "run", "--help"]), [false; 3]);
        assert_eq!(count(&["sockets"]), [false; 3]);
        assert_eq!(count(&["nic"]), [true, false, false]);
        assert_eq!(count(&["mailbox"]), [false, true, false]);
        assert_eq!(count(&["all"]), [true; 3]);
        assert!(shown(&["nic"]).contains("Options of nic:"), "{}", shown(&["nic"]));
        assert!(help(&run(), "nic").contains("--weak-cpu"));
        assert_eq!(help(&run(), "sockets"), "");
    }

    #[test]
    fn an_option_of_another_experiment_is_refused() {
        let checked = |line: &str| {
            let matches = run().try_get_matches_from(line.split(' ')).unwrap();
            check(&run(), &matches)
        };
        let error = checked("run sockets pairs --quick --repetitions 2").unwrap_err();
        assert!(error.contains("--repetitions is not an option of sockets or pairs"), "{error}");
        assert!(error.contains("but of seek, seek-fragments"), "{error}");
        for line in [
            "run sockets --rounds 2 --out here",
            "run sockets seek --repetitions 2",
            "run nic --peer there --weak-cpu 30",
            "run all --netns",
        ] {
            assert_eq!(checked(line), Ok(()), "{line}");
        }
        // The missing names are reported where they are used.
        let matches = run().ignore_errors(true).try_get_matches_from(["run", "--netns"]).unwrap();
        assert_eq!(check(&run(), &matches), Ok(()));
    }
}
