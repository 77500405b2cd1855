//! How the messaging programs are started, and how their output is read.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use seekwire_testbed::{Side, TestHost};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    Check, Drive, EXCHANGE_LIMIT, Hub, Member, MessagingTest, Model, Modelled, TestReading,
};
use crate::experiment::Context;
use crate::launch::{Error, Finished, Mode, Program, Running, Traffic};
use crate::network::hosts::{Hosts, ServerLocation};
use crate::network::step::OffloadStep;
use crate::schedule::Trial;

/// File name of the programs over libzmq.
const ZEROMQ: &str = "seekwire-zeromq";

/// The library whose messages are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Zeromq,
    Mailbox,
}

/// The transport of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagingTransport {
    /// Loopback.
    Tcp,
    Ring,
    /// UNIX sockets, of libzmq.
    Ipc,
    /// Memory of one process, of libzmq.
    Inproc,
    /// TCP between two namespaces.
    Cable(OffloadStep),
}

/// A variant of exchanging messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessagingVariant {
    pub(crate) name: &'static str,
    pub(crate) library: Library,
    pub(crate) over: MessagingTransport,
}

/// The programs' locations, and their violations.
pub(crate) struct Programs<'a, 'h> {
    context: &'a Context<'a>,
    zeromq: Result<PathBuf, String>,
    /// The two hosts of [`MessagingTransport::Cable`].
    hosts: Result<&'a Hosts<'h>, String>,
    /// Errors that programs found in messages.
    violations: RefCell<Vec<String>>,
}

impl<'a, 'h> Programs<'a, 'h> {
    pub(crate) fn new(
        context: &'a Context<'a>,
        hosts: Result<&'a Hosts<'h>, String>,
    ) -> Result<Self> {
        let zeromq = over_zeromq(&context.peer()?);
        Ok(Self { context, zeromq, hosts, violations: RefCell::default() })
    }

    /// The first violation by a messaging library, if any.
    pub(crate) fn violation(&self) -> Option<String> {
        let violations = self.violations.borrow();
        violations
            .first()
            .map(|first| format!("{} messages were wrong; the first: {first}", violations.len()))
    }

    /// Runs `tests` between two ends.
    pub(crate) fn two_ends(
        &self,
        variant: MessagingVariant,
        tests: Vec<MessagingTest>,
        trial: &mut Trial,
    ) -> Result<Vec<TestReading>> {
        let directory = tempfile::tempdir().context("cannot make a directory for a socket")?;
        let finished = match variant.over {
            MessagingTransport::Inproc => {
                let order = Drive { address: "inproc://ends".to_owned(), tests };
                self.program(variant, "alone", &serde_json::to_string(&order)?)?
                    .run()
                    .map_err(|error| self.heard(error))?
            }
            _ => {
                let (near, far) = self.ends(variant)?;
                let server = start(
                    far,
                    self.program(variant, "serve", &address(variant, far, directory.path()))?,
                )?;
                let order = Drive { address: ready(&server)?, tests };
                let client = start(
                    near,
                    self.program(variant, "request", &serde_json::to_string(&order)?)?,
                )?;
                self.collect(client, vec![server])?
            }
        };
        let readings: Vec<TestReading> = parse(&finished.stdout)?;
        let own = readings.iter().filter_map(|reading| reading.traffic);
        self.count(variant, trial, finished.traffic, own)?;
        Ok(readings)
    }

    /// Runs a model.
    pub(crate) fn model(
        &self,
        variant: MessagingVariant,
        hub: &Hub,
        file: &Path,
        trial: &mut Trial,
    ) -> Result<Modelled> {
        let directory = tempfile::tempdir().context("cannot make a directory for a socket")?;
        let (near, far) = self.ends(variant)?;
        let hub = Hub {
            address: address(variant, far, directory.path()),
            directory: directory.path().to_owned(),
            ..hub.clone()
        };
        let center = start(far, self.program(variant, "hub", &serde_json::to_string(&hub)?)?)?;
        let Hub { model, members, clients, size, milliseconds, .. } = hub;
        let address = ready(&center)?;
        let file = file.to_owned();
        let member =
            Member { model, address, rank: 0, clients: 0, members, size, milliseconds, file };
        let member = |rank, clients| -> Result<Running> {
            let order = Member { rank, clients, ..member.clone() };
            start(near, self.program(variant, "member", &serde_json::to_string(&order)?)?)
        };
        let mut others = (0..members).map(|rank| member(rank, 0)).collect::<Result<Vec<_>>>()?;
        let reporter = match model {
            Model::Broker => {
                others.push(center);
                member(0, clients)?
            }
            Model::File => {
                let sender = others.pop().context("a file needs a sender")?;
                others.push(center);
                sender
            }
            Model::Publish | Model::Scatter => center,
        };
        let finished = self.collect(reporter, others)?;
        let modelled: Modelled = parse(&finished.stdout)?.pop().context("nothing was reported")?;
        self.count(variant, trial, finished.traffic, modelled.traffic)?;
        Ok(modelled)
    }

    fn program(&self, variant: MessagingVariant, role: &str, order: &str) -> Result<Program> {
        let mode = match (variant.library, variant.over) {
            (Library::Zeromq, MessagingTransport::Ring) => self.context.accelerated()?,
            (Library::Mailbox, MessagingTransport::Ring) => self.context.linked(),
            _ => Mode::Plain,
        };
        let program = match variant.library {
            Library::Zeromq => {
                Program::new(self.zeromq.as_ref().map_err(|why| anyhow!("{why}"))?, &mode)
            }
            Library::Mailbox => {
                let carrier = if variant.over == MessagingTransport::Ring { "ring" } else { "tcp" };
                Program::role(self.context.peer()?, &mode).args(["mailbox", carrier])
            }
        };
        Ok(program.arg(role).arg(order).timeout(EXCHANGE_LIMIT))
    }

    /// Where clients and servers are started; `None`: here.
    fn ends(
        &self,
        variant: MessagingVariant,
    ) -> Result<(Option<&'a TestHost>, Option<&'a TestHost>)> {
        let MessagingTransport::Cable(step) = variant.over else { return Ok((None, None)) };
        let hosts = *self.hosts.as_ref().map_err(|why| anyhow!("{why}"))?;
        let ServerLocation::Namespaces(testbed) = *hosts.location() else {
            bail!("the two hosts are not namespaces")
        };
        hosts.set(step)?;
        Ok((Some(testbed.end(Side::Near)), Some(testbed.end(Side::Far))))
    }

    /// Waits for the program that reports, and then for the others, which exit by themselves.
    fn collect(&self, reporter: Running, others: Vec<Running>) -> Result<Finished> {
        match reporter.wait() {
            Ok(finished) => {
                for other in others {
                    other.wait().map_err(|error| self.heard(error))?;
                }
                Ok(finished)
            }
            Err(error) => {
                let obituaries: Vec<String> = others.iter().filter_map(Running::obituary).collect();
                for other in others {
                    self.hear(&other.stop()?.stdout);
                }
                let error = self.heard(error);
                Err(if obituaries.is_empty() {
                    error
                } else {
                    anyhow!("{error} ({})", obituaries.join("; "))
                })
            }
        }
    }

    fn heard(&self, error: Error) -> anyhow::Error {
        self.hear(error.stdout());
        error.into()
    }

    fn hear(&self, stdout: &str) {
        let checks = stdout.lines().filter_map(|line| serde_json::from_str::<Check>(line).ok());
        self.violations.borrow_mut().extend(checks.map(|check| check.violation));
    }

    /// Counts bytes by carrier, and makes sure that a ring was used where it should be.
    fn count(
        &self,
        variant: MessagingVariant,
        trial: &mut Trial,
        library: Option<Traffic>,
        own: impl IntoIterator<Item = Traffic>,
    ) -> Result<()> {
        let mut total = library;
        for traffic in own {
            *total.get_or_insert_default() += traffic;
        }
        trial.count(total);
        // A warm-up may end before the ends have found each other.
        if variant.over == MessagingTransport::Ring && !trial.is_warm_up() {
            let Traffic { ring, tcp, .. } =
                total.context("the bytes of the ring were not counted")?;
            // A sender that does not block leaves a ring that is full of small messages until the
            // receiver has caught up.
            ensure!(ring > tcp / 100, "{ring} bytes went through the ring and {tcp} by TCP");
        }
        Ok(())
    }
}

/// The programs over libzmq that belong to `command`: beside it (as in a build directory) or in
/// `../lib/seekwire` of its directory (as installed).
pub(crate) fn over_zeromq(command: &Path) -> Result<PathBuf, String> {
    let beside = command.parent().unwrap_or(Path::new("."));
    let candidates = ["", "../lib/seekwire"].map(|relative| beside.join(relative).join(ZEROMQ));
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let looked_at = candidates.map(|path| path.display().to_string()).join(", ");
        format!(
            "not installed: {ZEROMQ} (looked at {looked_at}); install libzmq (Debian packages: libzmq3-dev pkgconf) and \
             run `make build` again"
        )
    })
}

/// The address of the end that others connect to, in the format of its library.
fn address(variant: MessagingVariant, end: Option<&TestHost>, directory: &Path) -> String {
    let host = end.map_or_else(|| "127.0.0.1".to_owned(), |end| end.address().to_string());
    match (variant.library, variant.over) {
        (Library::Mailbox, _) => format!("{host}:0"),
        (Library::Zeromq, MessagingTransport::Ipc) => {
            format!("ipc://{}", directory.join("ends").display())
        }
        (Library::Zeromq, _) => format!("tcp://{host}:*"),
    }
}

fn start(end: Option<&TestHost>, program: Program) -> Result<Running> {
    Ok(match end {
        Some(end) => end.run(|| program.start())??,
        None => program.start()?,
    })
}

fn ready(program: &Running) -> Result<String> {
    let line = program.wait_for_line(|line| line.starts_with("ready "))?;
    Ok(line.trim_start_matches("ready ").to_owned())
}

fn parse<T: Serialize + DeserializeOwned>(stdout: &str) -> Result<Vec<T>> {
    let lines = stdout.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a report: {line}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_beside_the_command_and_as_installed() {
        let prefix = tempfile::tempdir().unwrap();
        let command = prefix.path().join("bin/seekwire");
        std::fs::create_dir_all(prefix.path().join("bin")).unwrap();
        std::fs::create_dir_all(prefix.path().join("lib/seekwire")).unwrap();
        let missing = over_zeromq(&command).unwrap_err();
        assert!(
            missing.starts_with("not installed: ") && missing.contains("libzmq3-dev"),
            "{missing}"
        );
        std::fs::write(prefix.path().join("lib/seekwire").join(ZEROMQ), "").unwrap();
        assert!(over_zeromq(&command).unwrap().ends_with("lib/seekwire/seekwire-zeromq"));
        std::fs::write(prefix.path().join("bin").join(ZEROMQ), "").unwrap();
        assert!(over_zeromq(&command).unwrap().ends_with("bin/seekwire-zeromq"));
    }

    #[test]
    fn reports_stand_among_other_lines() {
        let modelled = Modelled { rate: 2.5, p50_ns: 3, p99_ns: 4, traffic: None };
        let printed =
            format!("ready tcp://127.0.0.1:1\n{}\n", serde_json::to_string(&modelled).unwrap());
        assert_eq!(parse::<Modelled>(&printed).unwrap(), [modelled]);
        assert!(parse::<Modelled>("{\"rate\":").is_err());
    }
}
