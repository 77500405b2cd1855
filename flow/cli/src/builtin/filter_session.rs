//! Requests to a program that speaks the filter protocol, and its answers.

use std::io::{self, ErrorKind, Read, Write};
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use seekwire_flow::{FilterError, Outputs};

use super::filter_protocol::{self, Header, Incoming};
use super::process::{self, ChildProcess};

/// Settings that all copies of the filter share.
pub(super) struct Program {
    pub(super) command: Vec<String>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// The largest block that the program may send.
    pub(super) largest: usize,
    /// How long it may take to say hello.
    pub(super) start: Duration,
    /// How long the program may make no progress before it has answered.
    pub(super) timeout: Option<Duration>,
}

impl Program {
    fn error(&self, what: impl std::fmt::Display) -> FilterError {
        format!("{}: {what}", self.command[0]).into()
    }
}

/// A process that has said hello.
pub(super) struct Conversation {
    process: ChildProcess,
    incoming: Incoming,
    /// True once the program has exited. Its earlier output is still to be read.
    has_ended: bool,
}

/// The part of a request that is still to be written.
struct Outgoing<'a> {
    head: &'a [u8],
    body: &'a [u8],
}

impl Outgoing<'_> {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn write(&mut self, input: &mut ChildStdin) -> io::Result<()> {
        let part = if self.head.is_empty() { &mut self.body } else { &mut self.head };
        let count = input.write(part)?;
        *part = &part[count..];
        Ok(())
    }
}

/// A time limit on lack of progress: what the program has to do, and when bytes last moved.
struct Patience {
    limit: Option<Duration>,
    since: Instant,
    what: &'static str,
}

impl Patience {
    fn new(limit: Option<Duration>, what: &'static str) -> Self {
        Self { limit, since: Instant::now(), what }
    }
}

impl Conversation {
    /// Starts the program and exchanges hellos.
    pub(super) fn begin(program: &Program, out: &Outputs<'_>) -> Result<Self, FilterError> {
        let process =
            ChildProcess::start(&program.command).map_err(|error| program.error(error))?;
        let incoming = Incoming::new(program.largest);
        let mut conversation = Self { process, incoming, has_ended: false };
        let hello = filter_protocol::hello(program.inputs, program.outputs);
        let mut left = Outgoing { head: &hello, body: &[] };
        let mut patience =
            Patience::new(Some(program.start), "say hello as the filter protocol requires");
        let mut has_answered = false;
        loop {
            let incoming = &mut conversation.incoming;
            has_answered = has_answered || incoming.hello().map_err(|what| program.error(what))?;
            if has_answered && left.is_empty() {
                return Ok(conversation);
            }
            conversation.step(program, &mut left, has_answered, &mut patience, out)?;
        }
    }

    /// Sends the blocks of the program's answer on. Returns the kind of its last frame.
    pub(super) fn ask(
        &mut self,
        program: &Program,
        request: Header,
        bytes: &[u8],
        out: &mut Outputs<'_>,
    ) -> Result<u32, FilterError> {
        let head = request.to_bytes();
        let mut left = Outgoing { head: &head, body: bytes };
        let mut patience = Patience::new(program.timeout, "answer");
        let mut answer = None;
        loop {
            while let Some((header, bytes)) =
                self.incoming.next().map_err(|what| program.error(what))?
            {
                if header.kind == filter_protocol::ERROR {
                    return Err(program.error(String::from_utf8_lossy(&bytes)));
                }
                if answer.is_some() {
                    return Err(program.error("sent a frame after the end of its answer"));
                }
                check(program, request, header).map_err(|what| program.error(what))?;
                match header.kind {
                    filter_protocol::BLOCK => out.send(header.port as usize, bytes)?,
                    kind => answer = Some(kind),
                }
                // The next filter may have taken long.
                patience.since = Instant::now();
            }
            match answer {
                Some(_) if !self.incoming.is_empty() => {
                    return Err(program.error("sent bytes after the end of its answer"));
                }
                Some(answer) if left.is_empty() => return Ok(answer),
                _ => self.step(program, &mut left, answer.is_some(), &mut patience, out)?,
            }
        }
    }

    /// Reads or writes something, or waits briefly.
    fn step(
        &mut self,
        program: &Program,
        left: &mut Outgoing<'_>,
        has_answered: bool,
        patience: &mut Patience,
        out: &Outputs<'_>,
    ) -> Result<(), FilterError> {
        let ChildProcess { input, output, .. } = &mut self.process;
        let read = match output {
            _ if !self.incoming.is_drained() => None,
            Some(output) => moved(output.read(self.incoming.room()))?,
            None => Some(0),
        };
        match read {
            Some(0) => return Err(self.loss(program, has_answered)),
            Some(count) => self.incoming.filled(count),
            None => {}
        }
        let mut has_written = false;
        if let Some(pipe) = input.as_mut().filter(|_| !left.is_empty()) {
            match left.write(pipe) {
                // Its earlier output is still to be read.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => *input = None,
                written => has_written = moved(written)?.is_some(),
            }
        }
        if read.is_some() || has_written {
            patience.since = Instant::now();
            return Ok(());
        }
        if has_answered && self.process.input.is_none() {
            let what = "closed its standard input before it had read all of a request";
            return Err(program.error(what));
        }
        if let Some(limit) = patience.limit.filter(|limit| patience.since.elapsed() >= *limit) {
            let (what, seconds) = (patience.what, limit.as_secs_f64());
            return Err(program.error(format!("did not {what} within {seconds} s")));
        }
        if self.has_ended {
            return Err(self.loss(program, has_answered));
        }
        // Another process may have inherited its pipes and keep them open.
        self.has_ended = self.process.has_ended();
        if self.has_ended { Ok(()) } else { self.process.wait(!left.is_empty(), out) }
    }

    /// The error for a program that stopped sending.
    fn loss(&mut self, program: &Program, has_answered: bool) -> FilterError {
        let how = match self.process.end_soon() {
            Ok(Some(status)) => process::ending(status, &[]),
            Ok(None) => None,
            Err(error) => return error,
        };
        let how = how.unwrap_or_else(|| "closed its standard output".to_owned());
        let when = match (has_answered, self.incoming.is_empty()) {
            (true, _) => "before it had read all of a request",
            (false, true) => "instead of an answer",
            (false, false) => "within a frame",
        };
        program.error(format!("{how} {when}"))
    }
}

/// The number of bytes; `None` if nothing can move now.
fn moved<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Checks that the request can have this answer.
fn check(program: &Program, request: Header, answer: Header) -> Result<(), String> {
    let Header { kind, port, number, .. } = answer;
    if number != request.number {
        return Err(format!("answered number {number}, and was asked number {}", request.number));
    }
    match kind {
        filter_protocol::BLOCK if port as usize >= program.outputs => Err(format!(
            "sent a block to output port {port}; it has {}, counted from 0",
            program.outputs
        )),
        filter_protocol::MORE if request.kind != filter_protocol::GENERATE => {
            Err("announced more blocks, and was not asked to generate".to_owned())
        }
        _ => Ok(()),
    }
}
