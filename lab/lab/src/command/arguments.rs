//! Commands and options of the laboratory. Their doc comments are the help and the manual pages.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use seekwire_values::{Address, Size, SizeUnit};

/// Stands for every experiment.
pub(super) const ALL: &str = "all";

/// The part of the command `seekwire` for the laboratory
#[derive(Debug, Parser)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the experiments behind BENCHMARKING.md on this machine
    #[command(subcommand)]
    Lab(Lab),
    Calibrate(Calibrate),
    /// Run one side of an experiment; `lab` starts it
    #[command(hide = true)]
    LabPeer(LabPeer),
}

/// Measure from which size on to take messages in place
///
/// When a program receives messages out of order, it is cheaper to move small ones into library
/// memory in bulk and to take large ones in place. This command measures for about ten seconds at
/// which size that changes; the machine should otherwise be idle. It writes the result to a file in
/// the user's cache, which every program reads at its first seek. Without that file, programs use a
/// built-in value.
#[derive(Debug, Args)]
#[command(after_help = "\
Files:
  $XDG_CACHE_HOME/seekwire/tuning, else ~/.cache/seekwire/tuning; the variable
  SEEKWIRE_SEEK_SWITCH overrides it")]
pub(super) struct Calibrate {
    /// Write the result to this file instead; - only prints it
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Lab {
    /// List the experiments
    List,
    Show(LabShow),
    Run(LabRun),
    Report(LabReport),
    Pack(LabPack),
}

/// Shrink results to about a tenth, to keep them
///
/// Compresses raw.csv, and removes from result.json what follows from it: rows, and tables, figures
/// and summary if this version computes the same ones. `seekwire lab report` reads such results
/// like any others, and its site has both files complete. If the rows of the two files differ,
/// nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  seekwire lab pack out/lab/*")]
pub(super) struct LabPack {
    /// Directories with the result of one experiment each
    #[arg(required = true, value_name = "DIR")]
    pub(super) directories: Vec<PathBuf>,
}

/// Say what an experiment measures, whether it can run here, and its own options
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  seekwire lab show nic")]
pub(super) struct LabShow {
    /// Experiments, as `seekwire lab list` names them
    #[arg(required = true, value_name = "NAME", hide_possible_values = true)]
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    pub(super) names: Vec<String>,
}

/// Run experiments; each writes DIR/NAME/result.json, raw.csv and report.html
///
/// Runs the experiments one after the other. If one of them cannot run on this machine, none is
/// started. The first failure ends the run. Standard error and the report name what could not be
/// measured.
///
/// With `all`, every experiment that can run on this machine runs. The others are skipped, and the
/// reason is printed. A failure does not stop the rest. At the end, the results are joined into
/// DIR/report, as by `seekwire lab report`. All experiments take hours; with --quick, they take
/// about ten minutes on two processors.
///
/// Some experiments have options of their own, which the others refuse. `seekwire lab run NAME
/// --help` and `seekwire lab show NAME` list them.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0  every experiment that was started was measured
  1  otherwise

Examples:
  seekwire lab run sockets --quick
  seekwire lab run all --quick")]
pub(super) struct LabRun {
    /// Experiments, as `seekwire lab list` names them, or `all`
    #[arg(required = true, value_name = "NAME", hide_possible_values = true)]
    #[arg(value_parser = PossibleValuesParser::new(names().chain([ALL])))]
    pub(super) names: Vec<String>,

    /// Run fewer and shorter rounds, to see that it works; do not quote the numbers
    ///
    /// A quick run does not replace the result of a thorough one.
    #[arg(long)]
    pub(super) quick: bool,

    /// Number of rounds, instead of the experiment's own; intervals need at least five
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: Option<u32>,

    /// Write the results below this directory
    #[arg(long, value_name = "DIR", default_value = "out/lab")]
    pub(super) out: PathBuf,

    /// Number of connections that each value is measured with
    ///
    /// The default is 100, as in the paper. If these would move more than 4 GB, it is the largest
    /// number that does not.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(super) repetitions: Option<u64>,

    /// Way to take bytes out of the middle of TCP: `module` runs `seek-module` instead
    #[arg(long, value_name = "WAY", value_parser = ["module"])]
    pub(super) way: Option<String>,

    /// Move at most this much for each value, instead of 4 gigabytes; at least one connection is used
    ///
    /// A number without a unit is in gigabytes.
    #[arg(long, value_name = "SIZE", conflicts_with = "repetitions")]
    #[arg(value_parser = Size::within_in(SizeUnit::Gigabyte, 0..=u64::MAX))]
    pub(super) gigabytes: Option<Size>,

    /// The other host, where `seekwire nic serve` runs; by default, both hosts are network
    /// namespaces of this one
    ///
    /// The experiment changes only the interface of this host. It restores the settings at the end
    /// and at ^C. After a crash, use `seekwire nic restore IFACE`.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) peer: Option<Address>,

    /// A second `seekwire nic serve` with little processor time: the weak receiver
    ///
    /// It can run on the peer as another service, started by `systemd-run -p CPUQuota=20% -p
    /// CPUQuotaPeriodSec=10ms seekwire nic serve --listen 7118`; then give `--weak-peer HOST:7118`
    /// here. It can also run on a slow host. The same interface must lead to it. Give its processor
    /// time with --weak-cpu.
    #[arg(long, value_name = "HOST:PORT", requires = "peer")]
    pub(super) weak_peer: Option<Address>,

    /// The interface of this host to change; default: the one that leads to the peer
    #[arg(long, value_name = "IFACE", requires = "peer")]
    pub(super) iface: Option<String>,

    /// With --peer: also change an interface that carries the default route
    #[arg(long, requires = "peer")]
    pub(super) default_route: bool,

    /// Run in two network namespaces of this host, joined by a veth pair; this is the default
    /// without --peer
    ///
    /// It needs CAP_SYS_ADMIN and CAP_NET_ADMIN, for example by sudo. It removes everything at the
    /// end.
    #[arg(long, conflicts_with = "peer")]
    pub(super) netns: bool,

    /// Processor time of the weak receiver, in percent of one processor (cgroup quota)
    ///
    /// With --weak-peer, this option only states the processor time of that server: give the
    /// same number as its CPUQuota.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub(super) weak_cpu: u32,
}

/// Join the results of experiments into one site
///
/// Reads the results below DIR, including those of a demo, and writes pages that need neither a
/// server nor a network. The first page shows the machine and, for each experiment, its question,
/// the verdict and the supporting numbers. Each experiment has a page with its claims, published
/// numbers beside ours, plots, tables, failed measurements, the setup and the raw data.
/// Verdicts follow from the numbers. A claim of a paper is reproduced when the whole 95 % interval
/// meets its criterion. It is improved upon when the whole interval is better than what the paper
/// found, for example no loss where the paper found one. It is not reproduced when no part of the
/// interval meets the criterion. Otherwise it is inconclusive, and more rounds are needed. A result
/// that cannot be read is named with the reason, and the others are shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  seekwire lab run all --quick
  seekwire lab report out/lab --out site
  seekwire lab report lab/measurements \\
      --markdown README.md BENCHMARKING.md lab/experiments")]
pub(super) struct LabReport {
    /// Directory of the results: the DIR of `seekwire lab run --out`
    #[arg(value_name = "DIR", default_value = "out/lab")]
    pub(super) directory: PathBuf,

    /// Write the site to this directory; default: DIR/report
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,

    /// Instead of a site, write tables of the results into these Markdown pages; a directory
    /// stands for all pages in it
    ///
    /// Markers in a page say what belongs between them: `<!-- seekwire lab report: WHAT -->` and
    /// `<!-- seekwire lab report: end -->`. Everything else stays as it is.
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with = "out")]
    pub(super) markdown: Vec<PathBuf>,

    /// Write nothing: fail if a page has something else between its markers
    #[arg(long, requires = "markdown")]
    pub(super) check: bool,
}

/// The names of all experiments.
fn names() -> impl Iterator<Item = &'static str> {
    crate::experiments().iter().map(|experiment| experiment.name())
}

#[derive(Debug, Args)]
pub(super) struct LabPeer {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) arguments: Vec<OsString>,
}
