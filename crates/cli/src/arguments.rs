//! Commands and options. Their doc comments are the help and the manual pages.

mod interfaces;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
pub(crate) use interfaces::{Nic, NicApply, NicRestore, NicServe, NicShow, NicState, NicTune};

/// Make programs that talk over TCP on one host faster, without changing them
///
/// Seekwire moves the bytes of TCP connections between two processes of one host through shared memory. The socket
/// that a program holds stays a real, connected TCP socket of the kernel; a peer without Seekwire sees plain TCP.
#[derive(Debug, Parser)]
#[command(name = "seekwire", version, propagate_version = false, max_term_width = 100, after_long_help = FILES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const FILES: &str = "\
Environment:
  SEEKWIRE=off               the library does nothing
  SEEKWIRE_DIR=DIR           where processes find each other; default $XDG_RUNTIME_DIR/seekwire,
                             else /dev/shm/seekwire-$UID; must belong to the user, mode 0700
  SEEKWIRE_LOG=DEST[:LEVEL]  tracing to `stderr` or a file; level error, warn, info, debug or trace
  SEEKWIRE_STATS=FILE        counters, as JSON, when a program ends; %p becomes the process id;
                             an existing directory gets one file for each process
  SEEKWIRE_SPIN_US=N         longest time to spin before sleeping; 0 never spins
  SEEKWIRE_THRESHOLD=N       calls on a connection before it is accelerated
  SEEKWIRE_SEGMENT_SIZE, SEEKWIRE_SEGMENTS
                             size in bytes and number of the segments of shared memory
  SEEKWIRE_SEEK_MEMORY=N     bytes of memory that a stream may use for what comes before the bytes that
                             a program seeks; 67108864 if not set
  SEEKWIRE_SEEK_SWITCH=N     messages of fewer bytes on average are moved to that memory in bulk
  SEEKWIRE_SEEK_WAY=WAY      the first way to take bytes out of the middle of TCP that is tried:
                             module, peek or drain
  SEEKWIRE_NIC_STATE=DIR     where states of network interfaces are saved; default /run/seekwire/nic
  SEEKWIRE_LIBRARY=FILE      the library to load, instead of the libseekwire.so that is next to the
                             command or installed with it";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Status(Status),
    Doctor(Doctor),
    Demo(Demo),
    /// Run the experiments behind BENCHMARKING.md on this machine
    #[command(subcommand)]
    Lab(Lab),
    Calibrate(Calibrate),
    /// Show and change what network interfaces do for messages
    #[command(subcommand)]
    Nic(Nic),
    /// One side of an experiment; started by `lab` and `demo`
    #[command(hide = true)]
    LabPeer(LabPeer),
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// Directory to write seekwire.1 and seekwire-*.1 into; created when missing
        directory: PathBuf,
    },
    /// One side of the exchange that `doctor` tries
    #[command(hide = true, subcommand)]
    Probe(Probe),
}

/// Run a program with its TCP connections accelerated
///
/// Loads libseekwire.so into PROGRAM and, by way of the environment, into the programs that it starts. A connection is
/// accelerated when both of its ends run under Seekwire, as the same user and in the same network namespace; every
/// other connection is plain TCP. An LD_PRELOAD that is already set is kept, after Seekwire's library.
///
/// A program into which no library can be loaded runs all the same, unaccelerated, after a warning: statically linked
/// programs, programs for another architecture or C library, programs written in Go (their runtime makes system calls
/// without the C library), and set-user-id, set-group-id and file-capability programs (the dynamic loader ignores
/// LD_PRELOAD there).
#[derive(Debug, Args)]
#[command(after_help = "\
Library:
  the file that SEEKWIRE_LIBRARY names; if that is not set, libseekwire.so
  beside this command, or in ../lib/seekwire or ../lib from there

Exit status:
  that of PROGRAM; 125 when seekwire itself fails, 126 when PROGRAM cannot
  be run, 127 when it is not found

Examples:
  seekwire run redis-server --save ''
  seekwire run redis-benchmark -t get,set -q
  seekwire run --stats /tmp/%p.json -- python3 -m http.server")]
pub(crate) struct Run {
    /// Load the library switched off (SEEKWIRE=off), to compare
    #[arg(long)]
    pub(crate) off: bool,

    /// Write tracing to `stderr` or to a file (SEEKWIRE_LOG)
    ///
    /// An optional `:LEVEL` is one of error, warn, info, debug and trace.
    #[arg(long, value_name = "DEST[:LEVEL]")]
    pub(crate) log: Option<OsString>,

    /// Write counters as JSON when the program ends (SEEKWIRE_STATS)
    ///
    /// `%p` in the name becomes the process id. An existing directory gets one file for each process.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,

    /// Spin at most N microseconds before sleeping; 0 never spins (SEEKWIRE_SPIN_US)
    #[arg(long, value_name = "N")]
    pub(crate) spin_us: Option<u32>,

    /// Accelerate a connection after N calls on it (SEEKWIRE_THRESHOLD)
    #[arg(long, value_name = "N")]
    pub(crate) threshold: Option<u32>,

    /// Directory in which processes find each other (SEEKWIRE_DIR)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// List the live connections of your accelerated programs
///
/// One line for each TCP connection of each of your processes that has the library loaded: what carries the bytes of
/// each direction now, how many bytes went by TCP and how many through shared memory (ring) so far, and why a connection
/// is not accelerated. Bytes are counted once a connection has passed the threshold (SEEKWIRE_THRESHOLD); before,
/// there is a dash.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Print JSON: an array with one object for each connection, bytes as exact numbers
    #[arg(long)]
    pub(crate) json: bool,

    /// Redraw every SECS seconds until interrupted
    #[arg(long, value_name = "SECS", num_args = 0..=1, default_missing_value = "2",
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) watch: Option<u32>,

    /// Only programs that find each other in this directory (their SEEKWIRE_DIR)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Say what this host supports and how to fix what is missing
///
/// Looks at the kernel, the limits of this user and the library, and makes two processes exchange messages through
/// shared memory. Says how bytes are taken out of the middle of a stream here, and which network interfaces have been left
/// with other settings than they had. Each line is ok, warn (works, but less well than it could) or fail.
#[derive(Debug, Args)]
#[command(after_help = "Exit status:\n  0 when programs can be accelerated here, 1 when a line says fail")]
pub(crate) struct Doctor {
    /// Print JSON: an array of {check, verdict, found, advice}
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory in which processes find each other, if not that of this environment
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) state: NicState,
}

/// Measure at which size messages are best received out of order in place
///
/// Small messages are cheaper to move into library memory in bulk, large ones to take where they are. This measures, for
/// about ten seconds on an otherwise idle machine, at which size that changes, and writes it to a file in the user's cache
/// that every program reads at its first seek. Without it a built-in value is used.
#[derive(Debug, Args)]
#[command(after_help = "\
Files:
  $XDG_CACHE_HOME/seekwire/tuning, else ~/.cache/seekwire/tuning; SEEKWIRE_SEEK_SWITCH=BYTES
  comes before it")]
pub(crate) struct Calibrate {
    /// Write the result here instead
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Run real programs plain and accelerated, in turns, and report
///
/// Runs iperf3, redis-benchmark, a file download from Python's http.server with curl, and sockperf ping-pong; and message
/// search, a receiver that takes messages out of the middle of a stream. Prints one table and writes report.html, result.json
/// and raw.csv. A program that is not installed gets a line that says so. Five rounds take about two minutes.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Directory for the report
    #[arg(long, value_name = "DIR", default_value = "out/demo")]
    pub(crate) out: PathBuf,

    /// Rounds; each runs every program once plain and once accelerated
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// List the experiments
    List,
    Run(LabRun),
    Report(LabReport),
    Pack(LabPack),
}

/// Shrink results that are kept
///
/// Compresses raw.csv, and leaves out of result.json the rows that follow from it: a tenth remains. `seekwire lab report`
/// reads such results like others, and its site has both files whole. Nothing is changed where the rows are not those of
/// raw.csv.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  seekwire lab pack out/lab/*")]
pub(crate) struct LabPack {
    /// Directories, each with the result of one experiment
    #[arg(required = true, value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,
}

/// Run experiments; each writes DIR/NAME/result.json, raw.csv and report.html
///
/// Experiments run one after the other. If one of them cannot run on this machine, none does; the first that fails ends
/// the run. What could not be measured is named on standard error, and in the report. With `all`, every experiment that
/// can run on this machine does: those that cannot are skipped with the reason, one that fails does not stop the
/// others, and at the end the results are joined into DIR/report, as `seekwire lab report` does. All of them take hours;
/// with --quick, less than ten minutes on two processors.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0 when every experiment that was started has been measured, 1 else

Examples:
  seekwire lab run sockets --quick
  seekwire lab run all --quick")]
pub(crate) struct LabRun {
    /// Experiments, as `seekwire lab list` names them, or `all`
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Fewer and shorter rounds: to see that it works, not to quote
    #[arg(long)]
    pub(crate) quick: bool,

    /// Rounds, instead of the experiment's own number; intervals need at least five
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,

    /// Connections behind each value of `seek` and `seek-fragments`
    ///
    /// By default 100 as in the paper, but where these would move more than 4 GB, as many as do not.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) repetitions: Option<u64>,

    /// How seeks take bytes out of the middle of TCP: `module` runs `seek-module` instead of `seek`
    #[arg(long, value_name = "WAY", value_parser = ["module"])]
    pub(crate) way: Option<String>,

    /// Gigabytes that each value of `seek` and `seek-fragments` moves at most, instead of 4; one connection at least
    #[arg(long, value_name = "GB", conflicts_with = "repetitions")]
    pub(crate) gigabytes: Option<f64>,

    /// The other host of `nic`, where `seekwire nic serve` runs; by default both are network namespaces here
    ///
    /// The settings are those of the interface of this host only. They are put back at the end, at ^C too; after a crash
    /// `seekwire nic restore IFACE` does it.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) peer: Option<String>,

    /// A second `seekwire nic serve` for `nic`, one that has little processor time: the weak receiver of a peer
    ///
    /// On the same host, as another service: `systemd-run -p CPUQuota=20% -p CPUQuotaPeriodSec=10ms seekwire nic serve
    /// --listen 7118`, and `--weak-peer HOST:7118` here; or on a slow host. The same interface must lead to it. Say with
    /// --weak-cpu what it has.
    #[arg(long, value_name = "HOST[:PORT]", requires = "peer")]
    pub(crate) weak_peer: Option<String>,

    /// The interface of this host whose settings `nic` changes, if not the one that leads to the peer
    #[arg(long, value_name = "IFACE", requires = "peer")]
    pub(crate) iface: Option<String>,

    /// With --peer: change an interface that carries the default route, too
    #[arg(long, requires = "peer")]
    pub(crate) default_route: bool,

    /// Run `nic` in two network namespaces of this host, joined by a veth pair, as it does where no peer is named
    ///
    /// It needs the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN, as with sudo, and leaves nothing behind.
    #[arg(long, conflicts_with = "peer")]
    pub(crate) netns: bool,

    /// Processor time of the weak receiver of `nic`, in percent of one processor (cgroup quota)
    ///
    /// With --weak-peer it sets nothing, but says what that server has: the same as its CPUQuota.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub(crate) weak_cpu: u32,

    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "out/lab")]
    pub(crate) out: PathBuf,
}

/// Join the results of experiments into one site
///
/// Reads the results below DIR, those of a demo, too, and writes pages that are viewed without a server or a network:
/// the first one with the machine, and for each experiment what is asked, the verdict and the numbers behind it; and
/// one for each experiment with every claim, published numbers beside ours, plots, tables, what could not be
/// measured, the setting and the raw data.
///
/// Verdicts follow from the numbers. A claim of a paper is reproduced when the whole 95 % interval fulfils its
/// criterion, not reproduced when no part of it does; else it cannot be told, and more rounds are needed. A result
/// that cannot be read is named with the reason, and the others are shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  seekwire lab run all --quick
  seekwire lab report out/lab --out site")]
pub(crate) struct LabReport {
    /// Directory of the results, as `seekwire lab run --out` names it
    #[arg(value_name = "DIR", default_value = "out/lab")]
    pub(crate) directory: PathBuf,

    /// Directory for the site; DIR/report if not given
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LabPeer {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Probe {
    /// Listen on loopback, print the port, and echo one connection until it ends
    Serve,
    /// Exchange messages with a `serve`
    Call {
        /// Port that `serve` printed
        port: u16,
    },
}
