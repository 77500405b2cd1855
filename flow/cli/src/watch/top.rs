//! `seekwire flow top`: a running pipeline, seen from another process.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, bail};
use seekwire_program::standard;
use seekwire_program::table::{self, Align};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::arguments::FlowTop;
use crate::watch::client::{Client, Place};
use crate::watch::screen::{self, Target};
use crate::watch::status::Status;
use crate::watch::view::{self, View};
use crate::watch::{EVERY, sockets};

pub(crate) fn top(options: &FlowTop) -> Result<ExitCode> {
    let client = Client::new()?;
    let asked = match &options.pipeline {
        Some(named) => vec![ask(&client, place(named)?)?],
        None => all(&client),
    };
    let mut out = standard::output()?;
    if options.json {
        for (_, status) in &asked {
            writeln!(out, "{}", serde_json::to_string(status)?)?;
        }
    }
    match &asked[..] {
        [] => bail!(
            "no pipeline of this user runs on this host; `seekwire flow run` starts one, and one \
             elsewhere is named by the address of its --metrics"
        ),
        _ if options.json => {}
        [(_, status)] if options.once || !Target::Output.is_screen() => {
            write!(out, "{}", view::text(&Status::default(), status))?;
        }
        [(place, status)] => watch(&client, place, status.clone())?,
        _ => {
            write!(out, "{}", list(&asked))?;
            bail!("several pipelines run: name one of them by its process");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn place(named: &str) -> Result<Place> {
    if named.contains(':') {
        return Ok(Place::Address(named.to_owned()));
    }
    let Ok(pid) = named.parse::<u32>() else {
        bail!("{named} is neither HOST:PORT nor the number of a process");
    };
    let found = sockets::all().into_iter().find(|(of, _)| *of == pid);
    let found = found.with_context(|| format!("process {pid} runs no pipeline of this user"))?;
    Ok(Place::Socket(found.1))
}

fn ask(client: &Client, place: Place) -> Result<(Place, Status)> {
    let status = client.status(&place)?;
    Ok((place, status))
}

/// The pipelines that answer. One that does not has just ended, or is of another version.
fn all(client: &Client) -> Vec<(Place, Status)> {
    let places = sockets::all().into_iter().map(|(_, path)| Place::Socket(path));
    places.filter_map(|place| ask(client, place).ok()).collect()
}

fn list(asked: &[(Place, Status)]) -> String {
    let columns = [
        ("process", Align::Right),
        ("pipeline", Align::Left),
        ("runs for", Align::Right),
        ("units done", Align::Right),
    ];
    let row = |(_, status): &(Place, Status)| {
        let units = &status.units;
        vec![
            status.pid.to_string(),
            status.pipeline.clone(),
            view::time(status.seconds),
            format!("{} of {}", units.done, units.all),
        ]
    };
    table::layout(&columns, &asked.iter().map(row).collect::<Vec<_>>())
}

/// Shows the status until the pipeline ends or this process is interrupted.
fn watch(client: &Client, place: &Place, first: Status) -> Result<()> {
    screen::open(Target::Output);
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let at_signals = move || {
        for signal in signals.forever() {
            screen::close_soon();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new().spawn(at_signals).context("cannot start a thread")?;
    screen::draw(&view::text(&Status::default(), &first));
    let mut view = View::new(first);
    let ended = loop {
        thread::sleep(EVERY);
        // A pipeline may end in the middle of an answer.
        match client.status(place).or_else(|_| client.status(place)) {
            Ok(status) => screen::draw(&view.next(status)),
            Err(error) => break error,
        }
    };
    screen::close();
    // True if nobody listens there any more.
    let is_gone =
        ended.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|error| {
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        });
    if !is_gone {
        return Err(ended);
    }
    writeln!(io::stdout(), "The pipeline has ended.")?;
    Ok(())
}
