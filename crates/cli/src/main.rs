#![forbid(unsafe_code)]
//! The `seekwire` command.
//!
//! ```text
//! run       start a program with the library loaded          run, executable
//! status    live connections of the user's processes         status, proc, table
//! doctor    what this host supports, and what to fix          doctor, probe
//! demo, lab experiments; the work is done by the lab crate    laboratory
//! nic       settings of network interfaces: the nic crate      interfaces
//! man       the manual pages, written from the definitions    manual
//! ```
//!
//! The definitions of commands and options, with their help, are in `arguments`.

mod arguments;
mod doctor;
#[cfg(test)]
mod documents;
mod executable;
mod interfaces;
mod laboratory;
mod manual;
mod probe;
mod proc;
mod run;
mod status;
mod table;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run(options) => return run::run(&options),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Status(options) => status::status(&options).map(|()| ExitCode::SUCCESS),
        Command::Demo(options) => laboratory::demo(&options),
        Command::Calibrate(options) => laboratory::calibrate(&options),
        Command::Lab(command) => laboratory::lab(&command),
        Command::LabPeer(peer) => return laboratory::peer(peer),
        Command::Nic(command) => interfaces::nic(&command),
        Command::Man { directory } => manual::write(&directory).map(|()| ExitCode::SUCCESS),
        Command::Probe(side) => probe::side(&side).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        // The reader of our output has gone (`seekwire status | head`): nothing is left to say, and nothing is wrong.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seekwire: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
