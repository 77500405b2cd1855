//! Whether the process at the other end of a conversation holds the other end of the connection.
//!
//! A process that enters itself into the registry, or sends an offer, may be any process of this
//! user. The kernel knows the socket at the other end ([`diag`]), and with a [`proof`] a process
//! shows that it has that socket open.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use seekwire_protocol::{FourTuple, Reason};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::unix::Sender;
use seekwire_transport::sys::{Fd, diag, host, proof, socket};

use crate::scarcity;

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
            Err(Reason::OtherUser)
        }
        Ok(None) => Err(Reason::NoPeer),
        Err(error) => Err(unasked(&error)),
    }
}

/// Why no process of this user has registered the other end, as far as the kernel says so without
/// /proc; `tuple` is this end's view, and `socket` is this end. Takes a few system calls, so it is
/// asked once for a connection, when it has looked for the peer in vain several times.
pub(crate) fn why_absent(socket: Fd, tuple: &FourTuple) -> Reason {
    match other_end(tuple) {
        Err(Reason::NoPeer) => {}
        // A process of this user holds it, without the library or with another directory.
        Ok(_) => return Reason::NoPeer,
        Err(reason) => return reason,
    }
    let (local, peer) = (SocketAddr::from(tuple.local), SocketAddr::from(tuple.peer));
    let exists = |local, peer| diag::exists(local, peer, tuple.namespace);
    match (exists(local, peer), exists(peer, local)) {
        // Only a query that names its device finds a socket that is bound to one; one that was reset
        // is not to be found.
        (Ok(false), _) if socket::is_bound_to_device(socket) || socket::names(socket).is_err() => {
            Reason::NoPeer
        }
        (Ok(false), _) => {
            static IS_SAID: AtomicBool = AtomicBool::new(false);
            if !IS_SAID.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "{tuple}: the kernel does not find this connection; load the module tcp_diag"
                );
            }
            Reason::NoDiag
        }
        // A connection to an address of this namespace begins at the same one, unless the program
        // has chosen another.
        (Ok(true), Ok(false)) if local.ip() == peer.ip() || peer.ip().is_loopback() => {
            Reason::Translated
        }
        (Ok(true), Ok(false)) => Reason::Elsewhere,
        // It is not accepted yet, or closed already.
        _ => Reason::NoPeer,
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
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::warn!("/proc/thread-self: {error}, so connections stay on TCP; mount /proc");
            Err(Reason::NoProc)
        }
        Err(error) => Err(impossible(&error)),
    }
}

/// The reason for an error of sock_diag.
fn unasked(error: &std::io::Error) -> Reason {
    match error.raw_os_error() {
        Some(code) if code == Errno::XDEV.raw_os_error() => Reason::NamespaceUnproven,
        Some(code) if code == Errno::PROTONOSUPPORT.raw_os_error() => {
            tracing::warn!("sock_diag: {error}, so connections stay on TCP; see seekwire doctor");
            Reason::NoDiag
        }
        _ => impossible(error),
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

    fn view_of(socket: &TcpStream) -> FourTuple {
        FourTuple {
            local: socket.local_addr().unwrap().into(),
            peer: socket.peer_addr().unwrap().into(),
            namespace: socket::namespace(Fd::from(socket)).unwrap(),
        }
    }

    #[test]
    fn the_kernel_says_why_nobody_has_registered_the_other_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tuple = view_of(&a);
        assert_eq!(why_absent(Fd::from(&a), &tuple), Reason::NoPeer, "not accepted yet");
        let accepted = listener.accept().unwrap();
        assert_eq!(why_absent(Fd::from(&a), &tuple), Reason::NoPeer, "held by this user");
        let elsewhere = FourTuple { namespace: tuple.namespace + 1, ..tuple };
        assert_eq!(why_absent(Fd::from(&a), &elsewhere), Reason::NamespaceUnproven);
        // A kernel that cannot ask about TCP finds no connection at all.
        let unknown =
            FourTuple { local: "127.0.0.1:9".parse::<SocketAddr>().unwrap().into(), ..tuple };
        assert_eq!(why_absent(Fd::from(&a), &unknown), Reason::NoDiag);
        let unconnected = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(why_absent(Fd::from(&unconnected), &unknown), Reason::NoPeer, "reset");
        drop(accepted);
        assert_eq!(why_absent(Fd::from(&a), &tuple), Reason::NoPeer, "closed");
    }

    #[test]
    fn a_proof_of_what_was_closed_meanwhile_is_no_false_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let tuple = view_of(&b);
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
