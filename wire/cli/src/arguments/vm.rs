//! The commands below `seekwire vm`. Their doc comments are the help and the manual pages.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use seekwire_program::command_line;
use seekwire_values::{Size, Time};

use crate::vm::size;

/// Share memory with programs in other virtual machines of one host
///
/// A link is a region of memory that two machines share, and a line in each machine's map that says
/// who is at its other end. Connections between programs under `seekwire run` in two linked
/// machines can go through that memory. A machine is a virtual machine, or whatever else has an
/// address of its own on this host, such as a container.
///
/// `plan` says what to give virtual machines on their host, and writes their maps. `map` shows and
/// edits the map in each of them, and `attach` makes the machine ready to use its links. `agent`
/// finds the addresses of the other machines, so that nobody has to write them. A user who may open
/// a region can read and change everything that any connection over it carries, on both machines.
#[derive(Debug, Args)]
#[command(after_help = "\
Files:
  /etc/seekwire/links        the map of this machine; SEEKWIRE_LINKS names
                             another file
  /run/seekwire/NAME.link    what this machine knows of an attached link;
                             a line `state DIR` of the map names another
                             directory
  /run/seekwire/NAME.peers   addresses that the agent has found for the link

Map:
  # link NAME PROVIDER WHERE SIDE
  link  db-web  ivshmem  0000:00:10.0    first
  link  tests   memory   /run/tests/socket  second
  link  cache   xen      3/64M           first
  # ADDRESS NAME: this address belongs to the machine at the other end
  10.0.0.2  db-web
  fd00::2   db-web

Examples:
  seekwire vm plan db web --size 256M
  sudo seekwire vm map add 10.0.0.2 db-web
  sudo seekwire vm attach --group seekwire
  sudo seekwire vm agent
  seekwire vm status")]
pub(crate) struct Vm {
    #[command(subcommand)]
    pub(crate) command: VmCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    Map(VmMap),
    Attach(VmAttach),
    Agent(VmAgent),
    Hold(VmHold),
    Detach(VmDetach),
    Status(VmStatus),
    Plan(VmPlan),
}

/// Show the map of this machine: its links, and the addresses that belong to them
///
/// Prints one line for each link: where its region is, which half of the region is this machine's,
/// and which addresses belong to the machine at the other end. Addresses that the agent of this
/// machine has found are marked, and shown to users who may use the link. A connection to any other
/// address uses no link. A machine without a map has no links, which is no error.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Map:
  # begins a comment; fields are separated by blanks
  link NAME ivshmem PCI-ADDRESS SIDE
                     the region is the memory of this PCI device, as
                     DDDD:BB:DD.F
  link NAME memory SOCKET SIDE
                     the region is memory that `seekwire vm hold` hands
                     out at this socket, for containers of one host
  link NAME file PATH SIDE
                     the region is this file, for a host and its virtual
                     machine, and for network namespaces
  link NAME xen DOMAIN/SIZE SIDE
                     the region is memory that a domain of Xen's, the
                     first side, grants to another. DOMAIN is the number
                     of the other domain, SIZE from 1M to 256M
  ADDRESS NAME       this IPv4 or IPv6 address belongs to the machine at
                     the other end of the link NAME
  state DIR          keep what this machine knows of attached links in
                     this directory, not in /run/seekwire
  A NAME has 1 to 32 of a-z, 0-9 and -. SIDE is first in one of the two
  machines, and second in the other. Lines may come in any order.

Exit status:
  0  the map is well formed, or there is none
  1  it is not; stderr names the line and what is expected there

Examples:
  seekwire vm map
  sudo seekwire vm map add fd00::2 db-web
  sudo seekwire vm map remove fd00::2"
)]
pub(crate) struct VmMap {
    /// Only check the map, and print nothing when it is well formed
    #[arg(long)]
    pub(crate) check: bool,

    #[command(subcommand)]
    pub(crate) edit: Option<VmMapEdit>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VmMapEdit {
    Add(VmMapAdd),
    Remove(VmMapRemove),
}

/// Say that an address belongs to the machine at the other end of a link
///
/// Adds a line to the map, after the other addresses of the link. Everything else in the file stays
/// as it is, with comments, order, owner and mode. The file is replaced as a whole, so a reader
/// finds the old map or the new one. Programs that run already look at it again when a connection
/// may come to a link.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0  the map has the address, now or since before
  1  nothing was changed: the map is not well formed or cannot be written,
     there is no such link, the address belongs to another link, or it is
     one that no single machine has (loopback, multicast, 0.0.0.0, ::)
  2  the address cannot be understood")]
pub(crate) struct VmMapAdd {
    /// IPv4 or IPv6 address by which the other machine is reached; no network and no host name
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: IpAddr,

    /// Name of the link, as the map has it
    #[arg(value_name = "LINK")]
    pub(crate) link: String,
}

/// Take an address out of the map
///
/// Removes the line of the address. Everything else in the file stays as it is. New connections to
/// the address stay on TCP, unless the agent of this machine finds that it belongs to a link.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status:
  0  the map no longer has the address
  1  nothing was changed: the map did not have the address, is not well
     formed, or cannot be written
  2  the address cannot be understood")]
pub(crate) struct VmMapRemove {
    /// The address
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: IpAddr,
}

/// Make this machine ready to use its links
///
/// Prepares this machine's half of each region, and writes what the machine knows of the link to a
/// file in the state directory. Programs that are started afterwards use the link. Repeat it after
/// each start of the machine; a link that is attached already is left as it is, so attaching again
/// disturbs nobody. The two machines attach independently, in any order.
///
/// If one machine holds the memory of a link (`seekwire vm hold`), the other one can attach only
/// while `hold` runs there, and has to attach again after `hold` was restarted.
///
/// --group and --mode decide who may use the links. They apply to the state file and, with --group,
/// to the memory of an ivshmem device or to /dev/xen/gntdev and /dev/xen/evtchn, which only root
/// can open otherwise. A region that is a file keeps the group and the mode that it has.
#[derive(Debug, Args)]
#[command(after_help = "\
Trust:
  whoever may open a region can read and change what all connections over
  that link carry, of all users and on both machines

Permission:
  root, for example by sudo

Exit status:
  0  all these links are attached, or the map has none
  1  a link could not be attached; stderr names it, and the others were
     attached

Examples:
  sudo seekwire vm attach
  sudo seekwire vm attach db-web --group seekwire --mode 0660")]
pub(crate) struct VmAttach {
    /// The links; all links of the map if none is named
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Group, by name or number, whose members may use the links
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,

    /// Permissions in octal
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = mode)]
    pub(crate) mode: u32,
}

/// Find the addresses of the machines at the other ends, while it runs
///
/// Publishes the addresses of this machine in the region of each link of the map, and reads those
/// that the agent of the machine at the other end publishes. An address is used once it is proved:
/// the agent sends a secret to it, by TCP, and the other agent has to show that secret in the
/// region. So the address leads to the machine that shares the memory, and not to another one that
/// has the same address in another network, nor through an address translation. Each proof is
/// repeated every 30 seconds, and when the other machine attaches anew.
///
/// Programs use these addresses for later connections, in addition to those of the map. An address
/// in the map belongs to the link that the map names. An address that leads to the machines at the
/// other ends of two links belongs to neither.
///
/// Both machines need an agent, and the same name for their link. No other link of either machine
/// should have that name: a machine that has links of that name to two others could pass for one of
/// them.
///
/// When this machine detaches from a link, the agent unmaps its region; when it attaches again, the
/// agent goes on. It stays in the foreground and reports its findings on standard output: for each
/// link at most 128 lines at once, and then one in ten seconds, with the number of lines that were
/// left out. Nobody has to read them.
#[derive(Debug, Args)]
#[command(after_help = "\
Trust:
  anybody who reaches its port can connect to it; the agent hangs up unless
  the client sends what stands in the region of a link; the machine at the
  other end can make it open 20 connections a second, to addresses and ports
  below 1024 of its choice, and send 64 bytes there, but read nothing

Permission:
  that to use the links, to write in the state directory, and to listen at a
  port below 1024, which shows the other machine that the administrator of
  this one has allowed it: root, for example by sudo

Exit status:
  0  SIGTERM or SIGINT has come; what was found is used no more
  1  it cannot begin: the map is not well formed, another agent runs, the
     port is taken, or the state directory cannot be written

Examples:
  sudo seekwire vm agent
  sudo seekwire vm agent --port 968 --address 10.0.0.1 --address fd00::1")]
pub(crate) struct VmAgent {
    /// Address to publish instead of those of this machine's interfaces; can be repeated
    #[arg(long = "address", value_name = "ADDRESS")]
    pub(crate) addresses: Vec<IpAddr>,

    /// Port at which the other agents connect, below 1024; a firewall must let it pass
    #[arg(long, value_name = "PORT", default_value_t = 967,
        value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub(crate) port: u16,
}

/// Hold the memory of a link that has no name, and attach it
///
/// For a link by memory, between containers, allocates memory of this host that nobody can
/// truncate, and hands it to the programs of both that may open the socket in the map. Either side
/// can do it. For a link by Xen, the first side allocates the memory, grants it to the other
/// domain, and hands it to the programs of this machine that may use the link.
///
/// Stays in the foreground and keeps the memory until it is ended. After that, connections go on,
/// and so do programs that have the memory mapped; programs that begin to use the link later stay
/// on TCP. When it is restarted, it has new memory, to which the other machine has to attach again.
///
/// Granted memory belongs to this machine, which cannot reclaim it before the other domain has
/// unmapped it.
#[derive(Debug, Args)]
#[command(after_help = "\
Limits by Xen:
  pages of 4096 bytes that the kernel may grant in all: the parameter
  `limit` of its module xen-gntalloc, which is 1024 by default; and what
  Xen allows the domain (max_grant_frames in xl.cfg(5))

Permission:
  root, for example by sudo

Exit status:
  1  the memory could not be allocated or granted, or the link not be
     attached; stderr says why

Examples:
  sudo seekwire vm hold tests --size 256M --group seekwire
  sudo seekwire vm hold db-web --group seekwire")]
pub(crate) struct VmHold {
    /// The link
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Size of a link by memory, such as 256M [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) size: Option<Size>,

    /// Group, by name or number, whose members may use the link, and with Xen also /dev/xen/evtchn
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,

    /// Permissions in octal
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = mode)]
    pub(crate) mode: u32,
}

/// Take all connections off a link, so that its region can be removed or the machine be moved
///
/// New connections stay on TCP, and those that use the link go back to TCP without losing a byte.
/// Bytes that already lie in shared memory stay there until their program receives them. The
/// command waits for that, and names the connections that have such bytes left. The machine at the
/// other end does the same, without a command.
///
/// A process keeps the region mapped until its connections are closed, or it ends. Take the region
/// away from a virtual machine only when no process has it mapped any more: the command and
/// `seekwire vm status` name them.
///
/// `seekwire vm attach` attaches a detached link again. Connections that have gone back to TCP stay
/// there, and new ones use the link.
#[derive(Debug, Args)]
#[command(after_help = "\
Permission:
  that to use the link; only root sees the processes of all users

Exit status:
  0  nothing is left: no bytes in the region, and no process that has it
     mapped
  1  there is no such link, or it is not attached
  3  detached, but bytes are left, or processes have the region mapped;
     stderr names them

Examples:
  sudo seekwire vm detach db-web
  sudo seekwire vm detach db-web --wait 0")]
pub(crate) struct VmDetach {
    /// The link
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Wait at most this long for bytes that lie in shared memory to be received
    #[arg(long, value_name = "TIME", default_value = "10s",
        value_parser = Time::within(Duration::ZERO..=Duration::from_secs(86_400)))]
    pub(crate) wait: Time,
}

/// Show the links of this machine, and what they carry
///
/// Prints one line for each link of the map: whether this machine and the one at the other end are
/// attached, whether an agent keeps its addresses, how many connections use it, how much of this
/// machine's half they take, how many bytes lie in it unreceived, and which processes have it
/// mapped (the agent is one of them). The link is unusable for a user who may not open its region.
#[derive(Debug, Args)]
#[command(after_help = "\
JSON:
  an array with one object for each link:
    link, provider, where, side
                    as in the map
    addresses       array: those of the machine at the other end
    by_agent        array: further ones, which the agent has found
    state           attached, detached, `not attached` or unusable
    problem         null, or why the link cannot be used or looked at
    length          bytes of the region; null if it cannot be opened
    peer            the machine at the other end: attached, detached,
                    `not attached` or `other version`; null if unknown
    agent           whether an agent of this machine keeps the addresses
    other_agent     {port, addresses} as the agent of the other machine
                    says, which need not be true; null if none does
    entries         {used, most}; used counts connections of this machine,
                    and those whose programs were killed, for a while
    bytes           {used, most} of this machine's half
    unread          array of {local, peer, bytes}: connections that have
                    bytes in the region that were not received yet
    processes       array of {pid, program} of this machine that have the
                    region mapped, as far as this user may see them
    in_use          whether there are any such processes, seen or not
    agent, entries, bytes, unread, processes and in_use are null if unknown

Exit status:
  0  all was shown
  1  the map is not well formed")]
pub(crate) struct VmStatus {
    #[arg(long, help = command_line::JSON)]
    pub(crate) json: bool,
}

/// Print how to give virtual machines regions that they share
///
/// Prints, for each pair of the named machines, the steps on their host, and for each machine its
/// map, ready to paste. Changes nothing. The regions are ivshmem-plain devices of QEMU; each is the
/// memory of a file in /dev/shm of the host. With Xen, one machine of each pair grants the memory
/// to the other. Every pair has a region of its own, which the other machines cannot see.
///
/// A user who runs a virtual machine can open its regions. Let two machines share a region only if
/// each may see and change everything that programs of both send through it.
#[derive(Debug, Args)]
#[command(after_help = "\
Sizes:
  an end of a connection takes 2.1 MiB of its machine's half by default. The
  more connections there are, the smaller are the rings of those that come:
  256M have room for some hundreds at a time. Further ones stay on TCP

Exit status:
  0  printed
  2  a name or the size cannot be used

Examples:
  seekwire vm plan db web
  seekwire vm plan db web cache --size 1G --for libvirt
  seekwire vm plan db web --size 64M --for xen")]
pub(crate) struct VmPlan {
    /// Names for the machines: a-z, 0-9 and -
    #[arg(value_name = "NAME", num_args = 2.., required = true)]
    pub(crate) names: Vec<String>,

    /// Size of each region: a power of two from 1M to 64G, with Xen to 256M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    pub(crate) size: Size,

    /// The hypervisor or its manager
    #[arg(long = "for", value_name = "PROGRAM", default_value = "qemu")]
    pub(crate) runner: Runner,
}

/// A hypervisor, or a program that manages one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runner {
    /// QEMU, by its command-line arguments
    Qemu,
    /// libvirt, by the XML of its domains
    Libvirt,
    /// Xen, by the configuration of its domains for xl
    Xen,
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o666 == 0);
    mode.filter(|mode| mode & 0o600 == 0o600)
        .ok_or_else(|| "an octal number such as 0660, with 6 for the owner".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_let_the_owner_read_and_write() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert_eq!(mode("666"), Ok(0o666));
        for refused in ["", "rw", "0770", "0060", "01660", "8", "-660"] {
            assert!(mode(refused).is_err(), "{refused}");
        }
    }
}
