//! Connections that a message passes to another process (SCM_RIGHTS, unix(7)).

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::{mem, ptr};

use libc::{CMSG_DATA, CMSG_FIRSTHDR, CMSG_NXTHDR, SCM_RIGHTS, SOL_SOCKET, msghdr};
use seekwire_endpoint::{HandedOver, Reason};
use seekwire_transport::Errno;

use crate::fallback::{serve_peers, to_tcp_or_relay};
use crate::relay::Begun;
use crate::table::SharedSocket;
use crate::track::fresh;
use crate::{ffi, pointers, relay, replacement, table};

/// A message in which ends of relays replace some of the sockets.
pub(crate) struct RelayedMessage {
    header: msghdr,
    _control: Vec<u64>,
    relays: Vec<Begun>,
}

impl RelayedMessage {
    pub(crate) fn header(&self) -> &msghdr {
        &self.header
    }

    /// Call it when the message has been sent; otherwise the relays end without having done
    /// anything.
    pub(crate) fn sent(self) {
        self.relays.into_iter().for_each(Begun::open);
    }
}

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
pub(crate) unsafe fn prepare(message: *const msghdr) -> Result<Option<RelayedMessage>, Errno> {
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
unsafe fn prepare_control(mut header: msghdr) -> Result<Option<RelayedMessage>, Errno> {
    let mut relays: Vec<(SharedSocket, Begun)> = Vec::new();
    let mut replaced = Vec::new();
    // SAFETY: as the caller promises.
    unsafe {
        each_right(&header, |at, fd| {
            let Some(socket) = table::socket(fd) else { return Ok(()) };
            // Perhaps by another number.
            let is_relayed = relays.iter().position(|(other, _)| ptr::eq(&**other, &*socket));
            if let Some(relay) = is_relayed {
                replaced.push((at, relay));
            } else if to_tcp_or_relay(&socket, Reason::FdPassed)? == HandedOver::Later
                && !ffi::guarded_own(|| replacement::goes_on_in_place(fd))?
                && let Some(relay) = ffi::guarded_own(|| relay::begin_or_refuse(&socket))?
            {
                socket.keep();
                replaced.push((at, relays.len()));
                relays.push((socket.share(), relay));
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
        for (at, relay) in replaced {
            let number = relays[relay].1.theirs.as_fd().as_raw_fd();
            copy.add(at).cast::<c_int>().write_unaligned(number);
        }
        header.msg_control = copy.cast();
    }
    let relays = relays.into_iter().map(|(_, relay)| relay).collect();
    Ok(Some(RelayedMessage { header, _control: control, relays }))
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
    let serve_peers_first = || ffi::guarded(serve_peers);
    // SAFETY: the kernel has just written there.
    let header = unsafe { &*message };
    if !header.msg_control.is_null() && header.msg_controllen >= mem::size_of::<libc::cmsghdr>() {
        // SAFETY: the kernel has written these messages.
        let _ = unsafe {
            each_right(header, |_, fd| {
                fresh(fd);
                serve_peers_first();
                Ok(())
            })
        };
    }
}
