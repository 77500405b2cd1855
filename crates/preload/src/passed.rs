//! Connections that another program is about to hold: passed in a message, or kept across exec.

use std::ffi::c_int;
use std::mem;
use std::time::Duration;

use endpoint::{Reason, Until};
use libc::{CMSG_DATA, CMSG_FIRSTHDR, CMSG_NXTHDR, SCM_RIGHTS, SOL_SOCKET, msghdr};

use crate::border::keeping_errno;
use crate::table::SocketRef;
use crate::{log, table};

/// How long an exec may wait for the peers of all connections together.
const PATIENCE: Duration = Duration::from_secs(5);

/// Moves the connections that `message` passes to another process back to TCP.
///
/// # Safety
///
/// As for sendmsg.
#[inline]
pub(crate) unsafe fn prepare(message: *const msghdr) {
    // SAFETY: valid or null, as sendmsg demands.
    let Some(header) = (unsafe { message.as_ref() }) else { return };
    if header.msg_control.is_null() || header.msg_controllen < mem::size_of::<libc::cmsghdr>() {
        return;
    }
    // SAFETY: as above.
    unsafe { prepare_control(header) }
}

/// # Safety
///
/// `header` must be valid as sendmsg demands.
#[cold]
unsafe fn prepare_control(header: &msghdr) {
    // SAFETY: the macros of cmsg(3) stay within msg_controllen bytes of msg_control; the payload of
    // SCM_RIGHTS is an array of fds, which need not be aligned.
    unsafe {
        let mut control = CMSG_FIRSTHDR(header);
        while !control.is_null() {
            if (*control).cmsg_level == SOL_SOCKET && (*control).cmsg_type == SCM_RIGHTS {
                let data = CMSG_DATA(control).cast::<c_int>();
                let head = data as usize - control as usize;
                let count = ((*control).cmsg_len).saturating_sub(head) / mem::size_of::<c_int>();
                for at in 0..count {
                    if let Some(socket) = table::socket(data.add(at).read_unaligned()) {
                        to_tcp(&socket, Reason::FdPassed);
                    }
                }
            }
            control = CMSG_NXTHDR(header, control);
        }
    }
}

/// Moves a connection back to TCP that another program will see as a plain socket.
pub(crate) fn to_tcp(socket: &SocketRef, why: Reason) {
    to_tcp_until(socket, why, Until::NEVER);
}

fn to_tcp_until(socket: &SocketRef, why: Reason, until: Until) {
    keeping_errno(|| {
        // A peer that did not answer once is not waited for again.
        let result = match socket.hand_over() {
            true => socket.to_tcp(why, until.at_most(socket.connection.patience())),
            false => socket.fall_back(Reason::Bypassed),
        };
        if let Err(error) = result {
            log::warn!(fd = socket.connection.fd().raw(), %error, "the peer did not agree in time to go back to TCP");
        }
    });
}

/// Before exec: every connection of which an fd stays open in the new program.
pub(crate) fn prepare_exec() {
    // For all of them together: a program may hold many, and start others often.
    let until = Until::after(Some(PATIENCE));
    for (fd, object) in table::entries() {
        drop(object);
        let Some(socket) = table::socket(fd) else { continue };
        if !socket.is_listening() && socket.connection.is_attached() && survives_exec(fd) {
            to_tcp_until(&socket, Reason::Exec, until);
        }
    }
}

fn survives_exec(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes no argument. Not interposed to any effect: only other commands are looked at.
    let flags = keeping_errno(|| unsafe { crate::real::fcntl(fd, libc::F_GETFD, 0) });
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}
