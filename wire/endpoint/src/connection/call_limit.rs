//! How long a call may wait. The socket decides this, not the process.
//!
//! O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO and SO_RCVLOWAT belong to the open file description;
//! another process that has inherited the socket may set them. The kernel reads them when a call
//! begins. The values that this process last knew suffice for a call that finds its bytes; before a
//! call sleeps for the first time, or returns EAGAIN, the kernel is asked. SO_RCVLOWAT decides
//! which bytes suffice: it is in the memory of the end, which forked processes share.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seekwire_transport::spin;
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::socket;

use super::settings::Settings;
use super::state::Connection;

impl Connection {
    /// The settings of the socket that the ring has to follow.
    #[inline]
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// SO_RCVLOWAT was set, in bytes.
    pub fn set_recv_low_water(&self, bytes: usize) {
        let bytes = bytes.max(1) as u64;
        self.settings.low_water.store(bytes, Ordering::Relaxed);
        if let Some(data_path) = self.data_path.get() {
            data_path.ring.queue.set_low_water(bytes);
        }
    }

    /// SO_RCVLOWAT, as this process and those that share its memory know it.
    #[inline]
    #[must_use]
    pub fn recv_low_water(&self) -> usize {
        let set = self.data_path.get().map_or(0, |data_path| data_path.ring.queue.low_water());
        if set > 0 {
            set as usize
        } else {
            self.settings.low_water.load(Ordering::Relaxed) as usize
        }
    }

    /// SO_RCVLOWAT, from the kernel.
    #[must_use]
    pub fn recv_low_water_now(&self) -> usize {
        self.read_low_water();
        self.recv_low_water()
    }

    /// Reads the settings from the kernel.
    pub(super) fn read_settings(&self) {
        let fd = self.fd();
        let settings = &self.settings;
        if let Ok(nonblocking) = socket::is_nonblocking(fd) {
            settings.set_nonblocking(nonblocking);
        }
        if let Ok((recv, send)) = socket::timeouts(fd) {
            // The kernel also reports none if there is no time at all.
            if recv.is_some() || settings.recv_timeout() != Some(Settings::AT_ONCE) {
                settings.set_recv_timeout(recv);
            }
            if send.is_some() || settings.send_timeout() != Some(Settings::AT_ONCE) {
                settings.set_send_timeout(send);
            }
        }
        self.read_low_water();
    }

    fn read_low_water(&self) {
        // Once the connection seeks, the socket may have the value that a sleeping seek needs.
        if self.is_seeking() {
            return;
        }
        let shared = self.data_path.get().map_or(0, |data_path| data_path.ring.queue.low_water());
        let Ok(bytes) = socket::receive_low_water(self.fd()) else { return };
        let bytes = bytes.max(1) as u64;
        self.settings.low_water.store(bytes, Ordering::Relaxed);
        if let Some(data_path) = self.data_path.get().filter(|_| shared != 0 && shared != bytes) {
            data_path.ring.queue.correct_low_water(shared, bytes);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum CallDirection {
    Receive,
    Send,
}

/// How long one call may wait.
#[derive(Debug)]
pub(super) struct Limit {
    /// Set once the call has slept.
    until: Cell<Option<Deadline>>,
    what: CallDirection,
}

impl Limit {
    /// The limit of a receive.
    pub(super) fn receive() -> Self {
        Self { until: Cell::new(None), what: CallDirection::Receive }
    }

    /// The limit of a send.
    pub(super) fn send() -> Self {
        Self { until: Cell::new(None), what: CallDirection::Send }
    }

    /// The limit of a caller that has its deadline already.
    pub(super) fn at(until: Deadline) -> Self {
        Self { until: Cell::new(Some(until)), what: CallDirection::Receive }
    }

    /// Whether the kernel was asked.
    pub(super) fn is_set(&self) -> bool {
        self.until.get().is_some()
    }

    /// Whether it is set, and has passed.
    pub(super) fn is_over(&self) -> bool {
        self.until.get().is_some_and(|until| until.is_over())
    }

    /// Whether this many nanoseconds are a small part of the time that the call may wait, as this
    /// process knows it: the call's clock only runs since its first sleep.
    pub(super) fn has_much_more_than(&self, waited: u64, connection: &Connection) -> bool {
        let left = match (self.until.get(), self.what) {
            (Some(until), _) => until.left(),
            (None, CallDirection::Receive) => connection.settings.recv_timeout(),
            (None, CallDirection::Send) => connection.settings.send_timeout(),
        };
        spin::is_little(waited, left)
    }

    /// Whether a call that found no bytes may not wait at all.
    pub(super) fn forbids(&self, connection: &Connection, dont_wait: bool) -> bool {
        dont_wait
            || (self.until.get().is_none() && connection.settings.is_nonblocking() && {
                connection.read_settings();
                connection.settings.is_nonblocking()
            })
    }

    /// The deadline of a sleep, which is read from the kernel before the first one. `None` if the
    /// call has to look again first: the socket does not block, or SO_RCVLOWAT is lower than the
    /// call assumed.
    pub(super) fn until(&self, connection: &Connection) -> Option<Deadline> {
        if self.until.get().is_none() {
            let wanted = connection.recv_low_water();
            connection.read_settings();
            if connection.settings.is_nonblocking() {
                return None;
            }
            let timeout = match self.what {
                CallDirection::Receive => connection.settings.recv_timeout(),
                CallDirection::Send => connection.settings.send_timeout(),
            };
            self.until.set(Some(Deadline::after(timeout)));
            if connection.recv_low_water() < wanted {
                return None;
            }
        }
        self.until.get()
    }

    /// As [`Limit::until`], for a call that needs all of its bytes whatever SO_RCVLOWAT is. A
    /// deadline that has passed if the socket does not block.
    pub(super) fn once(&self, connection: &Connection) -> Deadline {
        let now = || Deadline::after(Some(Duration::ZERO));
        self.until(connection).or_else(|| self.until(connection)).unwrap_or_else(now)
    }
}
