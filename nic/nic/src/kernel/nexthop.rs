//! Next hops that routes share (ip-nexthop(8)): objects of their own, which a route names by a
//! number. The bindings do not have their messages (linux/nexthop.h).

use std::collections::{BTreeMap, BTreeSet};

use netlink_bindings::traits::{NetlinkRequest, Protocol};
use netlink_bindings::utils::find_attr;

use super::{Kernel, Refusal};

/// RTM_GETNEXTHOP of linux/rtnetlink.h.
const GET: u16 = 106;
/// NLM_F_ROOT and NLM_F_MATCH: all of them.
const DUMP: u16 = 0x300;
/// Bytes of `struct nhmsg`; with zeros only it means all families.
const HEADER: usize = 8;
/// NHA_ID, NHA_GROUP, NHA_OIF.
const ID: u16 = 1;
const GROUP: u16 = 2;
const OIF: u16 = 5;

struct Dump;

impl NetlinkRequest for Dump {
    fn protocol(&self) -> Protocol {
        Protocol::Raw { protonum: 0, request_type: GET }
    }

    fn flags(&self) -> u16 {
        DUMP
    }

    fn payload(&self) -> &[u8] {
        &[0; HEADER]
    }

    type ReplyType<'buf> = Option<(u32, NextHop)>;

    fn decode_reply(buf: &[u8]) -> Self::ReplyType<'_> {
        understand(buf)
    }
}

/// Where a nexthop leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NextHop {
    Interface(u32),
    /// The nexthops of a group.
    Group(Vec<u32>),
    /// Packets are dropped.
    Nowhere,
}

fn understand(message: &[u8]) -> Option<(u32, NextHop)> {
    let attributes = message.get(HEADER..)?;
    let number = |kind| Some(u32::from_ne_bytes(find_attr(attributes, kind)?.try_into().ok()?));
    let hop = match (find_attr(attributes, GROUP), number(OIF)) {
        // `struct nexthop_grp`: the number, weights.
        (Some(group), _) => {
            let members = group
                .chunks_exact(8)
                .map(|one| u32::from_ne_bytes([one[0], one[1], one[2], one[3]]));
            NextHop::Group(members.collect())
        }
        (None, Some(interface)) => NextHop::Interface(interface),
        (None, None) => NextHop::Nowhere,
    };
    Some((number(ID)?, hop))
}

impl Kernel {
    /// The interfaces to which these next hops lead. None: one of them is not known, so that it may
    /// be any.
    pub(super) fn behind_next_hops(
        &mut self,
        hops: &BTreeSet<u32>,
    ) -> Result<Option<BTreeSet<u32>>, Refusal> {
        let mut by_number = BTreeMap::new();
        let mut replies = self.socket.request(&Dump)?;
        while let Some(reply) = replies.recv() {
            match reply {
                Ok(hop) => by_number.extend(hop),
                Err(_) => return Ok(None),
            }
        }
        Ok(interfaces(hops, &by_number))
    }
}

fn interfaces(hops: &BTreeSet<u32>, by_number: &BTreeMap<u32, NextHop>) -> Option<BTreeSet<u32>> {
    let mut interfaces = BTreeSet::new();
    // Members of groups are no groups.
    for hop in hops {
        let members = match by_number.get(hop)? {
            NextHop::Group(members) => members.as_slice(),
            _ => std::slice::from_ref(hop),
        };
        for member in members {
            match by_number.get(member)? {
                NextHop::Interface(interface) => drop(interfaces.insert(*interface)),
                NextHop::Group(_) | NextHop::Nowhere => {}
            }
        }
    }
    Some(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_may_be_anywhere() {
        let by_number = BTreeMap::from([
            (1, NextHop::Interface(7)),
            (2, NextHop::Nowhere),
            (3, NextHop::Group(vec![1, 2])),
            (4, NextHop::Group(vec![9])),
        ]);
        let to = |hops: &[u32]| interfaces(&hops.iter().copied().collect(), &by_number);
        assert_eq!(to(&[1, 2]), Some(BTreeSet::from([7])));
        assert_eq!(to(&[3]), Some(BTreeSet::from([7])));
        assert_eq!(to(&[4]), None);
        assert_eq!(to(&[1, 5]), None);
    }

    #[test]
    fn nonsense_is_no_next_hop() {
        assert_eq!(understand(&[]), None);
        assert_eq!(understand(&[0; HEADER]), None);
        let id = [&[0; HEADER][..], &8u16.to_ne_bytes(), &ID.to_ne_bytes(), &5u32.to_ne_bytes()]
            .concat();
        assert_eq!(understand(&id), Some((5, NextHop::Nowhere)));
        assert_eq!(understand(&id[..id.len() - 1]), None);
    }
}
