//! The network of two virtual machines, as fast as QEMU can make it here: shared memory is compared
//! with it.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use seekwire_testbed::{Side, Testbed};

use super::machine::{Machine, escaped, quoted};
use crate::launch::{Mode, Program, Running};

/// Bytes of a packet where nothing segments large ones later: as many as a socket of QEMU's can
/// carry.
const LARGE_PACKET: u32 = 65_000;

/// How the machines are joined.
#[derive(Debug)]
pub(super) enum Network {
    /// Tap interfaces at a bridge, in a network namespace of their own. Packets of 64 KiB pass whole.
    Tap {
        namespace: Testbed,
        /// Why the kernel does not move the packets by itself (vhost-net); `None` if it does.
        without_vhost: Option<String>,
    },
    /// A socket between the two QEMUs.
    Socket { path: PathBuf, why: String },
}

impl Network {
    /// The best network that can be had.
    pub(super) fn new(directory: &Path) -> Self {
        match bridge() {
            Ok(namespace) => Self::Tap { namespace, without_vhost: vhost().err() },
            Err(error) => {
                Self::Socket { path: directory.join("network"), why: format!("{error:#}") }
            }
        }
    }

    /// QEMU's options for a machine.
    pub(super) fn arguments(&self, number: usize) -> Vec<String> {
        let (netdev, mtu) = match self {
            Self::Tap { without_vhost, .. } => {
                let vhost = if without_vhost.is_some() { "off" } else { "on" };
                let tap = tap(number);
                (format!("tap,id=net,ifname={tap},script=no,downscript=no,vhost={vhost}"), None)
            }
            Self::Socket { path, .. } => {
                let server = if number == 1 { "on" } else { "off" };
                let at = format!("addr.type=unix,addr.path={}", escaped(path));
                (format!("stream,id=net,server={server},{at}"), Some(LARGE_PACKET))
            }
        };
        let mtu = mtu.map(|mtu| format!(",host_mtu={mtu}")).unwrap_or_default();
        let device =
            format!("virtio-net-pci,netdev=net,romfile=,mac=52:54:00:00:02:0{number}{mtu}");
        quoted(["-netdev", &netdev, "-device", &device])
    }

    /// Starts a machine in its network's namespace.
    pub(super) fn start(&self, program: Program) -> Result<Running> {
        Ok(match self {
            Self::Tap { namespace, .. } => namespace.end(Side::Near).run(|| program.start())??,
            Self::Socket { .. } => program.start()?,
        })
    }

    /// Waits until a second machine can join the first.
    pub(super) fn await_first(&self, machine: &Machine) -> Result<()> {
        match self {
            Self::Tap { .. } => Ok(()),
            Self::Socket { path, .. } => machine.wait_until(|| path.exists()),
        }
    }

    /// A description for results.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Tap { without_vhost: None, .. } => {
                "virtio-net by vhost-net, tap interfaces and a bridge".to_owned()
            }
            Self::Tap { without_vhost: Some(why), .. } => format!(
                "virtio-net by QEMU, tap interfaces and a bridge; vhost-net cannot be used: {why}"
            ),
            Self::Socket { why, .. } => format!(
                "virtio-net by QEMU and a socket, packets of {LARGE_PACKET} B; no tap interfaces: {why}"
            ),
        }
    }
}

/// The interface of a machine.
fn tap(number: usize) -> String {
    format!("guest{number}")
}

/// Makes a namespace with a bridge, and an interface at it for each machine.
fn bridge() -> Result<Testbed> {
    device("/dev/net/tun")?;
    let namespace = Testbed::new()?;
    let mut commands = vec!["link add guests type bridge".to_owned()];
    for tap in [1, 2].map(tap) {
        commands.push(format!("tuntap add dev {tap} mode tap vnet_hdr"));
        commands.push(format!("link set {tap} master guests up"));
    }
    commands.push("link set guests up".to_owned());
    for command in commands {
        let ip = Program::new("ip", &Mode::Plain).args(command.split(' '));
        namespace.end(Side::Near).run(|| ip.run())??;
    }
    Ok(namespace)
}

fn vhost() -> Result<(), String> {
    device("/dev/vhost-net").map_err(|error| format!("{error:#}"))
}

/// Fails unless the device can be used.
fn device(path: &'static str) -> Result<()> {
    File::options().read(true).write(true).open(path).context(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::hosts::namespaces_if_permitted;

    #[test]
    fn sockets_join_the_second_machine_to_the_first_and_say_why() {
        let network = Network::Socket { path: "/tmp/a,b".into(), why: "no root".to_owned() };
        let [first, second] = [1, 2].map(|number| network.arguments(number).join(" "));
        assert!(first.contains("server=on") && second.contains("server=off"), "{first} {second}");
        assert!(first.contains("addr.path=/tmp/a,,b ") && first.contains("host_mtu="), "{first}");
        assert!(network.describe().ends_with("no tap interfaces: no root"));
    }

    #[test]
    fn taps_are_moved_by_the_kernel_where_it_can() {
        let Some(namespace) = namespaces_if_permitted() else { return };
        let why = Some("/dev/vhost-net: No such file".to_owned());
        let network = Network::Tap { namespace, without_vhost: why };
        let options = network.arguments(2).join(" ");
        assert!(options.contains("ifname=guest2,") && options.contains("vhost=off"), "{options}");
        assert!(network.describe().contains("cannot be used: /dev/vhost-net: No such"));
        let Network::Tap { namespace, .. } = network else { unreachable!() };
        let network = Network::Tap { namespace, without_vhost: None };
        assert!(network.arguments(1).join(" ").contains("vhost=on"));
        assert!(network.describe().contains("by vhost-net"));
    }
}
