//! Spills that this program found when it started: they belong to sockets that another program had
//! on the ring, and that this one has inherited. These are tracked from then on, and stay on TCP.

use std::ffi::c_int;

use libc::O_NONBLOCK;
use seekwire_endpoint::Role;
use seekwire_transport::sys::fd::open_from;
use seekwire_transport::sys::spill::SpillFile;
use seekwire_transport::sys::{Fd, socket as kernel};

use crate::socket::Socket;
use crate::socket_options::read_inherited;
use crate::table::{self, Object};
use crate::{log, real, relay, replacement, stdio_streams, track};

/// Looks for spills. Call it once, before the program uses a number.
pub(crate) fn start() {
    // A program with other privileges does not trust the program that started it.
    // SAFETY: takes a number.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    let spills = SpillFile::find_all();
    if spills.is_empty() {
        return;
    }
    let numbers = open_from(0).unwrap_or_default();
    let cookie = |number: Fd| Some((kernel::cookie(number).ok()?, number.raw()));
    let mut sockets: Vec<(u64, c_int)> = numbers.into_iter().filter_map(cookie).collect();
    sockets.sort_unstable();
    for spill in spills {
        let first = sockets.partition_point(|(cookie, _)| *cookie < spill.cookie());
        let same = sockets[first..].chunk_by(|one, next| one.0 == next.0).next();
        let same = same.filter(|same| same[0].0 == spill.cookie()).unwrap_or_default();
        begin(spill, same.iter().map(|(_, number)| *number));
    }
}

/// Tracks a socket under its numbers. A program without numbers for it has closed the socket on the
/// way here.
fn begin(spill: SpillFile, mut numbers: impl Iterator<Item = c_int> + Clone) {
    let is_read = |number: c_int| stdio_streams::stands_at(number) && relay::reads_from(number);
    let has_stream = numbers.clone().any(is_read);
    let Some(fd) = numbers.next().filter(|fd| !table::is_entered(*fd)) else { return };
    let socket = Socket::new(fd, Role::Connected);
    // SAFETY: takes no argument.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, 0) };
    socket.connection.settings().set_nonblocking(flags & O_NONBLOCK != 0);
    read_inherited(&socket, fd);
    socket.connection.adopt_spill(spill);
    if let Some(plain) = socket.connection.enter_plain() {
        // Positions count from the first byte that ever arrived.
        plain.received(kernel::bytes_taken(Fd::new(fd)).unwrap_or(0) as usize);
    }
    track::enter(fd, Object::socket(socket));
    let Some(socket) = table::socket(fd) else { return };
    for other in numbers {
        track::duplicate(socket.share().into_object(), other);
    }
    drop(socket);
    log::debug!(fd, "this socket was inherited with unread bytes");
    // The C library would read from the kernel's socket.
    if has_stream && replacement::goes_on_in_place(fd) != Ok(true) {
        log::error!(fd, "a stream of the C library cannot get the unread bytes");
    }
}
