//! A socket of this process is replaced with its relay, at all its numbers.

use std::ffi::c_int;

use seekwire_endpoint::Reason;
use seekwire_transport::Errno;
use seekwire_transport::sys::{Fd, fd, socket};

use crate::fd_numbers::Last;
use crate::relay::{self, Begun, Takes};
use crate::socket::Socket;
use crate::table::{self, SharedSet, SocketRef};
use crate::track;

/// Replaces the socket in this process with a relay, before exec. No epoll set that has the socket
/// may survive exec, because it would continue with the replaced file. A relay also does not take
/// bytes that this program has found, because another program may hold them as well. If no relay
/// can begin, a false end of the stream becomes an error. Standard output stays unchanged.
pub(crate) fn take_place(socket: SocketRef, takes: Takes, survives: impl Fn(c_int) -> bool) {
    if !relay::is_read(&socket, &survives) {
        return;
    }
    let begun = if is_in_surviving_set(&socket, survives) || relay::has_found(&socket) {
        Err(Errno::NOTSUP)
    } else {
        relay::begin(&socket, takes)
    };
    if begun.is_ok() || relay::would_end_falsely(&socket) {
        replace_numbers(socket, begun.ok(), relay::reads_from);
    }
}

/// True if the next program gets an epoll set that has the socket.
pub(crate) fn is_in_surviving_set(socket: &Socket, survives: impl Fn(c_int) -> bool) -> bool {
    socket.registrations().lock().iter().any(|registration| {
        let set = SharedSet::find(&registration.set).and_then(|set| set.number());
        set.is_some_and(&survives)
    })
}

/// Puts the program's end, or an unconnected socket, at the socket's numbers for which `replaced`
/// returns true, and removes all its numbers from the table.
pub(crate) fn replace_numbers(
    socket: SocketRef,
    begun: Option<Begun>,
    replaced: impl Fn(c_int) -> bool,
) {
    let of = socket::identity(socket.connection.fd());
    let numbers: Vec<_> = socket.numbers().lock().all().collect();
    if numbers.iter().all(|number| replaced(*number)) {
        socket.keep();
    } else {
        // The next program also has the socket itself.
        socket.hand_over(Reason::Exec);
    }
    drop(socket);
    for number in numbers {
        // Another thread may have closed it, and the number may belong to another file.
        if socket::identity(Fd::new(number)) != of {
            continue;
        }
        track::untrack(number, Last::Closing);
        let _ = match &begun {
            _ if !replaced(number) => Ok(()),
            Some(begun) => fd::replace(Fd::new(number), &begun.theirs),
            None => relay::put_nothing(Fd::new(number)),
        };
    }
    if let Some(begun) = begun {
        begun.open();
    }
}

/// Replaces the socket in this process with a relay, while the process goes on with the kernel's
/// calls or in the C library. As with one socket, the new holder does not get the bytes that this
/// process reads. Returns false if the socket stays as it is, because an epoll set that has it
/// would continue with the replaced file.
///
/// # Errors
/// EBUSY if no relay can begin, and the new holder [would miss](relay::would_miss) bytes.
pub(crate) fn goes_on_in_place(fd: c_int) -> Result<bool, Errno> {
    let Some(socket) = table::socket(fd) else { return Ok(false) };
    if is_in_surviving_set(&socket, |_| true) {
        return Ok(false);
    }
    match relay::begin_or_refuse(&socket)? {
        Some(begun) => replace_numbers(socket, Some(begun), |_| true),
        None => return Ok(false),
    }
    Ok(true)
}
