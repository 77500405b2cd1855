//! Addresses that other machines can have.

use std::net::IpAddr;

/// True if an address can be that of another machine for every observer: not a loopback, multicast
/// or unspecified address, nor one that is ambiguous without an interface name.
#[must_use]
pub fn is_usable(address: IpAddr) -> bool {
    let is_link_local = match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    is_of_another(address) && !is_link_local
}

/// True if an address can be that of another machine for an observer that may share its network.
pub(crate) fn is_of_another(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            // From 224 on: multicast and reserved addresses.
            !(first == 0 || first >= 224 || v4.is_loopback())
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_to_another_machine_is_usable() {
        for address in ["10.0.0.2", "198.18.0.1", "172.17.0.1", "fd00::2", "2001:db8::1"] {
            assert!(is_usable(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.1.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:0.0.0.0",
            "::ffff:169.254.0.1",
        ] {
            assert!(!is_usable(address.parse().unwrap()), "{address}");
        }
    }
}
