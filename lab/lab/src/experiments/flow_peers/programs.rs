//! How the pipelines are started, and how their output is read.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tempfile::TempDir;

use crate::compiled::{self, SourceFile};
use crate::experiment::Context;
use crate::launch::{Finished, Mode, Program, Running};
use crate::messaging::programs::over_zeromq;
use crate::pipeline::{PipelineOrder, PipelineReport};

/// Generous, because a slow machine is not a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// The runtime that moves the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// A role of the laboratory, in one process.
    Role(&'static str),
    Flow(Carrier),
    Zeromq(Transport),
    Tbb,
    Gstreamer,
    Dask,
}

/// Carrier between the two processes of seekwire-flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    Ring,
    Tcp,
}

/// Link over which blocks pass whose size is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Nothing: they stay in one process.
    Here,
    Ring,
    Tcp,
}

/// Units of work in blocks of some size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sized {
    /// Bytes of a block; 0: the size that the stream finds.
    pub(super) size: u64,
    /// Bytes of a unit.
    pub(super) unit: u64,
    /// Before units are counted.
    pub(super) warm_up: u64,
    pub(super) milliseconds: u64,
}

/// Transport of libzmq between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Ipc,
}

const TBB: SourceFile<'_> = SourceFile {
    name: "pipeline-tbb",
    text: concat!(
        include_str!("../../../peer/pipeline.h"),
        include_str!("../../../peer/pipeline_tbb.cpp")
    ),
    flags: &["-xc++", "-std=c++17", "-O3"],
    libraries: &["-ltbb", "-lstdc++"],
};

const GSTREAMER: &str = concat!(
    include_str!("../../../peer/pipeline.h"),
    include_str!("../../../peer/pipeline_gstreamer.c")
);

const DASK: &str = include_str!("../../../peer/pipeline_dask.py");

/// Starts pipelines.
pub(super) struct Pipelines<'a> {
    context: &'a Context<'a>,
    command: PathBuf,
    /// Dask's cluster takes seconds to start, so it is kept.
    dask: RefCell<Option<Dask>>,
    violations: RefCell<Vec<String>>,
}

struct Dask {
    running: Running,
    turn: u64,
    _script: TempDir,
}

impl<'a> Pipelines<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Result<Self> {
        let command = context.peer()?;
        Ok(Self { context, command, dask: RefCell::default(), violations: RefCell::default() })
    }

    /// The first violation by a runtime of the rules for blocks, if any.
    pub(super) fn violation(&self) -> Option<String> {
        self.violations.borrow().first().cloned()
    }

    /// Runs the pipeline, and checks that each stage has read each block.
    pub(super) fn run(&self, runtime: Runtime, order: PipelineOrder) -> Result<PipelineReport> {
        let report = match runtime {
            Runtime::Role(name) => self.alone(self.role(name, &Mode::Plain), order)?,
            Runtime::Tbb => self.alone(Program::new(tbb()?, &Mode::Plain), order)?,
            Runtime::Gstreamer => self.alone(Program::new(gstreamer()?, &Mode::Plain), order)?,
            Runtime::Flow(carrier) => {
                let report = self.together(&order.arguments(), |rank| match carrier {
                    Carrier::Ring => Ok(self.role("joined", &self.context.linked()).arg(rank)),
                    Carrier::Tcp => {
                        let role = self.role("joined", &Mode::Plain).env("SEEKWIRE", "off");
                        Ok(role.arg(rank))
                    }
                })?;
                check(carrier, &report, order)?;
                report
            }
            Runtime::Zeromq(transport) => {
                let program = over_zeromq(&self.command).map_err(|why| anyhow!(why))?;
                let directory =
                    tempfile::tempdir().context("cannot make a directory for sockets")?;
                let address = match transport {
                    Transport::Tcp => "tcp://127.0.0.1:*".to_owned(),
                    Transport::Ipc => format!("ipc://{}", directory.path().join("at").display()),
                };
                let start = |rank: &str| {
                    let program = Program::new(&program, &Mode::Plain);
                    Ok(program.args(["pipeline", &address, rank]))
                };
                self.together(&order.arguments(), start)?
            }
            Runtime::Dask => self.dask(order)?,
        };
        let what = format!("{runtime:?}, {} blocks of {} bytes", report.blocks, order.size);
        let expected = order.expected(report.blocks);
        self.checked(report, expected, &what)
    }

    /// Units of work whose first stream cuts blocks, with the median of their times as `seconds`.
    pub(super) fn sized(&self, link: Link, order: Sized) -> Result<PipelineReport> {
        let Sized { size, unit, warm_up, milliseconds } = order;
        let order = [size, unit, warm_up, milliseconds].map(|number| number.to_string());
        let report = match link {
            Link::Here => {
                let role = self.role("sized", &Mode::Plain).arg("local");
                parse(&role.args(&order).timeout(LIMIT).run()?)?
            }
            Link::Ring => self.together(&order, |rank| {
                Ok(self.role("sized", &self.context.linked()).arg(rank))
            })?,
            Link::Tcp => self.together(&order, |rank| {
                Ok(self.role("sized", &Mode::Plain).env("SEEKWIRE", "off").arg(rank))
            })?,
        };
        // Numbered from 0 in each unit.
        let words = unit / 8;
        let expected = (words * (words - 1) / 2).wrapping_mul(report.blocks);
        let what = format!("{link:?}, {} units in blocks of {size} bytes", report.blocks);
        self.checked(report, expected, &what)
    }

    /// Every stage has read everything.
    fn checked(&self, report: PipelineReport, expected: u64, what: &str) -> Result<PipelineReport> {
        if report.blocks == 0 || report.sums != [expected; 3] {
            let wrong = format!("{what}: the sums are {:?}, and not {expected}", report.sums);
            self.violations.borrow_mut().push(wrong.clone());
            return Err(anyhow!(wrong));
        }
        Ok(report)
    }

    fn role(&self, name: &str, mode: &Mode) -> Program {
        Program::role(&self.command, mode).args(["pipeline", name])
    }

    fn alone(&self, program: Program, order: PipelineOrder) -> Result<PipelineReport> {
        parse(&program.args(order.arguments()).timeout(LIMIT).run()?)
    }

    /// Runs two processes that exchange the addresses on which they listen.
    fn together(
        &self,
        order: &[String],
        program: impl Fn(&str) -> Result<Program>,
    ) -> Result<PipelineReport> {
        let start =
            |rank| -> Result<Running> { Ok(program(rank)?.args(order).timeout(LIMIT).start()?) };
        let mut both = [start("0")?, start("1")?];
        let addresses = both.each_ref().map(|running| -> Result<String> {
            let line = running.wait_for_line(|line| line.starts_with("ready "))?;
            Ok(line.trim_start_matches("ready ").to_owned())
        });
        let addresses: Vec<String> = addresses.into_iter().collect::<Result<_>>()?;
        let line = serde_json::to_string(&addresses)?;
        for running in &mut both {
            running.send_line(&line)?;
        }
        // The end of its input lets the first process know that the second one has ended.
        let [first, second] = both;
        let second = second.wait().map_err(|error| match first.obituary() {
            Some(obituary) => anyhow!("{error} ({obituary})"),
            None => error.into(),
        })?;
        let mut report = parse(&first.wait()?)?;
        report.join(parse(&second)?);
        Ok(report)
    }

    fn dask(&self, order: PipelineOrder) -> Result<PipelineReport> {
        let mut kept = self.dask.borrow_mut();
        // One that has failed is not used again.
        let mut dask = match kept.take() {
            Some(dask) => dask,
            None => Dask::start(&self.command, order.copies)?,
        };
        let report = dask.ask(order)?;
        *kept = Some(dask);
        Ok(report)
    }
}

impl Dask {
    fn start(command: &Path, workers: usize) -> Result<Self> {
        let script = tempfile::tempdir().context("cannot make a directory for a script")?;
        let path = script.path().join("pipeline.py");
        std::fs::write(&path, DASK).with_context(|| format!("cannot write {}", path.display()))?;
        let program = Program::new(python(command)?, &Mode::Plain).arg(&path);
        let running = program.arg(workers.to_string()).timeout(LIMIT).start()?;
        running.wait_for_line(|line| line == "ready")?;
        Ok(Self { running, turn: 0, _script: script })
    }

    fn ask(&mut self, order: PipelineOrder) -> Result<PipelineReport> {
        self.turn += 1;
        self.running.send_line(&order.arguments().join(" "))?;
        let mark = format!("report {} ", self.turn);
        let line = self.running.wait_for_line(|line| line.starts_with(&mark))?;
        serde_json::from_str(&line[mark.len()..]).context("not a report of the pipeline")
    }
}

/// Fails if the blocks took another carrier than ordered.
fn check(carrier: Carrier, report: &PipelineReport, order: PipelineOrder) -> Result<()> {
    /// Bytes of blocks up to which the two ends may not have found each other.
    const ENOUGH: u64 = 1 << 20;
    /// A ring has at least this much shared memory.
    const LEAST: u64 = 32 << 10;

    let resident = report.resident.context("no memory was reported")?;
    let is_ring = resident.shared >= LEAST;
    let is_wrong = is_ring != (carrier == Carrier::Ring);
    ensure!(
        !is_wrong || (report.blocks * order.size as u64) < ENOUGH,
        "the blocks did not go by {carrier:?}: there are {} bytes of shared memory",
        resident.shared
    );
    Ok(())
}

fn parse(finished: &Finished) -> Result<PipelineReport> {
    let line = finished.stdout.lines().rfind(|line| line.starts_with('{'));
    serde_json::from_str(line.context("the pipeline has reported nothing")?)
        .context("not a report of a pipeline")
}

fn tbb() -> Result<&'static Path> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    // The compiler's own output would fill a page.
    let path = PATH.get_or_init(|| {
        compiled::path(&TBB)
            .context("oneTBB is not installed (Debian packages: libtbb-dev g++)")
            .map_err(|error| error.to_string())
    });
    path.as_deref().map_err(|why| anyhow!("{why}"))
}

fn gstreamer() -> Result<&'static Path> {
    static PATH: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let options = |of: &str| -> Result<String> {
        let pkg_config = Program::new("pkg-config", &Mode::Plain).args([of, "gstreamer-1.0"]);
        Ok(pkg_config.run()?.stdout)
    };
    let compile = || -> Result<PathBuf> {
        let (flags, libraries) = (options("--cflags")?, options("--libs")?);
        let mut flags: Vec<&str> = flags.split_whitespace().collect();
        flags.extend(["-std=gnu11", "-O3"]);
        let libraries: Vec<&str> = libraries.split_whitespace().collect();
        let (flags, libraries) = (&flags[..], &libraries[..]);
        compiled::path(&SourceFile {
            name: "pipeline-gstreamer",
            text: GSTREAMER,
            flags,
            libraries,
        })
    };
    let path = PATH.get_or_init(|| {
        compile()
            .context("GStreamer is not installed (Debian packages: libgstreamer1.0-dev pkgconf)")
            .map_err(|error| error.to_string())
    });
    path.as_deref().map_err(|why| anyhow!("{why}"))
}

/// A Python that has Dask: the one that `scripts/deps lab` makes beside the build, or the system's.
fn python(command: &Path) -> Result<PathBuf> {
    let build = command.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let candidates = [build.join("programs/dask/bin/python"), PathBuf::from("python3")];
    let has_dask = |python: &&PathBuf| {
        let import =
            Program::new(python.as_path(), &Mode::Plain).args(["-c", "import distributed"]);
        import.timeout(LIMIT).run().is_ok()
    };
    candidates.iter().find(has_dask).cloned().context(
        "Dask is not installed: `scripts/deps lab` puts it beside the build, or `pip install distributed`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_compile_without_warnings_or_their_absence_is_explained() {
        match tbb() {
            Ok(_) => crate::compiled::check(&TBB).unwrap(),
            Err(error) => assert!(error.to_string().contains("libtbb-dev"), "{error}"),
        }
        if let Err(error) = gstreamer() {
            assert!(error.to_string().contains("libgstreamer1.0-dev"), "{error}");
        }
    }

    #[test]
    fn a_report_is_the_last_object_among_other_lines() {
        let finished = |stdout: &str| Finished {
            wall: Duration::ZERO,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            cpu: Duration::ZERO,
            traffic: None,
        };
        let report = parse(&finished("ready 127.0.0.1:1\n{\"blocks\":3}\n")).unwrap();
        assert_eq!(report, PipelineReport { blocks: 3, ..PipelineReport::default() });
        assert!(parse(&finished("ready\n")).is_err());
    }
}
