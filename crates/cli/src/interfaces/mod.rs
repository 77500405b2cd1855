//! `seekwire nic`: the settings of network interfaces.

mod hold;
mod show;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use nic::{Along, Error, Fate, Item, Kernel, Outcome, Plan, Report, Session, Store, Terms, Verdict};

use crate::arguments::{Nic, NicApply, NicRestore};
use crate::table::{self, Align};

/// Something was refused, the rest was done.
const INCOMPLETE: u8 = 3;

/// Runs one of the commands.
pub(crate) fn nic(command: &Nic) -> Result<ExitCode> {
    match command {
        Nic::Show(options) => show::show(options).map(|()| ExitCode::SUCCESS),
        Nic::Apply(options) => apply(options),
        Nic::Restore(options) => restore(options),
    }
}

fn apply(options: &NicApply) -> Result<ExitCode> {
    let mut kernel = Kernel::open()?;
    let store = Store::at(&options.state.state);
    let now = kernel.interface(&options.interface)?;
    let name = now.name.clone();
    tell_of_left_behind(&store, &now);
    let mut settings = options.profile.map(|profile| profile.settings(&now)).unwrap_or_default();
    settings.extend(options.settings.iter().cloned());
    let plan = Plan::new(&now, &settings)?;
    if options.dry_run {
        io::stdout().lock().write_all(foresee(&plan).as_bytes())?;
        if now.default_route && !options.default_route {
            println!("{}", Error::DefaultRoute(name));
        }
        return Ok(ExitCode::SUCCESS);
    }

    let is_held = options.hold || !options.command.is_empty();
    // From here on ^C ends what runs, not this process.
    let signals = is_held.then(hold::Signals::catch).transpose()?;
    let terms = Terms { hold: is_held, default_route: options.default_route };
    let mut session = Session::begin(&mut kernel, &store, &name, terms)?;
    let report = session.apply(&plan)?;
    // The output of a command is its own.
    let text = render(&name, &report);
    match is_held {
        true => io::stderr().lock().write_all(text.as_bytes())?,
        false => io::stdout().lock().write_all(text.as_bytes())?,
    }
    let code = status(&report);
    let Some(signals) = signals else {
        session.end()?;
        if store.load(&now)?.is_some() {
            println!("`seekwire nic restore {name}` puts back the state before the first change.");
        }
        return Ok(code);
    };
    let ended = signals.hold(&options.command);
    let back = session.end()?;
    match back.filter(|back| !back.is_complete()) {
        None => eprintln!("seekwire: {name} is as it was found"),
        Some(back) => {
            eprint!("{}", render(&name, &back));
            eprintln!("seekwire: not all of it came back; try `seekwire nic restore {name}`");
        }
    }
    Ok(ended?.unwrap_or(code))
}

fn restore(options: &NicRestore) -> Result<ExitCode> {
    let report = nic::restore(&mut Kernel::open()?, &Store::at(&options.state.state), &options.interface)?;
    io::stdout().lock().write_all(render(&options.interface, &report).as_bytes())?;
    Ok(status(&report))
}

fn status(report: &Report) -> ExitCode {
    if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) }
}

/// A process died that held the interface; or its saved state cannot be read, which matters only to who wants it.
fn tell_of_left_behind(store: &Store, interface: &nic::Interface) {
    match nic::left_behind(store, interface) {
        Ok(None) => {}
        Ok(Some(process)) => eprintln!(
            "seekwire: {name}: process {process} changed it and ended without putting it back; \
             `seekwire nic restore {name}` does",
            name = interface.name
        ),
        Err(error) => eprintln!("seekwire: {error}"),
    }
}

const COLUMNS: [(&str, Align); 4] =
    [("KEY", Align::Left), ("BEFORE", Align::Left), ("AFTER", Align::Left), ("RESULT", Align::Left)];

fn foresee(plan: &Plan) -> String {
    let fate = |item: &Item| match (&item.fate, &item.needed_by) {
        (Fate::Change, Some(by)) => format!("would be changed: {by} needs it"),
        (Fate::Change, None) => "would be changed".to_owned(),
        (Fate::AlreadySo, _) => "already so".to_owned(),
        (Fate::Fixed, _) => format!("fixed by the driver, cannot be {}", item.target),
        (Fate::Absent, _) => "absent: this interface does not have it".to_owned(),
        (Fate::Unfit(reason), _) => format!("would be refused: {reason}"),
    };
    let rows = plan.items.iter().map(|item| {
        vec![item.key.to_string(), shown(item.before.as_ref()), item.target.to_string(), fate(item)]
    });
    table::layout(&COLUMNS, &rows.chain(along(&plan.along, "would change along")).collect::<Vec<_>>())
}

fn render(name: &str, report: &Report) -> String {
    let verdict = |outcome: &Outcome| match &outcome.result {
        Verdict::Changed => "changed".to_owned(),
        Verdict::AlreadySo => "already so".to_owned(),
        Verdict::Fixed => format!("fixed by the driver, cannot be {}", outcome.target),
        Verdict::Absent => "absent: this interface does not have it".to_owned(),
        Verdict::Refused(reason) => format!("refused: {reason}"),
    };
    let rows = report.outcomes.iter().map(|outcome| {
        let key = outcome.key.to_string();
        vec![key, shown(outcome.before.as_ref()), shown(outcome.after.as_ref()), verdict(outcome)]
    });
    let rows: Vec<_> = rows.chain(along(&report.along, "changed along")).collect();
    if rows.is_empty() {
        return format!("{name}: nothing to change\n");
    }
    table::layout(&COLUMNS, &rows)
}

fn along<'a>(along: &'a [Along], word: &'a str) -> impl Iterator<Item = Vec<String>> + 'a {
    along.iter().map(move |one| {
        vec![one.key.to_string(), one.before.to_string(), one.after.to_string(), word.to_owned()]
    })
}

fn shown<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}
