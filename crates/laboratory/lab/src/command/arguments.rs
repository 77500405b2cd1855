//! Commands and options of the laboratory. Their doc comments are the help and the manual pages.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The part of the command `seekwire` that is the laboratory
#[derive(Debug, Parser)]
#[command(
    name = "seekwire",
    bin_name = "seekwire",
    version,
    propagate_version = false,
    max_term_width = 100
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Demo(Demo),
    /// Run the experiments behind BENCHMARKING.md on this machine
    #[command(subcommand)]
    Lab(Lab),
    Calibrate(Calibrate),
    /// One side of an experiment; started by `lab` and `demo`
    #[command(hide = true)]
    LabPeer(LabPeer),
}

/// Measure at which size messages are best received out of order in place
///
/// Small messages are cheaper to move into library memory in bulk, large ones to take where they
/// are. This measures, for about ten seconds on an otherwise idle machine, at which size that
/// changes, and writes it to a file in the user's cache that every program reads at its first seek.
/// Without it a built-in value is used.
#[derive(Debug, Args)]
#[command(after_help = "\
Files:
  $XDG_CACHE_HOME/seekwire/tuning, else ~/.cache/seekwire/tuning; SEEKWIRE_SEEK_SWITCH=BYTES
  comes before it")]
pub(super) struct Calibrate {
    /// Write the result here instead
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// Run real programs plain and accelerated, in turns, and report
///
/// Runs iperf3, redis-benchmark, a file download from Python's http.server with curl, and sockperf
/// ping-pong; and message search, a receiver that takes messages out of the middle of a stream.
/// Prints one table and writes report.html, result.json and raw.csv. A program that is not
/// installed gets a line that says so. Five rounds take about two minutes.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Directory for the report
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub(super) out: PathBuf,

    /// Rounds; each runs every program once plain and once accelerated
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
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

/// Shrink results that are kept
///
/// Compresses raw.csv, and leaves out of result.json the rows that follow from it: a tenth remains.
/// `seekwire lab report` reads such results like others, and its site has both files whole. Nothing
/// is changed where the rows are not those of raw.csv.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  seekwire lab pack out/lab/*")]
pub(super) struct LabPack {
    /// Directories, each with the result of one experiment
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
    #[arg(required = true, value_name = "NAME")]
    pub(super) names: Vec<String>,
}

/// Run experiments; each writes DIR/NAME/result.json, raw.csv and report.html
///
/// Experiments run one after the other. If one of them cannot run on this machine, none does; the
/// first that fails ends the run. What could not be measured is named on standard error, and in the
/// report. With `all`, every experiment that can run on this machine does: those that cannot are
/// skipped with the reason, one that fails does not stop the others, and at the end the results are
/// joined into DIR/report, as `seekwire lab report` does. All of them take hours; with --quick,
/// less than ten minutes on two processors.
///
/// Some experiments have options of their own, which no other one takes: `seekwire lab run NAME
/// --help` has them, too, and so has `seekwire lab show NAME`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0 when every experiment that was started has been measured, 1 else

Examples:
  seekwire lab run sockets --quick
  seekwire lab run all --quick")]
pub(super) struct LabRun {
    /// Experiments, as `seekwire lab list` names them, or `all`
    #[arg(required = true, value_name = "NAME")]
    pub(super) names: Vec<String>,

    /// Fewer and shorter rounds: to see that it works, not to quote
    #[arg(long)]
    pub(super) quick: bool,

    /// Rounds, instead of the experiment's own number; intervals need at least five
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: Option<u32>,

    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "out/lab")]
    pub(super) out: PathBuf,

    /// Connections behind each value
    ///
    /// By default 100 as in the paper, but where these would move more than 4 GB, as many as do
    /// not.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(super) repetitions: Option<u64>,

    /// How seeks take bytes out of the middle of TCP: `module` runs `seek-module` instead
    #[arg(long, value_name = "WAY", value_parser = ["module"])]
    pub(super) way: Option<String>,

    /// Gigabytes that each value moves at most, instead of 4; one connection at least
    #[arg(long, value_name = "GB", conflicts_with = "repetitions")]
    pub(super) gigabytes: Option<f64>,

    /// The other host, where `seekwire nic serve` runs; by default both are network namespaces
    /// here
    ///
    /// The settings are those of the interface of this host only. They are put back at the end, at
    /// ^C too; after a crash `seekwire nic restore IFACE` does it.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(super) peer: Option<String>,

    /// A second `seekwire nic serve`, one that has little processor time: the weak receiver of a
    /// peer
    ///
    /// On the same host, as another service: `systemd-run -p CPUQuota=20% -p
    /// CPUQuotaPeriodSec=10ms seekwire nic serve --listen 7118`, and `--weak-peer HOST:7118` here;
    /// or on a slow host. The same interface must lead to it. Say with --weak-cpu what it has.
    #[arg(long, value_name = "HOST[:PORT]", requires = "peer")]
    pub(super) weak_peer: Option<String>,

    /// The interface of this host whose settings are changed, if not the one that leads to the
    /// peer
    #[arg(long, value_name = "IFACE", requires = "peer")]
    pub(super) iface: Option<String>,

    /// With --peer: change an interface that carries the default route, too
    #[arg(long, requires = "peer")]
    pub(super) default_route: bool,

    /// Run in two network namespaces of this host, joined by a veth pair, as it does where no peer
    /// is named
    ///
    /// It needs the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN, as with sudo, and leaves nothing
    /// behind.
    #[arg(long, conflicts_with = "peer")]
    pub(super) netns: bool,

    /// Processor time of the weak receiver, in percent of one processor (cgroup quota)
    ///
    /// With --weak-peer it sets nothing, but says what that server has: the same as its CPUQuota.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub(super) weak_cpu: u32,
}

/// Join the results of experiments into one site
///
/// Reads the results below DIR, those of a demo, too, and writes pages that are viewed without a
/// server or a network: the first one with the machine, and for each experiment what is asked, the
/// verdict and the numbers behind it; and one for each experiment with every claim, published
/// numbers beside ours, plots, tables, what could not be measured, the setting and the raw data.
///
/// Verdicts follow from the numbers. A claim of a paper is reproduced when the whole 95 % interval
/// fulfils its criterion, improved upon when all of it is better than what the paper found (no loss
/// where there was one), not reproduced when no part of it fulfils the criterion; else it cannot be
/// told, and more rounds are needed. A result that cannot be read is named with the reason, and the others are
/// shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  seekwire lab run all --quick
  seekwire lab report out/lab --out site")]
pub(super) struct LabReport {
    /// Directory of the results, as `seekwire lab run --out` names it
    #[arg(value_name = "DIR", default_value = "out/lab")]
    pub(super) directory: PathBuf,

    /// Directory for the site; DIR/report if not given
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct LabPeer {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) arguments: Vec<OsString>,
}
