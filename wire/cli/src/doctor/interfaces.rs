//! `seekwire doctor` on network interfaces that were changed and not restored.
//!
//! It asks the program `seekwire-nic`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::finding::{Finding, Verdict};
use crate::external_commands;

const CHECK: &str = "network interfaces";

/// The answer of `seekwire-nic`.
#[derive(Deserialize)]
struct InterfaceReport {
    verdict: Verdict,
    found: String,
    advice: String,
}

pub(super) fn changed(states: Option<&Path>) -> Finding {
    match ask(states) {
        Ok(InterfaceReport { verdict, found, advice }) => {
            Finding { check: CHECK, verdict, found, advice }
        }
        // The library works without that program.
        Err(error) => Finding::ok(CHECK, format!("not checked: {error:#}")),
    }
}

fn ask(states: Option<&Path>) -> Result<InterfaceReport> {
    let mut command = Command::new(seekwire_program::find(external_commands::INTERFACES)?);
    command.arg("left");
    if let Some(directory) = states {
        command.arg("--state").arg(directory);
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    serde_json::from_slice(&output.stdout).context("its answer cannot be understood")
}
