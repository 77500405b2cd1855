//! How the agents of the two machines communicate through the region.
//!
//! Each publishes in its half the addresses of its machine, and the port at which it answers. The
//! other agent trusts none of this. It puts a *question*, a random number, into its own half, opens
//! a TCP connection to the address, and sends the question and a *secret*, which is stored nowhere
//! else. An agent that receives them, and finds the question in the other half of the link, puts
//! the secret into its own half, together with the two addresses of the TCP connection. So the
//! asking agent knows that its message has reached the machine at the other end of the region, at
//! exactly that address: not a machine that an address translation or a proxy hides, and not
//! another machine with the same address in another network.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{Ordering, fence};

use seekwire_protocol::Endpoint;

use crate::address::is_usable;
use crate::half::HalfMemory;
use crate::layout::{MAX_ADDRESSES, header};
use crate::link::Link;
use crate::peers::Peers;
use crate::region::Inner;

/// Maximum number of addresses of a machine.
pub const MOST: usize = MAX_ADDRESSES;
/// An agent answers at a port that only the administrator of a machine can assign. Otherwise any
/// process of that machine could receive the questions, and make its machine pass for another one.
pub const PORTS: RangeInclusive<u16> = 1..=1023;

/// The port and addresses that an agent publishes for its machine. By default, no agent runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Published {
    /// The port at which it answers, or 0 if it does not.
    pub port: u16,
    /// The addresses of the machine, in ascending order.
    pub addresses: Vec<IpAddr>,
}

/// A secret that an agent has received, and the addresses of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The secret.
    pub secret: u128,
    /// The address of the machine that received it.
    pub here: IpAddr,
    /// The address of the machine that sent it.
    pub there: IpAddr,
}

impl Published {
    /// Removes unusable addresses and duplicates, and cuts the list at the limit.
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
    /// Stores the agent's port and addresses in this machine's half. Only the agent calls this,
    /// from one thread.
    pub fn publish(&self, published: &Published) {
        let Inner { own, .. } = &*self.0;
        // After another attachment, another agent may have published something.
        if !self.0.is_current() {
            return;
        }
        let sequence = own.header(header::SEQUENCE).load(Ordering::Relaxed) | 1;
        own.header(header::SEQUENCE).store(sequence, Ordering::Relaxed);
        fence(Ordering::Release);
        let addresses = &published.addresses[..published.addresses.len().min(MOST)];
        own.header(header::AGENT).store(published.port.into(), Ordering::Relaxed);
        own.header(header::COUNT).store(addresses.len() as u64, Ordering::Relaxed);
        for (at, address) in addresses.iter().enumerate() {
            store(own, header::ADDRESSES + at * 16, number(*address));
        }
        own.header(header::SEQUENCE).store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// The other machine's port and addresses, without unusable ones; `None` while that machine
    /// changes them.
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
        // As in `publish`: the sequence number changes before the rest does.
        fence(Ordering::Acquire);
        if sequence & 1 == 1 || load(header::SEQUENCE) != sequence {
            return None;
        }
        if !PORTS.contains(&port) {
            return Some(Published::default());
        }
        Some(Published::new(port, numbers.into_iter().map(address)))
    }

    /// A number that changes each time an agent of the other machine publishes.
    #[must_use]
    pub fn publications(&self) -> u64 {
        self.0.peer.header(header::SEQUENCE).load(Ordering::Acquire)
    }

    /// Stores the question of this machine's agent, or 0 if there is none.
    pub fn ask(&self, question: u64) {
        if self.0.is_current() {
            self.0.own.header(header::QUESTION).swap(question, Ordering::SeqCst);
        }
    }

    /// True if the other machine asks this question, and this machine does not ask the same one.
    #[must_use]
    pub fn is_asked(&self, question: u64) -> bool {
        let asks = |half: &HalfMemory| half.header(header::QUESTION).load(Ordering::SeqCst);
        question != 0 && asks(&self.0.peer) == question && asks(&self.0.own) != question
    }

    /// Answers a question of the other machine. Only the agent calls this, for one question at a
    /// time.
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

    /// The other machine's answer, if its last one is to this question. It proves something only if
    /// it contains the secret that was sent.
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

    /// True if an agent of this machine maintains the addresses of the link, through another
    /// [`Link`] than this one, opened by [`Self::keep`].
    #[must_use]
    pub fn has_agent(&self) -> bool {
        self.0.state.has_agent().unwrap_or(false)
    }

    /// True if the findings of an agent are still valid: it is alive, and neither machine has
    /// attached again or detached since.
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

/// Encodes an address as entries store it.
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
    fn what_is_published_is_in_order_once_and_not_too_much() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let addresses = ["10.0.0.2", "::ffff:10.0.0.1", "10.0.0.1", "::1", "fd00::1"].map(ip);
        let published = Published::new(967, addresses);
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
