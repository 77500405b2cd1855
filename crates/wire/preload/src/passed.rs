//! Connections that another program is about to hold: passed in a message, or kept across exec.

use std::ffi::c_int;
use std::mem;
use std::time::Duration;

use libc::{CMSG_DATA, CMSG_FIRSTHDR, CMSG_NXTHDR, SCM_RIGHTS, SOL_SOCKET, msghdr};
use seekwire_endpoint::{Reason, Until};
use seekwire_transport::Errno;

use crate::ffi::{self, keeping_errno};
use crate::hand_over::{serve_peers, to_tcp, to_tcp_until};
use crate::track::fresh;
use crate::{epoll, pointers, table};

/// How long an exec may wait for the peers of all connections together.
const EXEC_LIMIT: Duration = Duration::from_secs(5);

/// Moves the connections that `message` passes to another process back to TCP.
///
/// # Errors
///
/// EBUSY when one of them cannot be handed over.
///
/// # Safety
///
/// As for sendmsg.
#[inline]
pub(crate) unsafe fn prepare(message: *const msghdr) -> Result<(), Errno> {
    if table::is_unused() || !pointers::can_read(message, 1) {
        return Ok(());
    }
    // SAFETY: it can be read.
    let header = unsafe { message.read_unaligned() };
    if header.msg_control.is_null() || header.msg_controllen < mem::size_of::<libc::cmsghdr>() {
        return Ok(());
    }
    if !pointers::can_read(header.msg_control.cast::<u8>(), header.msg_controllen) {
        return Ok(());
    }
    // SAFETY: it can be read, and so can the control messages.
    unsafe { prepare_control(&header) }
}

/// # Safety
///
/// `header` must be valid as sendmsg demands.
#[cold]
unsafe fn prepare_control(header: &msghdr) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    unsafe {
        each_right(header, |fd| match table::socket(fd) {
            Some(socket) => to_tcp(&socket, Reason::FdPassed),
            None => Ok(()),
        })
    }
}

/// Does something with every number in the SCM_RIGHTS messages of `header`, until it fails.
///
/// # Safety
///
/// `header` must be valid as sendmsg demands.
unsafe fn each_right(
    header: &msghdr,
    mut work: impl FnMut(c_int) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the macros of cmsg(3) stay within msg_controllen bytes of msg_control; the payload of
    // SCM_RIGHTS is an array of fds, which need not be aligned.
    unsafe {
        let mut control = CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let there = header.msg_controllen - (control as usize - header.msg_control as usize);
            if !(mem::size_of::<libc::cmsghdr>()..=there).contains(&(*control).cmsg_len) {
                // The kernel refuses it.
                return Ok(());
            }
            if (*control).cmsg_level == SOL_SOCKET && (*control).cmsg_type == SCM_RIGHTS {
                let data = CMSG_DATA(control).cast::<c_int>();
                let head = data as usize - control as usize;
                let count = ((*control).cmsg_len).saturating_sub(head) / mem::size_of::<c_int>();
                for at in 0..count {
                    work(data.add(at).read_unaligned())?;
                }
            }
            control = CMSG_NXTHDR(header, control);
        }
    }
    Ok(())
}

/// What recvmsg of somebody else's message has returned: the numbers that came along are new.
///
/// # Safety
///
/// As for recvmsg, which has filled in `message` unless `result` is negative.
#[inline]
pub(crate) unsafe fn arrived(result: isize, message: *const msghdr) {
    if result < 0 {
        return;
    }
    // One of them may be the other end of a connection of this process, on which it waits next.
    let attend_first = || keeping_errno(|| ffi::guarded(serve_peers));
    // SAFETY: the kernel has just written there.
    let header = unsafe { &*message };
    if !header.msg_control.is_null() && header.msg_controllen >= mem::size_of::<libc::cmsghdr>() {
        // SAFETY: the kernel has written these messages.
        let _ = unsafe {
            each_right(header, |fd| {
                fresh(fd);
                attend_first();
                Ok(())
            })
        };
    }
}

/// Before exec, when the connections that the new program gets are on TCP.
///
/// The epoll sets that it gets have its own data again. Of connections that it does not get, the
/// kernel closes the numbers without a word on the ring, so the peer's sends go where they are
/// refused from then on.
pub(crate) fn prepare_end() {
    for (fd, object) in table::entries() {
        drop(object);
        let Some(socket) = table::socket(fd) else { continue };
        ffi::guarded(|| epoll::lay_bare(&socket));
        if !survives_exec(fd) && socket.connection.ends_with_this_process() {
            let _ = keeping_errno(|| socket.fall_back(Reason::Bypassed));
        }
    }
}

/// After an exec that has failed: what is in epoll sets is watched again.
pub(crate) fn remain() {
    for (fd, object) in table::entries() {
        drop(object);
        if let Some(socket) = table::socket(fd) {
            ffi::guarded(|| epoll::cover(&socket));
        }
    }
}

/// Before exec: every connection of which an fd stays open in the new program.
pub(crate) fn prepare_exec() {
    // For all of them together: a program may hold many, and start others often.
    let until = Until::after(Some(EXEC_LIMIT));
    for (fd, object) in table::entries() {
        drop(object);
        let Some(socket) = table::socket(fd) else { continue };
        let concerned = socket.connection.is_attached() || socket.connection.is_seeking();
        if !socket.is_listening()
            && concerned
            && survives_exec(fd)
            && to_tcp_until(&socket, Reason::Exec, until).is_err()
        {
            // The new program may never use it; if it does, the log has told, and what comes from
            // now on is there.
            let _ = keeping_errno(|| socket.fall_back(Reason::Bypassed));
        }
    }
}

fn survives_exec(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes no argument. Not interposed to any effect: only other commands are
    // looked at.
    let flags = keeping_errno(|| unsafe { crate::real::fcntl(fd, libc::F_GETFD, 0) });
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}
