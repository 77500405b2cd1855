//! Programs that are started with actions of posix_spawn(3). The actions duplicate nothing before
//! the program starts, so this module notes which files it will get.

use std::ffi::c_int;
use std::os::fd::AsFd;

use seekwire_endpoint::{HandedOver, Reason};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::{LibraryFd, PrivateFd};
use seekwire_transport::sys::{Fd, socket as kernel};

use crate::fallback::to_tcp_or_relay;
use crate::ffi::{guarded, guarded_own};
use crate::lock::{Lock, RawLock};
use crate::relay::{self, Begun, begin_or_refuse, reads_from};
use crate::socket::Socket;
use crate::table::{self, SocketRef};

/// A file, as identified by the kernel.
type Identity = (u64, u64);

struct Actions {
    at: usize,
    /// The numbers that the program gets, for a socket or for another file.
    numbers: Vec<(c_int, Option<Identity>)>,
    /// The ends of relays that it gets instead of sockets.
    ends: Vec<RelayEnd>,
}

struct RelayEnd {
    socket: Identity,
    number: PrivateFd,
    /// Until a program has begun.
    begun: Option<Begun>,
}

static ACTIONS: Lock<Vec<Actions>> = Lock::new(Vec::new());

/// The lock of all notes.
pub(crate) fn lock() -> &'static RawLock {
    ACTIONS.raw()
}

/// The socket that `number` stands for in the program after the actions so far.
pub(crate) fn socket(actions: usize, number: c_int) -> Option<SocketRef> {
    let assigned = ACTIONS.lock().iter().find(|it| it.at == actions).and_then(|it| {
        it.numbers.iter().find(|(assigned, _)| *assigned == number).map(|(_, socket)| *socket)
    });
    match assigned {
        Some(of) => table::socket_of(of?, |_| true),
        None => table::socket(number),
    }
}

/// Notes that the program gets `number` next, for this socket or for another file.
pub(crate) fn gets(actions: usize, number: c_int, socket: Option<&Socket>) {
    let of = socket.and_then(|socket| kernel::identity(socket.connection.fd()));
    with(actions, |it| {
        it.numbers.retain(|(assigned, _)| *assigned != number);
        it.numbers.push((number, of));
    });
}

fn with(actions: usize, work: impl FnOnce(&mut Actions)) {
    let mut all = ACTIONS.lock();
    let place = all.iter().position(|it| it.at == actions).unwrap_or_else(|| {
        all.push(Actions { at: actions, numbers: Vec::new(), ends: Vec::new() });
        all.len() - 1
    });
    work(&mut all[place]);
}

/// The end of a relay that the program is to get as `to` instead of the socket, if there is one.
///
/// # Errors
/// EBUSY if the program would find a false end of the stream.
pub(crate) fn end_for(
    socket: &SocketRef,
    actions: usize,
    to: c_int,
) -> Result<Option<c_int>, Errno> {
    // An earlier relay may have taken the unread bytes.
    if let Some(end) = guarded(|| noted_end(socket, actions)).flatten() {
        return Ok(Some(end));
    }
    match to_tcp_or_relay(socket, Reason::Exec)? {
        HandedOver::All => Ok(None),
        HandedOver::Later => guarded_own(|| begin(socket, actions, to)),
    }
}

fn noted_end(socket: &Socket, actions: usize) -> Option<c_int> {
    let of = kernel::identity(socket.connection.fd())?;
    let all = ACTIONS.lock();
    let mut ends = all.iter().filter(|it| it.at == actions).flat_map(|it| &it.ends);
    ends.find(|end| end.socket == of).map(|end| end.number.fd().raw())
}

fn begin(socket: &Socket, actions: usize, to: c_int) -> Result<Option<c_int>, Errno> {
    let of = kernel::identity(socket.connection.fd()).filter(|_| reads_from(to));
    let Some(of) = of else { return Ok(None) };
    let Some(begun) = begin_or_refuse(socket)? else { return Ok(None) };
    let end = LibraryFd::duplicate(Fd::from(&begun.theirs.as_fd())).and_then(PrivateFd::place);
    let end = end.map_err(|_| Errno::BUSY)?;
    let number = end.fd();
    relay::is_at(socket, number);
    let end = RelayEnd { socket: of, number: end, begun: Some(begun) };
    with(actions, |it| it.ends.push(end));
    Ok(Some(number.raw()))
}

/// A program has begun with these actions, and has the ends of its relays.
pub(crate) fn started(actions: usize) {
    let mut all = ACTIONS.lock();
    let ends = all.iter_mut().filter(|it| it.at == actions).flat_map(|it| &mut it.ends);
    ends.filter_map(|end| end.begun.take()).for_each(Begun::open);
}

/// Forgets the actions at this address: nothing is started with them any more.
pub(crate) fn forget(actions: usize) {
    ACTIONS.lock().retain(|it| it.at != actions);
}

/// Called before the last number of a socket is closed: no program that starts later gets it.
pub(crate) fn forget_socket(socket: &Socket) {
    if socket.relayed().lock().is_none() {
        return;
    }
    if let Some(of) = kernel::identity(socket.connection.fd()) {
        ACTIONS.lock().iter_mut().for_each(|it| it.ends.retain(|end| end.socket != of));
    }
}
