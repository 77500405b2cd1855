//! What the agents of the two machines say to each other in the region.
//!
//! Each publishes in its half at which addresses its machine can be reached, and at which port it
//! answers. The other one believes none of that. It puts a *question*, a random number, into its
//! own half, opens a TCP connection to the address, and says the question there, and a *secret*,
//! which stands nowhere else. Who hears that, and finds the question in the other half of the link,
//! puts the secret into its own half, with the two addresses between which it has heard it. So who
//! asks knows that what it has said has reached the machine at the other end of the region, at that
//! very address: not one behind an address translation or a proxy, and not another machine that has
//! the same address in another network.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{Ordering, fence};

use seekwire_protocol::Endpoint;

use crate::half::HalfMemory;
use crate::layout::{MAX_ADDRESSES, header};
use crate::link::{Inner, Link};
use crate::peers::Peers;

/// The most addresses of a machine.
pub const MOST: usize = MAX_ADDRESSES;
/// An agent answers at a port that only the administrator of a machine gives out: else anybody who
/// has a process there could hear what is asked, and have the machine pass for another one.
pub const PORTS: RangeInclusive<u16> = 1..=1023;

/// What the agent of a machine says of it. By default, that none runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Published {
    /// Where it answers; 0 while it does not.
    pub port: u16,
    /// The addresses of the machine, ascending.
    pub addresses: Vec<IpAddr>,
}

/// What an agent has heard, and between which addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The secret.
    pub secret: u128,
    /// The address of the machine that has heard it.
    pub here: IpAddr,
    /// That of the machine which has said it.
    pub there: IpAddr,
}

/// Whether an address can be that of another machine, whoever looks: not that of a machine to
/// itself, of many machines, of none, or one that says nothing without the name of an interface.
#[must_use]
pub fn is_usable(address: IpAddr) -> bool {
    let is_link_local = match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    is_of_another(address) && !is_link_local
}

/// Whether an address can be that of another machine for somebody, who may be on its network.
pub(crate) fn is_of_another(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            // From 224 on: many machines, and what is set aside.
            !(first == 0 || first >= 224 || v4.is_loopback())
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast()),
    }
}

impl Published {
    /// Without the addresses that nobody could use, each of the others once, and not too many.
    #[must_use]
    pub fn new(port: u16, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses = addresses.into_iter().map(|address| address.to_canonical());
        let mut addresses: Vec<IpAddr> = addresses.filter(|address| is_usable(*address)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MOST);
        Self { port, addresses }
    }
}

impl Link {
    /// Says in this machine's half what its agent publishes. Only the agent does, from one thread.
    pub fn publish(&self, said: &Published) {
        let Inner { own, .. } = &*self.0;
        // Where the machine was attached anew, somebody else's agent may have said something.
        if !self.0.is_current() {
            return;
        }
        let sequence = own.header(header::SEQUENCE).load(Ordering::Relaxed) | 1;
        own.header(header::SEQUENCE).store(sequence, Ordering::Relaxed);
        fence(Ordering::Release);
        let addresses = &said.addresses[..said.addresses.len().min(MOST)];
        own.header(header::AGENT).store(said.port.into(), Ordering::Relaxed);
        own.header(header::COUNT).store(addresses.len() as u64, Ordering::Relaxed);
        for (at, address) in addresses.iter().enumerate() {
            store(own, header::ADDRESSES + at * 16, number(*address));
        }
        own.header(header::SEQUENCE).store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// What the other machine publishes; `None` while it changes that. What nobody could use is
    /// left out.
    #[must_use]
    pub fn published(&self) -> Option<Published> {
        let Inner { peer, .. } = &*self.0;
        let load = |word| peer.header(word).load(Ordering::Relaxed);
        let sequence = peer.header(header::SEQUENCE).load(Ordering::Acquire);
        let port = u16::try_from(load(header::AGENT)).unwrap_or(0);
        let count = usize::try_from(load(header::COUNT)).ok().filter(|count| *count <= MOST);
        let numbers =
            (0..count.unwrap_or(0)).map(|at| self::load(peer, header::ADDRESSES + at * 16));
        let numbers: Vec<u128> = numbers.collect();
        // As in `publish`: the sequence changes before the rest does.
        fence(Ordering::Acquire);
        if sequence & 1 == 1 || load(header::SEQUENCE) != sequence {
            return None;
        }
        if !PORTS.contains(&port) {
            return Some(Published::default());
        }
        Some(Published::new(port, numbers.into_iter().map(address)))
    }

    /// Another number each time that an agent of the other machine has published.
    #[must_use]
    pub fn publications(&self) -> u64 {
        self.0.peer.header(header::SEQUENCE).load(Ordering::Acquire)
    }

    /// Says which question this machine's agent asks; 0 when it asks none any more.
    pub fn ask(&self, question: u64) {
        if self.0.is_current() {
            self.0.own.header(header::QUESTION).swap(question, Ordering::SeqCst);
        }
    }

    /// Whether the other machine asks this, and not this one itself.
    #[must_use]
    pub fn is_asked(&self, question: u64) -> bool {
        let asks = |half: &HalfMemory| half.header(header::QUESTION).load(Ordering::SeqCst);
        question != 0 && asks(&self.0.peer) == question && asks(&self.0.own) != question
    }

    /// Answers a question of the other machine. Only the agent does, one at a time.
    pub fn answer(&self, question: u64, answer: &Answer) {
        let Inner { own, .. } = &*self.0;
        if !self.0.is_current() {
            return;
        }
        own.header(header::ANSWERED).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        store(own, header::SECRET, answer.secret);
        store(own, header::HERE, number(answer.here));
        store(own, header::THERE, number(answer.there));
        own.header(header::ANSWERED).store(question, Ordering::Release);
    }

    /// What the other machine says that it has heard, if it has answered this question last. That
    /// is its word, and proves something only where the secret is the one that was said.
    #[must_use]
    pub fn answered(&self, question: u64) -> Option<Answer> {
        let Inner { peer, .. } = &*self.0;
        if question == 0 || peer.header(header::ANSWERED).load(Ordering::Acquire) != question {
            return None;
        }
        let (secret, here, there) =
            (load(peer, header::SECRET), load(peer, header::HERE), load(peer, header::THERE));
        Some(Answer { secret, here: address(here), there: address(there) })
    }

    /// Whether an agent of this machine keeps the addresses behind the link: another [`Link`] than
    /// this one, opened by [`Self::keep`].
    #[must_use]
    pub fn has_agent(&self) -> bool {
        self.0.state.has_agent().unwrap_or(false)
    }

    /// Whether what an agent has found still holds: it lives, and neither machine has attached anew
    /// or detached since.
    #[must_use]
    pub fn believes(&self, peers: &Peers) -> bool {
        let of_peer = self.peer().is_some_and(|peer| peer.token == peers.peer && !peer.is_detached);
        of_peer && self.token() == peers.own && !self.is_detached_here() && self.has_agent()
    }
}

fn store(half: &HalfMemory, word: usize, value: u128) {
    half.header(word).store((value >> 64) as u64, Ordering::Relaxed);
    half.header(word + 8).store(value as u64, Ordering::Relaxed);
}

fn load(half: &HalfMemory, word: usize) -> u128 {
    let load = |word| u128::from(half.header(word).load(Ordering::Relaxed));
    load(word) << 64 | load(word + 8)
}

/// As entries have addresses.
fn number(address: IpAddr) -> u128 {
    Endpoint::from(SocketAddr::new(address, 0)).address()
}

fn address(number: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(number)).to_canonical()
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

    #[test]
    fn what_is_published_is_in_order_once_and_not_too_much() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let said = ["10.0.0.2", "::ffff:10.0.0.1", "10.0.0.1", "::1", "fd00::1"].map(ip);
        let published = Published::new(967, said);
        assert_eq!(published.addresses, [ip("10.0.0.1"), ip("10.0.0.2"), ip("fd00::1")]);
        let many = (0..1000u32).map(|at| IpAddr::V4((0x0a00_0000 + at).into()));
        assert_eq!(Published::new(967, many).addresses.len(), MOST);
    }

    #[test]
    fn addresses_are_numbers_and_back() {
        for text in ["10.0.0.2", "fd00::2", "::"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(address(number(ip)), ip);
        }
    }
}
