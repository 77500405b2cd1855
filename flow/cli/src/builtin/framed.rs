//! A program as a filter that receives frames and answers with frames: its output belongs to the
//! block that it was given. One process serves a copy, unit after unit.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports, Step};

use super::built_filter::{Blockwise, BuiltFilter};
use super::filter_protocol::{self, Header};
use super::filter_session::{Conversation, Program};
use super::process;
use crate::options::{Fault, OptionTable, is_name};
use crate::unit_argument;

/// The default limit of a stream.
const LARGEST: usize = 64 << 20;
const MOST: usize = 1 << 30;

/// Interpreters and their libraries take long to start.
const START: Duration = Duration::from_secs(60);

pub(super) fn framed(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let (command, executable) = process::command("framed", options)?;
    let ports = Ports {
        inputs: ports("inputs", options)?.unwrap_or_else(|| vec!["in".to_owned()]),
        outputs: ports("outputs", options)?.unwrap_or_else(|| vec!["out".to_owned()]),
    };
    let at = options.location("largest");
    let largest = options.size("largest")?.unwrap_or(LARGEST);
    if largest > MOST {
        return Err((at, format!("largest can be at most {MOST} bytes")));
    }
    let start = options.duration("start")?.unwrap_or(START);
    let timeout = options.duration("timeout")?;
    let is_source = ports.inputs.is_empty();
    let (inputs, outputs) = (ports.inputs.len(), ports.outputs.len());
    let program = Program { command, inputs, outputs, largest, start, timeout };
    let shared = Arc::new(Shared { program, idle: Mutex::default() });
    let built = BuiltFilter::new(ports, move || Framed {
        shared: Arc::clone(&shared),
        argument: OsString::new(),
        conversation: None,
    });
    let built = BuiltFilter { program: Some(executable), ..built };
    Ok(if is_source { built.alone() } else { built.blockwise(Blockwise::Declared) })
}

/// Names of ports, which must be unique.
fn ports(name: &'static str, options: &mut OptionTable<'_>) -> Result<Option<Vec<String>>, Fault> {
    const PORTS: usize = 64;
    let at = options.location(name);
    let Some(ports) = options.strings(name)? else { return Ok(None) };
    let is_twice = |(at, name): (usize, &String)| ports[..at].contains(name);
    if !ports.iter().all(|name| is_name(name))
        || ports.iter().enumerate().any(is_twice)
        || ports.len() > PORTS
    {
        let message = format!(
            "{name} must be names of ports, at most {PORTS}, none of them twice: letters, digits, - and _"
        );
        return Err((at, message));
    }
    Ok(Some(ports))
}

/// State that all copies share.
struct Shared {
    program: Program,
    /// Processes between two units.
    idle: Mutex<Vec<Conversation>>,
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Conversation>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Framed {
    shared: Arc<Shared>,
    argument: OsString,
    /// Set while a unit is under way. Any error also ends the process; if the unit goes on, another
    /// process takes its place.
    conversation: Option<Conversation>,
}

impl Framed {
    /// Starts the unit, in an idle process or a new one.
    fn begin(&self, out: &mut Outputs<'_>) -> Result<Conversation, FilterError> {
        let idle = self.shared.idle().pop();
        let mut conversation = match idle {
            Some(conversation) => conversation,
            None => Conversation::begin(&self.shared.program, out)?,
        };
        let (bytes, number) = (self.argument.as_encoded_bytes(), number_of(out)?);
        let request =
            Header { kind: filter_protocol::INIT, port: 0, number, length: bytes.len() as u64 };
        conversation.ask(&self.shared.program, request, bytes, out)?;
        Ok(conversation)
    }

    /// Returns the kind of the last frame of the answer.
    fn ask(
        &mut self,
        kind: u32,
        port: usize,
        number: u64,
        bytes: &[u8],
        out: &mut Outputs<'_>,
    ) -> Result<u32, FilterError> {
        let mut conversation = match self.conversation.take() {
            Some(conversation) => conversation,
            None => self.begin(out)?,
        };
        let request = Header { kind, port: port as u32, number, length: bytes.len() as u64 };
        let answer = conversation.ask(&self.shared.program, request, bytes, out)?;
        self.conversation = Some(conversation);
        Ok(answer)
    }
}

impl Filter for Framed {
    fn init(&mut self, argument: &str, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.argument = unit_argument::of_text(argument);
        self.conversation = Some(self.begin(out)?);
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        port: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        self.ask(filter_protocol::BLOCK, port, block.sequence(), &block, out)?;
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let answer = self.ask(filter_protocol::GENERATE, 0, number_of(out)?, &[], out)?;
        Ok(if answer == filter_protocol::MORE { Step::More } else { Step::Done })
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.ask(filter_protocol::END, 0, number_of(out)?, &[], out)?;
        self.shared.idle().extend(self.conversation.take());
        Ok(())
    }
}

/// The number of the unit as people see it.
fn number_of(out: &Outputs<'_>) -> Result<u64, FilterError> {
    Ok(out.unit().to_string().parse()?)
}
