//! Runs a pipeline, once for each unit of work.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use seekwire_flow::{Failure, OnReject, Running, Unit};
use seekwire_program::signals;
use seekwire_program::table::printable;
use seekwire_values::Address;
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

use crate::arguments::FlowRun;
use crate::builtin::files::UNREAD;
use crate::builtin::{exec, file_uses};
use crate::job::Membership;
use crate::located_error::LocatedError;
use crate::monitor::screen::{self, TerminalStream};
use crate::monitor::status::Watched;
use crate::monitor::trace::Trace;
use crate::monitor::{self, server, sockets};
use crate::origin::Origin;
use crate::{decision_text, job, pipeline, time_report, unit_argument};

pub(crate) fn run(options: &FlowRun) -> Result<ExitCode> {
    let launched = job::launched(options)?;
    let rank = launched.rank();
    match run_as(options, launched) {
        // All processes find the same mistake in the pipeline: the coordinator reports it.
        Err(error) if rank > 0 && error.is::<LocatedError>() => Ok(ExitCode::FAILURE),
        outcome => outcome,
    }
}

fn run_as(options: &FlowRun, launched: seekwire_launch::Job) -> Result<ExitCode> {
    let rank = launched.rank();
    let (origin, units) = options.pipeline.parts();
    let mut pipeline = match pipeline::read(origin) {
        // The results of the others are unknown, and the launcher may end them all because of this
        // one.
        Err(error) if rank > 0 => {
            let line =
                error.downcast_ref().map_or_else(|| format!("{error:#}"), LocatedError::line);
            seekwire_program::tell(format_args!("seekwire: rank {rank}: {line}"));
            return Ok(ExitCode::FAILURE);
        }
        read => read?,
    };
    // The coordinator knows of all copies.
    let metrics = options.metrics.as_ref().filter(|_| rank == 0).map(listen).transpose()?;
    let name = origin.name();
    let membership = Membership::new(launched, options, &pipeline.source)?;
    if let Err(error) = pipeline.place(&membership.members, rank, membership.launcher()) {
        membership.decline();
        return Err(error);
    }
    let trace = options.trace.as_deref().map(|path| own_file(path, rank));
    if let Some(path) = &trace {
        check_trace(path, origin, &units)?;
    }
    let trace = trace.map(|path| Trace::create(&path, &name, &pipeline.graph)).transpose()?;
    let trace = trace.map(Arc::new);
    if let Some(trace) = &trace {
        pipeline.graph.observe(Arc::<Trace>::clone(trace));
    }
    pipeline.graph.tell_of_rejects(rejects());
    let writes_elsewhere = pipeline.writes_elsewhere();
    end_well_at_signals(trace.clone())?;
    let started = match &membership.job {
        Some(job) => pipeline.graph.start_in(job, pipeline.source.as_bytes()),
        None => pipeline.graph.start(),
    };
    let running = Arc::new(started.context("the pipeline does not start")?);
    // After its unit has failed, a filter may still be waiting for input from a terminal. The
    // process exits without waiting for it.
    std::mem::forget(Arc::clone(&running));
    let outcome = match running.is_coordinator() {
        true => watch_all(options, &units, name, &running, metrics, writes_elsewhere),
        false => Ok(serve(&running, &membership)),
    };
    running.finish();
    if membership.job.is_some() {
        wait_for_others(&running);
    }
    exec::end_all();
    screen::close();
    if let Some(trace) = trace {
        trace.finish();
    }
    sockets::close();
    let outcome = outcome?;
    membership.finish()?;
    Ok(outcome)
}

/// How long to wait at the end for the other processes, which end at once unless they are stopped.
const FAREWELL: Duration = Duration::from_secs(3);

/// Waits until the other processes have ended their links. If this one exited earlier and one of
/// them sent something meanwhile, such as a beat, the kernel would drop the bytes that it has not
/// delivered yet: that process would not learn that the job is done.
fn wait_for_others(running: &Arc<Running>) {
    let (ended, end) = mpsc::channel();
    let running = Arc::clone(running);
    let wait = move || {
        running.wait_for_links();
        let _ = ended.send(());
    };
    if thread::Builder::new().spawn(wait).is_ok() {
        let _ = end.recv_timeout(FAREWELL);
    }
}

/// At most this many rejections of a process are reported, one line each. All are counted.
const LINES: usize = 100;

fn rejects() -> OnReject {
    let count = AtomicUsize::new(0);
    Arc::new(move |rejected| match count.fetch_add(1, Ordering::Relaxed) {
        before if before < LINES => {
            let line = printable(&rejected.to_string());
            screen::tell(format_args!("seekwire: rejected: {line}"));
        }
        LINES => screen::tell("seekwire: rejected: more of them, which are only counted"),
        _ => {}
    })
}

/// The trace overwrites an earlier one, which must not be read in this run.
fn check_trace(path: &Path, origin: Origin<'_>, units: &[OsString]) -> Result<()> {
    let number = |path: &Path| {
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| file_uses::number(&file))
    };
    let Some(trace) = number(path) else { return Ok(()) };
    let pipeline = match origin {
        Origin::File(file) => Some(file),
        Origin::Expression(_) => None,
    };
    let mut read = units.iter().map(Path::new).chain(pipeline);
    if let Some(read) = read.find(|read| number(read) == Some(trace)) {
        bail!("the trace would overwrite {}, which is read; choose another file", read.display());
    }
    Ok(())
}

/// Processes other than the coordinator write to a file of their own.
fn own_file(path: &Path, rank: u32) -> PathBuf {
    match rank {
        0 => path.to_owned(),
        _ => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{rank}"));
            name.into()
        }
    }
}

/// Takes part until the coordinator reports that all is done.
fn serve(running: &Running, membership: &Membership) -> ExitCode {
    let Err(failure) = running.serve() else { return ExitCode::SUCCESS };
    let own = membership.job.as_ref().map_or(0, |job| job.rank);
    // The coordinator reports other losses.
    if matches!(failure, Failure::Lost { rank, .. } if rank == 0 || rank == own) {
        let line = printable(&format!("rank {own}: {failure}"));
        seekwire_program::tell(format_args!("seekwire: {line}"));
    }
    ExitCode::FAILURE
}

/// The port that OpenTelemetry's exporters for Prometheus have.
const METRICS_PORT: u16 = 9464;

fn listen(address: &Address) -> Result<TcpListener> {
    let is_any_port = address.port() == Some(0);
    let address = address.or("127.0.0.1", METRICS_PORT);
    let listener = TcpListener::bind(&address);
    let listener = listener.with_context(|| format!("cannot serve metrics at {address}"))?;
    if is_any_port {
        let address = listener.local_addr().context("cannot serve metrics")?;
        seekwire_program::tell(format_args!("seekwire: metrics at http://{address}/metrics"));
    }
    Ok(listener)
}

fn watch_all(
    options: &FlowRun,
    units: &[OsString],
    name: String,
    running: &Arc<Running>,
    metrics: Option<TcpListener>,
    writes_elsewhere: bool,
) -> Result<ExitCode> {
    let watching = Arc::clone(running);
    let report_losses = move || {
        let mut seen = 0;
        while let Some(loss) = watching.next_loss(seen) {
            seen += 1;
            let line = printable(&loss.to_string());
            screen::tell(format_args!("seekwire: {line}; other copies do its work"));
        }
    };
    let loss_reporter =
        thread::Builder::new().spawn(report_losses).context("cannot start a thread")?;
    let watched = Arc::new(Watched::new(Arc::clone(running), name, units.len().max(1)));
    let must_serve = metrics.is_some();
    // Without a directory for a socket, `flow top` does not find this pipeline.
    let served = server::start(Arc::clone(&watched), metrics, sockets::open().ok());
    if must_serve {
        served.context("cannot serve metrics")?;
    }
    if !options.quiet && TerminalStream::Error.is_screen() {
        monitor::show(Arc::clone(&watched));
    }
    // Before that, no output is begun and no deadline set.
    running.wait_for_others();
    let outcome = run_all(options, units, running, &watched, writes_elsewhere);
    running.finish();
    // It reports the processes that were lost at the end.
    let _ = loss_reporter.join();
    outcome
}

fn run_all(
    options: &FlowRun,
    units: &[OsString],
    running: &Running,
    watched: &Watched,
    writes_elsewhere: bool,
) -> Result<ExitCode> {
    let once = [OsString::new()];
    let arguments = if units.is_empty() { &once[..] } else { units };
    let began = Instant::now();
    let mut failed = 0;
    let mut is_read = true;
    for argument in arguments {
        let argument = unit_argument::to_text(argument);
        let shown = unit_argument::shown(&argument);
        // One after the other: the output of several to one file would mix.
        watched.unit_begins(&shown);
        let unit = running.submit(Unit::new(argument));
        let outcome = unit.wait();
        watched.unit_ends(outcome.is_ok());
        if let Err(failure) = outcome {
            is_read = !is_unread(&failure);
            // Ends as with SIGPIPE, unless that leaves incomplete files.
            if is_read || writes_elsewhere {
                failed += 1;
                let which = if shown.is_empty() { String::new() } else { format!("{shown}: ") };
                let what = if is_read { "" } else { "; other output is incomplete" };
                let line = printable(&format!("{which}{failure}{what}"));
                screen::tell(format_args!("seekwire: {line}"));
            }
            if !is_read {
                break;
            }
        }
    }
    screen::close();
    let elapsed = began.elapsed();
    let (copies, streams) = running.report();
    if !options.quiet && is_read && failed < arguments.len() {
        seekwire_program::tell(time_report::table(&copies, &streams, elapsed));
    }
    // Whatever a process has rejected arrives here before its report.
    let rejected = running.rejected();
    for (filter, count) in &rejected {
        seekwire_program::tell(format_args!("seekwire: filter {filter} has rejected {count}"));
    }
    if let Some(report) = running.guarantee().filter(|_| is_read) {
        // Also printed with --quiet if it is broken, since the user asked for the guarantee.
        if !options.quiet || !report.holds() {
            seekwire_program::tell(decision_text::guarantee(&report));
        }
    }
    if failed > 0 && arguments.len() > 1 {
        let all = arguments.len();
        seekwire_program::tell(format_args!("seekwire: {failed} of {all} units of work failed"));
    }
    Ok(match (failed, rejected.is_empty()) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(REJECTED),
        _ => ExitCode::FAILURE,
    })
}

/// The exit status if all units were done, but some of the input was rejected. 2 is that of invalid
/// arguments.
const REJECTED: u8 = 3;

/// True if the reader of standard output is gone (`seekwire flow run ... | head`).
fn is_unread(failure: &Failure) -> bool {
    matches!(failure, Failure::Filter { error, .. } if **error == *UNREAD)
}

/// When a signal ends this process, also ends the programs that `exec` has started, completes the
/// trace, and leaves nothing behind.
pub(crate) fn end_well_at_signals(trace: Option<Arc<Trace>>) -> Result<()> {
    if signals::is_ignored(SIGCHLD) {
        // The kernel would keep no exit status of a program that has ended.
        signal_hook::flag::register(SIGCHLD, Arc::default()).context("cannot catch signals")?;
    }
    let ending = signals::ending();
    let mut signals = Signals::new(ending).context("cannot catch signals")?;
    let at_signals = move || {
        for signal in signals.forever() {
            exec::end_all();
            screen::close_soon();
            if let Some(trace) = &trace {
                trace.finish_soon();
            }
            sockets::close();
            // Exit as if the signal had not been caught.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new().spawn(at_signals).context("cannot start a thread")?;
    Ok(())
}
