//! Connections that another program is about to get: passed in a message, or kept across exec.

use std::cell::{LazyCell, RefCell};
use std::ffi::c_int;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::{CMSG_DATA, CMSG_FIRSTHDR, CMSG_NXTHDR, SCM_RIGHTS, SOL_SOCKET, msghdr};
use seekwire_endpoint::{Connection, HandedOver, Reason, Until};
use seekwire_transport::sys::thread;
use seekwire_transport::{Errno, lock};

use crate::ffi::{self, keeping_errno};
use crate::hand_over::{serve_peers, to_heir, to_tcp_or_relay, to_tcp_until};
use crate::process::{self, Kind};
use crate::relay::{Begun, Takes};
use crate::table::{self, SocketRef};
use crate::track::fresh;
use crate::{epoll, log, pointers, relay};

/// How long starting a program may wait for the peers of all connections together, or for other
/// holders of these connections.
const EXEC_LIMIT: Duration = Duration::from_millis(500);

/// A message in which ends of relays replace some of the sockets.
pub(crate) struct Replaced {
    header: msghdr,
    _control: Vec<u64>,
    relays: Vec<Begun>,
}

impl Replaced {
    pub(crate) fn header(&self) -> &msghdr {
        &self.header
    }

    /// Call it when the message has been sent; otherwise the relays end without having done
    /// anything.
    pub(crate) fn sent(self) {
        self.relays.into_iter().for_each(Begun::open);
    }
}

/// Maximum number of relays for sockets that a program inherits and may not know about.
const MOST_RELAYS: usize = 32;

/// Moves the connections that `message` passes to another process back to TCP. Returns the message
/// to send in its place, if any.
///
/// # Errors
///
/// EBUSY if one of them cannot be handed over.
///
/// # Safety
///
/// As for sendmsg.
#[inline]
pub(crate) unsafe fn prepare(message: *const msghdr) -> Result<Option<Replaced>, Errno> {
    if table::is_unused() || !pointers::can_read(message, 1) {
        return Ok(None);
    }
    // SAFETY: it can be read.
    let header = unsafe { message.read_unaligned() };
    if header.msg_control.is_null() || header.msg_controllen < mem::size_of::<libc::cmsghdr>() {
        return Ok(None);
    }
    if !pointers::can_read(header.msg_control.cast::<u8>(), header.msg_controllen) {
        return Ok(None);
    }
    // SAFETY: it can be read, and so can the control messages.
    unsafe { prepare_control(header) }
}

/// # Safety
///
/// `header` must be valid as sendmsg demands.
#[cold]
unsafe fn prepare_control(mut header: msghdr) -> Result<Option<Replaced>, Errno> {
    let mut relays = Vec::new();
    // SAFETY: as the caller promises.
    unsafe {
        each_right(&header, |at, fd| {
            if let Some(socket) = table::socket(fd)
                && to_tcp_or_relay(&socket, Reason::FdPassed)? == HandedOver::Later
                && !ffi::guarded_own(|| relay::goes_on_in_place(fd))?
                && let Some(relay) = ffi::guarded_own(|| relay::begin_or_refuse(&socket))?
            {
                socket.keep();
                relays.push((at, relay));
            }
            Ok(())
        })?;
    }
    if relays.is_empty() {
        return Ok(None);
    }
    // Not in the application's own memory, which may be read-only.
    let mut control = vec![0u64; header.msg_controllen.div_ceil(mem::size_of::<u64>())];
    // SAFETY: this many bytes can be read, and there is room for them; the places of the numbers
    // are within them.
    unsafe {
        let copy = control.as_mut_ptr().cast::<u8>();
        copy.copy_from_nonoverlapping(header.msg_control.cast(), header.msg_controllen);
        for (at, relay) in &relays {
            copy.add(*at).cast::<c_int>().write_unaligned(relay.theirs.as_fd().as_raw_fd());
        }
        header.msg_control = copy.cast();
    }
    let relays = relays.into_iter().map(|(_, relay)| relay).collect();
    Ok(Some(Replaced { header, _control: control, relays }))
}

/// Calls `work` for every number in the SCM_RIGHTS messages of `header`, with its offset in the
/// control messages, until that fails.
///
/// # Safety
///
/// `header` must be valid as sendmsg demands.
unsafe fn each_right(
    header: &msghdr,
    mut work: impl FnMut(usize, c_int) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the macros of cmsg(3) stay within msg_controllen bytes of msg_control; the payload of
    // SCM_RIGHTS is an array of fds, which need not be aligned.
    unsafe {
        let mut control = CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let there = header.msg_controllen - (control as usize - header.msg_control as usize);
            if !(mem::size_of::<libc::cmsghdr>()..=there).contains(&(*control).cmsg_len) {
                // The kernel rejects it.
                return Ok(());
            }
            if (*control).cmsg_level == SOL_SOCKET && (*control).cmsg_type == SCM_RIGHTS {
                let data = CMSG_DATA(control).cast::<c_int>();
                let head = data as usize - control as usize;
                let count = ((*control).cmsg_len).saturating_sub(head) / mem::size_of::<c_int>();
                for at in 0..count {
                    let place = data.add(at);
                    work(place as usize - header.msg_control as usize, place.read_unaligned())?;
                }
            }
            control = CMSG_NXTHDR(header, control);
        }
    }
    Ok(())
}

/// Handles the result of an untracked socket's recvmsg: the received numbers are new.
///
/// # Safety
///
/// As for recvmsg, which has filled in `message` unless `result` is negative.
#[inline]
pub(crate) unsafe fn arrived(result: isize, message: *const msghdr) {
    if result < 0 {
        return;
    }
    // One of them may be the other end of a connection of this process, for which it waits next.
    let attend_first = || ffi::guarded(serve_peers);
    // SAFETY: the kernel has just written there.
    let header = unsafe { &*message };
    if !header.msg_control.is_null() && header.msg_controllen >= mem::size_of::<libc::cmsghdr>() {
        // SAFETY: the kernel has written these messages.
        let _ = unsafe {
            each_right(header, |_, fd| {
                fresh(fd);
                attend_first();
                Ok(())
            })
        };
    }
}

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
        ffi::guarded(|| socket.connection.before_exec());
        if relay::is_begun(&socket) {
            // From now on the relay holds it, perhaps along with the next program.
            if !socket.numbers().lock().all().any(survives_exec) {
                ffi::guarded(|| socket.connection.close());
            }
        } else if !survives_exec(fd) && socket.connection.ends_with_this_process() {
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
pub(crate) fn remain() {
    for (fd, object) in table::entries() {
        drop(object);
        if let Some(socket) = table::socket(fd) {
            ffi::guarded(|| socket.connection.exec_failed());
            ffi::guarded(|| epoll::cover(&socket));
        }
    }
}

/// Called before another program starts beside this one, for all connections that have an fd there.
/// Most likely it never uses them. A program that `loads` this library finds the unread bytes in
/// the rest; for others this process keeps them.
pub(crate) fn prepare_heirs(loads: impl Fn() -> bool) {
    lock::within(Until::after(Some(EXEC_LIMIT)), || to_heirs(&loads, miss));
}

/// The new program may never use it; if it does, it finds only bytes that come from now on.
fn miss(socket: SocketRef, error: Errno) {
    let fd = socket.connection.fd().raw();
    let _ = socket.fall_back(Reason::Bypassed);
    log::warn!(fd, %error, "a program that inherits this socket misses the unread bytes");
}

/// Like [`prepare_heirs`]; `missed` handles a socket whose unread bytes the program would miss.
/// EDEADLK means that a call on it stays interrupted, perhaps until this very program has ended.
fn to_heirs(loads: &impl Fn() -> bool, mut missed: impl FnMut(SocketRef, Errno)) {
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
        let finds_rest = *loads && !relay::is_in_surviving_set(&socket, survives_exec);
        if let Err(error) = to_heir(&socket, Reason::Exec, finds_rest, is_ending) {
            missed(socket, error);
        }
    }
    pass_rests_on();
}

/// Passes a rest on if a number of its socket is passed on. Another thread may start another
/// program at the same time, which makes no difference.
fn pass_rests_on() {
    for (fd, object) in table::entries() {
        let Some(socket) = object.as_socket().filter(|socket| socket.connection.has_rest()) else {
            continue;
        };
        let numbers = socket.numbers().lock();
        if numbers.any() == Some(fd) {
            let goes = numbers.all().any(survives_exec);
            drop(numbers);
            socket.connection.pass_rest_on(goes);
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
        let is_concerned = socket.connection.receives_by_library() && is_own(&socket);
        if !is_concerned || socket.is_listening() || !survives_exec(fd) || *loads {
            continue;
        }
        if !can_take_halves(&socket) {
            refuse(socket);
            continue;
        }
        let until = all.at_most(Connection::ANSWER_LIMIT);
        if to_tcp_until(&socket, Reason::Exec, until) == Ok(HandedOver::Later) {
            relay::take_place(socket, Takes::AtOnce, survives_exec);
        }
    }
    let mut relays = 0;
    to_heirs(&|| *loads, |socket, error| {
        let is_ours = process::kind() == Kind::Own;
        if error == Errno::AGAIN && is_ours && relays < MOST_RELAYS {
            relays += 1;
            let takes = if is_own(&socket) { Takes::AtOnce } else { Takes::WhenLeft };
            relay::take_place(socket, takes, survives_exec);
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
    relay::replace_numbers(socket, None, |_| true);
}

/// True if no other process with this program holds it.
fn is_own(socket: &SocketRef) -> bool {
    let connection = &socket.connection;
    let is_alone = connection.ends_with_this_process()
        || !(connection.is_attached() || relay::has_found(socket));
    process::kind() == Kind::Own && is_alone
}

pub(crate) fn survives_exec(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes no argument. Not interposed to any effect: only other commands are
    // looked at.
    let flags = keeping_errno(|| unsafe { crate::real::fcntl(fd, libc::F_GETFD, 0) });
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}
