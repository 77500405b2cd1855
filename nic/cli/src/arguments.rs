//! The commands below `seekwire nic`. Their doc comments are the help and the manual pages.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use seekwire_gauge::Test;
use seekwire_nic::{Profile, Setting, Store};
use seekwire_program::command_line;
use seekwire_tune::Goal;
use seekwire_values::{Address, Size, Time};

/// The part of the command `seekwire` for network interfaces
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show and change the settings of network interfaces
    #[command(subcommand)]
    Nic(Nic),
    /// Print what `seekwire doctor` says about interfaces, as JSON
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
/// Shows the driver, speed, MTU and queues; every offload, whether it is on, and whether it can be
/// changed; interrupt coalescing, ring sizes and the driver's private flags. A feature is
/// `off, wanted` while something that it needs is off. If an earlier `apply` changed the interface
/// and it was not restored, `show` says so. Only the user who ran that `apply`, usually root, can
/// see this.
#[derive(Debug, Args)]
#[command(after_help = "\
JSON:
  an array with one object for each interface:
    name, index, address, driver, mtu, speed_mbps, duplex, up
                    null if unknown; address is the hardware address
    default_route   whether a default route uses it
    queues          {rx, tx, channels}
    features        array of {name, active, wanted, changeable, meaning}
    coalescing, rings, private_flags, and channels of queues
                    arrays of {name, value, maximum, meaning}; values are
                    numbers, or true and false
    saved           null, or the state before the first `apply`

Exit status:
  0  all was shown
  1  there is no such interface, or an interface could not be read; stderr
     names it after the others were shown")]
pub(crate) struct NicShow {
    /// The interface; all interfaces if none is named
    #[arg(value_name = "IFACE")]
    pub(crate) interface: Option<String>,

    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: NicState,
}

/// Change the settings of an interface, permanently or while a command runs
///
/// Sets a profile, single keys, or both. Keys are applied after the profile. A key is a feature,
/// named as `seekwire nic show` or ethtool(8) names it (rx, tx, sg, tso, gso, gro, lro), or
/// coalesce.NAME, ring.NAME or private.NAME. A feature also turns on what it needs: tso=on turns on
/// scatter-gather and checksums. If the kernel or the driver refuses a setting, the command reports
/// it and applies the rest.
///
/// The first `apply` saves the state before it changes anything. `seekwire nic restore` goes back
/// to that state, however often `apply` has been used since. With COMMAND or --hold, the settings
/// last only while COMMAND runs or the hold lasts. At the end, and at ^C, SIGTERM, SIGHUP and
/// SIGQUIT, seekwire puts back what it found, even if the interface was renamed meanwhile. If
/// seekwire itself is killed, `seekwire nic show` and `apply` report it and name the command that
/// restores the interface. All settings are lost when the host restarts or the interface is
/// recreated.
#[derive(Debug, Args)]
#[command(after_help = "\
Profiles:
  baseline     no offload: the CPU does everything, packet by packet
  checksum     the interface computes checksums, and nothing else
  offload      checksums, scatter-gather and segmentation (TSO, GSO);
               received packets are not joined
  low-latency  like offload; interrupts do not wait for more packets
  throughput   like offload; received packets are joined (GRO), and
               interrupts may wait for more packets, depending on the
               load
  All profiles turn hardware GRO and LRO off. None sets ring sizes,
  because many drivers take the link down to change them.

JSON:
  {interface, outcomes, along}; outcomes has {key, before, target, after,
  result} for each key. along has {key, before, after} for each setting
  that changed as a consequence. result is changed, already-so, fixed,
  absent or {refused: WHY}. With --dry-run it is change, already-so,
  fixed, absent or {unfit: WHY}, and after is what it would be. With
  COMMAND or --hold, JSON and the table go to stderr.

Exit status:
  that of COMMAND, if it ran; otherwise
  0  everything is as asked
  1  nothing was changed
  3  something was refused
  A setting of a profile that the interface does not have is skipped and
  does not count as refused. If not everything could be put back after
  COMMAND or --hold, the status is always 1, and the last message names
  what is missing.

Permission:
  CAP_NET_ADMIN in the network namespace, for example by sudo. An
  interface that carries the default route is changed only with
  --default-route.

Files:
  /run/seekwire/nic/netns-COOKIE-if-INDEX.json, or the same name in the
  directory that --state or SEEKWIRE_NIC_STATE names: the state of an
  interface before the first change

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

    /// Print what would change, without changing it
    #[arg(long, conflicts_with_all = ["hold", "command"])]
    pub(crate) dry_run: bool,

    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,

    /// Keep the settings until interrupted, then put back what was found
    #[arg(long, conflicts_with = "command")]
    pub(crate) hold: bool,

    /// Also change an interface that carries the default route
    #[arg(long)]
    pub(crate) default_route: bool,

    #[command(flatten)]
    pub(crate) state: NicState,

    /// Keep the settings while this runs, then put back what was found
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Restore the state that an interface had before it was first changed
///
/// Restores the settings that `seekwire nic apply` has changed. Settings that somebody else has
/// changed since then stay as they are, and the command names them. Once everything is restored,
/// the saved state is removed.
#[derive(Debug, Args)]
#[command(after_help = "\
JSON:
  as for `seekwire nic apply`; outcomes has the settings that differed.
  others has {key, before, after} for each setting that somebody else has
  changed; it is absent where there is none

Exit status:
  0  everything that Seekwire has changed is as it was
  1  there is nothing to restore, or it cannot be restored
  3  something was refused")]
pub(crate) struct NicRestore {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,

    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: NicState,
}

/// Find the best settings of an interface for messages by measuring
///
/// Measures against a peer that runs `seekwire nic serve` behind the interface. The candidates are
/// the profiles, and then settings that differ from the best profile by a single offload or
/// coalescing setting. The search measures all candidates in turn, round by round, and drops each
/// one that seems worse than the best. It ends when only one candidate is left, when those left are
/// equally good, or when the time runs out. At most 1 % of all searches recommend settings that are
/// not better than the current ones. If no difference can be measured, the search reports that.
///
/// The original settings are put back at the end, on failure, and at ^C, SIGTERM, SIGHUP and
/// SIGQUIT. If seekwire is killed, `seekwire nic restore` puts them back. Some drivers reset the
/// link when a setting changes: the search waits about 40 seconds for the link, and drops a
/// candidate that takes the link down for more than 20 seconds. --apply sets what is recommended,
/// until `seekwire nic restore`. The command also prints what makes these settings last beyond a
/// restart of the host, or writes it to a file. It never installs that file.
///
/// Run it while both hosts and the link carry their usual load. It disturbs other traffic while it
/// runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Goals:
  latency     answer requests of 64 bytes and of 16 KiB sooner
  throughput  move more bytes per second, in streams to and from the peer
  cpu         use less CPU time of this host, interrupts included, for
              each byte of such streams
  mixed       all three with equal weight

Numbers:
  ONE WAY        1 / (2 x requests per second), as from netperf TCP_RR
  AGAINST FOUND  how many times better than the original settings: the
                 geometric mean over rounds, with its confidence interval
                 (Student's, of the logarithms of paired rounds). It is
                 computed after 4, 6, 8, 12, 16, 24 ... rounds, and is -
                 before. In 99 % of searches all intervals hold at once,
                 for any number of candidates and rounds. This assumes
                 that a disturbance does not last for many rounds

JSON:
  {peer, interface, goal, rounds, seconds, is_decided, confidence, best,
  recommended, candidates, lasting, applied}
    confidence      the probability, as a fraction, that all intervals
                    hold at once
    best, recommended
                    indices into candidates; candidate 0 is the original
                    settings
    candidates      array of {name, changes, refused, rounds, figures,
                    against_found, end}
    figures         {latency_seconds, p99_seconds, bytes_per_second,
                    cpu_seconds_per_gigabyte}
    against_found   null or {ratio, low, high, rounds}
    end             best, open, worse (was dropped) or failed
    lasting         null or {ethtool, link, drop_in_for}; drop_in_for is
                    null, or the file that link is a drop-in file for
    applied         null, or as from `seekwire nic apply --json`

Exit status:
  0  measured, and applied if --apply was given
  1  it could not be measured, or a file could not be written
  3  something that --apply sets was refused
  128 + N  interrupted by signal N
  If not all original settings could be put back, the status is always 1,
  and nothing is applied or written.

Permission:
  as for `seekwire nic apply`

Examples:
  seekwire nic serve                  # on the other host, 192.0.2.1
  sudo seekwire nic tune eth1 --peer 192.0.2.1 --goal latency
  sudo seekwire nic tune eth1 --peer 192.0.2.1 --goal cpu --apply \\
      --lasting 50-eth1.link")]
pub(crate) struct NicTune {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,

    /// Host where `seekwire nic serve` runs, and its port if that is not 7117; the route to it must
    /// use the interface
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer: Address,

    /// Goal of the search: latency, throughput, cpu or mixed
    #[arg(long, value_name = "GOAL")]
    pub(crate) goal: Goal,

    /// Longest time for all measurements
    #[arg(long, value_name = "TIME", default_value = "2min")]
    #[arg(value_parser = Time::within(Duration::from_secs(1)..=Duration::from_secs(86_400)))]
    pub(crate) time: Time,

    /// Message size, instead of the sizes of the goal; may be given several times
    #[arg(long = "size", value_name = "SIZE", value_parser = Size::within(1..=Test::MAX_SIZE as u64))]
    pub(crate) sizes: Vec<Size>,

    /// TCP congestion control for the measurements; default: cubic, or reno if there is no cubic
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Apply what is recommended, until `seekwire nic restore`
    #[arg(long)]
    pub(crate) apply: bool,

    /// Write what makes the settings last to a new file; - prints it, as without this option
    ///
    /// If the name ends in `.link`, this is a systemd.link(5) file, else a shell script of
    /// ethtool(8) commands. If the interface has a file of its own already, such as netplan's, a
    /// drop-in file NETPLAN.link.d/NAME.conf is written beside NAME.link instead of it: systemd reads
    /// only the first file that fits. The name of the interface never changes. Without a
    /// recommendation, nothing is written.
    #[arg(long, value_name = "FILE")]
    pub(crate) lasting: Option<PathBuf>,

    /// Print the first candidates, without changing or measuring anything
    #[arg(long, conflicts_with_all = ["apply", "lasting"])]
    pub(crate) dry_run: bool,

    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,

    /// Also change an interface that carries the default route
    #[arg(long)]
    pub(crate) default_route: bool,

    #[command(flatten)]
    pub(crate) state: NicState,
}

/// Serve as the peer against which other hosts measure
///
/// Answers requests and sends and receives streams for `seekwire nic tune` until it is interrupted.
/// Anyone who can reach the port can use it, without a password. It moves meaningless bytes, one
/// test at a time, within limits: messages of up to 16 MiB, tests of up to 60 seconds after a
/// warm-up of up to 60 seconds, and up to two minutes of silence. It needs no privileges and
/// changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Output:
  stdout gets `listening on ADDR:PORT` as soon as the server listens;
  stderr gets a line for each event

Exit status:
  0  it was interrupted
  1  it cannot listen")]
pub(crate) struct NicServe {
    /// Listen at this address; if PORT is 0, the system picks one
    ///
    /// If HOST is left out, it is all addresses of this host, and PORT is 7117.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<Address>,

    /// Serve at most this many clients at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) clients: u16,

    #[arg(long, short, help = command_line::QUIET)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NicState {
    /// Directory of saved states; default: SEEKWIRE_NIC_STATE, else /run/seekwire/nic
    ///
    /// It must belong to the user who runs the command. Others must not be able to write to it.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl NicState {
    pub(crate) fn store(&self) -> Store {
        let store = self.state.as_ref().map_or_else(Store::default, Store::at);
        store.waiting(Store::LOCK_TIMEOUT, |busy| {
            let seconds = Store::LOCK_TIMEOUT.as_secs();
            seekwire_program::tell(format_args!("seekwire: {busy}; waiting for up to {seconds} s"));
        })
    }
}
