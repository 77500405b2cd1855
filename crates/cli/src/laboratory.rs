//! `seekwire demo` and `seekwire lab`: the lab crate does the work.

use std::process::ExitCode;

use anyhow::Result;

use crate::arguments;

pub(crate) fn demo(_options: &arguments::Demo) -> Result<ExitCode> {
    anyhow::bail!("not in this build")
}

pub(crate) fn lab(_command: &arguments::Lab) -> Result<ExitCode> {
    anyhow::bail!("not in this build")
}

pub(crate) fn peer(_arguments: &[String]) -> Result<ExitCode> {
    anyhow::bail!("not in this build")
}
