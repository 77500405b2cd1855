//! `seekwire nic`: the settings of network interfaces. The command `seekwire` starts this program.
//!
//! ```text
//! show      show all settings of an interface, and what they mean   show
//! apply     change them, permanently or while a command runs        here, hold, render
//! restore   restore the original settings                           here
//! tune      find the best settings by measuring                     tune, words
//! serve     serve as the peer of `tune`                             serve
//! left      list what was not restored, for `seekwire doctor`       left
//! ```

#![forbid(unsafe_code)]
// They panic if the stream cannot be written: `seekwire_program::tell` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod hold;
mod left;
mod render;
mod serve;
mod show;
mod tune;
mod words;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser};
use seekwire_nic::{Error, Interface, Kernel, Plan, Report, Session, Store, Terms};
use seekwire_program::standard;

use crate::arguments::{Arguments, Command, Nic, NicApply, NicRestore};

/// Exit status: something was refused, the rest was applied.
const INCOMPLETE: u8 = 3;

/// The commands and options of this program.
#[must_use]
pub fn definitions() -> clap::Command {
    Arguments::command()
}

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = seekwire_program::generate::asked(definitions) {
        return code;
    }
    seekwire_program::finish(match Arguments::parse().command {
        Command::Nic(command) => nic(&command),
        Command::Left(state) => left::tell(&state.store()).map(|()| ExitCode::SUCCESS),
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
    let store = options.state.store();
    let now = kernel.interface(&options.interface)?;
    let name = now.name.clone();
    tell_of_left_behind(&store, &now);
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
    let signals = is_held.then(hold::Signals::catch).transpose()?;
    let terms = Terms { hold: is_held, default_route: options.default_route };
    let mut session = Session::begin(&mut kernel, &store, &name, terms)?;
    // Another process may have changed it since.
    let plan = if *session.interface() == now { plan } else { planned(session.interface())? };
    let report = session.apply(&plan)?;
    // Standard output belongs to the command.
    let text = rendered(&name, &report, options.json)?;
    match is_held {
        true => seekwire_program::tell(text.trim_end()),
        false => standard::output()?.lock().write_all(text.as_bytes())?,
    }
    let code = status(&report);
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
    let back = put_back(session, &name);
    if let (Err(error), Err(_)) = (&ended, &back) {
        seekwire_program::tell(format_args!("seekwire: {error:#}"));
    }
    let now = back?;
    seekwire_program::tell(format_args!("seekwire: {now} has its original settings again"));
    Ok(ended?.unwrap_or(code))
}

/// Ends a session that holds the interface `name`. Returns the name that it has now.
///
/// # Errors
///
/// Not everything could be restored. This error overrides any other exit status.
fn put_back(session: Session<'_>, name: &str) -> Result<String> {
    let back = session.end();
    let back = back.with_context(|| {
        format!("cannot restore {name}; `seekwire nic restore {name}` tries again")
    })?;
    let Some(back) = back else { return Ok(name.to_owned()) };
    let now = back.interface.clone();
    if now != name {
        seekwire_program::tell(format_args!("seekwire: {name} is called {now} now"));
    }
    for other in &back.others {
        seekwire_program::tell(format_args!(
            "seekwire: {now}: {} was {}, and somebody else has made it {}: left as it is",
            other.key, other.before, other.after
        ));
    }
    if !back.is_complete() {
        seekwire_program::tell(render::report(&now, &back).trim_end());
        let missing: Vec<String> = back.missing().map(ToString::to_string).collect();
        let missing = missing.join(", ");
        bail!("{now} is not fully restored: {missing}; `seekwire nic restore {now}` tries again");
    }
    Ok(now)
}

fn restore(options: &NicRestore) -> Result<ExitCode> {
    let report =
        seekwire_nic::restore(&mut Kernel::open()?, &options.state.store(), &options.interface)?;
    standard::output()?
        .lock()
        .write_all(rendered(&options.interface, &report, options.json)?.as_bytes())?;
    Ok(status(&report))
}

fn rendered(name: &str, report: &Report, json: bool) -> Result<String> {
    if json { render::report_json(name, report) } else { Ok(render::report(name, report)) }
}

fn status(report: &Report) -> ExitCode {
    if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) }
}

/// Reports a process that died while it held the interface, or a saved state that cannot be read.
/// A missing permission to read it is not reported: without it, the interface cannot be changed
/// either, and that error follows.
fn tell_of_left_behind(store: &Store, interface: &seekwire_nic::Interface) {
    match seekwire_nic::left_behind(store, interface) {
        Ok(None) | Err(Error::Closed(_)) => {}
        Ok(Some(process)) => seekwire_program::tell(format_args!(
            "seekwire: {name}: process {process} changed it and ended without restoring it; \
             run `seekwire nic restore {name}`",
            name = interface.name
        )),
        Err(error) => seekwire_program::tell(format_args!("seekwire: {error}")),
    }
}

#[cfg(test)]
#[path = "../../../program/shared/definitions.rs"]
mod tests;
