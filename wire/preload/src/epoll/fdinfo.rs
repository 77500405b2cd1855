//! Reads the list of descriptors that the kernel has in a set.

use std::ffi::c_int;

use libc::epoll_event;
use seekwire_endpoint::readiness::{ALWAYS, EDGE, EXCLUSIVE, ONE_SHOT};
use seekwire_transport::sys::file;

use super::tag::Tag;
use crate::registration::Registration;

/// A kernel registration in a set.
#[derive(Copy, Clone)]
pub(super) struct InKernel {
    /// The number with which it was added.
    pub(super) number: c_int,
    pub(super) event: epoll_event,
    pub(super) inode: u64,
}

/// Flags that select how to report, not what: the kernel keeps these after a one-shot registration
/// has fired (linux/eventpoll.c, EP_PRIVATE_BITS).
const HOW: u32 = ONE_SHOT | EDGE | EXCLUSIVE | libc::EPOLLWAKEUP as u32;

impl InKernel {
    /// True if the kernel has fired the one-shot registration itself, so it reports no more events.
    pub(super) fn is_silent(&self) -> bool {
        self.event.events & !HOW == 0
    }

    /// True if this and `registration` are one-shot and have fired. If the library disabled it in
    /// the kernel, EPOLLERR and EPOLLHUP remain, which the kernel adds itself, but none of the
    /// events that the application asked for.
    fn is_fired(&self, registration: &Registration) -> bool {
        let asked = registration.events & !HOW & !ALWAYS;
        self.is_silent()
            || asked != 0 && self.event.events & asked == 0
            || Tag::decode(self.event.u64) == Some(Tag::FIRED)
    }
}

/// The kernel's registrations in the set `epfd`.
pub(super) fn registrations(epfd: c_int) -> Vec<InKernel> {
    let text = file::read(format!("/proc/self/fdinfo/{epfd}").as_ref()).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(registration).collect()
}

/// A one-shot registration that has fired while only the kernel had it: the library did not see
/// that.
pub(super) fn fired(epfd: c_int, registration: &Registration) -> Option<InKernel> {
    if registration.events & ONE_SHOT == 0 {
        return None;
    }
    let is_it =
        |entry: &InKernel| entry.number == registration.number() && entry.is_fired(registration);
    registrations(epfd).into_iter().find(is_it)
}

/// Parses a line about an epoll set: `tfd: 5 events: 19 data: 5 pos:0 ino:1234 sdev:8`; all numbers
/// but the first and the position are hexadecimal.
fn registration(line: &str) -> Option<InKernel> {
    let mut words = line.split_whitespace();
    let mut after =
        |name: &str| words.next().filter(|&word| word == name).and_then(|_| words.next());
    let number = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    let inode = words
        .find_map(|word| word.strip_prefix("ino:"))
        .and_then(|word| u64::from_str_radix(word, 16).ok());
    Some(InKernel { number, event: epoll_event { events, u64: data }, inode: inode? })
}
