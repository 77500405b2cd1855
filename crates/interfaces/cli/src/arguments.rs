//! The commands below `seekwire nic`. Their doc comments are the help and the manual pages.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use seekwire_gauge::Test;
use seekwire_nic::{Profile, Setting, Store};
use seekwire_tune::Goal;

/// The part of the command `seekwire` that is for network interfaces
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
    /// Show and change what network interfaces do for messages
    #[command(subcommand)]
    Nic(Nic),
    /// What `seekwire doctor` says of interfaces, as JSON
    #[command(hide = true)]
    Left(NicState),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Nic {
    Show(NicShow),
    Apply(NicApply),
    Restore(NicRestore),
    Tune(NicTune),
    Serve(NicServe),
}

/// Show the offloads, coalescing and rings of an interface, and what each means for messages
///
/// Driver, speed, MTU and queues; every offload, on or off, and whether it can be changed;
/// interrupt coalescing; ring sizes; flags of the driver. A feature is `off, wanted` while
/// something that it needs is off. Says so when an earlier `apply` has changed the interface and it
/// has not been restored; only the user who did that, usually root, can see it.
#[derive(Debug, Args)]
#[command(after_help = "\
JSON:
  an array with one object for each interface:
    name, index, address, driver, mtu, speed_mbps, duplex, up
                    null where unknown; the address is that of the hardware
    default_route   whether a default route uses it
    queues          {rx, tx, channels}
    features        array of {name, active, wanted, changeable, meaning}
    coalescing, rings, private_flags, and channels of queues
                    arrays of {name, value, maximum, meaning}; values are
                    numbers, or true and false
    saved           null, or the state before the first `apply`

Exit status:
  0; 1 when there is no such interface, or one of all could not be read,
  which is named on stderr after the others have been shown")]
pub(crate) struct NicShow {
    /// The interface; all, if none is named
    #[arg(value_name = "IFACE")]
    pub(crate) interface: Option<String>,

    /// Print JSON, as described below
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: NicState,
}

/// Change the settings of an interface, for good or while a command runs
///
/// Sets a profile, single keys, or both; keys come after the profile. A key is a feature as
/// `seekwire nic show` names it or as ethtool(8) does (rx, tx, sg, tso, gso, gro, lro), or
/// coalesce.NAME, ring.NAME or private.NAME. A feature brings what it needs: tso=on turns
/// scatter-gather and checksums on, too. What the kernel or the driver refuses is reported, the
/// rest is done.
///
/// The state before the first `apply` is saved before anything is changed; `seekwire nic restore`
/// goes back to it, however often `apply` has been used since. With a COMMAND, or with --hold, the
/// settings stay only while it runs: at its end, and at ^C, SIGTERM, SIGHUP and SIGQUIT, what was
/// found is put back, under whatever name the interface has then. If seekwire itself is killed,
/// `seekwire nic show` and `apply` say that there is something to restore. All settings are
/// lost when the host restarts or the interface is made anew.
#[derive(Debug, Args)]
#[command(after_help = "\
Profiles:
  baseline     no offload: the CPU does everything, packet by packet
  checksum     checksums by the interface, nothing else
  offload      checksums, scatter-gather and segmentation (TSO, GSO);
               received packets are not joined
  low-latency  as offload; no waiting for more packets before an
               interrupt
  throughput   as offload; received packets are joined (GRO), and may
               wait for others as the load demands
  Hardware GRO and LRO are off in all of them. Ring sizes are in none:
  many drivers take the link down to change them.

JSON:
  {interface, outcomes, along}; outcomes has {key, before, target, after,
  result} for each key, and along {key, before, after} for what changed
  with them. result is changed, already-so, fixed, absent or {refused:
  WHY}; with --dry-run change, already-so, fixed, absent or {unfit: WHY},
  and after is what it would be. With COMMAND or --hold it is printed on
  stderr, as the table is.

Exit status:
  that of COMMAND, if it was run; else 0 when everything is as asked,
  3 when something was refused, 1 when nothing was changed. What a
  profile names and the interface does not have is not asked. In any
  case 1 when not all of what was found could be put back after COMMAND
  or --hold; the last message names it.

Permission:
  CAP_NET_ADMIN in the network namespace, as with sudo. An interface
  that carries the default route is changed only with --default-route.

Files:
  /run/seekwire/nic/netns-COOKIE-if-INDEX.json, or in the directory
  that --state or SEEKWIRE_NIC_STATE names: the state of an interface
  before the first change

Examples:
  seekwire nic apply eth1 --profile offload --dry-run
  sudo seekwire nic apply eth1 tso=off coalesce.rx-usecs=0
  sudo seekwire nic apply eth1 --profile baseline -- iperf3 -c peer")]
pub(crate) struct NicApply {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,

    /// A set of settings: baseline, checksum, offload, low-latency or throughput
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<Profile>,

    /// Single settings, such as gro=off, coalesce.rx-usecs=0, ring.rx=4096
    #[arg(value_name = "KEY=VALUE", required_unless_present = "profile")]
    pub(crate) settings: Vec<Setting>,

    /// Print what would change, and change nothing
    #[arg(long, conflicts_with_all = ["hold", "command"])]
    pub(crate) dry_run: bool,

    /// Print JSON, as described below
    #[arg(long)]
    pub(crate) json: bool,

    /// Keep the settings until interrupted, then put back what was found
    #[arg(long, conflicts_with = "command")]
    pub(crate) hold: bool,

    /// Change an interface that carries the default route, too
    #[arg(long)]
    pub(crate) default_route: bool,

    #[command(flatten)]
    pub(crate) state: NicState,

    /// Keep the settings while this runs, then put back what was found
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Put an interface back into the state before it was first changed
///
/// Goes back to what `seekwire nic apply` saved when it first changed the interface, and forgets it
/// when all of it came back.
#[derive(Debug, Args)]
#[command(after_help = "\
JSON:
  as that of `seekwire nic apply`; outcomes has what differed

Exit status:
  0 when everything is as it was, 3 when something was refused, 1 when
  there is nothing to restore or it cannot be done")]
pub(crate) struct NicRestore {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,

    /// Print JSON, as described below
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: NicState,
}

/// Find out by measuring which settings of an interface are best for messages
///
/// Tries the profiles, then what differs from the best one by a single offload or coalescing
/// setting, against a peer that runs `seekwire nic serve` behind the interface. All are measured in
/// turns, round by round; whatever seems worse than the best drops out. It ends when nothing else
/// is left or what is left is equally good, or when the time is over. What is not better than the
/// settings found is recommended in at most 1 % of all searches; if no difference can be told, it
/// says so.
///
/// The settings found are put back at the end, at ^C, SIGTERM, SIGHUP and SIGQUIT, and if it fails;
/// as with `seekwire nic apply` if it is killed. A link that a change of settings resets is waited
/// for, about 40 seconds; a candidate that keeps it away for more than 20 is left out. --apply sets
/// what is recommended, until `seekwire nic restore`. What makes it last beyond a restart of the
/// host is printed, or written to a file, but never installed.
///
/// Both hosts should be as busy as they usually are, and the link too. Traffic of others is
/// disturbed for the time.
#[derive(Debug, Args)]
#[command(after_help = "\
Goals:
  latency     requests are answered sooner: 64 bytes and 16 KiB
  throughput  more bytes per second, of streams to and from the peer
  cpu         less CPU time of this host for each byte of such streams,
              interrupts included
  mixed       all three with equal weight

Numbers:
  one way     1 / (2 x requests per second), as from netperf TCP_RR
  AGAINST     how many times better than the settings found: geometric
              mean over rounds, with its confidence interval (Student's, of
              the logarithms of paired rounds) after 4, 6, 8, 12, 16, 24 ...
              rounds; all of them hold at once in 99 % of searches, however
              many candidates there are and whenever it ends; - before the
              4th round. It supposes that what disturbs one round does not
              last for many

JSON:
  {peer, interface, goal, rounds, seconds, is_decided, confidence, best,
  recommended, candidates, lasting, applied}; confidence is that of all
  intervals at once, as a fraction; best and recommended are indices of
  candidates, of which the first is what was found; candidates has {name,
  changes, refused, rounds, figures, against_found, end}, figures {
  latency_seconds, p99_seconds, bytes_per_second,
  cpu_seconds_per_gigabyte}, against_found null or {ratio, low, high,
  rounds}, end best, open, worse (has left) or failed; lasting is null or
  {ethtool, link}; applied is null or as from `seekwire nic apply --json`

Exit status:
  0 when it was measured, and applied if that was asked; 3 when something
  of --apply was refused; 1 when it could not be measured, or a file not
  be written; 128 and the signal when it was interrupted. In any case 1
  when not all of what was found could be put back; then nothing is
  applied or written.

Permission:
  as `seekwire nic apply`

Examples:
  seekwire nic serve                  # on the other host, 192.0.2.1
  sudo seekwire nic tune eth1 --peer 192.0.2.1 --goal latency
  sudo seekwire nic tune eth1 --peer 192.0.2.1 --goal cpu --apply \\
      --lasting 50-eth1.link")]
pub(crate) struct NicTune {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,

    /// Host, or host and port, where `seekwire nic serve` runs; it must be reached by the
    /// interface
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) peer: String,

    /// What is to become better: latency, throughput, cpu or mixed
    #[arg(long, value_name = "GOAL")]
    pub(crate) goal: Goal,

    /// Longest time for all measurements, in seconds
    #[arg(long, value_name = "SECS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) time: u64,

    /// Bytes of a message, instead of those of the goal; may be given several times
    #[arg(long = "size", value_name = "BYTES", value_parser = size)]
    pub(crate) sizes: Vec<usize>,

    /// TCP congestion control of the measurements; cubic, or reno where there is no cubic, if not
    /// set
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Set what is recommended, until `seekwire nic restore`
    #[arg(long)]
    pub(crate) apply: bool,

    /// Write what makes the settings last to a new file, instead of printing it
    ///
    /// A systemd.link(5) file if the name ends in `.link`, else a shell script of ethtool(8)
    /// commands. Nothing is written when there is nothing to recommend.
    #[arg(long, value_name = "FILE")]
    pub(crate) lasting: Option<PathBuf>,

    /// Print what would be tried first, and change and measure nothing
    #[arg(long, conflicts_with_all = ["apply", "lasting"])]
    pub(crate) dry_run: bool,

    /// Print JSON, as described below
    #[arg(long)]
    pub(crate) json: bool,

    /// Change an interface that carries the default route, too
    #[arg(long)]
    pub(crate) default_route: bool,

    #[command(flatten)]
    pub(crate) state: NicState,
}

/// Be the peer against which other hosts measure
///
/// Answers the requests and takes and sends the streams of `seekwire nic tune` until it is
/// interrupted. Whoever reaches the port can use it, without a password; it moves bytes that mean
/// nothing, one test at a time, and limits their number: messages of up to 16 MiB, tests of up to
/// 60 seconds after a warm-up of as long, silence of up to two minutes. It needs no permission, and
/// changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Output:
  `listening on ADDR:PORT` on stdout as soon as it does, what happens on
  stderr

Exit status:
  0 when it was interrupted, 1 when it cannot listen")]
pub(crate) struct NicServe {
    /// Where to listen: an address of this host, a port, or both; all addresses and port 7117 if
    /// not set
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) listen: Option<String>,

    /// Most clients at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) clients: u16,

    /// Say nothing of what happens
    #[arg(long)]
    pub(crate) quiet: bool,
}

fn size(text: &str) -> Result<usize, String> {
    let expected = || format!("a number from 1 to {}", Test::MAX_SIZE);
    text.parse().ok().filter(|size| (1..=Test::MAX_SIZE).contains(size)).ok_or_else(expected)
}

#[derive(Debug, Args)]
pub(crate) struct NicState {
    /// Directory of saved states; if not set that of the variable SEEKWIRE_NIC_STATE, else
    /// /run/seekwire/nic
    ///
    /// It must belong to the user who runs the command, and is closed to others.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl NicState {
    pub(crate) fn store(&self) -> Store {
        self.state.as_ref().map_or_else(Store::default, Store::at)
    }
}
