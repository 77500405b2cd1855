//! `seekwire nic tune`: finds the best settings of an interface by measuring.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{Access, AtFlags, CWD};
use seekwire_gauge::Client;
use seekwire_nic::{Error, Kernel, Plan, Report, Session, Setting, Store, Terms};
use seekwire_program::command_line::is_standard_output;
use seekwire_program::standard;
use seekwire_tune::{LinkFile, Progress, SearchOptions, SearchResult};
use serde::Serialize;

use crate::arguments::NicTune;
use crate::render::{self, Reported};
use crate::signals::Interrupt;
use crate::{search_report, unrestored};

pub(crate) fn tune(options: &NicTune) -> Result<ExitCode> {
    let mut kernel = Kernel::open()?;
    let store = options.state.store();
    let now = kernel.interface(&options.interface)?;
    let name = now.name.clone();
    unrestored::tell_of_left_behind(&store, &now);
    if options.dry_run {
        return foresee(options, &now);
    }
    let file = options.lasting.as_deref().filter(|file| !is_standard_output(file));
    let beside = || LinkFile::of(&now);
    let lasting = file.map(|file| output_path(file, beside().as_ref())).transpose()?;
    let peer = peer(&mut kernel, options, &name)?;
    let mut client = Client::connect(peer)?;

    let interrupt = Interrupt::catch()?;
    let waits = interrupt.clone();
    let store = store.unless(move || waits.has_come());
    let terms = Terms { hold: true, default_route: options.default_route };
    let session = Session::begin(&mut kernel, &store, &name, terms);
    if let (Err(Error::Busy { .. }), Some(status)) = (&session, interrupt.status()) {
        return Ok(status);
    }
    let mut session = session?;
    let search = SearchOptions {
        goal: options.goal,
        time: options.time.get(),
        sizes: options.sizes.iter().map(|size| size.in_memory()).collect(),
        congestion: options.congestion.clone(),
        patience: seekwire_gauge::LINK_RETURN,
    };
    let searched = seekwire_tune::search(
        &mut session,
        &mut client,
        &search,
        &|| interrupt.has_come(),
        &mut |progress| {
            seekwire_program::tell(progress_line(progress));
        },
    );
    let back = unrestored::put_back(session, &name);
    // The signal may also have come after the last measurement; then nothing is applied.
    if let Some(status) = interrupt.status() {
        seekwire_program::tell(format_args!(
            "seekwire: interrupted; {} has its original settings again",
            back?
        ));
        return Ok(status);
    }
    let outcome = match (searched, &back) {
        (Ok(outcome), _) => outcome,
        (Err(error), Ok(now)) => bail!("{error}; {now} has its original settings again"),
        (Err(error), Err(_)) => {
            seekwire_program::tell(format_args!("seekwire: {error}"));
            return Err(back.unwrap_err());
        }
    };

    // Report the measurements even if a later step fails.
    let (mut applied, mut written) = (None, None);
    let followed = back.and_then(|now| {
        if options.apply && outcome.recommended != 0 {
            applied = Some(apply(&mut kernel, &store, options, &now, &outcome)?);
        }
        if let (Some(file), Some(lasting)) = (&lasting, &outcome.lasting) {
            write(file, lasting)?;
            written = Some(file.as_path());
        }
        Ok(())
    });
    let text = if options.json {
        let applied = applied.as_ref().map(|report| Reported { interface: &name, report });
        serde_json::to_string_pretty(&TuneReport {
            peer: &options.peer.to_string(),
            outcome: &outcome,
            applied,
        })? + "\n"
    } else {
        search_report::result(&outcome, applied.as_ref(), written)
    };
    let printed = standard::output().and_then(|out| out.lock().write_all(text.as_bytes()));
    followed?;
    printed?;
    Ok(applied.as_ref().map_or(ExitCode::SUCCESS, render::status))
}

/// The JSON.
#[derive(Serialize)]
struct TuneReport<'a> {
    peer: &'a str,
    #[serde(flatten)]
    outcome: &'a SearchResult,
    applied: Option<Reported<'a>>,
}

/// The first address of the peer whose route uses the interface.
fn peer(kernel: &mut Kernel, options: &NicTune, name: &str) -> Result<SocketAddr> {
    let peer = options.peer.or("localhost", seekwire_gauge::PORT);
    let addresses = peer.to_socket_addrs().with_context(|| peer.clone())?;
    let mut reached = Err(anyhow!("{peer} has no address"));
    for address in addresses {
        reached = kernel.check_route(name, address.ip()).map(|()| address).map_err(Into::into);
        if reached.is_ok() {
            break;
        }
    }
    reached
}

/// Prints the first candidates (`--dry-run`).
fn foresee(options: &NicTune, now: &seekwire_nic::Interface) -> Result<ExitCode> {
    let candidates = seekwire_tune::candidates(now);
    let text = if options.json {
        let candidate = |(name, changes): &(String, Vec<String>)| serde_json::json!({ "name": name, "changes": changes });
        let candidates: Vec<_> = candidates.iter().map(candidate).collect();
        let foreseen = serde_json::json!({ "interface": now.name, "goal": options.goal, "candidates": candidates });
        serde_json::to_string_pretty(&foreseen)? + "\n"
    } else {
        search_report::candidates(&candidates)
    };
    standard::output()?.lock().write_all(text.as_bytes())?;
    if now.default_route && !options.default_route {
        seekwire_program::tell(format_args!("seekwire: {}", Error::DefaultRoute(now.name.clone())));
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies the recommended settings permanently.
fn apply(
    kernel: &mut Kernel,
    store: &Store,
    options: &NicTune,
    name: &str,
    outcome: &SearchResult,
) -> Result<Report> {
    let terms = Terms { hold: false, default_route: options.default_route };
    let mut session = Session::begin(kernel, store, name, terms)?;
    let changes = &outcome.candidates[outcome.recommended].changes;
    let settings: Vec<Setting> =
        changes.iter().map(|change| change.parse()).collect::<Result<_, _>>()?;
    let now = session.now()?;
    let report = session.apply(&Plan::new(&now, &settings)?)?;
    session.end()?;
    Ok(report)
}

/// The file that makes settings last: the one that was named, or a drop-in file beside it. It is
/// checked before the measurements, which take minutes.
fn output_path(file: &Path, beside: Option<&LinkFile>) -> Result<PathBuf> {
    check_writable(file)?;
    let (Some(name), Some(beside)) = (file.file_name(), beside.filter(|_| is_link(file))) else {
        return Ok(file.to_owned());
    };
    if beside.is_of_one {
        let name = Path::new(name).with_extension("conf");
        let drop_in = file.with_file_name(format!("{}.d", beside.name)).join(name);
        if drop_in.symlink_metadata().is_ok() {
            bail!("{} exists already; name a new file", drop_in.display());
        }
        return Ok(drop_in);
    }
    if name.as_encoded_bytes() >= beside.name.as_bytes() {
        bail!(
            "{}: systemd would not read it, because {} fits the interface and comes first: \
             choose a name that sorts before that one",
            file.display(),
            beside.name
        );
    }
    Ok(file.to_owned())
}

fn is_link(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "link")
}

fn check_writable(file: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    // This also finds a dangling symbolic link.
    if file.symlink_metadata().is_ok() {
        bail!("{} exists already; name a new file", file.display());
    }
    let directory =
        file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let metadata = directory.metadata().with_context(cannot)?;
    if !metadata.is_dir() || file.file_name().is_none() {
        return Err(anyhow!("name a file in a directory that exists").context(cannot()));
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, directory, access, AtFlags::EACCESS).with_context(cannot)
}

fn write(file: &Path, lasting: &seekwire_tune::Lasting) -> Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let is_drop_in =
        lasting.drop_in_for.is_some() && is_link(directory.with_extension("").as_path());
    let text = if is_link(file) || is_drop_in {
        lasting.link.clone()
    } else {
        format!("#!/bin/sh\nset -e\n{}", lasting.ethtool)
    };
    let made = if is_drop_in { std::fs::create_dir_all(directory) } else { Ok(()) };
    made.and_then(|()| File::create_new(file))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn progress_line(progress: &Progress<'_>) -> String {
    match progress {
        Progress::Trying(names) => format!("trying: {}", names.join("; ")),
        Progress::Measured { name, round, figures } => {
            format!("round {round}: {name}: {}", search_report::line(figures))
        }
        Progress::Waiting { name, error, seconds } => {
            format!("{name}: {error}; trying again, for up to {seconds} s")
        }
        Progress::Failed { name, error } => format!("{name}: cannot be measured: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_placed_where_systemd_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let beside = |name: &str, is_of_one| LinkFile::new(name.to_owned(), is_of_one, Vec::new());
        let of_many = beside("73-usb-net-by-mac.link", false);
        assert_eq!(output_path(&file("50-usb.link"), Some(&of_many)).unwrap(), file("50-usb.link"));
        let error = output_path(&file("80-usb.link"), Some(&of_many)).unwrap_err().to_string();
        assert!(error.contains("sorts before") && error.contains("73-usb-net-by-mac"), "{error}");
        assert_eq!(output_path(&file("set.sh"), Some(&of_many)).unwrap(), file("set.sh"));
        let netplan = beside("10-netplan-lan.link", true);
        let drop_in = output_path(&file("50-lan.link"), Some(&netplan)).unwrap();
        assert_eq!(drop_in, file("10-netplan-lan.link.d/50-lan.conf"));
        let lasting = seekwire_tune::Lasting {
            ethtool: "ethtool -K lan gro off\n".to_owned(),
            link: "[Link]\n".to_owned(),
            drop_in_for: Some(netplan.name.clone()),
        };
        write(&drop_in, &lasting).unwrap();
        assert_eq!(std::fs::read_to_string(&drop_in).unwrap(), "[Link]\n");
        output_path(&file("50-lan.link"), Some(&netplan)).unwrap_err();
        write(&file("set.sh"), &lasting).unwrap();
        assert!(std::fs::read_to_string(file("set.sh")).unwrap().contains("ethtool -K lan"));
    }
}
