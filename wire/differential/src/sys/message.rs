//! Sends and receives, with every function that does so.

use std::mem::{size_of, zeroed};

use super::{SyscallResult, outcome};
use crate::program::{ReceiveWay, SendWay};

/// Nothing is mapped there.
const NOWHERE: usize = 8;

/// Three parts of a buffer, of which one may be empty.
fn parts(start: *mut u8, length: usize) -> [libc::iovec; 3] {
    let (first, second) = (length / 3, length / 2 - length / 3);
    let at = |offset: usize, length| libc::iovec {
        iov_base: start.wrapping_add(offset).cast(),
        iov_len: length,
    };
    [at(0, first), at(first, second), at(first + second, length - first - second)]
}

fn header(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is integers and pointers, for which zero is valid.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len() as _;
    header
}

pub(crate) fn send(fd: i32, bytes: &[u8], flags: i32, way: SendWay) -> SyscallResult {
    let (start, length) = (bytes.as_ptr(), bytes.len());
    let mut parts = parts(start.cast_mut(), length);
    // SAFETY: buffers live as long as the calls, and their lengths are given; none is written to.
    // For the unmapped address the kernel returns EFAULT.
    unsafe {
        match way {
            SendWay::Send => outcome(|| libc::send(fd, start.cast(), length, flags) as i64),
            SendWay::Sendto => outcome(|| {
                libc::sendto(fd, start.cast(), length, flags, std::ptr::null(), 0) as i64
            }),
            SendWay::Write => outcome(|| libc::write(fd, start.cast(), length) as i64),
            SendWay::Writev => {
                outcome(|| libc::writev(fd, parts.as_ptr(), parts.len() as i32) as i64)
            }
            SendWay::Sendmsg => outcome(|| libc::sendmsg(fd, &header(&mut parts), flags) as i64),
            SendWay::Sendmmsg => {
                let mut message = libc::mmsghdr { msg_hdr: header(&mut parts), msg_len: 0 };
                let done = outcome(|| libc::sendmmsg(fd, &raw mut message, 1, flags as _).into());
                if done.0 == 1 { (message.msg_len.into(), 0) } else { done }
            }
            SendWay::BadAddress => {
                outcome(|| libc::send(fd, NOWHERE as *const _, length.max(1), flags) as i64)
            }
        }
    }
}

/// Data that a receive returns besides the bytes, where the call has a message.
#[derive(Clone, Copy, Default)]
pub(crate) struct MessageInfo {
    pub(crate) flags: i32,
    /// TCP_INQ, if it was reported.
    pub(crate) unread: Option<i32>,
}

impl MessageInfo {
    /// # Safety
    ///
    /// A call has filled in the header.
    unsafe fn from(header: &libc::msghdr) -> Self {
        let mut info = Self { flags: header.msg_flags, unread: None };
        // SAFETY: the macros stay within the messages that the call reports.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(header);
            while !at.is_null() {
                if ((*at).cmsg_level, (*at).cmsg_type) == (libc::IPPROTO_TCP, libc::TCP_INQ) {
                    info.unread = Some(libc::CMSG_DATA(at).cast::<i32>().read_unaligned());
                }
                at = libc::CMSG_NXTHDR(header, at);
            }
        }
        info
    }
}

pub(crate) fn receive(
    fd: i32,
    room: &mut [u8],
    flags: i32,
    way: ReceiveWay,
) -> (SyscallResult, MessageInfo) {
    let mut control = [0_u64; 16];
    let mut with_control = |mut header: libc::msghdr| {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        header
    };
    let (start, length) = (room.as_mut_ptr(), room.len());
    let mut parts = parts(start, length);
    // SAFETY: as above; there is room for the lengths that are given.
    unsafe {
        let done = match way {
            ReceiveWay::Recv => outcome(|| libc::recv(fd, start.cast(), length, flags) as i64),
            ReceiveWay::Recvfrom => {
                let mut address: libc::sockaddr_in = zeroed();
                let mut size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
                let address = (&raw mut address).cast();
                outcome(|| {
                    libc::recvfrom(fd, start.cast(), length, flags, address, &raw mut size) as i64
                })
            }
            ReceiveWay::Read => outcome(|| libc::read(fd, start.cast(), length) as i64),
            ReceiveWay::Readv => {
                outcome(|| libc::readv(fd, parts.as_ptr(), parts.len() as i32) as i64)
            }
            ReceiveWay::Recvmsg => {
                let mut header = with_control(header(&mut parts));
                let done = outcome(|| libc::recvmsg(fd, &raw mut header, flags) as i64);
                let info =
                    if done.0 < 0 { MessageInfo::default() } else { MessageInfo::from(&header) };
                return (done, info);
            }
            ReceiveWay::Recvmmsg => {
                let mut message =
                    libc::mmsghdr { msg_hdr: with_control(header(&mut parts)), msg_len: 0 };
                let done = outcome(|| {
                    libc::recvmmsg(fd, &raw mut message, 1, flags as _, std::ptr::null_mut()).into()
                });
                if done.0 != 1 {
                    return (done, MessageInfo::default());
                }
                return ((message.msg_len.into(), 0), MessageInfo::from(&message.msg_hdr));
            }
            ReceiveWay::BadAddress => {
                outcome(|| libc::recv(fd, NOWHERE as *mut _, length.max(1), flags) as i64)
            }
        };
        (done, MessageInfo::default())
    }
}

/// Sends a descriptor over a UNIX socket.
pub(crate) fn pass(over: i32, fd: i32) -> SyscallResult {
    let mut byte = [0_u8];
    let mut part = [libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 }];
    let mut control = [0_u64; 8];
    let mut header = header(&mut part);
    // SAFETY: CMSG_SPACE and CMSG_LEN compute; the room for control messages is larger than one
    // descriptor needs.
    unsafe {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(message).cast::<i32>().write_unaligned(fd);
        outcome(|| libc::sendmsg(over, &raw const header, 0) as i64)
    }
}

/// Takes a descriptor from a UNIX socket.
pub(crate) fn take(from: i32) -> SyscallResult {
    let mut byte = [0_u8];
    let mut part = [libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 }];
    let mut control = [0_u64; 8];
    let mut header = header(&mut part);
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the lengths of all rooms are given; a control message is looked at only where the
    // kernel reports one.
    unsafe {
        let done = outcome(|| libc::recvmsg(from, &raw mut header, libc::MSG_DONTWAIT) as i64);
        let message = libc::CMSG_FIRSTHDR(&header);
        if done.0 != 1 || message.is_null() || (*message).cmsg_type != libc::SCM_RIGHTS {
            return if done.0 == -1 { done } else { (-1, libc::ENOMSG) };
        }
        (libc::CMSG_DATA(message).cast::<i32>().read_unaligned().into(), 0)
    }
}
