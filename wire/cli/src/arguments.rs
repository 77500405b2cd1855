//! Commands and options of this program. Their doc comments are the help and the manual pages.

mod vm;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use seekwire_endpoint::config::{MAX_SPIN, MAX_THRESHOLD};
use seekwire_program::command_line;
use seekwire_values::{Log, Time, TimeUnit};

use crate::reasons;

pub(crate) use vm::{
    Runner, Vm, VmAgent, VmAttach, VmCommand, VmDetach, VmHold, VmMapEdit, VmPlan, VmStatus,
};

/// Make programs that talk over TCP on one host faster, without changing them
///
/// Seekwire moves the bytes of a TCP connection between two processes of one host through shared
/// memory. The program keeps a real, connected TCP socket of the kernel. A peer without Seekwire
/// sees plain TCP.
#[derive(Debug, Parser)]
#[command(after_long_help = FILES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const FILES: &str = "\
Environment:
  SEEKWIRE=off             load the library, but do nothing; `on` is the default
  SEEKWIRE_DIR=DIR         directory in which processes find each other: an
                           absolute path; it must belong to the user and have
                           mode 0700. Default: $XDG_RUNTIME_DIR/seekwire, else
                           /dev/shm/seekwire-$UID
  SEEKWIRE_LOG=DEST:LEVEL  write a log to `stderr` or to a file, from LEVEL on:
                           error, warn, info, debug or trace. Either may be left
                           out: the default is stderr:info. If the file name
                           contains a colon, add the level
  SEEKWIRE_STATS=FILE      write counters as JSON when a program ends; %p
                           becomes the process id. An existing directory gets
                           one file for each process
  SEEKWIRE_SUMMARY=DIR     also write counters there; `seekwire run --summary`
                           sets it
  SEEKWIRE_SPIN_US=TIME    spin at most this long before sleeping, at most 1s;
                           0 never spins. A number without a unit is in
                           microseconds
  SEEKWIRE_THRESHOLD=N     accelerate a connection after N calls on it, at most
                           1000000000; 0 is like 1. Default: 8 calls or 65536
                           bytes, whichever comes first
  SEEKWIRE_SEGMENT_SIZE=SIZE
                           size of a segment of shared memory: a multiple of
                           4096 bytes, at most 1M
  SEEKWIRE_SEGMENTS=N      number of segments for each direction of a
                           connection: a power of two from 8 to 1024. The memory
                           of one direction must be smaller than 256 MiB
  SEEKWIRE_SEEK_MEMORY=SIZE
                           keep at most this much of a stream that arrived
                           before the bytes that a program seeks; default 64M,
                           at most 1T
  SEEKWIRE_SEEK_SWITCH=SIZE
                           move messages to that memory in bulk while they are
                           smaller than this on average
  SEEKWIRE_SEEK_WAY=WAY    try this way first to take bytes out of the middle of
                           a TCP stream: module, peek or drain
  SEEKWIRE_SECCOMP=N       do not try the library's calls in programs that start
                           under at most N system call filters (seccomp), which
                           are known to allow them
  SEEKWIRE_LINKS=FILE      the map of the memory that this machine shares with
                           others (`seekwire vm`); default /etc/seekwire/links
  SEEKWIRE_NIC_STATE=DIR   save the states of network interfaces here; default
                           /run/seekwire/nic
  SEEKWIRE_LIBRARY=FILE    load this library, not the libseekwire.so next to the
                           command or installed with it

A SIZE is a number of bytes, or has a unit: 64K, 64KiB, 1.5M. A TIME has a unit,
too: 50us, 1.5s, 10min, 12h.

An empty variable counts as not set. `seekwire run` refuses a value that it
cannot obey. A program that was started without the command cannot be refused.
Its library reports the bad value in its log and uses the default, or stays on
TCP if the variable is SEEKWIRE. `seekwire doctor` reports bad values, too.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArguments),
    Status(StatusArguments),
    Reasons(Reasons),
    Doctor(DoctorArguments),
    Vm(Vm),
}

/// Run a program with its TCP connections accelerated
///
/// Loads libseekwire.so into PROGRAM and, through the environment, into the programs that it
/// starts. A connection is accelerated when both of its ends run under Seekwire, as the same user
/// and in the same network namespace. Every other connection stays on TCP. If LD_PRELOAD is already
/// set, its libraries are loaded after Seekwire's.
///
/// At a terminal, a summary follows when the program has ended: the connections and bytes of each
/// carrier, why connections stayed on TCP, and what to do about it. It counts all programs that
/// PROGRAM has started. For that, this command waits for PROGRAM and passes signals on to it;
/// without a summary, it becomes PROGRAM.
///
/// Some programs cannot load the library. They run unaccelerated, after a warning: statically
/// linked programs, programs for another architecture or C library, programs written in Go (their
/// runtime makes system calls without the C library), and set-user-id, set-group-id and
/// file-capability programs (the dynamic loader ignores LD_PRELOAD for them).
#[derive(Debug, Args)]
#[command(after_help = "\
Library:
  SEEKWIRE_LIBRARY names the file. Without it, the command looks for
  libseekwire.so in its own directory, then in ../lib/seekwire and ../lib

Exit status:
  that of PROGRAM, or
  2    an option or a SEEKWIRE variable has a value that cannot be obeyed
  125  seekwire itself failed
  126  PROGRAM cannot be run
  127  PROGRAM was not found

Examples:
  seekwire run redis-server --save ''
  seekwire run --summary redis-benchmark -t get,set -q
  seekwire run --stats /tmp/%p.json -- python3 -m http.server")]
pub(crate) struct RunArguments {
    /// Load the library but switch it off, for comparison (SEEKWIRE=off)
    #[arg(long)]
    pub(crate) off: bool,

    /// Write a log to `stderr` or to a file (SEEKWIRE_LOG)
    ///
    /// LEVEL is error, warn, info, debug or trace; info unless it is given. A level alone is that of
    /// a log on standard error. If the file name contains a colon, add the level.
    #[arg(long, value_name = "DEST:LEVEL", value_parser = command_line::log())]
    pub(crate) log: Option<Log>,

    /// Write counters as JSON when the program ends (SEEKWIRE_STATS)
    ///
    /// `%p` in the name becomes the process id. An existing directory gets one file for each
    /// process.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,

    /// Print a summary on standard error when the program has ended
    ///
    /// This is the default if standard error is a terminal, unless another `seekwire run` above
    /// this one prints a summary.
    #[arg(long, conflicts_with_all = ["no_summary", "off"])]
    pub(crate) summary: bool,

    /// Print no summary
    #[arg(long)]
    pub(crate) no_summary: bool,

    /// Spin at most this long before sleeping; 0 never spins (SEEKWIRE_SPIN_US)
    ///
    /// A number without a unit is in microseconds.
    #[arg(long, value_name = "TIME",
        value_parser = Time::within_in(TimeUnit::Microsecond, Duration::ZERO..=MAX_SPIN))]
    pub(crate) spin_us: Option<Time>,

    /// Accelerate a connection after N calls on it (SEEKWIRE_THRESHOLD)
    ///
    /// The number of bytes does not matter then; 0 is like 1. By default, a connection is
    /// accelerated after 8 calls or 65536 bytes, whichever comes first.
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_THRESHOLD)))]
    pub(crate) threshold: Option<u32>,

    /// Let processes find each other in this directory (SEEKWIRE_DIR)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// List the live connections of accelerated programs
///
/// Prints an entry for each TCP connection of your processes that have the library loaded; as root,
/// of the processes of all users, in all containers. It says what carries each direction now, how
/// many bytes went by TCP and through shared memory (ring) so far, and who holds the connection: the
/// user, the systemd unit, the container, and the process id there. WHY NOT is the reason why a
/// connection is not accelerated, which `seekwire reasons` explains, and what the process at the
/// other end has to do with it. Bytes are counted once a connection has passed the threshold
/// (SEEKWIRE_THRESHOLD). Until then the entry has dashes.
#[derive(Debug, Args)]
#[command(after_help = "\
JSON:
  an array with one object for each connection:
    pid, program    the process; pid is null in a pid namespace not seen here
    pid_inside      its number in its own pid namespace; null if the same
    user, uid       the user for whom it acts
    unit, container the systemd unit and the container, or null
    directory       where it looks for other processes, as it names that
    local, peer     the ends, as ADDRESS:PORT
    tx, rx          the carrier of the next byte sent and received: tcp, ring
    bytes           {tx_tcp, tx_ring, rx_tcp, rx_ring} so far; null before the
                    threshold
    reason          null, or why a direction is on TCP
    detail          null, or more about the reason, for people
    link            null, or the link to the machine that has the peer's address
    bytes_per_second
                    {tx, rx} since the last time, with --watch
  With --watch, one such line each time")]
pub(crate) struct StatusArguments {
    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,

    /// Redraw after each TIME until interrupted, with the bytes per second in between
    ///
    /// The default is 2s. A number without a unit is in seconds.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s",
        value_parser = Time::within(Duration::from_millis(100)..=Duration::from_secs(86_400)))]
    pub(crate) watch: Option<Time>,

    /// Show only programs whose SEEKWIRE_DIR is this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Explain why connections stay on TCP, and what to do about it
///
/// `seekwire status` and the summary of `seekwire run` name the reasons.
#[derive(Debug, Args)]
#[command(after_long_help = reasons::page())]
pub(crate) struct Reasons {
    /// Explain only this reason, in the words of `seekwire status`
    #[arg(value_name = "WORD")]
    pub(crate) reason: Vec<String>,
}

/// Say what this host supports and how to fix what is missing
///
/// Checks the kernel, the limits of this user and the library, and lets two processes exchange
/// messages through shared memory. Says how this host takes bytes out of the middle of a stream,
/// which network interfaces were changed and not restored, and, where there is a map of links
/// (`seekwire vm`), what keeps connections from them. Each line says ok, warn (it works, but not as
/// well as it could) or fail.
#[derive(Debug, Args)]
#[command(after_help = "\
JSON:
  an array of {check, verdict, found, advice}

Exit status:
  0  programs can be accelerated here
  1  a line says fail")]
pub(crate) struct DoctorArguments {
    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,

    /// Check this directory, not the SEEKWIRE_DIR of this environment
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Look here for saved states of network interfaces, as `seekwire nic` does
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// One side of the exchange that `doctor` tries; only `doctor` starts it
#[derive(Debug, Parser)]
#[command(name = "seekwire probe")]
pub(crate) enum Probe {
    /// Listen on loopback, print the port, and echo one connection until it ends
    Serve,
    /// Exchange messages with `serve`
    Call {
        /// Port that `serve` printed
        port: u16,
    },
}
