//! Control messages of recvmsg: the kernel's messages about bytes that came by TCP, and the number
//! of unread bytes (TCP_INQ), which the library knows for both carriers.

use std::ffi::{c_int, c_uint};

use libc::{
    CMSG_DATA, CMSG_FIRSTHDR, CMSG_LEN, CMSG_NXTHDR, CMSG_SPACE, IPPROTO_TCP, MSG_CTRUNC, TCP_INQ,
    cmsghdr, msghdr,
};
use seekwire_endpoint::Reason;
use seekwire_transport::sys::socket::{Control, ends};

use crate::ffi::keeping_errno;
use crate::pointers;
use crate::table::SocketRef;

/// The result of a receive: the length of its control messages, and flags.
#[derive(Clone, Copy, Default)]
pub(super) struct ReceivedControl {
    pub(super) len: usize,
    pub(super) flags: c_int,
}

/// The application's room for control messages, limited to accessible memory.
pub(super) struct Messages {
    place: *mut u8,
    /// The size that the application states, or 0; then the accessible part of it.
    stated: usize,
    room: usize,
    from_kernel: Option<Control>,
    reports_unread: bool,
}

impl Messages {
    /// `None` if no messages can come.
    #[inline]
    pub(super) fn asked_for(socket: &SocketRef, header: &msghdr) -> Option<Messages> {
        let connection = &socket.connection;
        // Another program that has received the socket sets its own options, and shares no memory
        // with this one.
        let is_shared = connection.reason().is_some();
        if is_shared {
            keeping_errno(|| connection.read_reports_unread());
        }
        let (wants_kernel_messages, reports_unread) =
            (is_shared || connection.wants_kernel_messages(), connection.reports_unread());
        (wants_kernel_messages || reports_unread).then(|| {
            let stated = if header.msg_control.is_null() { 0 } else { header.msg_controllen };
            if connection.wants_kernel_messages()
                && connection.reason() != Some(Reason::UnknownOption)
            {
                // The kernel does not see bytes that come by the ring. Without room for its
                // messages it reports that they were cut off.
                let _ = keeping_errno(|| socket.fall_back(Reason::UnknownOption));
            }
            let room = pointers::writable(header.msg_control, stated);
            let from_kernel = wants_kernel_messages.then(|| Control::new(room));
            Messages { place: header.msg_control.cast(), stated, room, from_kernel, reports_unread }
        })
    }

    /// Room for the kernel's messages, if the application asked for them.
    pub(super) fn room(&mut self) -> Option<&mut Control> {
        self.from_kernel.as_mut()
    }

    /// Gives the application the messages of a receive.
    #[cold]
    pub(super) fn deliver(self, socket: &SocketRef, came: bool) -> ReceivedControl {
        let mut received = ReceivedControl::default();
        if let Some(control) = &self.from_kernel {
            let messages = control.messages();
            // The kernel does not report cut-off messages if the memory is merely inaccessible.
            let cut = if self.room < self.stated { 0 } else { control.flags() & MSG_CTRUNC };
            received = ReceivedControl { len: messages.len(), flags: cut };
            // SAFETY: the kernel got no more room than exists, and nothing else uses it during the
            // call.
            unsafe { std::ptr::copy_nonoverlapping(messages.as_ptr(), self.place, messages.len()) };
        }
        if self.reports_unread { self.put_unread(unread(socket, came), received) } else { received }
    }

    /// Like the kernel's put_cmsg: cuts off a message that does not fit. Replaces the number from
    /// the kernel, which knows one carrier only.
    fn put_unread(&self, unread: c_int, received: ReceivedControl) -> ReceivedControl {
        const BYTES: c_uint = size_of::<c_int>() as c_uint;
        const HEAD: usize = size_of::<cmsghdr>();
        // SAFETY: the macros of cmsg(3) stay within the room, of which `received.len` bytes are
        // messages; it may be unaligned.
        unsafe {
            let whole = CMSG_LEN(BYTES) as usize;
            let mut header: msghdr = std::mem::zeroed();
            (header.msg_control, header.msg_controllen) = (self.place.cast(), received.len);
            let mut message = CMSG_FIRSTHDR(&raw const header);
            while !message.is_null() {
                let at = message.read_unaligned();
                if (at.cmsg_level, at.cmsg_type) == (IPPROTO_TCP, TCP_INQ) && at.cmsg_len >= whole {
                    CMSG_DATA(message).cast::<c_int>().write_unaligned(unread);
                    return received;
                }
                message = CMSG_NXTHDR(&raw const header, message);
            }
            let left = self.stated - received.len;
            if left < HEAD {
                return ReceivedControl { flags: received.flags | MSG_CTRUNC, ..received };
            }
            let len = left.min(whole);
            if self.room - received.len < len {
                return received;
            }
            let mut head: cmsghdr = std::mem::zeroed();
            (head.cmsg_len, head.cmsg_level, head.cmsg_type) = (len, IPPROTO_TCP, TCP_INQ);
            let at = self.place.add(received.len);
            at.cast::<cmsghdr>().write_unaligned(head);
            std::ptr::copy_nonoverlapping(unread.to_ne_bytes().as_ptr(), at.add(HEAD), len - HEAD);
            let flags = if len < whole { received.flags | MSG_CTRUNC } else { received.flags };
            ReceivedControl { len: received.len + left.min(CMSG_SPACE(BYTES) as usize), flags }
        }
    }
}

/// Counts like the kernel's tcp_inq_hint: the end of the stream is one byte more.
fn unread(socket: &SocketRef, came: bool) -> c_int {
    let connection = &socket.connection;
    let bytes = connection.unread().unwrap_or(0);
    // The question may have attached a connection that seeks.
    socket.update_sets();
    // The end of TCP may arrive a moment after that of the ring.
    let end = usize::from((!came && !connection.is_receive_shut()) || has_ended(socket));
    c_int::try_from(bytes + end).unwrap_or(c_int::MAX)
}

/// True if the end of the stream has arrived, whether bytes precede it or not: TCP reports both. A
/// shutdown for reading is not such an end.
pub(super) fn has_ended(socket: &SocketRef) -> bool {
    keeping_errno(|| ends(socket.connection.fd()).peers)
}
