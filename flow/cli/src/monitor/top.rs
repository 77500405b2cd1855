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
use crate::monitor::client::{StatusAddress, StatusClient};
use crate::monitor::screen::{self, TerminalStream};
use crate::monitor::status::Status;
use crate::monitor::view::{self, StatusTable};
use crate::monitor::{EVERY, sockets};

pub(crate) fn top(options: &FlowTop) -> Result<ExitCode> {
    let client = StatusClient::new()?;
    let statuses = match &options.pipeline {
        Some(named) => vec![ask(&client, address_of(named)?)?],
        None => all(&client),
    };
    let mut out = standard::output()?;
    if options.json {
        for (_, status) in &statuses {
            writeln!(out, "{}", serde_json::to_string(status)?)?;
        }
    }
    match &statuses[..] {
        [] => bail!(
            "no pipeline of this user runs on this host; `seekwire flow run` starts one, and one \
             elsewhere is named by the address of its --metrics"
        ),
        _ if options.json => {}
        [(_, status)] if options.once || !TerminalStream::Output.is_screen() => {
            write!(out, "{}", view::text(&Status::default(), status))?;
        }
        [(address, status)] => watch(&client, address, status.clone())?,
        _ => {
            write!(out, "{}", list(&statuses))?;
            bail!("several pipelines run: name one of them by its process");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn address_of(named: &str) -> Result<StatusAddress> {
    if named.contains(':') {
        return Ok(StatusAddress::Address(named.to_owned()));
    }
    let Ok(pid) = named.parse::<u32>() else {
        bail!("{named} is neither HOST:PORT nor the number of a process");
    };
    let socket = sockets::all().into_iter().find(|(of, _)| *of == pid);
    let socket = socket.with_context(|| format!("process {pid} runs no pipeline of this user"))?;
    Ok(StatusAddress::Socket(socket.1))
}

fn ask(client: &StatusClient, address: StatusAddress) -> Result<(StatusAddress, Status)> {
    let status = client.status(&address)?;
    Ok((address, status))
}

/// The pipelines that answer. One that does not has just ended, or is of another version.
fn all(client: &StatusClient) -> Vec<(StatusAddress, Status)> {
    let addresses = sockets::all().into_iter().map(|(_, path)| StatusAddress::Socket(path));
    addresses.filter_map(|address| ask(client, address).ok()).collect()
}

fn list(statuses: &[(StatusAddress, Status)]) -> String {
    let columns = [
        ("process", Align::Right),
        ("pipeline", Align::Left),
        ("runs for", Align::Right),
        ("units done", Align::Right),
    ];
    let row = |(_, status): &(StatusAddress, Status)| {
        let units = &status.units;
        vec![
            status.pid.to_string(),
            status.pipeline.clone(),
            view::time(status.seconds),
            format!("{} of {}", units.done, units.all),
        ]
    };
    table::layout(&columns, &statuses.iter().map(row).collect::<Vec<_>>())
}

/// Shows the status until the pipeline ends or this process is interrupted.
fn watch(client: &StatusClient, address: &StatusAddress, first: Status) -> Result<()> {
    screen::open(TerminalStream::Output);
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let at_signals = move || {
        for signal in signals.forever() {
            screen::close_soon();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new().spawn(at_signals).context("cannot start a thread")?;
    screen::draw(&view::text(&Status::default(), &first));
    let mut view = StatusTable::new(first);
    let ended = loop {
        thread::sleep(EVERY);
        // A pipeline may end in the middle of an answer.
        match client.status(address).or_else(|_| client.status(address)) {
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
    writeln!(standard::output()?, "The pipeline has ended.")?;
    Ok(())
}
