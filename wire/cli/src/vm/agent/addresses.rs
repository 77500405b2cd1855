//! The addresses of this machine.

use std::net::IpAddr;

use anyhow::{Context, Result};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use seekwire_link::is_usable;

/// The addresses of this machine at one moment.
pub(super) struct Addresses {
    /// Those of all interfaces.
    own: Vec<IpAddr>,
    /// Those that are published.
    configured: Vec<IpAddr>,
}

impl Addresses {
    /// Reads the addresses. Those published are `given`, or if that is empty, all that can be used
    /// from outside.
    ///
    /// # Errors
    ///
    /// The system does not list its interfaces.
    pub(super) fn look(configured: &[IpAddr]) -> Result<Self> {
        let interfaces = getifaddrs().context("cannot list the network's interfaces")?;
        let interfaces = interfaces.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP));
        let own: Vec<IpAddr> = interfaces.filter_map(|one| address(&one)).collect();
        let configured = if configured.is_empty() {
            own.iter().copied().filter(|address| is_usable(*address)).collect()
        } else {
            configured.to_vec()
        };
        Ok(Self { own, configured })
    }

    pub(super) fn configured(&self) -> &[IpAddr] {
        &self.configured
    }

    /// Whether an address belongs to this machine, so that from here it leads nowhere else.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.own.contains(&address.to_canonical())
    }
}

fn address(of: &InterfaceAddress) -> Option<IpAddr> {
    let address = of.address?;
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(v4.ip().into()),
        (_, Some(v6)) => Some(IpAddr::from(v6.ip()).to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_and_told_to_nobody() {
        let addresses = Addresses::look(&[]).unwrap();
        assert!(addresses.is_own("127.0.0.1".parse().unwrap()));
        assert!(addresses.is_own("::ffff:127.0.0.1".parse().unwrap()));
        assert!(addresses.configured().iter().all(|address| is_usable(*address)));
        let only: IpAddr = "10.0.0.9".parse().unwrap();
        let addresses = Addresses::look(&[only]).unwrap();
        assert_eq!(addresses.configured(), [only]);
        assert!(!addresses.is_own(only));
    }
}
