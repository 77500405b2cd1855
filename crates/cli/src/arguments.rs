//! Commands and options of this program. Their doc comments are the help and the manual pages.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use seekwire_endpoint::config::{MAX_SPIN_US, MAX_THRESHOLD};

/// Make programs that talk over TCP on one host faster, without changing them
///
/// Seekwire moves the bytes of TCP connections between two processes of one host through shared
/// memory. The socket that a program holds stays a real, connected TCP socket of the kernel; a peer
/// without Seekwire sees plain TCP.
#[derive(Debug, Parser)]
#[command(name = "seekwire", version, propagate_version = false, max_term_width = 100, after_long_help = FILES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const FILES: &str = "\
Environment:
  SEEKWIRE=off               the library does nothing; on: as if not set
  SEEKWIRE_DIR=DIR           where processes find each other; default $XDG_RUNTIME_DIR/seekwire,
                             else /dev/shm/seekwire-$UID; absolute; must belong to the user, mode
                             0700
  SEEKWIRE_LOG=DEST[:LEVEL]  tracing to `stderr` or a file; level error, warn, info, debug or trace;
                             a name with a colon needs one behind it
  SEEKWIRE_STATS=FILE        counters, as JSON, when a program ends; %p becomes the process id;
                             an existing directory gets one file for each process
  SEEKWIRE_SPIN_US=N         longest time to spin before sleeping, at most 1000000; 0 never spins
  SEEKWIRE_THRESHOLD=N       calls on a connection before it is accelerated, at most 1000000000; 0 is
                             like 1. If not set, 8 calls or 65536 bytes, whichever comes first
  SEEKWIRE_SEGMENT_SIZE, SEEKWIRE_SEGMENTS
                             size in bytes, a multiple of 4096 up to 1048576, and number, a power of
                             two from 8 to 1024, of the segments of shared memory; less than 256 MiB
  SEEKWIRE_SEEK_MEMORY=N     bytes of memory that a stream may use for what comes before the bytes that
                             a program seeks; 67108864 if not set, at most 1099511627776
  SEEKWIRE_SEEK_SWITCH=N     messages of fewer bytes on average are moved to that memory in bulk
  SEEKWIRE_SEEK_WAY=WAY      the first way to take bytes out of the middle of TCP that is tried:
                             module, peek or drain
  SEEKWIRE_SECCOMP=N         programs that begin under at most N filters of system calls (seccomp) are
                             accelerated: the filters let the library through. `seekwire run` tries
  SEEKWIRE_NIC_STATE=DIR     where states of network interfaces are saved; default /run/seekwire/nic
  SEEKWIRE_LIBRARY=FILE      the library to load, instead of the libseekwire.so that is next to the
                             command or installed with it

An empty variable counts as not set. `seekwire run` refuses what cannot be obeyed. The library in a
program that was started without it says so in its log, `seekwire doctor` in its line of settings;
it then goes on as if the variable was not set, but on TCP if that is SEEKWIRE.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Status(Status),
    Doctor(Doctor),
}

/// Run a program with its TCP connections accelerated
///
/// Loads libseekwire.so into PROGRAM and, by way of the environment, into the programs that it
/// starts. A connection is accelerated when both of its ends run under Seekwire, as the same user
/// and in the same network namespace; every other connection is plain TCP. An LD_PRELOAD that is
/// already set is kept, after Seekwire's library.
///
/// A program into which no library can be loaded runs all the same, unaccelerated, after a warning:
/// statically linked programs, programs for another architecture or C library, programs written in
/// Go (their runtime makes system calls without the C library), and set-user-id, set-group-id and
/// file-capability programs (the dynamic loader ignores LD_PRELOAD there).
#[derive(Debug, Args)]
#[command(after_help = "\
Library:
  the file that SEEKWIRE_LIBRARY names; if that is not set, libseekwire.so
  beside this command, or in ../lib/seekwire or ../lib from there

Exit status:
  that of PROGRAM; 2 when an option or a SEEKWIRE variable has a value that
  cannot be obeyed, 125 when seekwire itself fails, 126 when PROGRAM cannot
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
    /// An optional `:LEVEL` is one of error, warn, info, debug and trace. A file name with a colon
    /// in it needs one.
    #[arg(long, value_name = "DEST[:LEVEL]")]
    pub(crate) log: Option<OsString>,

    /// Write counters as JSON when the program ends (SEEKWIRE_STATS)
    ///
    /// `%p` in the name becomes the process id. An existing directory gets one file for each
    /// process.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,

    /// Spin at most N microseconds before sleeping; 0 never spins (SEEKWIRE_SPIN_US)
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_SPIN_US)))]
    pub(crate) spin_us: Option<u32>,

    /// Accelerate a connection after N calls on it (SEEKWIRE_THRESHOLD)
    ///
    /// However many bytes these move; 0 is like 1. Without this option after 8 calls or 65536
    /// bytes, whichever comes first.
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_THRESHOLD)))]
    pub(crate) threshold: Option<u32>,

    /// Directory in which processes find each other (SEEKWIRE_DIR)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// List the live connections of your accelerated programs
///
/// One line for each TCP connection of each of your processes that has the library loaded: what
/// carries the bytes of each direction now, how many bytes went by TCP and how many through shared
/// memory (ring) so far, and why a connection is not accelerated. Bytes are counted once a
/// connection has passed the threshold (SEEKWIRE_THRESHOLD); before, there is a dash.
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
/// Looks at the kernel, the limits of this user and the library, and makes two processes exchange
/// messages through shared memory. Says how bytes are taken out of the middle of a stream here, and
/// which network interfaces have been left with other settings than they had. Each line is ok, warn
/// (works, but less well than it could) or fail.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status:\n  0 when programs can be accelerated here, 1 when a line says fail"
)]
pub(crate) struct Doctor {
    /// Print JSON: an array of {check, verdict, found, advice}
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory in which processes find each other, if not that of this environment
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Directory of saved states of network interfaces, as for `seekwire nic`
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// One side of the exchange that `doctor` tries, which starts them; nobody else is told of it
#[derive(Debug, Parser)]
#[command(name = "seekwire probe")]
pub(crate) enum Probe {
    /// Listen on loopback, print the port, and echo one connection until it ends
    Serve,
    /// Exchange messages with a `serve`
    Call {
        /// Port that `serve` printed
        port: u16,
    },
}
