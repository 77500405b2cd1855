//! Reads which descriptors the kernel has in a set.

use std::ffi::c_int;

use libc::epoll_event;
use seekwire_transport::sys::file;

use super::watch::{ONE_SHOT, RDHUP, READ, WRITE};
use crate::registration::Registration;

/// What the kernel has in a set.
#[derive(Copy, Clone)]
pub(super) struct InKernel {
    /// By which it was added.
    pub(super) number: c_int,
    pub(super) event: epoll_event,
    pub(super) inode: u64,
}

impl InKernel {
    /// One-shot, and the shot is fired.
    fn is_fired(&self) -> bool {
        self.event.events & ONE_SHOT != 0 && self.event.events & (READ | WRITE | RDHUP) == 0
    }
}

/// What the kernel says is in the set `epfd`.
pub(super) fn registrations(epfd: c_int) -> Vec<InKernel> {
    let text = file::read(format!("/proc/self/fdinfo/{epfd}").as_ref()).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(registration).collect()
}

/// Whether a one-shot has fired while it was the kernel's alone: nobody saw the shot.
pub(super) fn is_fired(epfd: c_int, registration: &Registration) -> bool {
    let is_it = |entry: &InKernel| entry.number == registration.number() && entry.is_fired();
    registration.events & ONE_SHOT != 0 && registrations(epfd).iter().any(is_it)
}

/// A line of an epoll set: `tfd: 5 events: 19 data: 5 pos:0 ino:1234 sdev:8`, all but the first and
/// the position in hexadecimal.
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
