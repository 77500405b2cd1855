//! The 4-tuple of a TCP connection.
//!
//! Within one network namespace a 4-tuple names one connection, so two sockets whose 4-tuples
//! mirror each other, in the same namespace, are the two ends of it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Address and port, IPv4 kept as an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) so that a
/// dual-stack socket and a plain IPv4 one at the two ends of a connection agree.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Endpoint {
    address: u128,
    port: u16,
}

impl Endpoint {
    /// An endpoint from its two stored parts.
    #[must_use]
    pub const fn from_parts(address: u128, port: u16) -> Self {
        Self { address, port }
    }

    /// The address as a big-endian number.
    #[must_use]
    pub const fn address(self) -> u128 {
        self.address
    }

    /// The port.
    #[must_use]
    pub const fn port(self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        let v6 = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Self { address: u128::from(v6), port: address.port() }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        let v6 = Ipv6Addr::from(endpoint.address);
        let ip = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4);
        Self::new(ip, endpoint.port)
    }
}

/// Both ends of a connection as one of them sees it, with the network namespace they are in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FourTuple {
    /// This end.
    pub local: Endpoint,
    /// The other end.
    pub peer: Endpoint,
    /// SO_NETNS_COOKIE of the socket.
    pub namespace: u64,
}

impl FourTuple {
    /// The same connection seen from the other end.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        Self { local: self.peer, peer: self.local, namespace: self.namespace }
    }

    /// A well-mixed 64-bit digest, equal in every process (SplitMix64's finalizer over the words).
    #[must_use]
    pub fn digest(&self) -> u64 {
        let words = [
            self.local.address as u64,
            (self.local.address >> 64) as u64,
            self.peer.address as u64,
            (self.peer.address >> 64) as u64,
            u64::from(self.local.port) << 16 | u64::from(self.peer.port),
            self.namespace,
        ];
        words.iter().fold(0x9e37_79b9_7f4a_7c15, |digest, word| {
            let mut z = (digest ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        })
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", SocketAddr::from(self.local), SocketAddr::from(self.peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_plain_ipv4_are_one_endpoint() {
        let plain: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:80".parse().unwrap();
        assert_eq!(Endpoint::from(plain), Endpoint::from(mapped));
        assert_eq!(SocketAddr::from(Endpoint::from(mapped)), plain);
        let v6: SocketAddr = "[::1]:80".parse().unwrap();
        assert_eq!(SocketAddr::from(Endpoint::from(v6)), v6);
    }

    #[test]
    fn mirror_is_an_involution_with_another_digest() {
        let a: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let b: SocketAddr = "10.0.0.1:2".parse().unwrap();
        let tuple = FourTuple { local: a.into(), peer: b.into(), namespace: 7 };
        assert_eq!(tuple.mirrored().mirrored(), tuple);
        assert_ne!(tuple.mirrored().digest(), tuple.digest());
    }
}
