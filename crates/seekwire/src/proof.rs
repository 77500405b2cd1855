//! Whether the process at the other end of a conversation holds the other end of the connection.
//!
//! Who enters itself into the registry, or sends an offer, may be anybody of this user. The kernel knows which socket is at the other
//! end ([`diag`]), and by a [`proof`] of its own a process shows that it has that one open.

use std::net::SocketAddr;

use protocol::{FourTuple, Reason};
use transport::sys::fd::Placed;
use transport::sys::unix::Sender;
use transport::sys::{Fd, diag, host, proof};

use std::os::fd::AsFd;

/// Proof that this process holds `socket`, for the process at the other end.
///
/// # Errors
/// What keeps the connection on TCP.
pub(crate) fn own(socket: Fd) -> Result<Placed, Reason> {
    proof::of(socket).map_err(|error| impossible(&error))
}

/// The socket at the other end, if it can be one of this user's programs that is there; `tuple` is this end's view.
///
/// # Errors
/// What keeps the connection on TCP.
pub(crate) fn other_end(tuple: &FourTuple) -> Result<diag::Socket, Reason> {
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
/// What keeps the connection on TCP.
pub(crate) fn verify(
    socket: Fd,
    tuple: &FourTuple,
    proof: &Placed,
    sender: Option<Sender>,
) -> Result<Sender, Reason> {
    let other_end = other_end(tuple)?;
    let known = sender.filter(|sender| sender.user == host::user());
    let known = known.and_then(|sender| Some((sender, sender.identity?)));
    let Some((sender, identity)) = known else {
        tracing::warn!("{tuple}: stays on TCP, the kernel does not say which process offers memory");
        return Err(Reason::Unproven);
    };
    match proof::holds(proof.as_fd(), socket, other_end.inode, identity) {
        Ok(true) => Ok(sender),
        Ok(false) => {
            tracing::warn!("{tuple}: process {} does not prove that it holds the other end", sender.pid);
            Err(Reason::Unproven)
        }
        Err(error) => Err(impossible(&error)),
    }
}

fn impossible(error: &std::io::Error) -> Reason {
    if host::is_scarcity(error) {
        return Reason::FdLimit;
    }
    tracing::warn!(
        "who holds the other end cannot be proved, so connections stay on TCP: {error}; see seekwire doctor"
    );
    Reason::Unproven
}
