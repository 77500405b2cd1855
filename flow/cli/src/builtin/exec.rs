//! Any program as a filter: blocks go to its standard input, and its standard output is sent on.

use std::io::{ErrorKind, Write};

use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports};

use super::built_filter::BuiltFilter;
use super::process::{self, ChildProcess};
use super::read_buffer::Scratch;
use crate::options::{Fault, OptionTable};

pub(crate) use super::process::end_all;

/// Default capacity of a pipe.
const BLOCK: usize = 64 << 10;

pub(super) fn exec(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let (command, program) = process::command("exec", options)?;
    let success = options.numbers("success")?.unwrap_or_else(|| vec![0]);
    if success.is_empty() || success.iter().any(|status| *status > 255) {
        let message = "success must list exit statuses from 0 to 255, at least one".to_owned();
        return Err((options.span(), message));
    }
    let built = BuiltFilter::new(Ports::step(), move || Exec {
        command: command.clone(),
        success: success.clone(),
        process: None,
        scratch: Scratch::new(BLOCK),
    });
    // Nothing shows which block its output belongs to.
    Ok(BuiltFilter { knows_order: false, program: Some(program), ..built })
}

struct Exec {
    command: Vec<String>,
    success: Vec<u64>,
    process: Option<ChildProcess>,
    scratch: Scratch,
}

impl Exec {
    fn error(&self, what: impl std::fmt::Display) -> FilterError {
        format!("{}: {what}", self.command[0]).into()
    }
}

impl Filter for Exec {
    fn init(&mut self, _: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.process = Some(ChildProcess::start(&self.command).map_err(|error| self.error(error))?);
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let Self { process: Some(process), scratch, .. } = self else { return Ok(()) };
        let mut rest = &block[..];
        while !rest.is_empty() {
            // A program that wants no more, such as head(1), gets no more.
            let Some(input) = &mut process.input else { return Ok(()) };
            match input.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !receive(process, scratch, out)? {
                        process.wait(true, out)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => process.input = None,
                Err(error) => return Err(error.into()),
            }
        }
        // Send its output so far on at once.
        while receive(process, scratch, out)? {}
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.input = None;
        while process.output.is_some() {
            // Nothing is left to wait for after the end of its output.
            if !receive(&mut process, &mut self.scratch, out)? && process.output.is_some() {
                process.wait(false, out)?;
            }
        }
        match process::ending(process.end(out)?, &self.success) {
            Some(ending) => Err(self.error(ending)),
            None => Ok(()),
        }
    }
}

/// Sends on what the program has written; false if there is nothing now, or will never be.
fn receive(
    process: &mut ChildProcess,
    scratch: &mut Scratch,
    out: &mut Outputs<'_>,
) -> Result<bool, FilterError> {
    let Some(output) = &mut process.output else { return Ok(false) };
    match scratch.read(output) {
        Ok(Some(block)) => out.send(0, block).map(|()| true),
        Ok(None) => {
            process.output = None;
            Ok(false)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}
