//! Handing a connection over: back to TCP, for a holder that does not know about the ring.
//!
//! A connection with holes, or with bytes in the library's memory, cannot be handed over: the new
//! holder would find bytes that were taken, and miss others. If the program asks for exactly that,
//! it gets EBUSY; if it may not even know, the log reports it.

use std::ffi::c_int;

use seekwire_endpoint::{Connection, HandedOver, Reason, Until};
use seekwire_transport::Errno;
use seekwire_transport::sys::thread;

use crate::ffi::{guarded, keeping_errno};
use crate::table::{self, SocketRef};
use crate::{log, relay};

/// Moves a connection back to TCP, because another program will see it as a plain socket. Returns
/// whether bytes are left on the ring that the peer does not send again now, or never will.
///
/// # Errors
///
/// Only EBUSY, if the kernel's socket lacks bytes that are still to be received.
pub(crate) fn to_tcp(socket: &SocketRef, why: Reason) -> Result<HandedOver, Errno> {
    to_tcp_until(socket, why, Until::NEVER)
}

pub(crate) fn to_tcp_until(
    socket: &SocketRef,
    why: Reason,
    until: Until,
) -> Result<HandedOver, Errno> {
    // If a peer has once not answered, nobody waits for it again. A socket that seeks may have got
    // holes in the meantime.
    let first = socket.hand_over(why);
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

/// Like [`to_tcp`], but a relay brings the bytes that the peer does not send again soon.
///
/// # Errors
///
/// Those of [`to_tcp`].
pub(crate) fn to_tcp_or_relay(socket: &SocketRef, why: Reason) -> Result<HandedOver, Errno> {
    to_tcp_until(socket, why, Until::after(Some(Connection::ANSWER_LIMIT)))
}

/// Like [`to_tcp`], for a program that gets the socket as `number`: through a relay, if the peer
/// does not send the unread bytes again. Returns whether the socket itself stays there without
/// these bytes.
///
/// # Errors
///
/// Those of [`to_tcp`].
pub(crate) fn to_holder_of(socket: &SocketRef, why: Reason, number: c_int) -> Result<bool, Errno> {
    // A relay at another number may have taken all bytes since: then this number also needs the
    // relay.
    if relay::is_begun(socket) || to_tcp_or_relay(socket, why)? == HandedOver::Later {
        return Ok(guarded(|| relay::put_at(socket, number)) != Some(true));
    }
    Ok(false)
}

/// Like [`to_tcp`], for a program that starts beside this one, or replaces it, and inherits the
/// socket: most likely it never uses it, so nobody waits. A program that `finds_spill` finds the
/// unread bytes there, and shares them with this one.
///
/// # Errors
///
/// EAGAIN if it would not find the unread bytes; EBUSY as for [`to_tcp`].
pub(crate) fn to_successor(
    socket: &SocketRef,
    why: Reason,
    finds_spill: bool,
    is_ending: impl Fn(u32) -> bool,
) -> Result<HandedOver, Errno> {
    socket.hand_over(why);
    let connection = &socket.connection;
    let result = hand_over(socket, || match finds_spill {
        true => connection.spill_unread(why, is_ending),
        false => connection.hand_over_later(why, is_ending),
    });
    if result == Err(Errno::BUSY) { refuse(socket) } else { result }
}

/// Lets connections of this process serve their peers' requests, because a thread is about to wait
/// for these peers.
pub(crate) fn serve_peers() {
    for (fd, object) in table::entries() {
        let asked = object.as_socket().is_some_and(|socket| socket.connection.is_asked());
        drop(object);
        if let Some(socket) = table::socket(fd).filter(|_| asked) {
            socket.connection.service_peer();
            socket.update_sets();
        }
    }
}

fn refuse(socket: &SocketRef) -> Result<HandedOver, Errno> {
    let fd = socket.connection.fd().raw();
    log::warn!(
        fd,
        "a seeking socket has holes, or bytes in memory; receive all before another program gets it"
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
        // It is unknown whether it finds room.
        socket.note_starved();
        socket.update_sets();
        result
    })
}
