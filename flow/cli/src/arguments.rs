//! The commands below `seekwire flow`. Their doc comments are the help and the manual pages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use seekwire_flow::SizeBounds;
use seekwire_program::command_line;
use seekwire_values::{Address, Size, Time};

use crate::origin::Origin;

/// The part of the command `seekwire` for pipelines of filters
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run pipelines of filters
    #[command(subcommand)]
    Flow(Flow),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Flow {
    Check(FlowCheck),
    Plan(FlowPlan),
    Run(FlowRun),
    Top(FlowTop),
    /// List the filters that pipelines can be made of, and their options
    Filters,
}

// Not a doc comment, which would describe the commands that have these arguments.
//
// A pipeline, and its units of work.
#[derive(Debug, Args)]
pub(crate) struct PipelineArguments {
    /// Run this pipeline instead of one in a file: filters with | between them
    ///
    /// `read | gunzip | count lines` is an example; `seekwire help flow run` explains the language.
    /// All other arguments are units of work then.
    #[arg(long, short, value_name = "PIPELINE")]
    pub(crate) expression: Option<String>,
    /// Pipeline file
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "expression")]
    pub(crate) file: Option<PathBuf>,
    /// Units of work: arguments for the sources, one after the other
    #[arg(value_name = "ARGUMENT", value_hint = ValueHint::FilePath)]
    pub(crate) units: Vec<OsString>,
}

impl PipelineArguments {
    /// The pipeline, and the units of work.
    pub(crate) fn parts(&self) -> (Origin<'_>, Vec<OsString>) {
        let Self { expression, file, units } = self;
        match expression {
            None => (Origin::File(file.as_deref().unwrap_or(Path::new(""))), units.clone()),
            Some(expression) => {
                let first = file.iter().map(|file| file.as_os_str());
                let units = first.chain(units.iter().map(|unit| &**unit)).map(ToOwned::to_owned);
                (Origin::Expression(expression), units.collect())
            }
        }
    }
}

/// Check a pipeline, and show its filters and streams
///
/// Reports each mistake with its line in the file: an unknown filter or port, an option that the
/// filter does not have, a port that is not connected, streams that form a circle, a limit that no
/// block fits into, a program that this host does not have. Nothing is run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the pipeline can run
  1  it cannot

Examples:
  seekwire flow check count.toml
  seekwire flow check -e 'read | gunzip | count lines'")]
pub(crate) struct FlowCheck {
    /// Check this pipeline instead of one in a file: filters with | between them
    #[arg(long, short, value_name = "PIPELINE")]
    pub(crate) expression: Option<String>,
    /// Pipeline file
    #[arg(value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "expression", conflicts_with = "expression")]
    pub(crate) file: Option<PathBuf>,
}

impl FlowCheck {
    /// The pipeline to check.
    pub(crate) fn origin(&self) -> Origin<'_> {
        match &self.expression {
            Some(expression) => Origin::Expression(expression),
            None => Origin::File(self.file.as_deref().unwrap_or(Path::new(""))),
        }
    }
}

/// Run a part of a pipeline without its sinks, and estimate how fast it can be
///
/// The pipeline runs for some seconds, or less if its input ends earlier. From that run, the
/// command computes what a byte costs each filter, and how many bytes each filter receives for each
/// byte that the sources send (its load). The copies of a filter can process at most their number
/// divided by cost and load; the least of these numbers bounds the whole pipeline. The table shows
/// what was measured and what options state, and the sentences below it what follows from that.
///
/// Each sink is replaced by one that drops its input, so nothing is written; what sinks would cost
/// is not known. All other filters work as usual: the programs of `exec` run.
///
/// Costs are those of this host and of this input, while all filters run at the same time. The time
/// a filter waits, for a slow disk or the program of `exec`, is part of its cost.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the pipeline was measured
  1  it cannot run, or a unit of work failed

Examples:
  seekwire flow plan count.toml app.log.gz
  seekwire flow plan count.toml app.log.gz --time 10s --throughput 500MiB")]
pub(crate) struct FlowPlan {
    #[command(flatten)]
    pub(crate) pipeline: PipelineArguments,
    /// Longest time to measure
    #[arg(long, alias = "seconds", value_name = "TIME", default_value = "2s")]
    #[arg(value_parser = Time::within(seconds(1)..=seconds(3600)))]
    pub(crate) time: Time,
    /// Bytes per second of the sources, such as 500MiB, to compute the needed copies for
    ///
    /// By default, as fast as the sources were while nothing held them up.
    #[arg(long, alias = "rate", value_name = "SIZE", value_parser = Size::within(1..=u64::MAX))]
    pub(crate) throughput: Option<Size>,
}

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Run a pipeline, in this process or in all that a launcher has started
///
/// The pipeline runs once for each ARGUMENT, which is passed to its sources: `read` reads the file
/// of that name if it has no path of its own. Without arguments it runs once. A unit of work that
/// fails is reported with the filter, the copy and the block; the others continue.
///
/// While it runs, standard error shows every second what copies and streams do, if it is a
/// terminal; `seekwire flow top` shows the same from elsewhere. At the end, a table on standard
/// error shows where the time of each copy went: busy, starved (it had nothing to do) or blocked
/// (the next filter had no room). Lines below it say how long all of it took, and name the
/// bottleneck.
///
/// If mpiexec (MPICH), srun (Slurm) or mpirun (Open MPI) starts the processes, they run the
/// pipeline together: each runs the filters that are placed on it, and blocks travel between them
/// through shared memory on one host, and by TCP between hosts. Rank 0 is the coordinator: it
/// submits the units and reports their outcomes. Only processes that know the secret of the job can
/// take part.
///
/// If a process is lost, other copies take over the work of its filters that are declared
/// idempotent, and the result is the same. If it ran any other filter, the units fail on all hosts.
#[derive(Debug, Args)]
#[command(after_long_help = run_help())]
pub(crate) struct FlowRun {
    /// Role of this process, which placements of filters can name
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        env = "SEEKWIRE_FLOW_ROLE"
    )]
    pub(crate) role: String,
    /// Give the other processes only the addresses of this network interface
    ///
    /// By default the processes try all addresses of each other; those of the loopback interface
    /// last, and only on one host. The port is open on all interfaces.
    #[arg(long, value_name = "NAME", env = "SEEKWIRE_FLOW_INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Time in which the processes have to find each other
    ///
    /// They exchange addresses through the launcher or the directory, and then connect; each of the
    /// two steps may take this long.
    #[arg(long, value_name = "TIME", default_value = "60s", env = "SEEKWIRE_FLOW_LIMIT")]
    #[arg(value_parser = Time::within(seconds(1)..=seconds(u32::MAX as u64)))]
    pub(crate) meet_within: Time,
    /// Silence after which a process is given up, at least 5s
    ///
    /// Detects processes that are stopped (SIGSTOP) or cut off; one that exits is noticed at once.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    #[arg(value_parser = Time::within(seconds(5)..=seconds(u32::MAX as u64)))]
    pub(crate) patience: Time,
    #[command(flatten)]
    pub(crate) pipeline: PipelineArguments,
    #[arg(long, short, help = command_line::QUIET)]
    pub(crate) quiet: bool,
    /// Serve /metrics (for Prometheus), /status (JSON) and /healthz by HTTP at this address
    ///
    /// Either part may be left out: HOST is then 127.0.0.1, which only this host can reach, and
    /// PORT is 9464. If PORT is 0, the system picks one, which is printed on standard error. Anyone
    /// who can connect there can read the name of the pipeline file and the arguments, but cannot
    /// change anything.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<Address>,
    /// Write what each copy did when to FILE, for a viewer of traces such as ui.perfetto.dev
    ///
    /// The file is written while the pipeline runs, as trace events in JSON: for each copy its
    /// calls, with unit, number, bytes and port of the block, and when it was starved or blocked;
    /// for each stream how much it held, which copy got which blocks and why, and the block sizes
    /// that it chose. If several processes run the pipeline, rank 1 writes to FILE.1, and so on,
    /// each for its own copies. A trace takes about 550 bytes for each block and filter. It
    /// replaces an earlier trace in FILE, and no other content. If FILE cannot be written any more,
    /// the pipeline goes on.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,
}

/// Show what the copies and streams of a running pipeline do
///
/// A table, drawn again every second. For each copy it shows how much of the last second it was
/// busy, starved (it had nothing to do) or blocked (the next filter had no room), and the blocks
/// and bytes that it took; for each stream its throughput, how much of its limit it holds, the
/// figures that dealing uses, and the last block size that it chose, with the reason; then the
/// bottleneck in words, and whether a guarantee holds. It ends with the pipeline.
///
/// By default, shows the pipeline that this user runs on this host. If there are several, they are
/// listed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
JSON:
  a line with one object for each pipeline: its counts since it began; then the
  command exits

Files:
  $XDG_RUNTIME_DIR/seekwire, or /tmp/seekwire-UID where that variable is not
  set: a socket for each pipeline that runs, PID.sock, which no other user can
  reach

Exit status:
  0  a pipeline was shown
  1  there is none or it does not answer, or several were listed

Examples:
  seekwire flow top
  seekwire flow top --once
  seekwire flow top --json | jq '.copies[] | {filter, copy, busy_seconds}'
  seekwire flow run --metrics 0.0.0.0:9464 count.toml   # and on another host:
  seekwire flow top worker:9464")]
pub(crate) struct FlowTop {
    /// Pipeline to show: the process that runs it on this host, or HOST:PORT of its --metrics
    #[arg(value_name = "PID|HOST:PORT")]
    pub(crate) pipeline: Option<String>,
    /// Print one table, of all the time since the pipeline began, and exit
    ///
    /// This is the default if standard output is not a terminal.
    #[arg(long)]
    pub(crate) once: bool,
    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,
}

const RUN_HELP: &str = "\
Pipeline files:
  A pipeline file is written in TOML. Each filter is a table with its name;
  `run` says which filter it is, `copies` how many of it there are (1 if not
  given), and the rest are options of that filter, which `seekwire flow filters`
  lists. Each stream leads from one filter to another:

  from, to     FILTER, or FILTER.PORT where a filter has several
  policy       how blocks are dealt to copies: adaptive (default), demand,
               round-robin
  limit        bytes that the stream may hold at most (default 64MiB)
  block        cut what is sent into blocks of this many bytes; \"auto\": of a
               size chosen while it runs, with block-least, block-most
               ({LEAST}, {MOST}) and block-record (1): whole records of so many
               bytes
  lines        cut it into blocks of whole lines, of this many bytes or a little
               more
  ordered      true: blocks come in the order of the input, whatever the copies
               do

  One table, [guarantee], can promise something for each unit of work; the run
  reports whether it held, and `flow plan` predicts it. Block sizes that are
  chosen are small enough to keep it:

  latency           each unit is done within this time (\"40ms\"), which is its
                    deadline
  units-per-second  this many units are done per second

  on_error     for a filter that treats each block by itself: what an error
               does. \"fail\" (default) ends the unit; \"skip\" goes on without the
               block; { to = \"rejects\" } also sends the block to an output port
               of that name, FILTER.rejects

  Where several processes run the pipeline, a filter is placed by one of these;
  otherwise it runs on rank 0. `copies` counts those on each process.

  ranks        list of ranks
  hosts        list of names of hosts, with * for any text
  role         processes that were started with this --role
  idempotent   true: the filter sends the same for the same block in any copy,
               and nothing at the end of a unit; so the work of a lost process
               can be repeated

  A size is a number of bytes, or a string such as \"64KiB\" or \"8M\"; a time is
  a number of seconds, or a string such as \"40ms\" or \"2min\".

Pipelines in one line:
  -e 'FILTER ... | FILTER ...' is a chain of filters, with words quoted as for a
  shell. NAME=VALUE after the name of a filter is one of its options, and before
  the name one of the stream that leads to it. A word without a name is the path
  of read and write, the level of gzip and zstd, or `what` of count; for exec
  and framed, it begins the command. A list has no blanks: success=[0,1]. Unless
  the last filter is write, what it sends goes to standard output. -e has no
  ports, no second branch and no guarantee.

Environment:
  SEEKWIRE_FLOW_RENDEZVOUS=DIR  directory in which the processes exchange
                                addresses if the launcher does not; all hosts
                                share it, and only the user can write to it
  SEEKWIRE_FLOW_RANK=N          number of this process, from 0, if no launcher
                                gives it one
  SEEKWIRE_FLOW_SIZE=N          number of processes, likewise
  SEEKWIRE_FLOW_JOB=NAME        name of the job, if several such jobs use one
                                directory
  SEEKWIRE_FLOW_LIMIT=TIME      as --meet-within
  SEEKWIRE_FLOW_ROLE=NAME       as --role
  SEEKWIRE_FLOW_INTERFACE=NAME  as --interface

Exit status:
  0  every unit of work was done, or nobody reads standard output any more
     (`... | head`) and nothing is written elsewhere: units that are left are
     not begun, as with a program that SIGPIPE ends
  1  one of them failed, or the pipeline cannot run
  3  no unit failed, but filters have rejected some of the input: blocks with
     `on_error`, or trailing garbage after compressed data. The first lines on
     standard error name the rejects, and the last ones count them

Examples:
  seekwire flow run -e 'read | gunzip | count lines' *.log.gz
  seekwire flow run count.toml
  seekwire flow run checksum.toml *.img

  # count.toml: lines with an error in a compressed log
  [filter.read]
  run = \"read\"
  path = \"/var/log/app.log.gz\"
  [filter.unzip]
  run = \"gunzip\"
  [filter.grep]
  run = \"exec\"
  command = [\"grep\", \"-a\", \"ERROR\"]
  success = [0, 1]
  copies = 3
  [filter.count]
  run = \"count\"
  [filter.print]
  run = \"write\"
  [[stream]]
  from = \"read\"
  to = \"unzip\"
  [[stream]]
  from = \"unzip\"
  to = \"grep\"
  lines = \"256KiB\"
  [[stream]]
  from = \"grep\"
  to = \"count\"
  [[stream]]
  from = \"count\"
  to = \"print\"";

/// The help, with the runtime's defaults.
fn run_help() -> String {
    let SizeBounds { least, most, .. } = SizeBounds::default();
    let [least, most] = [least, most].map(|bytes| Size::shown(bytes as u64));
    RUN_HELP.replace("{LEAST}", &least).replace("{MOST}", &most)
}
