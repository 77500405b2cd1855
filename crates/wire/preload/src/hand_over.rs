//! Handing a connection over: back to TCP, for a holder that does not know of the ring.
//!
//! One with holes, or with bytes in the library's memory, cannot be handed over: the new holder
//! would find bytes that were taken, and miss others. Where the program asks for just that, it gets
//! EBUSY; where it may not even know, the log tells.

use std::ffi::c_int;

use seekwire_endpoint::{Connection, HandedOver, Reason, Until};
use seekwire_transport::Errno;
use seekwire_transport::sys::thread;

use crate::ffi::{guarded, keeping_errno};
use crate::table::{self, SocketRef};
use crate::{log, relay};

/// Moves a connection back to TCP that another program will see as a plain socket. Tells whether
/// bytes are left on the ring, which the peer does not send again now, or never will.
///
/// # Errors
///
/// EBUSY when the kernel's socket does not have what is to be received, and that alone.
pub(crate) fn to_tcp(socket: &SocketRef, why: Reason) -> Result<HandedOver, Errno> {
    to_tcp_until(socket, why, Until::NEVER)
}

pub(crate) fn to_tcp_until(
    socket: &SocketRef,
    why: Reason,
    until: Until,
) -> Result<HandedOver, Errno> {
    // A peer that did not answer once is not waited for again. What seeks may have come to have
    // holes meanwhile.
    let first = socket.hand_over();
    let result = match first || socket.connection.is_seeking() {
        true => hand_over(socket, || {
            let until = until.at_most(socket.connection.answer_limit());
            socket.connection.hand_over(why, until, serve_peers)
        }),
        false => {
            hand_over(socket, || socket.connection.hand_over_later(why, thread::process_is_ending))
        }
    };
    if result == Err(Errno::BUSY) {
        if first {
            socket.keep();
        }
        return refuse(socket);
    }
    Ok(result.unwrap_or(HandedOver::Later))
}

/// As [`to_tcp`], where a relay brings what the peer does not send again soon.
///
/// # Errors
///
/// As for [`to_tcp`].
pub(crate) fn to_tcp_or_relay(socket: &SocketRef, why: Reason) -> Result<HandedOver, Errno> {
    to_tcp_until(socket, why, Until::after(Some(Connection::ANSWER_LIMIT)))
}

/// As [`to_tcp`], for a program that gets the socket by `number`: by a relay, if the peer does not
/// send again what is unread. Tells whether the socket itself stays there without these bytes.
///
/// # Errors
///
/// As for [`to_tcp`].
pub(crate) fn to_holder_of(socket: &SocketRef, why: Reason, number: c_int) -> Result<bool, Errno> {
    // A relay at another number may have taken all since: then this number is of the relay as well.
    if relay::is_begun(socket) || to_tcp_or_relay(socket, why)? == HandedOver::Later {
        return Ok(guarded(|| relay::put_at(socket, number)) != Some(true));
    }
    Ok(false)
}

/// As [`to_tcp`], for a program that starts beside this one, or goes on in its place, and inherits
/// the socket: most likely it never uses it, and nobody waits. One that `finds_rest` finds there what
/// is unread, which it shares with this one.
///
/// # Errors
///
/// EAGAIN where it would not find what is unread; EBUSY as for [`to_tcp`].
pub(crate) fn to_heir(
    socket: &SocketRef,
    why: Reason,
    finds_rest: bool,
    is_ending: impl Fn(u32) -> bool,
) -> Result<HandedOver, Errno> {
    socket.hand_over();
    let connection = &socket.connection;
    let result = hand_over(socket, || match finds_rest {
        true => connection.leave_rest(why, is_ending),
        false => connection.hand_over_later(why, is_ending),
    });
    if result == Err(Errno::BUSY) { refuse(socket) } else { result }
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

fn refuse(socket: &SocketRef) -> Result<HandedOver, Errno> {
    let fd = socket.connection.fd().raw();
    log::warn!(
        fd,
        "a socket that seeks has holes, or bytes in memory; receive them before another program gets it"
    );
    Err(Errno::BUSY)
}

/// Moves the connection to TCP for good.
fn hand_over(
    socket: &SocketRef,
    work: impl FnOnce() -> Result<HandedOver, Errno>,
) -> Result<HandedOver, Errno> {
    keeping_errno(|| {
        let result = guarded(work).unwrap_or(Err(Errno::IO));
        // Whether it finds room is not seen.
        socket.note_starved();
        socket.update_sets();
        result
    })
}
