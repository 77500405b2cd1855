//! Where this process listens, and which of its addresses reach it from another one.
//!
//! Each process publishes all addresses of its host. Some of them lead to it only from its own
//! network namespace: loopback addresses, and those that the asking host also has, such as the
//! addresses of bridges for containers, which are the same everywhere. From another host they lead
//! to a local listener there.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// The network of this process, as it sees it.
#[derive(Debug, Clone)]
pub struct Network {
    /// Identifies the network; empty if that is not known.
    pub name: String,
    /// The addresses of all its interfaces.
    own: Vec<IpAddr>,
}

impl Network {
    /// Each boot of a host has a unique id, and each namespace a number on the host. The name of a
    /// host identifies less: it may run containers with several networks.
    ///
    /// # Errors
    ///
    /// The system does not list its interfaces.
    pub fn here() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
        let (boot, namespace) = (boot.trim(), namespace.to_string_lossy());
        let is_known = !boot.is_empty() && !namespace.is_empty();
        let name = if is_known { format!("{boot} {namespace}") } else { String::new() };
        let own = interfaces()?.iter().filter_map(address).collect();
        Ok(Self { name, own })
    }

    /// The addresses of a process that lead to it from here. In the same network these are all of
    /// them.
    #[must_use]
    pub fn reachable(&self, addresses: &[SocketAddr], is_same: bool) -> Vec<SocketAddr> {
        let leads_there = |ip: IpAddr| is_same || !(ip.is_loopback() || self.own.contains(&ip));
        addresses.iter().copied().filter(|address| leads_there(address.ip())).collect()
    }
}

/// A listener, and the addresses at which others may reach it: first those that hosts use to reach
/// each other, last those that work only on this host. With an interface, only its addresses.
///
/// # Errors
///
/// There is no address, or a system call fails.
pub fn listen(interface: Option<&str>) -> io::Result<(TcpListener, Vec<SocketAddr>)> {
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen for the other processes: {error}"))
    };
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
        .map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, addresses(local, interface)?))
}

/// The addresses at which others may reach a listener on all addresses of this host, in the order
/// of [`listen`].
///
/// # Errors
///
/// As [`listen`].
pub fn addresses(local: SocketAddr, interface: Option<&str>) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<(bool, bool, IpAddr)> = Vec::new();
    let mut names = Vec::new();
    for interface_address in interfaces()? {
        let is_wanted = interface.is_none_or(|wanted| wanted == interface_address.interface_name);
        if is_wanted && interface_address.flags.contains(InterfaceFlags::IFF_UP) {
            let address = address(&interface_address);
            addresses.extend(address.map(|ip| (ip.is_loopback(), ip.is_ipv6(), ip)));
        }
        names.push(interface_address.interface_name);
    }
    addresses.sort();
    addresses.dedup();
    names.sort();
    names.dedup();
    if addresses.is_empty() {
        let of = interface.map(|name| format!(" of interface {name}")).unwrap_or_default();
        return Err(io::Error::other(format!(
            "there is no address{of} at which the other processes could reach this one: the \
             interfaces here are {}",
            names.join(", ")
        )));
    }
    let reached = |(_, is_v6, address): (bool, bool, IpAddr)| {
        (!is_v6 || local.is_ipv6()).then(|| SocketAddr::new(address, local.port()))
    };
    Ok(addresses.into_iter().filter_map(reached).collect())
}

fn interfaces() -> io::Result<Vec<InterfaceAddress>> {
    let all = getifaddrs().map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("cannot list the network's interfaces: {error}"))
    })?;
    Ok(all.collect())
}

fn address(of: &InterfaceAddress) -> Option<IpAddr> {
    let address = of.address?;
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(v4.ip().into()),
        // A link-local address is of no use without its link.
        (_, Some(v6)) if v6.ip().segments()[0] & 0xffc0 != 0xfe80 => Some(v6.ip().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_address() {
        let (listener, addresses) = listen(None).unwrap();
        assert!(!addresses.is_empty());
        let port = listener.local_addr().unwrap().port();
        assert!(addresses.iter().all(|address| address.port() == port));
        let (_, loopback) = listen(Some("lo")).unwrap();
        assert!(loopback.iter().all(|address| address.ip().is_loopback()), "{loopback:?}");
        let error = listen(Some("none")).unwrap_err().to_string();
        assert!(error.contains("no address of interface none") && error.contains("lo"), "{error}");
    }

    #[test]
    fn addresses_that_lead_back_here_are_left_out() {
        let network = Network {
            name: String::new(),
            own: vec![[192, 168, 1, 2].into(), [172, 17, 0, 1].into()],
        };
        let all = ["192.168.1.3:7", "172.17.0.1:7", "127.0.0.1:7", "127.0.1.1:7", "[::1]:7"];
        let all: [SocketAddr; 5] = all.map(|address| address.parse().unwrap());
        assert_eq!(network.reachable(&all, false), all[..1]);
        assert_eq!(network.reachable(&all, true), all);
    }

    #[test]
    fn this_network_has_a_name_and_addresses() {
        let network = Network::here().unwrap();
        assert_eq!(network.name, Network::here().unwrap().name);
        assert!(!network.name.is_empty());
        let (_, addresses) = listen(None).unwrap();
        assert_eq!(network.reachable(&addresses, true), addresses);
        assert!(network.reachable(&addresses, false).is_empty());
    }
}
