//! Handing a connection over: back to TCP, for a holder that does not know of the ring.
//!
//! One with holes, or with bytes in the library's memory, cannot be handed over: the new holder
//! would find bytes that were taken, and miss others. Where the program asks for just that, it gets
//! EBUSY; where it may not even know, the log tells.

use seekwire_endpoint::{Reason, Until};
use seekwire_transport::Errno;

use crate::ffi::{guarded, keeping_errno};
use crate::log;
use crate::table::{self, SocketRef};

/// Moves a connection back to TCP that another program will see as a plain socket.
///
/// # Errors
///
/// EBUSY when the kernel's socket does not have what is to be received, and that alone.
pub(crate) fn to_tcp(socket: &SocketRef, why: Reason) -> Result<(), Errno> {
    to_tcp_until(socket, why, Until::NEVER)
}

pub(crate) fn to_tcp_until(socket: &SocketRef, why: Reason, until: Until) -> Result<(), Errno> {
    // A peer that did not answer once is not waited for again. What seeks may have come to have
    // holes meanwhile.
    let first = socket.hand_over();
    let result = keeping_errno(|| match first || socket.connection.is_seeking() {
        true => hand_over(socket, why, until.at_most(socket.connection.answer_limit())),
        false => socket.fall_back(Reason::Bypassed),
    });
    match result {
        Ok(()) => {}
        Err(Errno::BUSY) => {
            if first {
                socket.keep();
            }
            return refuse(socket);
        }
        Err(error) => {
            let fd = socket.connection.fd().raw();
            log::warn!(fd, %error, "the peer did not agree in time to go back to TCP");
        }
    }
    Ok(())
}

/// Has connections of this process do what their peers ask of them: somebody is about to wait for
/// these peers.
pub(crate) fn serve_peers() {
    for (fd, object) in table::entries() {
        let asked = object.as_socket().is_some_and(|socket| socket.connection.is_asked());
        drop(object);
        if let Some(socket) = table::socket(fd).filter(|_| asked) {
            socket.connection.attend();
            socket.update_sets();
        }
    }
}

fn refuse(socket: &SocketRef) -> Result<(), Errno> {
    let fd = socket.connection.fd().raw();
    log::warn!(
        fd,
        "a socket that seeks has holes, or bytes in memory; receive them before another program gets it"
    );
    Err(Errno::BUSY)
}

/// Moves the connection to TCP for good.
fn hand_over(socket: &SocketRef, why: Reason, until: Until) -> Result<(), Errno> {
    let result =
        guarded(|| socket.connection.hand_over(why, until, serve_peers)).unwrap_or(Err(Errno::IO));
    // Whether it finds room is not seen.
    socket.note_starved();
    socket.update_sets();
    result
}
