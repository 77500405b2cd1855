//! The commands below `seekwire flow`. Their doc comments are the help and the manual pages.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};

/// The part of the command `seekwire` for pipelines of filters
#[derive(Debug, Parser)]
#[command(
    name = "seekwire",
    bin_name = "seekwire",
    version,
    propagate_version = false,
    max_term_width = 100
)]
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
    Run(FlowRun),
    /// List the filters that pipelines can be made of, and their options
    Filters,
}

/// Check a pipeline file, and show its filters and streams
///
/// Whatever is wrong is told with the line of the file: a filter or a port that there is not, an
/// option that the filter does not have, a port that is not connected, streams that lead in a
/// circle, a limit into which no block fits. Nothing is run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the pipeline can run
  1  it cannot

Examples:
  seekwire flow check count.toml")]
pub(crate) struct FlowCheck {
    /// Pipeline to check
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// Run a pipeline, all filters as threads of this process
///
/// The pipeline runs once for each ARGUMENT, which its sources get: `read` reads the file of that
/// name if it has no path of its own. Without arguments it runs once. A unit of work that fails is
/// reported with the filter, the copy and the block; the others go on.
///
/// At the end, a table on standard error says where the time of each copy went, busy, starved (it
/// had nothing to do) or blocked (the next filter had no room), and a line names the bottleneck.
///
/// Filters run in this process only: the filters of a pipeline cannot be placed on other hosts yet.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Pipeline files:
  A pipeline file is written in TOML. Each filter is a table with its name; `run` says which filter
  it is, `copies` how many of it there are (1 if not given), and the rest are options of that filter,
  which `seekwire flow filters` lists. Each stream leads from one filter to another:

  from, to     FILTER, or FILTER.PORT where a filter has several
  policy       how blocks are dealt to copies: adaptive (default), demand, round-robin
  limit        bytes that the stream may hold at most (default 64MiB)
  block        cut what is sent into blocks of this many bytes
  lines        cut it into blocks of whole lines, of this many bytes or a little more
  ordered      true: blocks come in the order of the input, whatever the copies do

Exit status:
  0  every unit of work was done
  1  one of them failed, or the pipeline cannot run

Examples:
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
  to = \"print\"")]
pub(crate) struct FlowRun {
    /// Pipeline to run
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Units of work: what the sources get, one after the other
    #[arg(value_name = "ARGUMENT", value_hint = ValueHint::FilePath)]
    pub(crate) units: Vec<String>,
    /// Print no table at the end
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
