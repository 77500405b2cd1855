//! `seekwire nic tune`.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use gauge::Client;
use nic::{Kernel, Plan, Report, Session, Setting, Store, Terms};
use serde::Serialize;
use tune::{Options, Outcome, Progress};

use super::hold::Interrupt;
use super::render::{self, Reported};
use super::serve::endpoint;
use super::words;
use crate::arguments::NicTune;

pub(super) fn tune(options: &NicTune) -> Result<ExitCode> {
    let mut kernel = Kernel::open()?;
    let store = Store::at(&options.state.state);
    let now = kernel.interface(&options.interface)?;
    let name = now.name.clone();
    super::tell_of_left_behind(&store, &now);
    if options.dry_run {
        return foresee(options, &now);
    }
    if let Some(file) = options.lasting.as_deref().filter(|file| file.exists()) {
        bail!("{} exists already; name a new file", file.display());
    }
    let peer = peer(&mut kernel, options, &name)?;
    let mut client = Client::connect(peer)?;

    let interrupt = Interrupt::catch()?;
    let terms = Terms { hold: true, default_route: options.default_route };
    let mut session = Session::begin(&mut kernel, &store, &name, terms)?;
    let search = Options {
        goal: options.goal,
        time: Duration::from_secs(options.time),
        sizes: options.sizes.clone(),
        congestion: options.congestion.clone(),
        patience: gauge::LINK_RETURN,
    };
    let searched =
        tune::search(&mut session, &mut client, &search, &|| interrupt.has_come(), &mut |progress| {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "{}", told(progress));
        });
    let back = session.end()?;
    let missing = back.filter(|back| !back.is_complete());
    if let Some(back) = &missing {
        eprint!("{}", render::report(&name, back));
        eprintln!("seekwire: not all of it came back; try `seekwire nic restore {name}`");
    }
    // It may have come after the last measurement, too; then nothing is applied.
    if let Some(status) = interrupt.status() {
        let state = if missing.is_none() { format!("; {name} is as it was found") } else { String::new() };
        eprintln!("seekwire: interrupted{state}");
        return Ok(status);
    }
    let outcome = match searched {
        // What it says may be that the link was lost: then this is the next question.
        Err(error) if missing.is_none() => bail!("{error}; {name} is as it was found"),
        searched => searched?,
    };

    let applied = match (options.apply, outcome.recommended) {
        (true, 1..) => Some(apply(&mut kernel, &store, options, &outcome)?),
        _ => None,
    };
    let written = match (&options.lasting, &outcome.lasting) {
        (Some(file), Some(lasting)) => {
            write(file, lasting)?;
            Some(file.as_path())
        }
        _ => None,
    };
    let text = if options.json {
        let applied = applied.as_ref().map(|report| Reported { interface: &name, report });
        serde_json::to_string_pretty(&Told { peer: &options.peer, outcome: &outcome, applied })? + "\n"
    } else {
        words::result(&outcome, applied.as_ref(), written)
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(applied.as_ref().map_or(ExitCode::SUCCESS, super::status))
}

/// The JSON.
#[derive(Serialize)]
struct Told<'a> {
    peer: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
    applied: Option<Reported<'a>>,
}

/// The first address of the peer that is behind the interface.
fn peer(kernel: &mut Kernel, options: &NicTune, name: &str) -> Result<SocketAddr> {
    let addresses = endpoint(&options.peer).to_socket_addrs().with_context(|| options.peer.clone())?;
    let mut way = Err(anyhow!("{} has no address", options.peer));
    for address in addresses {
        way = kernel.check_way(name, address.ip()).map(|()| address).map_err(Into::into);
        if way.is_ok() {
            break;
        }
    }
    way
}

/// What would be tried first.
fn foresee(options: &NicTune, now: &nic::Interface) -> Result<ExitCode> {
    let candidates = tune::candidates(now);
    let text = if options.json {
        let candidate =
            |(name, changes): &(String, Vec<String>)| serde_json::json!({ "name": name, "changes": changes });
        let candidates: Vec<_> = candidates.iter().map(candidate).collect();
        let foreseen =
            serde_json::json!({ "interface": now.name, "goal": options.goal, "candidates": candidates });
        serde_json::to_string_pretty(&foreseen)? + "\n"
    } else {
        words::candidates(&candidates)
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    if now.default_route && !options.default_route {
        eprintln!("seekwire: {}", nic::Error::DefaultRoute(now.name.clone()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Sets what is recommended, to stay.
fn apply(kernel: &mut Kernel, store: &Store, options: &NicTune, outcome: &Outcome) -> Result<Report> {
    let terms = Terms { hold: false, default_route: options.default_route };
    let mut session = Session::begin(kernel, store, &outcome.interface, terms)?;
    let changes = &outcome.candidates[outcome.recommended].changes;
    let settings: Vec<Setting> = changes.iter().map(|change| change.parse()).collect::<Result<_, _>>()?;
    let now = session.now()?;
    let report = session.apply(&Plan::new(&now, &settings)?)?;
    session.end()?;
    Ok(report)
}

fn write(file: &Path, lasting: &tune::Lasting) -> Result<()> {
    let text = match file.extension() {
        Some(extension) if extension == "link" => lasting.link.clone(),
        _ => format!("#!/bin/sh\nset -e\n{}", lasting.ethtool),
    };
    File::create_new(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn told(progress: &Progress<'_>) -> String {
    match progress {
        Progress::Trying(names) => format!("trying: {}", names.join("; ")),
        Progress::Measured { name, round, figures } => {
            format!("round {round}: {name}: {}", words::line(figures))
        }
        Progress::Waiting { name, error, seconds } => {
            format!("{name}: {error}; trying again, for up to {seconds} s")
        }
        Progress::Failed { name, error } => format!("{name}: cannot be measured: {error}"),
    }
}
