//! `seekwire lab` and `calibrate`, from the command line.

mod arguments;
mod experiment_options;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use arguments::{ALL, Arguments, Command};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use seekwire_program::command_line::{self, command_line};
use seekwire_program::{standard, table};
use seekwire_values::{Address, Size};

use crate::text;

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    let run = |lab: clap::Command| lab.mut_subcommand("run", experiment_options::under_headings);
    command_line(Arguments::command().mut_subcommand("lab", run))
}

/// Executes the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = seekwire_program::generate::asked(definitions) {
        return code;
    }
    seekwire_program::finish(match parse(std::env::args_os().collect()).command {
        Command::Lab(command) => lab(&command),
        Command::Calibrate(options) => calibrate(&options),
        Command::LabPeer(peer) => return crate::peer::main(peer.arguments),
    })
}

/// Ends the process if the arguments are wrong or ask for help.
fn parse(words: Vec<OsString>) -> Arguments {
    let text: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let definitions = definitions().mut_subcommand("lab", |lab| {
        lab.mut_subcommand("run", |run| experiment_options::for_words(run, &text))
    });
    refuse_strange_options(&definitions, &words);
    let matches = definitions.get_matches_from(words);
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Checked first, before clap complains about a missing companion option.
fn refuse_strange_options(definitions: &clap::Command, words: &[OsString]) {
    let Ok(matches) = definitions.clone().ignore_errors(true).try_get_matches_from(words) else {
        return;
    };
    let asked = matches.subcommand_matches("lab").and_then(|lab| lab.subcommand_matches("run"));
    let mut definitions = definitions.clone();
    definitions.build();
    let run = definitions.find_subcommand_mut("lab").and_then(|lab| lab.find_subcommand_mut("run"));
    if let (Some(run), Some(asked)) = (run, asked) {
        if let Err(why) = experiment_options::check(run, asked) {
            run.error(ErrorKind::ArgumentConflict, why).exit();
        }
    }
}

fn calibrate(options: &arguments::Calibrate) -> Result<ExitCode> {
    let calibration = crate::calibrate::calibrate(options.file.as_deref())?;
    let mut out = standard::output()?.lock();
    writeln!(out, "receiver's processor time, microseconds a message")?;
    writeln!(out, "{:>10} {:>10} {:>10}", "bytes", "in bulk", "in place")?;
    for (size, bulk, in_place) in &calibration.sizes {
        writeln!(out, "{size:>10} {bulk:>10.3} {in_place:>10.3}")?;
    }
    let path = calibration.path.map(|path| format!("; written to {}", path.display()));
    writeln!(
        out,
        "take messages in place from {} bytes on{}",
        calibration.switch,
        path.unwrap_or_default()
    )?;
    Ok(ExitCode::SUCCESS)
}

fn lab(command: &arguments::Lab) -> Result<ExitCode> {
    match command {
        arguments::Lab::List => list(),
        arguments::Lab::Show(options) => show(options),
        arguments::Lab::Run(options) => run(options),
        arguments::Lab::Report(options) => report(options),
        arguments::Lab::Pack(options) => pack(options),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Columns for the name of an experiment.
const NAME: usize = 16;

fn list() -> Result<()> {
    let mut out = standard::output()?.lock();
    for experiment in crate::experiments() {
        let name = experiment.name();
        let time = |quick| text::minutes(experiment.file().seconds.of(quick));
        let takes = format!("Takes about {}, with --quick {}.", time(false), time(true));
        let unavailable = experiment.unavailable(&crate::Options::default());
        let unavailable = unavailable.map(|why| format!("Cannot run here: {why}"));
        let about = [experiment.file().question.clone(), takes].into_iter().chain(unavailable);
        let lines = about.flat_map(|text| table::wrap(&text, command_line::WIDTH - NAME));
        for (index, line) in lines.enumerate() {
            writeln!(out, "{:<NAME$}{line}", if index == 0 { name } else { "" })?;
        }
    }
    writeln!(out, "\n`seekwire lab show NAME` describes what an experiment measures, and how.")?;
    Ok(())
}

fn show(options: &arguments::LabShow) -> Result<()> {
    let names = options.names.iter();
    let asked: Vec<_> =
        names.map(|name| crate::experiments::by_name(name)).collect::<Result<_>>()?;
    let lab = definitions().find_subcommand("lab").cloned().unwrap_or_default();
    let run = lab.find_subcommand("run").cloned().unwrap_or_default();
    let mut out = standard::output()?.lock();
    for (index, experiment) in asked.into_iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}: {}\n", experiment.name(), experiment.file().question)?;
        for line in table::wrap(&experiment.file().about, command_line::WIDTH) {
            writeln!(out, "{line}")?;
        }
        let time = |quick| text::minutes(experiment.file().seconds.of(quick));
        writeln!(out, "\nTakes about {}, with --quick {}.", time(false), time(true))?;
        if let Some(paper) = &experiment.file().follows {
            writeln!(out, "Follows {paper}.")?;
        }
        match experiment.unavailable(&crate::Options::default()) {
            Some(why) => writeln!(out, "Cannot run here: {why}")?,
            None => writeln!(out, "Can run here.")?,
        }
        let own = experiment_options::help(&run, experiment.name());
        if !own.is_empty() {
            writeln!(out, "\n{}", own.trim_end())?;
        }
    }
    Ok(())
}

fn pack(options: &arguments::LabPack) -> Result<()> {
    let mut out = standard::output()?.lock();
    for directory in &options.directories {
        let packed = crate::pack(directory).with_context(|| directory.display().to_string());
        let (before, after) = packed?;
        writeln!(
            out,
            "{}: {} kB, was {}",
            directory.display(),
            after.div_ceil(1000),
            before.div_ceil(1000)
        )?;
    }
    Ok(())
}

/// HOST:PORT of a `seekwire nic serve`.
fn of_gauge(named: &Address) -> String {
    named.or("localhost", seekwire_gauge::PORT)
}

fn run(options: &arguments::LabRun) -> Result<()> {
    let settings = crate::Options {
        quick: options.quick,
        out: options.out.clone(),
        rounds: options.rounds.map(|rounds| rounds as usize),
        repetitions: options.repetitions,
        most_bytes: options.gigabytes.map(Size::get),
        network: crate::network::options::NetworkOptions {
            // --netns states the default, which applies where no peer is named.
            peer: options.peer.as_ref().filter(|_| !options.netns).map(of_gauge),
            weak_peer: options.weak_peer.as_ref().map(of_gauge),
            interface: options.iface.clone(),
            default_route: options.default_route,
            weak_cpu: options.weak_cpu.into(),
        },
        ..Default::default()
    };
    if options.names.iter().any(|name| name == ALL) {
        return run_all(options, &settings);
    }
    let by_module = |name: &str| options.way.as_deref() == Some("module") && name == "seek";
    let names = options.names.iter().map(|name| if by_module(name) { "seek-module" } else { name });
    let completed = crate::run(&names.collect::<Vec<_>>(), &settings)?;
    let mut out = standard::output()?.lock();
    for experiment in completed {
        writeln!(out, "{}: {}", experiment.result.experiment, experiment.report().display())?;
        for (key, value) in &experiment.result.summary {
            writeln!(out, "  {key} {value:.3}")?;
        }
        let known = crate::experiments::by_name(&experiment.result.experiment)?;
        for claim in known.claims() {
            writeln!(out, "  {}", claim.line(&known.judge(claim, &experiment.result)))?;
        }
    }
    Ok(())
}

/// Runs every experiment; the error at the end names those that failed.
fn run_all(options: &arguments::LabRun, settings: &crate::Options) -> Result<()> {
    if options.names.len() > 1 || options.way.is_some() {
        bail!("`all` stands for every experiment; give no other name and no --way with it");
    }
    let all = crate::run_all::run(settings)?;
    let mut out = standard::output()?.lock();
    for experiment in &all.completed {
        writeln!(out, "{}: measured", experiment.result.experiment)?;
    }
    for (name, why) in &all.skipped {
        writeln!(out, "{name}: skipped: {why}")?;
    }
    for (name, why) in &all.failed {
        writeln!(out, "{name}: failed: {why}")?;
    }
    writeln!(out, "{} s in all.", all.took.as_secs())?;
    match all.site {
        Ok(site) => tell(&mut out, &site)?,
        Err(error) if all.failed.is_empty() => return Err(error),
        Err(error) => writeln!(out, "No report: {error:#}")?,
    }
    if !all.failed.is_empty() {
        let names: Vec<&str> = all.failed.iter().map(|(name, _)| name.as_str()).collect();
        bail!("{} of the experiments failed: {}", names.len(), names.join(", "));
    }
    Ok(())
}

fn report(options: &arguments::LabReport) -> Result<()> {
    if !options.markdown.is_empty() {
        return pages(options);
    }
    let site = crate::report(&options.directory, options.out.as_deref())?;
    Ok(tell(&mut standard::output()?.lock(), &site)?)
}

fn pages(options: &arguments::LabReport) -> Result<()> {
    let what = if options.check { crate::Pages::Check } else { crate::Pages::Write };
    let changed = crate::write_pages(&options.directory, &options.markdown, what)?;
    let names: Vec<String> = changed.iter().map(|page| page.display().to_string()).collect();
    let mut out = standard::output()?.lock();
    match (what, &names[..]) {
        (_, []) => writeln!(out, "Every page matches the results.")?,
        (crate::Pages::Write, _) => writeln!(out, "Written: {}", names.join(", "))?,
        (crate::Pages::Check, _) => bail!(
            "different from the results: {}; the same command without --check updates them",
            names.join(", ")
        ),
    }
    Ok(())
}

fn tell(out: &mut impl Write, site: &crate::Site) -> io::Result<()> {
    for (path, why) in &site.problems {
        seekwire_program::tell(format_args!(
            "seekwire: {}",
            table::printable(&format!("{path}: {why}"))
        ));
    }
    let what = if site.experiments == 1 { "experiment" } else { "experiments" };
    writeln!(out, "{} {what}: {}", site.experiments, site.index.display())
}

#[cfg(test)]
#[path = "../../../../program/shared/definitions.rs"]
mod tests;
