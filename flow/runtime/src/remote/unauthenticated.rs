//! Clients that have connected and proved nothing yet; their number is limited.
//!
//! If there is one too many, one of the source with the most is disconnected, and none from the
//! processes' own addresses while there are others. Which one of a source is left to chance. If it
//! were the oldest, a client that shares an address with a process would only have to be fast
//! enough to keep any handshake of that process from completing. A source is an address, or a
//! 64-bit network for IPv6, where everybody has that many addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};

pub(crate) struct Unauthenticated {
    limit: usize,
    /// Addresses of processes of the job.
    known_addresses: BTreeSet<IpAddr>,
    waiting: Vec<UnauthenticatedPeer>,
}

struct UnauthenticatedPeer {
    number: u64,
    source: PeerNetwork,
    /// Another handle than the one that a thread reads and writes.
    handle: TcpStream,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PeerNetwork {
    is_known: bool,
    network: Ipv6Addr,
}

impl Unauthenticated {
    pub(crate) fn new(limit: usize, known_addresses: impl Iterator<Item = IpAddr>) -> Self {
        let known_addresses = known_addresses.map(|address| address.to_canonical()).collect();
        Self { limit, known_addresses, waiting: Vec::new() }
    }

    /// Admits a client, which may disconnect another one; `chance` decides between the candidates.
    /// False if the new one itself was disconnected.
    pub(crate) fn admit(
        &mut self,
        number: u64,
        from: IpAddr,
        handle: TcpStream,
        chance: u32,
    ) -> bool {
        let source = self.source(from);
        self.waiting.push(UnauthenticatedPeer { number, source, handle });
        if self.waiting.len() <= self.limit {
            return true;
        }
        let last = self.waiting.len() - 1;
        let mut indices = self.first_to_go();
        // The newest goes only if it is the only candidate: it cannot have done anything yet.
        if indices.len() > 1 {
            indices.retain(|index| *index != last);
        }
        let gone = indices[chance as usize % indices.len()];
        let _ = self.waiting.swap_remove(gone).handle.shutdown(Shutdown::Both);
        gone != last
    }

    /// Removes a client, whatever has become of it. False if it was disconnected before.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let index = self.waiting.iter().position(|peer| peer.number == number);
        index.map(|index| self.waiting.swap_remove(index)).is_some()
    }

    /// Disconnects all of them.
    pub(crate) fn hang_up(&mut self) {
        for peer in self.waiting.drain(..) {
            let _ = peer.handle.shutdown(Shutdown::Both);
        }
    }

    /// The indices of the candidates in the list, which is not empty.
    fn first_to_go(&self) -> Vec<usize> {
        let mut crowds: BTreeMap<PeerNetwork, usize> = BTreeMap::new();
        for peer in &self.waiting {
            *crowds.entry(peer.source).or_default() += 1;
        }
        let burden = |peer: &UnauthenticatedPeer| (!peer.source.is_known, crowds[&peer.source]);
        let most = self.waiting.iter().map(burden).max();
        let indices = self.waiting.iter().enumerate();
        indices.filter(|(_, one)| Some(burden(one)) == most).map(|(index, _)| index).collect()
    }

    fn source(&self, from: IpAddr) -> PeerNetwork {
        let from = from.to_canonical();
        let is_known = self.known_addresses.contains(&from);
        let network = match from {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) if is_known => address,
            IpAddr::V6(address) => {
                let mut segments = address.segments();
                segments[4..].fill(0);
                segments.into()
            }
        };
        PeerNetwork { is_known, network }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    const LIMIT: usize = 4;

    /// The addresses of three processes.
    const KNOWN: [&str; 3] = ["10.0.0.1", "10.0.0.2", "fd00::1"];

    struct Bench {
        listener: TcpListener,
        peers: Unauthenticated,
        /// The other ends, by number.
        ends: Vec<TcpStream>,
    }

    impl Bench {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let known_addresses = KNOWN.iter().map(|address| address.parse().unwrap());
            Self { listener, peers: Unauthenticated::new(LIMIT, known_addresses), ends: Vec::new() }
        }

        /// Admits one from each of these addresses.
        fn admit(&mut self, from: &[&str]) -> Vec<bool> {
            let admit = |from: &&str| {
                self.ends.push(TcpStream::connect(self.listener.local_addr().unwrap()).unwrap());
                let handle = self.listener.accept().unwrap().0;
                let number = self.ends.len() as u64 - 1;
                self.peers.admit(number, from.parse().unwrap(), handle, 0)
            };
            from.iter().map(admit).collect()
        }

        /// Those that are waiting, by number.
        fn waiting(&self) -> Vec<u64> {
            let mut numbers: Vec<u64> = self.peers.waiting.iter().map(|peer| peer.number).collect();
            numbers.sort_unstable();
            numbers
        }

        #[track_caller]
        fn assert_hung_up_on(&mut self, number: usize) {
            self.ends[number].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(self.ends[number].read(&mut [0]).unwrap(), 0);
        }

        #[track_caller]
        fn assert_connected(&mut self, number: usize) {
            self.ends[number].set_nonblocking(true).unwrap();
            let error = self.ends[number].read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn one_of_the_source_that_has_the_most_goes() {
        let mut bench = Bench::new();
        bench.admit(&["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.2"]);
        assert_eq!(bench.admit(&["10.1.0.4"]), [true]);
        assert_eq!(bench.waiting(), [0, 2, 3, 4]);
        bench.assert_hung_up_on(1);
        bench.assert_connected(0);
        // All sources have one, and an older one goes for the newest.
        assert_eq!(bench.admit(&["10.1.0.5"]), [true]);
        assert_eq!(bench.waiting().len(), LIMIT);
        assert!(bench.waiting().contains(&5));
    }

    #[test]
    fn of_ipv6_a_network_is_one_source() {
        let mut bench = Bench::new();
        bench.admit(&["10.1.0.1", "fd01::1", "fd01::2", "10.1.0.2"]);
        bench.admit(&["::ffff:10.1.0.3"]);
        assert_eq!(bench.waiting(), [0, 2, 3, 4]);
    }

    #[test]
    fn none_of_the_processes_goes_for_somebody_else() {
        let mut bench = Bench::new();
        bench.admit(&["10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1", "10.1.0.1"]);
        assert_eq!(bench.admit(&["fd00::1"]), [true]);
        assert_eq!(bench.waiting(), [0, 1, 2, 4]);
        // A neighbour of a process is not the process.
        assert_eq!(bench.admit(&["10.1.0.1", "fd00::2"]), [false, false]);
        assert_eq!(bench.waiting(), [0, 1, 2, 4]);
        bench.assert_hung_up_on(5);
        bench.assert_hung_up_on(6);
        // A client that uses a known address harms only that one.
        assert_eq!(bench.admit(&["10.0.0.1", "10.0.0.2", "10.0.0.1"]), [true; 3]);
        let left = bench.waiting();
        assert!(left.contains(&4) && left.contains(&8) && left.contains(&9), "{left:?}");
    }

    #[test]
    fn chance_spares_any_of_them() {
        for spared in 0..LIMIT as u32 {
            let mut bench = Bench::new();
            bench.admit(&["10.0.0.1"; LIMIT]);
            let end = TcpStream::connect(bench.listener.local_addr().unwrap()).unwrap();
            let handle = bench.listener.accept().unwrap().0;
            let from = "10.0.0.1".parse().unwrap();
            assert!(bench.peers.admit(9, from, handle, spared + 1));
            assert!(bench.waiting().contains(&u64::from(spared)));
            drop(end);
        }
    }

    #[test]
    fn who_has_left_is_not_hung_up_on() {
        let mut bench = Bench::new();
        bench.admit(&["10.0.0.1"]);
        let kept = bench.peers.waiting[0].handle.try_clone().unwrap();
        assert!(bench.peers.remove(0) && !bench.peers.remove(0));
        bench.admit(&["10.0.0.1"; 3 * LIMIT]);
        bench.peers.hang_up();
        assert_eq!(bench.waiting(), [0_u64; 0]);
        bench.assert_hung_up_on(1);
        bench.assert_connected(0);
        drop(kept);
    }
}
