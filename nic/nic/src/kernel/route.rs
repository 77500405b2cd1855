//! Finds the interfaces of routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_bindings::rt_route::{self, Rtmsg};

use super::link::Link;
use super::{Kernel, Refusal};
use crate::error::Error;

/// RTN_UNICAST: a route that leads somewhere.
const UNICAST: u8 = 1;
/// AF_INET and AF_INET6.
const FAMILIES: [u8; 2] = [2, 10];

impl Kernel {
    /// True if a default route of any table leaves through the interface, or through one that is
    /// stacked on it.
    pub(super) fn carries_default_route(&mut self, index: u32) -> Result<bool, Refusal> {
        let (mut carriers, mut hops) = (BTreeSet::new(), BTreeSet::new());
        for family in FAMILIES {
            let header = Rtmsg { rtm_family: family, ..Rtmsg::new() };
            let request = rt_route::Request::new().op_getroute_dump(&header);
            let mut replies = self.socket.request(&request)?;
            while let Some(reply) = replies.recv() {
                let (header, route) = match reply {
                    Ok(reply) => reply,
                    // A kernel without IPv6.
                    Err(error) if error.as_io_error().kind() == std::io::ErrorKind::Unsupported => {
                        break;
                    }
                    Err(error) => return Err(error.into()),
                };
                if header.rtm_dst_len != 0 || header.rtm_type != UNICAST {
                    continue;
                }
                carriers.extend(route.get_oif());
                carriers.extend(route.get_multipath().map(next_hops).unwrap_or_default());
                // The kernel may say nothing more (nexthop_compat_mode of ip-sysctl).
                hops.extend(route.get_nh_id());
            }
        }
        if !hops.is_empty() {
            match self.behind_next_hops(&hops)? {
                Some(interfaces) => carriers.extend(interfaces),
                None => return Ok(true),
            }
        }
        if carriers.is_empty() {
            return Ok(false);
        }
        Ok(below(carriers, &self.links()?).contains(&index))
    }

    /// The names of the interfaces by which packets to `peer` leave: that of the route first, then
    /// what it is stacked on.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: there is no route, or it cannot be read.
    pub fn interfaces_towards(&mut self, peer: IpAddr) -> Result<Vec<String>, Error> {
        let refused = |refusal: Refusal| Error::Kernel {
            what: format!("reading the route to {peer}"),
            reason: refusal.reason,
        };
        self.towards(peer).map_err(refused)
    }

    /// Fails if packets to `peer` leave by another interface than `interface`, or by none that it
    /// is part of.
    ///
    /// # Errors
    ///
    /// [`Error::OtherWay`]; those of [`Kernel::interfaces_towards`].
    pub fn check_route(&mut self, interface: &str, peer: IpAddr) -> Result<(), Error> {
        let interfaces = self.interfaces_towards(peer)?;
        if interfaces.iter().any(|other| other == interface) {
            return Ok(());
        }
        let by = interfaces.into_iter().next().unwrap_or_else(|| "no interface".to_owned());
        Err(Error::OtherWay { peer, interface: interface.to_owned(), by })
    }

    fn towards(&mut self, peer: IpAddr) -> Result<Vec<String>, Refusal> {
        let (family, length) = if peer.is_ipv4() { (FAMILIES[0], 32) } else { (FAMILIES[1], 128) };
        let header = Rtmsg { rtm_family: family, rtm_dst_len: length, ..Rtmsg::new() };
        let mut request = rt_route::Request::new().op_getroute_do(&header);
        request.encode().push_dst(peer);
        let first = self.ask(&request, |(_, route)| route.get_oif())?;
        let Some(first) = first else { return Ok(Vec::new()) };
        let mut links = self.links()?;
        let all = below(BTreeSet::from([first]), &links);
        links.retain(|link| all.contains(&link.index));
        links.sort_by_key(|link| link.index != first);
        Ok(links.into_iter().map(|link| link.name).collect())
    }
}

/// Down from bridges, bonds and VLANs to what they stand on.
fn below(mut carriers: BTreeSet<u32>, links: &[Link]) -> BTreeSet<u32> {
    loop {
        let before = carriers.len();
        for link in links {
            if link.master.is_some_and(|master| carriers.contains(&master)) {
                carriers.insert(link.index);
            }
            if carriers.contains(&link.index) {
                carriers.extend(link.below);
            }
        }
        if carriers.len() == before {
            return carriers;
        }
    }
}

/// The interfaces of RTA_MULTIPATH: `struct rtnexthop`s (linux/rtnetlink.h), each followed by its
/// attributes.
fn next_hops(mut hops: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let [low, high, _flags, _weight, a, b, c, d, ..] = *hops {
        numbers.push(u32::from_ne_bytes([a, b, c, d]));
        let length = usize::from(u16::from_ne_bytes([low, high])).next_multiple_of(4);
        match hops.get(length..) {
            Some(rest) if length >= 8 => hops = rest,
            _ => break,
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::next_hops;

    #[test]
    fn all_next_hops_are_found_and_nonsense_ends_the_list() {
        let hop = |length: u16, index: u32| {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend([0, 0]);
            bytes.extend(index.to_ne_bytes());
            bytes
        };
        let mut hops = hop(16, 7);
        hops.extend([0; 8]);
        hops.extend(hop(8, 9));
        assert_eq!(next_hops(&hops), [7, 9]);
        assert_eq!(next_hops(&hop(0, 3)), [3]);
        assert_eq!(next_hops(&hop(400, 3)), [3]);
        assert!(next_hops(&[1, 2, 3]).is_empty());
    }
}
