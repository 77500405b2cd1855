//! Connections that a program gets which this process becomes or starts.
//!
//! exec calls [`prepare_exec`] and then [`prepare_end`], and [`after_failed_exec`] if it failed;
//! posix_spawn, system() and popen() call [`prepare_spawn`].

use std::cell::{LazyCell, RefCell};
use std::ffi::c_int;
use std::time::Duration;

use seekwire_endpoint::{Connection, HandedOver, Reason, Until};
use seekwire_transport::sys::thread;
use seekwire_transport::{Errno, lock};

use crate::fallback::{to_successor, to_tcp_until};
use crate::ffi::{self, keeping_errno};
use crate::process::{self, ProcessKind};
use crate::relay::Takes;
use crate::table::{self, SocketRef};
use crate::{epoll, log, relay, replacement};

/// How long starting a program may wait for the peers of all connections together, or for other
/// holders of these connections.
const EXEC_LIMIT: Duration = Duration::from_millis(500);

/// Maximum number of relays for sockets that a program inherits and may not know about.
const MOST_RELAYS: usize = 32;

/// Called before exec, when the connections that the new program gets are on TCP.
///
/// The epoll sets that it gets have its own data again. For connections that it does not get, the
/// kernel closes the numbers without a message on the ring, so from then on the peer's sends go
/// where they are rejected.
pub(crate) fn prepare_end() {
    for (fd, object) in table::entries() {
        drop(object);
        let Some(socket) = table::socket(fd) else { continue };
        ffi::guarded(|| epoll::lay_bare(&socket));
        let survives = outlives_exec(&socket);
        ffi::guarded(|| socket.connection.before_exec(survives));
        if relay::is_begun(&socket) {
            // From now on the relay holds it, perhaps along with the next program.
            if !survives {
                ffi::guarded(|| socket.connection.close());
            }
        } else if socket.connection.ends_with_this_process() {
            if survives {
                ffi::guarded(|| socket.connection.finish_retransmission_for_successor());
                continue;
            }
            let _ = keeping_errno(|| socket.fall_back(Reason::Bypassed));
            ffi::guarded(|| {
                socket.connection.begin_last_look();
                socket.connection.finish_retransmission();
            });
        }
    }
}

/// Called after an exec that failed: this process still holds its connections, and watches its
/// epoll sets.
pub(crate) fn after_failed_exec() {
    for (fd, object) in table::entries() {
        drop(object);
        if let Some(socket) = table::socket(fd) {
            ffi::guarded(|| socket.connection.exec_failed(outlives_exec(&socket)));
            ffi::guarded(|| epoll::cover(&socket));
        }
    }
}

/// Called before another program starts beside this one, for all connections that have an fd there.
/// Most likely it never uses them. A program that `loads` this library finds the unread bytes in
/// the rest; for others this process keeps them.
pub(crate) fn prepare_spawn(loads: impl Fn() -> bool) {
    // First, so that none of them comes to the ring while the others are handed over.
    keep_plain();
    let until = Until::after(Some(EXEC_LIMIT));
    lock::within(until, || to_successors(&loads, miss));
}

/// Connections that are plain, and that another program gets, remain so.
fn keep_plain() {
    for (fd, object) in table::entries() {
        drop(object);
        if let Some(socket) = table::socket(fd).filter(|_| survives_exec(fd))
            && !socket.is_listening()
        {
            ffi::guarded(|| socket.connection.inherited());
        }
    }
}

/// The new program may never use it; if it does, it finds only bytes that come from now on.
fn miss(socket: SocketRef, error: Errno) {
    let fd = socket.connection.fd().raw();
    let _ = socket.fall_back(Reason::Bypassed);
    log::warn!(fd, %error, "a program that inherits this socket misses the unread bytes");
}

/// Like [`prepare_spawn`]; `missed` handles a socket whose unread bytes the program would miss.
/// EDEADLK means that a call on it stays interrupted, perhaps until this very program has ended.
fn to_successors(loads: &impl Fn() -> bool, mut missed: impl FnMut(SocketRef, Errno)) {
    // Evaluated only if there is a socket that the program inherits.
    let loads = LazyCell::new(loads);
    // Many connections usually have few peer processes, and asking takes longer than all else.
    let asked = RefCell::new(Vec::new());
    let is_ending = |pid| {
        let mut asked = asked.borrow_mut();
        if let Some((_, is_ending)) = asked.iter().find(|(of, _)| *of == pid) {
            return *is_ending;
        }
        let is_ending = thread::process_is_ending(pid);
        asked.push((pid, is_ending));
        is_ending
    };
    for (fd, object) in table::entries() {
        drop(object);
        let Some(socket) = table::socket(fd) else { continue };
        if socket.is_listening() || !socket.connection.receives_by_library() || !survives_exec(fd) {
            continue;
        }
        // The program is to use it through another number of the same socket.
        if relay::is_begun(&socket) {
            continue;
        }
        if !can_take_halves(&socket) {
            missed(socket, Errno::DEADLK);
            continue;
        }
        let finds_spill = *loads && !replacement::is_in_surviving_set(&socket, survives_exec);
        if let Err(error) = to_successor(&socket, Reason::Exec, finds_spill, is_ending) {
            missed(socket, error);
        }
    }
    pass_spills_on();
}

/// Passes the spills on whose sockets are passed on. Another thread may start another program at the
/// same time, which makes no difference.
fn pass_spills_on() {
    for (_, object) in table::entries() {
        if let Some(socket) = object.as_socket() {
            let goes = || socket.numbers().lock().all().any(survives_exec);
            socket.connection.pass_spill_on(goes);
        }
    }
}

/// Called before this process becomes another program: sockets that only this process holds belong
/// to that program.
pub(crate) fn prepare_exec(loads: impl Fn() -> bool) {
    // For all of them together.
    let all = Until::after(Some(EXEC_LIMIT));
    lock::within(all, || prepare_exec_until(loads, all));
}

fn prepare_exec_until(loads: impl Fn() -> bool, all: Until) {
    let loads = LazyCell::new(loads);
    for (fd, object) in table::entries() {
        drop(object);
        let Some(socket) = table::socket(fd) else { continue };
        let is_concerned = socket.connection.receives_by_library() && survives_exec(fd);
        if !is_concerned || socket.is_listening() || !is_own(&socket) || *loads {
            continue;
        }
        if !can_take_halves(&socket) {
            refuse(socket);
            continue;
        }
        let until = all.at_most(Connection::ANSWER_LIMIT);
        if to_tcp_until(&socket, Reason::Exec, until) == Ok(HandedOver::Later) {
            replacement::take_place(socket, Takes::AtOnce, survives_exec);
        }
    }
    if process::kind() != ProcessKind::Own {
        // Nobody learns whether the program begins.
        keep_plain();
    }
    let mut relays = 0;
    to_successors(&|| *loads, |socket, error| {
        let is_ours = process::kind() == ProcessKind::Own;
        if error == Errno::AGAIN && is_ours && relays < MOST_RELAYS {
            relays += 1;
            let takes = if is_own(&socket) { Takes::AtOnce } else { Takes::WhenLeft };
            replacement::take_place(socket, takes, survives_exec);
        } else if error == Errno::DEADLK && is_ours {
            refuse(socket);
        } else {
            miss(socket, error);
        }
    });
}

/// Returns false while a call on the connection stays interrupted, in this or another process. Only
/// that call knows the unread bytes, and those that it has sent.
fn can_take_halves(socket: &SocketRef) -> bool {
    keeping_errno(|| ffi::guarded(|| socket.connection.can_take_halves())).unwrap_or(false)
}

/// The program that this process becomes gets an error instead of the connection.
fn refuse(socket: SocketRef) {
    let fd = socket.connection.fd().raw();
    log::warn!(
        fd,
        "an interrupted call on this socket has not ended: the new program gets an error"
    );
    replacement::replace_numbers(socket, None, |_| true);
}

/// True if no other process with this program holds it.
fn is_own(socket: &SocketRef) -> bool {
    let connection = &socket.connection;
    let is_alone = connection.ends_with_this_process()
        || !(connection.is_attached() || relay::has_found(socket));
    process::kind() == ProcessKind::Own && is_alone
}

/// Whether the next program gets the socket, by whichever number.
fn outlives_exec(socket: &SocketRef) -> bool {
    // One that was handed over may be at a number that the library does not follow any more.
    let goes_on = || socket.is_handed_over() || socket.numbers().lock().all().any(survives_exec);
    !socket.is_listening() && goes_on()
}

pub(crate) fn survives_exec(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes no argument. Not interposed to any effect: only other commands are
    // looked at.
    let flags = keeping_errno(|| unsafe { crate::real::fcntl(fd, libc::F_GETFD, 0) });
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}
