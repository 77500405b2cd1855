//! Two processes of a job prove to each other that they know its secret.
//!
//! ```text
//! connecting end   MAGIC, its rank, 32 random bytes
//! accepting end    MAGIC, its rank, 32 random bytes, proof
//! connecting end   proof
//! accepting end    one byte: welcome
//! ```
//!
//! A proof is the HMAC-SHA256 (RFC 2104) under the secret of: the end that makes it, both ranks,
//! both random values, the pipeline of both, and the address and port that the connection leads to.
//! It reveals nothing about the secret, and is of no use on another connection. So a process at
//! another address cannot relay everything to the real one and be taken for it. The address of the
//! connecting end is not included, because it may be translated on the way. A peer that cannot make
//! the proof learns only that a process listens, and is disconnected.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

/// The credentials of one end.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) rank: u32,
    pub(crate) secret: [u8; 32],
    /// A digest of the pipeline: both must run the same one.
    pub(crate) pipeline: [u8; 32],
}

const MAGIC: [u8; 16] = *b"seekwire flow 2\n";
const NONCE: usize = 32;
const WELCOME: u8 = 1;

/// Why a handshake failed.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not a process of a pipeline")]
    NotThePeer,
    #[error("rank {0} was expected, and rank {1} has answered")]
    Another(u32, u32),
    #[error(
        "it does not know the secret of the job, or runs another pipeline, or has another address"
    )]
    NoProof,
    #[error("it saw the proof of this process and hung up: its secret may be another one")]
    Gone,
}

#[derive(Clone, Copy)]
enum Side {
    Connects = 1,
    Accepts = 2,
}

struct Hello {
    rank: u32,
    nonce: [u8; NONCE],
}

impl Hello {
    fn write(&self) -> [u8; 52] {
        let mut bytes = [0; 52];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..20].copy_from_slice(&self.rank.to_le_bytes());
        bytes[20..].copy_from_slice(&self.nonce);
        bytes
    }

    fn read(from: &mut impl Read) -> Result<Self, Refused> {
        let mut magic = [0; 16];
        from.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(Refused::NotThePeer);
        }
        let (mut rank, mut nonce) = ([0; 4], [0; NONCE]);
        from.read_exact(&mut rank)?;
        from.read_exact(&mut nonce)?;
        Ok(Self { rank: u32::from_le_bytes(rank), nonce })
    }
}

fn proof(own: &Own, side: Side, connects: &Hello, accepts: &Hello, at: SocketAddr) -> Hmac<Sha256> {
    // HMAC takes a key of any length.
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&own.secret).unwrap_or_else(|_| unreachable!("any length"));
    mac.update(&[side as u8]);
    for hello in [connects, accepts] {
        mac.update(&hello.write());
    }
    mac.update(&own.pipeline);
    mac.update(&address_bytes(at));
    mac
}

/// The same for both ends, even if the listener takes both versions of IP.
fn address_bytes(at: SocketAddr) -> [u8; 18] {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&at.port().to_be_bytes());
    bytes
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(io::Error::from)?;
    Ok(nonce)
}

/// Connects to the process with that rank, which listens at this address.
pub(crate) fn connect(
    stream: &mut (impl Read + Write),
    own: &Own,
    at: SocketAddr,
    expected: u32,
) -> Result<(), Refused> {
    let connects = Hello { rank: own.rank, nonce: nonce()? };
    stream.write_all(&connects.write())?;
    let accepts = Hello::read(stream)?;
    let mut its = [0; 32];
    stream.read_exact(&mut its)?;
    if accepts.rank != expected {
        return Err(Refused::Another(expected, accepts.rank));
    }
    let verified = proof(own, Side::Accepts, &connects, &accepts, at).verify_slice(&its);
    verified.map_err(|_| Refused::NoProof)?;
    let ours = proof(own, Side::Connects, &connects, &accepts, at).finalize().into_bytes();
    stream.write_all(&ours)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer == [WELCOME] { Ok(()) } else { Err(Refused::NotThePeer) }
}

/// Accepts a process that has connected to this address, and returns its rank. Before the last step
/// it is unknown whether the welcome will arrive: `settle` decides whether it is sent.
pub(crate) fn accept(
    stream: &mut (impl Read + Write),
    own: &Own,
    at: SocketAddr,
    settle: impl FnOnce(u32) -> bool,
) -> Result<u32, Refused> {
    let connects = Hello::read(stream)?;
    let accepts = Hello { rank: own.rank, nonce: nonce()? };
    let ours = proof(own, Side::Accepts, &connects, &accepts, at).finalize().into_bytes();
    let mut answer = accepts.write().to_vec();
    answer.extend_from_slice(&ours);
    stream.write_all(&answer)?;
    let mut its = [0; 32];
    stream.read_exact(&mut its).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Refused::Gone,
        _ => error.into(),
    })?;
    let verified = proof(own, Side::Connects, &connects, &accepts, at).verify_slice(&its);
    verified.map_err(|_| Refused::NoProof)?;
    if !settle(connects.rank) {
        return Err(Refused::NotThePeer);
    }
    stream.write_all(&[WELCOME])?;
    Ok(connects.rank)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    const AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4711);

    fn own(rank: u32, secret: u8, pipeline: u8) -> Own {
        Own { rank, secret: [secret; 32], pipeline: [pipeline; 32] }
    }

    type Outcomes = (Result<(), Refused>, Result<u32, Refused>);

    fn shake_hands(connects: &Own, accepts: &Own, expected: u32) -> Outcomes {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let accepted = scope.spawn(move || accept(&mut far, accepts, AT, |rank| rank == 3));
            let connected = connect(&mut near, connects, AT, expected);
            drop(near);
            (connected, accepted.join().unwrap())
        })
    }

    #[test]
    fn who_knows_the_secret_is_welcome() {
        let (connected, accepted) = shake_hands(&own(3, 1, 1), &own(0, 1, 1), 0);
        connected.unwrap();
        assert_eq!(accepted.unwrap(), 3);
    }

    #[test]
    fn who_does_not_know_it_is_not() {
        for (secret, pipeline) in [(2, 1), (1, 2)] {
            let (connected, accepted) = shake_hands(&own(3, secret, pipeline), &own(0, 1, 1), 0);
            assert!(matches!(connected, Err(Refused::NoProof)), "{connected:?}");
            assert!(accepted.is_err());
        }
        let (connected, _) = shake_hands(&own(3, 1, 1), &own(1, 1, 1), 0);
        assert!(matches!(connected, Err(Refused::Another(0, 1))), "{connected:?}");
        let (connected, accepted) = shake_hands(&own(4, 1, 1), &own(0, 1, 1), 0);
        assert!(connected.is_err() && matches!(accepted, Err(Refused::NotThePeer)));
    }

    #[test]
    fn an_address_is_one_in_both_versions_of_ip() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:4711".parse().unwrap();
        assert_eq!(address_bytes(mapped), address_bytes(AT));
        for other in ["10.0.0.2:4711", "10.0.0.1:4712", "[::1]:4711"] {
            assert_ne!(address_bytes(other.parse().unwrap()), address_bytes(AT), "{other}");
        }
    }

    #[test]
    fn an_answer_that_is_sent_back_proves_nothing() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let accepts = own(0, 1, 1);
        let accepted = thread::scope(|scope| {
            let accepted = scope.spawn(|| accept(&mut far, &accepts, AT, |_| true));
            near.write_all(&Hello { rank: 3, nonce: [0; 32] }.write()).unwrap();
            let mut answer = [0; 84];
            near.read_exact(&mut answer).unwrap();
            near.write_all(&answer[52..]).unwrap();
            accepted.join().unwrap()
        });
        assert!(matches!(accepted, Err(Refused::NoProof)), "{accepted:?}");
    }
}
