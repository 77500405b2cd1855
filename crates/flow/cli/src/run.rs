//! Runs a pipeline, once for each unit of work.

use std::fs;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use seekwire_flow::{Failure, Running, Unit};
use seekwire_program::table::printable;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::arguments::FlowRun;
use crate::builtin::exec;
use crate::builtin::files::UNREAD;
use crate::{pipeline, shares};

pub(crate) fn run(options: &FlowRun) -> Result<ExitCode> {
    let pipeline = pipeline::read(&options.file)?;
    let running = pipeline.graph.start().context("the pipeline does not start")?;
    let outcome = run_all(options, &running);
    exec::end_all();
    // Some filter may be waiting for a terminal to be typed at, after its unit has failed. The end
    // of this process waits for nobody.
    std::mem::forget(running);
    outcome
}

fn run_all(options: &FlowRun, running: &Running) -> Result<ExitCode> {
    let once = [String::new()];
    let arguments = if options.units.is_empty() { &once[..] } else { &options.units };
    end_processes_with_this_one()?;
    let mut failed = 0;
    for argument in arguments {
        // One after the other: what several write to one place would mix.
        let unit = running.submit(Unit::new(argument.clone()));
        if let Err(failure) = unit.wait() {
            if is_unread(&failure) {
                return Ok(ExitCode::SUCCESS);
            }
            failed += 1;
            let which = if argument.is_empty() { String::new() } else { format!("{argument}: ") };
            let line = printable(&format!("{which}{failure}"));
            seekwire_program::tell(format_args!("seekwire: {line}"));
        }
    }
    if !options.quiet && failed < arguments.len() {
        let report = shares::table(&running.copies(), &running.streams());
        seekwire_program::tell(report);
    }
    if failed > 0 && arguments.len() > 1 {
        let all = arguments.len();
        seekwire_program::tell(format_args!("seekwire: {failed} of {all} units of work failed"));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The reader of standard output has gone (`seekwire flow run ... | head`), and nothing is wrong.
fn is_unread(failure: &Failure) -> bool {
    matches!(failure, Failure::Filter { error, .. } if **error == *UNREAD)
}

/// At a signal that ends this process, those that `exec` has started end, too.
fn end_processes_with_this_one() -> Result<()> {
    // Those that are ignored stay so: nohup(1), a shell's background.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let ending = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
    let ending = ending.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(ending).context("cannot catch signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            exec::end_all();
            // It ends as if nobody had caught it.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}
