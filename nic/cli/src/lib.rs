//! `seekwire nic`: the settings of network interfaces. The command `seekwire` starts this program.
//!
//! ```text
//! show      show all settings of an interface, and what they mean   show
//! apply     change them, permanently or while a command runs        here, signals, render
//! restore   restore the original settings                           here
//! tune      find the best settings by measuring                     tune, search_report
//! serve     serve as the peer of `tune`                             serve
//! left      list what was not restored, for `seekwire doctor`       unrestored
//! ```

#![forbid(unsafe_code)]
// They panic if the stream cannot be written: `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod render;
mod search_report;
mod serve;
mod show;
mod signals;
mod tune;
mod unrestored;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches};
use seekwire_nic::{Error, Interface, Kernel, Plan, Report, Session, Terms};
use seekwire_program::command_line::command_line;
use seekwire_program::standard;

use crate::arguments::{Arguments, Command, Nic, NicApply, NicRestore};

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    command_line(Arguments::command())
}

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = seekwire_program::generate::asked(definitions) {
        return code;
    }
    let matches = definitions().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    seekwire_program::finish(match arguments.command {
        Command::Nic(command) => nic(&command),
        Command::Left(state) => unrestored::tell(&state.store()).map(|()| ExitCode::SUCCESS),
    })
}

fn nic(command: &Nic) -> Result<ExitCode> {
    match command {
        Nic::Show(options) => show::show(options),
        Nic::Apply(options) => apply(options),
        Nic::Restore(options) => restore(options),
        Nic::Tune(options) => tune::tune(options),
        Nic::Serve(options) => serve::serve(options),
    }
}

fn apply(options: &NicApply) -> Result<ExitCode> {
    let mut kernel = Kernel::open()?;
    let mut store = options.state.store();
    let now = kernel.interface(&options.interface)?;
    let name = now.name.clone();
    unrestored::tell_of_left_behind(&store, &now);
    let planned = |now: &Interface| {
        let mut settings = options.profile.map(|profile| profile.settings(now)).unwrap_or_default();
        settings.extend(options.settings.iter().cloned());
        Plan::new(now, &settings)
    };
    let plan = planned(&now)?;
    if options.dry_run {
        let text = if options.json {
            render::foreseen_json(&name, &plan)?
        } else {
            render::foreseen(&plan)
        };
        standard::output()?.lock().write_all(text.as_bytes())?;
        if now.default_route && !options.default_route {
            seekwire_program::tell(format_args!("seekwire: {}", Error::DefaultRoute(name)));
        }
        return Ok(ExitCode::SUCCESS);
    }

    let is_held = options.hold || !options.command.is_empty();
    // From here on, ^C ends the command, not this process.
    let signals = is_held.then(signals::Signals::catch).transpose()?;
    let interrupt = is_held.then(signals::Interrupt::catch).transpose()?;
    if let Some(interrupt) = interrupt.clone() {
        store = store.unless(move || interrupt.has_come());
    }
    let terms = Terms { hold: is_held, default_route: options.default_route };
    let session = Session::begin(&mut kernel, &store, &name, terms);
    let status = interrupt.and_then(|interrupt| interrupt.status());
    if let (Err(Error::Busy { .. }), Some(status)) = (&session, status) {
        return Ok(status);
    }
    let mut session = session?;
    // Another process may have changed it since.
    let plan = if *session.interface() == now { plan } else { planned(session.interface())? };
    let report = session.apply(&plan)?;
    // Standard output belongs to the command.
    let text = rendered(&name, &report, options.json)?;
    match is_held {
        true => seekwire_program::tell(text.trim_end()),
        false => standard::output()?.lock().write_all(text.as_bytes())?,
    }
    let code = render::status(&report);
    let Some(signals) = signals else {
        session.end()?;
        if !options.json && store.load(&now)?.is_some() {
            writeln!(
                standard::output()?.lock(),
                "`seekwire nic restore {name}` restores the state before the first change."
            )?;
        }
        return Ok(code);
    };
    let ended = signals.hold(&options.command);
    let back = unrestored::put_back(session, &name);
    if let (Err(error), Err(_)) = (&ended, &back) {
        seekwire_program::tell(format_args!("seekwire: {error:#}"));
    }
    let now = back?;
    seekwire_program::tell(format_args!("seekwire: {now} has its original settings again"));
    Ok(ended?.unwrap_or(code))
}

fn restore(options: &NicRestore) -> Result<ExitCode> {
    let report =
        seekwire_nic::restore(&mut Kernel::open()?, &options.state.store(), &options.interface)?;
    standard::output()?
        .lock()
        .write_all(rendered(&options.interface, &report, options.json)?.as_bytes())?;
    Ok(render::status(&report))
}

fn rendered(name: &str, report: &Report, json: bool) -> Result<String> {
    if json { render::report_json(name, report) } else { Ok(render::report(name, report)) }
}

#[cfg(test)]
#[path = "../../../program/shared/definitions.rs"]
mod tests;
