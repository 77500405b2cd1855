//! Relays: processes that bring a program the bytes of a connection which it holds without knowing
//! of the ring.
//!
//! A socket that is handed over goes back to TCP, and the peer sends again what is unread. It cannot
//! where it is gone, or has ended its direction, and does not while it makes no call. Then the new
//! holder gets the other end of a TCP connection in place of the socket, and two processes of the
//! library's, copies of this one with nothing but the connection, move bytes between the two, a
//! direction each, until it ends as the connection ends.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::time::Duration;

use seekwire_endpoint::{Connection, Interest, RecvFlags, SendFlags, Until};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::{self, Opened, Placed};
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket::{self, KernelRecv, KernelSend};
use seekwire_transport::sys::{Fd, pair, thread};

use crate::lock::Lock;
use crate::numbers::Last;
use crate::socket::Socket;
use crate::table::SocketRef;
use crate::{filter, fork, hold, log, track};

/// Between two looks at whether others have left a connection.
const NAP: Duration = Duration::from_millis(5);

/// Bytes that are moved at a time.
const PIECE: usize = 256 << 10;

/// Where the program's end of a relay was put last.
pub(crate) struct Relayed {
    number: Fd,
    identity: (u64, u64),
}

impl Relayed {
    fn at(number: Fd) -> Option<Self> {
        Some(Self { number, identity: socket::identity(number)? })
    }

    fn is_there(&self) -> bool {
        socket::identity(self.number) == Some(self.identity)
    }
}

/// Ends of relays that processes get which are started by actions of posix_spawn(3), with the
/// addresses of the actions and of the socket.
static FOR_ACTIONS: Lock<Vec<(usize, usize, Placed)>> = Lock::new(Vec::new());

/// Whether a relay has begun whose end is where it was put.
pub(crate) fn is_begun(socket: &Socket) -> bool {
    socket.relayed().lock().as_ref().is_some_and(Relayed::is_there)
}

/// Puts the program's end of a relay at `number`, by which another program gets the socket.
pub(crate) fn put_at(socket: &Socket, number: c_int) {
    let number = Fd::new(number);
    let other =
        socket.relayed().lock().as_ref().filter(|other| other.is_there()).map(|it| it.number);
    let replaced = match other {
        // Another number of the same socket.
        Some(other) => Opened::duplicate(other).and_then(|end| fd::replace(number, &end)),
        None => match begin(socket, Takes::AtOnce) {
            Ok(theirs) => fd::replace(number, &theirs),
            // An error for the new holder, and no end of the stream that is none.
            Err(_) if socket::ends(socket.connection.fd()).peers => {
                pair::unconnected(number).and_then(|end| fd::replace(number, &end))
            }
            Err(_) => return,
        },
    };
    if replaced.is_ok() {
        *socket.relayed().lock() = Relayed::at(number);
        // It ends for this process with its number.
        socket.keep();
    }
}

/// Lets a relay take the place of the socket in this process, too: all numbers of it stand for the
/// program's end, and are none of the library's. False where that cannot be.
pub(crate) fn take_place(socket: SocketRef, takes: Takes) -> bool {
    // An epoll set would go on with what the number was.
    if !socket.registrations().lock().is_empty() {
        return false;
    }
    let Ok(theirs) = begin(&socket, takes) else { return false };
    let numbers: Vec<_> = socket.numbers().lock().all().collect();
    socket.keep();
    drop(socket);
    for number in numbers {
        track::untrack(number, Last::Closing);
        let _ = fd::replace(Fd::new(number), &theirs);
    }
    true
}

/// The program's end of a relay, for a program that is started by `actions`.
pub(crate) fn for_actions(socket: &Socket, actions: usize) -> Option<c_int> {
    let of = std::ptr::from_ref(socket).addr();
    let is_it = |end: &&(usize, usize, Placed)| (end.0, end.1) == (actions, of);
    if let Some((.., end)) = FOR_ACTIONS.lock().iter().find(is_it) {
        return Some(end.fd().raw());
    }
    let theirs = Placed::place(begin(socket, Takes::AtOnce).ok()?).ok()?;
    let number = theirs.fd().raw();
    *socket.relayed().lock() = Relayed::at(theirs.fd());
    socket.keep();
    FOR_ACTIONS.lock().push((actions, of, theirs));
    Some(number)
}

pub(crate) fn forget_actions(actions: usize) {
    FOR_ACTIONS.lock().retain(|(by, ..)| *by != actions);
}

/// When a relay begins to take what comes for the program.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Takes {
    /// At once: the program was given the socket to use it.
    AtOnce,
    /// Once no other process holds the socket: until then it may be theirs alone.
    WhenLeft,
}

/// Begins to relay a connection, and returns what the program gets in its place.
///
/// # Errors
/// ENOTSUP where only this process can move its bytes; those of the calls that make a process and
/// a pair of sockets.
pub(crate) fn begin(socket: &Socket, takes: Takes) -> Result<Opened, Errno> {
    let fd = socket.connection.fd().raw();
    let begun = try_begin(socket, takes);
    match &begun {
        Ok(_) => log::info!(fd, "the peer does not send again what is unread: a relay brings it"),
        Err(error) => log::error!(
            fd,
            %error,
            "what is unread cannot be brought to the program that gets the socket; receive it before"
        ),
    }
    begun
}

fn try_begin(socket: &Socket, takes: Takes) -> Result<Opened, Errno> {
    let connection = &socket.connection;
    if hold::is_interrupted() || filter::is_in_place() {
        return Err(Errno::NOTSUP);
    }
    let [fd, doorbell, peer_doorbell] = connection.descriptors().ok_or(Errno::NOTSUP)?;
    let error = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let (ours, theirs) = pair::like(fd).map_err(error)?;
    // Whatever ends a relay before its time is an error to the program, not an end of the stream.
    socket::reset_on_close(ours.fd());
    let kept = [fd, doorbell, peer_doorbell, ours.fd()];
    let near = ours.fd();
    let others = match takes {
        Takes::AtOnce => Vec::new(),
        Takes::WhenLeft => connection.other_holders(),
    };
    let inward = || {
        while connection.is_held_by(&others) {
            thread::nap(NAP);
        }
        inward(connection, near);
    };
    fork::beside(socket, &kept, &[&inward, &|| outward(connection, near)])?;
    Ok(theirs)
}

/// From the peer to the program.
fn inward(connection: &Connection, near: Fd) {
    let mut piece = vec![0; PIECE];
    loop {
        match receive(connection, &mut piece) {
            Ok(0) => {
                socket::close_in_order(near);
                let _ = socket::shutdown(near, Shutdown::Write);
                return;
            }
            Ok(len) if bring(near, &piece[..len]) => {}
            // The program has closed it.
            Ok(_) => return socket::reset(connection.fd()),
            Err(_) => return socket::reset(near),
        }
    }
}

/// From the program to the peer.
fn outward(connection: &Connection, near: Fd) {
    let mut piece = vec![0; PIECE];
    loop {
        let _ = poll::wait(Fd::new(-1), near, Events::READ, Until::NEVER);
        match socket::recv(near, &mut piece, KernelRecv::empty()) {
            Ok(0) => {
                let _ = connection.shutdown(Shutdown::Write);
                return;
            }
            Ok(len) => {
                if send(connection, &piece[..len]).is_err() {
                    // The program hears of it when the other direction has ended.
                    return;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return socket::reset(connection.fd()),
        }
    }
}

fn receive(connection: &Connection, piece: &mut [u8]) -> Result<usize, Errno> {
    let flags = RecvFlags { dont_wait: true, ..RecvFlags::default() };
    loop {
        match connection.recv(&mut [IoSliceMut::new(piece)], flags) {
            Err(Errno::AGAIN | Errno::INTR) => {
                let _ = connection.wait(Interest { read: true, write: false }, Until::NEVER);
            }
            result => return result,
        }
    }
}

fn send(connection: &Connection, mut piece: &[u8]) -> Result<(), Errno> {
    let flags = SendFlags { dont_wait: true, no_signal: true, ..SendFlags::default() };
    while !piece.is_empty() {
        match connection.send(&[IoSlice::new(piece)], flags) {
            Ok(len) => piece = &piece[len..],
            Err(Errno::AGAIN | Errno::INTR) => {
                let _ = connection.wait(Interest { read: false, write: true }, Until::NEVER);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// False if the program is not there any more.
fn bring(near: Fd, mut piece: &[u8]) -> bool {
    while !piece.is_empty() {
        match socket::send(near, &[IoSlice::new(piece)], KernelSend::NOSIGNAL) {
            Ok(len) => piece = &piece[len..],
            Err(Errno::AGAIN) => {
                let _ = poll::wait(Fd::new(-1), near, Events::WRITE, Until::NEVER);
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
