//! Data that a receive returns besides the bytes, in control messages: TCP_INQ, time stamps and the
//! like belong to the socket, so processes that share it after a fork also share these settings, in
//! the memory of the end.

use std::sync::atomic::Ordering;

use seekwire_transport::layout::messages;
use seekwire_transport::sys::socket;

use super::data_path::DataPath;
use super::state::Connection;

impl Connection {
    /// TCP_INQ was set: messages report the number of unread bytes, or no longer do.
    pub fn set_reports_unread(&self, on: bool) {
        self.set_messages(messages::UNREAD, on);
    }

    /// Whether messages report the number of unread bytes.
    #[inline]
    #[must_use]
    pub fn reports_unread(&self) -> bool {
        self.messages() & messages::UNREAD != 0
    }

    /// The kernel was asked to return control messages with received bytes.
    pub fn set_wants_kernel_messages(&self) {
        self.set_messages(messages::OF_KERNEL, true);
    }

    /// Whether the kernel may return control messages with received bytes.
    #[inline]
    #[must_use]
    pub fn wants_kernel_messages(&self) -> bool {
        self.messages() & messages::OF_KERNEL != 0
    }

    #[inline]
    fn messages(&self) -> u64 {
        match self.attached() {
            Some(data_path) => data_path.ring.queue.messages(),
            None => self.settings.messages.load(Ordering::Relaxed),
        }
    }

    fn set_messages(&self, bits: u64, on: bool) {
        let local = &self.settings.messages;
        if on {
            local.fetch_or(bits, Ordering::Relaxed);
        } else {
            local.fetch_and(!bits, Ordering::Relaxed);
        }
        if let Some(data_path) = self.data_path.get() {
            data_path.ring.queue.set_messages(bits, on);
        }
    }

    /// Another process may have set TCP_INQ: asks the kernel.
    pub fn read_reports_unread(&self) {
        if let Ok(on) = socket::reports_unread(self.fd()) {
            self.set_reports_unread(on);
        }
    }

    /// Shares these settings with the other processes of this end, as it comes to the ring.
    pub(super) fn share_messages(&self, data_path: &DataPath) {
        self.read_reports_unread();
        data_path.ring.queue.set_messages(self.settings.messages.load(Ordering::Relaxed), true);
    }
}
