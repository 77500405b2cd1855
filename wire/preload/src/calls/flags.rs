//! Flags of calls that move bytes: those that TCP takes into account.
//!
//! tcp_recvmsg and tcp_sendmsg ignore every bit that is not named here (Linux 6.18; tests/c/flags.c
//! tries all 32 of them in both directions), so a call with such bits is one without them. Only
//! urgent data and the error queue are the kernel's alone.

use std::ffi::c_int;
use std::sync::OnceLock;

use libc::{
    MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_EOR, MSG_ERRQUEUE, MSG_FASTOPEN, MSG_MORE, MSG_NOSIGNAL,
    MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_NOAPPEND,
    RWF_NOWAIT, RWF_SYNC, off_t,
};
use seekwire_endpoint::{RecvFlags, SendFlags};

use seekwire_transport::Errno;
use seekwire_transport::sys::call;

use crate::ffi::keeping_errno;

/// linux/socket.h: for the kernel's calls from 32-bit programs.
const MSG_CMSG_COMPAT: c_int = c_int::MIN;
/// linux/fs.h, since Linux 6.18: no SIGPIPE.
const RWF_NOSIGNAL: c_int = 0x100;
/// Flags for files, which a socket accepts and ignores.
const RWF_IGNORED: c_int = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND | RWF_NOAPPEND;

/// The object of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CallSubject<F> {
    /// The byte stream, on either carrier.
    Stream(F),
    /// The urgent byte, which only TCP transfers.
    Urgent,
    /// Not the stream: the error queue, or a call that the kernel rejects before it moves a byte.
    Other,
}

/// Interprets the flags of recv.
pub(super) fn of_receive(flags: c_int) -> CallSubject<RecvFlags> {
    // In the kernel's order.
    if flags & MSG_ERRQUEUE != 0 {
        CallSubject::Other
    } else if flags & MSG_OOB != 0 {
        CallSubject::Urgent
    } else {
        CallSubject::Stream(RecvFlags {
            peek: flags & MSG_PEEK != 0,
            wait_all: flags & MSG_WAITALL != 0,
            dont_wait: flags & MSG_DONTWAIT != 0,
            truncate: flags & MSG_TRUNC != 0,
        })
    }
}

/// Interprets the flags of send on a connected socket.
pub(super) fn of_send(flags: c_int) -> CallSubject<SendFlags> {
    if flags & MSG_FASTOPEN != 0 {
        // MSG_FASTOPEN gives EISCONN.
        CallSubject::Other
    } else if flags & MSG_OOB != 0 {
        CallSubject::Urgent
    } else {
        CallSubject::Stream(SendFlags {
            dont_wait: flags & MSG_DONTWAIT != 0,
            no_signal: flags & MSG_NOSIGNAL != 0,
            more: flags & MSG_MORE != 0,
            end_of_record: flags & MSG_EOR != 0,
            patient: false,
        })
    }
}

/// True if bytes received with such flags stay in the stream, or were never in it.
pub(super) fn leaves_stream(flags: c_int) -> bool {
    flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE) != 0
}

/// True if the calls that take a msghdr reject the flags, one of which is for the kernel's internal
/// use.
pub(super) fn refused_with_message(flags: c_int) -> bool {
    flags & MSG_CMSG_COMPAT != 0
}

/// The flags that recvmsg returns if TCP has none.
pub(super) fn returned(flags: c_int) -> c_int {
    flags & MSG_CMSG_CLOEXEC
}

/// Converts the flags of preadv2 and pwritev2 to those of recv and send. `None` if the kernel
/// rejects them.
pub(super) fn of_file(offset: off_t, flags: c_int) -> Option<c_int> {
    if (offset, flags) == (-1, 0) {
        return Some(0);
    }
    let both = RWF_APPEND | RWF_NOAPPEND;
    if offset != -1
        || flags & !(RWF_IGNORED | RWF_NOWAIT | RWF_NOSIGNAL) != 0
        || flags & both == both
    {
        return None;
    }
    let recent = flags & (RWF_NOAPPEND | RWF_NOSIGNAL);
    if recent != 0 && recent & !accepted() != 0 {
        return None;
    }
    let dont_wait = if flags & RWF_NOWAIT != 0 { MSG_DONTWAIT } else { 0 };
    let no_signal = if flags & RWF_NOSIGNAL != 0 { MSG_NOSIGNAL } else { 0 };
    Some(dont_wait | no_signal)
}

/// The recent file flags that this kernel accepts: tried once with an empty pipe.
fn accepted() -> c_int {
    static ACCEPTED: OnceLock<c_int> = OnceLock::new();
    *ACCEPTED.get_or_init(|| {
        keeping_errno(|| {
            let mut ends: [c_int; 2] = [-1; 2];
            let mut byte = 0u8;
            let into = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            // SAFETY: live variables of the sizes that the calls expect; the closed numbers are
            // this function's own. Raw calls, because they concern no other part of the library.
            unsafe {
                let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
                let place = ends.as_mut_ptr().expose_provenance();
                if call(libc::SYS_pipe2, [place, flags, 0, 0, 0, 0]).is_err() {
                    return 0;
                }
                let takes = |flag: &c_int| {
                    let into = (&raw const into).expose_provenance();
                    // The offset -1, in two halves.
                    let arguments =
                        [ends[0] as usize, into, 1, usize::MAX, usize::MAX, *flag as usize];
                    call(libc::SYS_preadv2, arguments) == Err(Errno::AGAIN)
                };
                let accepted = [RWF_NOAPPEND, RWF_NOSIGNAL]
                    .into_iter()
                    .filter(takes)
                    .fold(0, |all, flag| all | flag);
                for end in ends {
                    let _ = call(libc::SYS_close, [end as usize, 0, 0, 0, 0, 0]);
                }
                accepted
            }
        })
    })
}
