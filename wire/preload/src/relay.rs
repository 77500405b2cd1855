//! Relays: processes that bring a program the bytes of a connection that it holds without knowing
//! about the ring.
//!
//! A socket that is handed over goes back to TCP, and the peer sends the unread bytes again. It
//! cannot if it is gone, or has ended its direction, and does not while it makes no call. Then the
//! new holder gets the other end of a TCP connection instead of the socket. Two processes of the
//! library, copies of this one with nothing but the connection, move bytes between the two, one in
//! each direction, until it ends as the connection ends.

use std::ffi::c_int;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use seekwire_endpoint::{Connection, Interest, RecvFlags, SendFlags, Until};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::{self, LibraryFd, PrivateFd};
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::process::begins_namespace;
use seekwire_transport::sys::socket::{self, KernelRecv, KernelSend};
use seekwire_transport::sys::{Fd, diag, pair, thread};

use crate::socket::{Relayed, Socket};
use crate::{deferred, fork, log, process};

/// Time between two checks whether other holders have left a connection.
const NAP: Duration = Duration::from_millis(5);

/// After this many checks the kernel is asked, which takes longer: a holder that also gave the
/// socket to another program may have closed it without a message.
const NAPS: u32 = 20;

/// Most time between two searches of all processes.
const SEARCH: Duration = Duration::from_secs(1);

/// Maximum number of bytes to move at a time.
const PIECE: usize = 256 << 10;

/// True if a relay has begun whose end is still where it was put.
pub(crate) fn is_begun(socket: &Socket) -> bool {
    socket.relayed().lock().as_ref().is_some_and(|end| end.number().is_some())
}

/// Puts the program's end of a relay at `number`, with which another program gets the socket to
/// read from it: its standard input, or another number besides. Returns false if the socket stays
/// there.
pub(crate) fn put_at(socket: &Socket, number: c_int) -> bool {
    let to = Fd::new(number);
    let other = socket.relayed().lock().as_ref().and_then(Relayed::number);
    let replaced = match other {
        // Another number of the same socket.
        Some(other) => LibraryFd::duplicate(other).and_then(|end| fd::replace(to, &end)),
        // Bytes written there go unchanged to the peer by TCP.
        None if !reads_from(number) => return false,
        None => match begin(socket, Takes::AtOnce) {
            Ok(begun) => fd::replace(to, &begun.theirs).map(|()| begun.open()),
            // The new holder gets an error instead of a stream that lacks bytes.
            Err(_) if would_miss(socket) => put_nothing(to),
            Err(_) => return false,
        },
    };
    if replaced.is_ok() {
        is_at(socket, to);
    }
    replaced.is_ok()
}

/// Notes that the program's end of a relay is at `number` now.
pub(crate) fn is_at(socket: &Socket, number: Fd) {
    *socket.relayed().lock() = Relayed::at(number);
    // For this process it ends with its number.
    socket.keep();
}

/// True if a program reads from a file that it gets with this number.
pub(crate) fn reads_from(number: c_int) -> bool {
    !matches!(number, libc::STDOUT_FILENO | libc::STDERR_FILENO)
}

/// True if a program may read from the socket through one of the numbers that it `has`.
pub(crate) fn is_read(socket: &Socket, has: impl Fn(c_int) -> bool) -> bool {
    socket.numbers().lock().all().any(|number| reads_from(number) && has(number))
}

pub(crate) fn put_nothing(number: Fd) -> io::Result<()> {
    pair::unconnected(number).and_then(|end| fd::replace(number, &end))
}

/// True if its unread bytes were left by another program, which may still want them.
pub(crate) fn has_found(socket: &Socket) -> bool {
    socket.connection.has_spill() && !socket.connection.is_attached()
}

/// True if a holder of the socket itself, with unread bytes on the ring, finds an end of the stream
/// instead of them: the peer has ended its direction.
pub(crate) fn would_end_falsely(socket: &Socket) -> bool {
    socket::ends(socket.connection.fd()).peers
}

/// True if a holder of the socket itself, with unread bytes left, never finds all of them: it
/// [would find the end](would_end_falsely) instead, or they are in the spill, so that nobody sends
/// them again.
pub(crate) fn would_miss(socket: &Socket) -> bool {
    socket.connection.has_spill() || would_end_falsely(socket)
}

/// Begins a relay for a program that was given the socket. `None` if none can begin, and the
/// program finds the bytes that the peer sends from now on.
///
/// # Errors
/// EBUSY if none can begin, and the program [would miss](would_miss) bytes.
pub(crate) fn begin_or_refuse(socket: &Socket) -> Result<Option<Begun>, Errno> {
    match begin(socket, Takes::AtOnce) {
        Ok(begun) => Ok(Some(begun)),
        Err(_) if would_miss(socket) => Err(Errno::BUSY),
        Err(_) => Ok(None),
    }
}

/// When a relay begins to take bytes for the program.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Takes {
    /// At once: the program was given the socket to use it.
    AtOnce,
    /// Once no other process holds the socket: until then the bytes may be theirs alone.
    WhenLeft,
}

/// A relay that waits for permission before it does anything, and otherwise ends.
pub(crate) struct Begun {
    pub(crate) theirs: LibraryFd,
    gate: PrivateFd,
    /// Also read from here: otherwise permission for relays that were killed would raise SIGPIPE.
    _word: PrivateFd,
}

impl Begun {
    /// Gives permission, because the program has its end.
    pub(crate) fn open(self) {
        // Never read: being readable is the signal.
        let _ = rustix::io::write(self.gate.as_fd(), &[1]);
    }
}

/// Begins to relay a connection; the program gets an end in its place.
///
/// # Errors
/// ENOTSUP if only this process can move its bytes; those of the calls that make a process and a
/// pair of sockets.
pub(crate) fn begin(socket: &Socket, takes: Takes) -> Result<Begun, Errno> {
    let fd = socket.connection.fd().raw();
    let begun = try_begin(socket, takes);
    match &begun {
        Ok(_) => {
            log::info!(fd, "the peer does not send the unread bytes again: a relay brings them")
        }
        Err(error) => log::error!(
            fd,
            %error,
            "the program that gets the socket cannot get the unread bytes; receive them before"
        ),
    }
    begun
}

fn try_begin(socket: &Socket, takes: Takes) -> Result<Begun, Errno> {
    let connection = &socket.connection;
    if deferred::is_interrupted() || process::is_filtered() || begins_namespace() {
        return Err(Errno::NOTSUP);
    }
    let mut kept = connection.descriptors().ok_or(Errno::NOTSUP)?;
    let fd = connection.fd();
    let error = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let (ours, theirs) = pair::like(fd).map_err(error)?;
    let (word, gate) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let (word, gate) = (PrivateFd::new(word).map_err(error)?, PrivateFd::new(gate).map_err(error)?);
    // If a relay ends early for any reason, the program gets an error, not an end of the stream.
    socket::reset_on_close(ours.fd());
    let near = ours.fd();
    let has_word = || has_word(word.fd());
    // The other holders of bytes that this program has found are unknown: the connection continues
    // with them, whatever this process does.
    let is_found = !connection.is_attached();
    let has_unlisted = connection.has_unlisted_holders();
    let others = connection.holders();
    let is_listed = || !has_unlisted && connection.is_held_by(&others);
    // Children that were forked later, and programs that have got the socket, are in no list: that
    // takes a search of all processes.
    let is_elsewhere = || connection.is_seen_elsewhere(fork::RELAY);
    let is_held = || (is_listed() && connection.is_open_in(&others)) || is_elsewhere();
    let wait_for_others = || {
        let mut pause = NAP;
        loop {
            while is_listed() && connection.is_open_in(&others) {
                (0..NAPS).take_while(|_| is_listed()).for_each(|_| thread::nap(NAP));
            }
            if !is_elsewhere() {
                return;
            }
            thread::nap(pause);
            pause = SEARCH.min(2 * pause);
        }
    };
    let inward = || {
        if !has_word() {
            return;
        }
        if takes == Takes::WhenLeft {
            wait_for_others();
        }
        if !inward(connection, near) && !is_found && !is_held() {
            socket::reset(connection.fd());
        }
    };
    let outward = || {
        if !has_word() {
            return;
        }
        // Likewise, the peer gets an error for the bytes that the program has sent.
        socket::reset_on_close(connection.fd());
        let Some(left) = outward(connection, near) else { return };
        if left == Left::InOrder || is_found {
            socket::close_in_order(connection.fd());
        }
        if is_found {
            return;
        }
        // The direction ends when nobody else can send.
        wait_for_others();
        match left {
            Left::InOrder => drop(connection.shutdown(Shutdown::Write)),
            Left::WithReset => socket::reset(connection.fd()),
        }
    };
    kept.extend([near, word.fd()]);
    fork::run_in_helpers(socket, &kept, &[&inward, &outward])?;
    Ok(Begun { theirs, gate, _word: word })
}

/// Waits for permission; returns false if it never comes.
fn has_word(word: Fd) -> bool {
    poll::wait(Fd::new(-1), word, Events::READ, Until::NEVER).is_ok_and(|(_, word)| word.read)
}

/// Moves bytes from the peer to the program. Returns false if the program has closed its end
/// before.
fn inward(connection: &Connection, near: Fd) -> bool {
    let mut piece = vec![0; PIECE];
    loop {
        match receive(connection, near, &mut piece) {
            Err(Errno::PIPE) => return false,
            Ok(0) => {
                socket::close_in_order(near);
                let _ = socket::shutdown(near, Shutdown::Write);
                return true;
            }
            Ok(len) if bring(near, &piece[..len]) => {}
            Ok(_) => return false,
            Err(_) => {
                socket::reset(near);
                return true;
            }
        }
    }
}

/// The way in which the program has ended its direction.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    InOrder,
    WithReset,
}

/// Moves bytes from the program to the peer; `None` if the peer takes no more.
fn outward(connection: &Connection, near: Fd) -> Option<Left> {
    let mut piece = vec![0; PIECE];
    loop {
        let _ = poll::wait(Fd::new(-1), near, Events::READ, Until::NEVER);
        match socket::recv(near, &mut piece, KernelRecv::empty()) {
            Ok(0) if !was_reset(near) => return Some(Left::InOrder),
            Ok(len) if len > 0 => {
                if send(connection, &piece[..len]).is_err() {
                    // The program learns about it when the other direction has ended.
                    return None;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => return Some(Left::WithReset),
        }
    }
}

/// True if the program has reset its end, even if the other process has got the error: it has not
/// ended its direction in order.
fn was_reset(near: Fd) -> bool {
    socket::ends(near).both && socket::resets_on_close(near)
}

/// EPIPE if the program has closed its end.
fn receive(connection: &Connection, near: Fd, piece: &mut [u8]) -> Result<usize, Errno> {
    let flags = RecvFlags { dont_wait: true, ..RecvFlags::default() };
    loop {
        match connection.recv(&mut [IoSliceMut::new(piece)], flags) {
            Err(Errno::AGAIN | Errno::INTR) if connection.is_attached() => {
                let _ = connection.wait(Interest { read: true, write: false }, Until::NEVER);
            }
            Err(Errno::AGAIN | Errno::INTR) => await_either(connection.fd(), near)?,
            result => return result,
        }
    }
}

/// Waits for bytes of a connection that this program has found: other programs may hold it, and the
/// peer sees its end when they and the relay have closed it. So the relay does not outlive its
/// program. EPIPE if that has closed its end.
fn await_either(socket: Fd, near: Fd) -> Result<(), Errno> {
    let hangup = Events { hangup: true, ..Events::default() };
    let _ = poll::wait(socket, near, hangup, Until::NEVER);
    // The program may only have ended its direction.
    while socket::ends(near).peers {
        // It has closed its end with unread bytes, or in order.
        if socket::ends(near).both || is_closed(near).unwrap_or(false) {
            return Err(Errno::PIPE);
        }
        let until = Until::after(Some(NAPS * NAP));
        if poll::wait(socket, Fd::new(-1), Events::default(), until) != Err(Errno::TIMEDOUT) {
            break;
        }
    }
    Ok(())
}

/// Whether nobody holds the other end of `near`.
fn is_closed(near: Fd) -> io::Result<bool> {
    let (local, peer) = socket::names(near)?;
    Ok(diag::find(peer, local, socket::namespace(near)?)?.is_none())
}

fn send(connection: &Connection, mut piece: &[u8]) -> Result<(), Errno> {
    let flags = SendFlags { dont_wait: true, no_signal: true, ..SendFlags::default() };
    while !piece.is_empty() {
        match connection.send(&[IoSlice::new(piece)], flags) {
            Ok(len) => piece = &piece[len..],
            Err(Errno::AGAIN | Errno::INTR) => {
                let _ = connection.wait(Interest { read: false, write: true }, Until::NEVER);
            }
            // A program that has found the rest also has the kernel's socket.
            Err(Errno::NOTCONN) if !connection.is_attached() => {
                return if bring(connection.fd(), piece) { Ok(()) } else { Err(Errno::PIPE) };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns false if the program is gone.
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
