//! Whether the process at the other end of a conversation holds the other end of the connection.
//!
//! A process that enters itself into the registry, or sends an offer, may be any process of this
//! user. The kernel knows the socket at the other end ([`diag`]), and with a [`proof`] a process
//! shows that it has that socket open.

use std::net::SocketAddr;

use seekwire_protocol::{FourTuple, Reason};
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::unix::Sender;
use seekwire_transport::sys::{Fd, diag, host, proof};

use crate::scarcity;

use std::os::fd::AsFd;

/// Proof that this process holds `socket`, for the process at the other end.
///
/// # Errors
/// The reason that keeps the connection on TCP.
pub(crate) fn own(socket: Fd) -> Result<PrivateFd, Reason> {
    proof::of(socket).map_err(|error| impossible(&error))
}

/// The socket at the other end, if one of this user's programs may hold it; `tuple` is this end's
/// view.
///
/// # Errors
/// The reason that keeps the connection on TCP.
pub(crate) fn other_end(tuple: &FourTuple) -> Result<diag::DiagSocket, Reason> {
    let (local, peer) = (SocketAddr::from(tuple.peer), SocketAddr::from(tuple.local));
    match diag::find(local, peer, tuple.namespace) {
        Ok(Some(socket)) if socket.user == host::user() => Ok(socket),
        Ok(Some(socket)) => {
            tracing::debug!("{tuple}: the other end is one of user {}", socket.user);
            Err(Reason::NoPeer)
        }
        Ok(None) => Err(Reason::NoPeer),
        Err(error) => Err(impossible(&error)),
    }
}

/// Verifies that `sender` holds the other end of the connection that this process has as `socket`.
///
/// # Errors
/// The reason that keeps the connection on TCP.
pub(crate) fn verify(
    socket: Fd,
    tuple: &FourTuple,
    proof: &PrivateFd,
    sender: Option<Sender>,
) -> Result<Sender, Reason> {
    verify_holder(other_end(tuple)?, socket, tuple, proof, sender)
}

/// As [`verify`], if the other end was `other_end` a moment ago.
fn verify_holder(
    other: diag::DiagSocket,
    socket: Fd,
    tuple: &FourTuple,
    proof: &PrivateFd,
    sender: Option<Sender>,
) -> Result<Sender, Reason> {
    let proven = sender.filter(|sender| sender.user == host::user());
    let proven = proven.and_then(|sender| Some((sender, sender.identity?)));
    let Some((sender, identity)) = proven else {
        tracing::warn!(
            "{tuple}: stays on TCP, the kernel does not say which process offers memory"
        );
        return Err(Reason::Unproven);
    };
    match proof::holds(proof.as_fd(), socket, other.inode, identity) {
        Ok(true) => Ok(sender),
        // It was closed meanwhile, which removed it from the epoll set.
        Ok(false) if other_end(tuple).is_err() => Err(Reason::NoPeer),
        Ok(false) => {
            tracing::warn!(
                "{tuple}: process {} does not prove that it holds the other end",
                sender.pid
            );
            Err(Reason::Unproven)
        }
        Err(error) => Err(impossible(&error)),
    }
}

fn impossible(error: &std::io::Error) -> Reason {
    if let Some(reason) = scarcity::reason_of(error) {
        return reason;
    }
    tracing::warn!(
        "who holds the other end cannot be proved, so connections stay on TCP: {error}; see seekwire doctor"
    );
    Reason::Unproven
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use seekwire_transport::sys::thread;

    use super::*;

    #[test]
    fn a_proof_of_what_was_closed_meanwhile_is_no_false_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let tuple = FourTuple {
            local: b.local_addr().unwrap().into(),
            peer: b.peer_addr().unwrap().into(),
            namespace: seekwire_transport::sys::socket::namespace(Fd::from(&b)).unwrap(),
        };
        let pid = thread::process_id();
        let identity = proof::own_identity().unwrap();
        let sender = Sender { user: host::user(), pid, identity };
        let verify = |other, proof| verify_holder(other, Fd::from(&b), &tuple, proof, Some(sender));
        let proof = own(Fd::from(&a)).unwrap();
        let other = other_end(&tuple).unwrap();
        let false_one = own(Fd::from(&b)).unwrap();
        assert_eq!(verify(other, &false_one).unwrap_err(), Reason::Unproven);
        assert!(verify(other, &proof).is_ok());
        drop(a);
        assert_eq!(verify(other, &proof).unwrap_err(), Reason::NoPeer);
    }
}
