//! Event channels of Xen's, with which one domain wakes another, through the kernel's device
//! `evtchn` (include/uapi/xen/evtchn.h). A stable interface, like [`grants`](super::grants).
//!
//! The device masks a port when its event comes, and returns the event from read(2). Until the port
//! is written back, no further event comes.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::OFlags;

use super::fd::PrivateFd;
use super::poll::{self, Events};
use super::{call, file};
use crate::Errno;

/// The device.
pub const DEVICE: &str = "/dev/xen/evtchn";

/// `_IOC(_IOC_NONE, 'E', number, size)`.
const fn code(number: usize, size: usize) -> usize {
    size << 16 | (b'E' as usize) << 8 | number
}

const BIND_INTERDOMAIN: usize = code(1, 8);
const BIND_UNBOUND_PORT: usize = code(2, 4);
const NOTIFY: usize = code(4, 4);
const RESET: usize = code(5, 0);
const RESTRICT_DOMID: usize = code(6, 2);

/// Maximum number of events read at a time, in case a domain rings without end.
const AT_ONCE: usize = 4;

/// Events that the device keeps for one port; it keeps more only for more ports.
const EVENTS: usize = 64;

/// Calls of this process pass a filter, which may not know these.
static AVOIDED: AtomicBool = AtomicBool::new(false);

/// From now on this process rings through no channel. It still receives: those are calls as on any
/// file.
pub fn avoid() {
    AVOIDED.store(true, Ordering::Relaxed);
}

/// Makes a request that passes these bytes; the result is a port, or nothing.
fn ask(device: BorrowedFd<'_>, code: usize, request: &[u8]) -> Result<u32, Errno> {
    assert!(request.len() == code >> 16, "the kernel would read more");
    let place = request.as_ptr().expose_provenance();
    let device = device.as_raw_fd() as usize;
    // SAFETY: of this device, the kernel reads as many bytes as the code says, which is as long as
    // the slice. Other files have no such request and refuse it.
    let result = unsafe { call(libc::SYS_ioctl, [device, code, place, 0, 0, 0]) }?;
    Ok(result as u32)
}

/// One end of a channel between two domains. It ends with the last process that has it; the other
/// end is not notified.
#[derive(Debug)]
pub struct EventChannel {
    file: PrivateFd,
    port: u32,
    has_rung: AtomicBool,
    /// The peer has the other end.
    is_whole: AtomicBool,
}

impl EventChannel {
    /// Offers a channel of which that domain can get the other end. This end does not ring before
    /// it is [confirmed](Self::confirm).
    ///
    /// # Errors
    /// ENOENT if there is no such device; EACCES; ENOSPC if this domain has no channel left
    /// (`max_event_channels` in xl.cfg(5)); EMFILE if no number above the library's floor is free.
    pub fn offer(domain: u16) -> io::Result<Self> {
        Self::bind(domain, BIND_UNBOUND_PORT, &u32::from(domain).to_ne_bytes())
    }

    /// Takes the other end of a channel that the domain has offered under this port. Rings.
    ///
    /// # Errors
    /// As for [`Self::offer`]; EINVAL and others if that domain has offered no such port.
    pub fn accept(domain: u16, offered: u32) -> io::Result<Self> {
        let request = [u32::from(domain).to_ne_bytes(), offered.to_ne_bytes()].concat();
        let channel = Self::bind(domain, BIND_INTERDOMAIN, &request)?;
        notify(channel.file.as_fd(), channel.port)?;
        channel.is_whole.store(true, Ordering::Relaxed);
        Ok(channel)
    }

    fn bind(domain: u16, code: usize, request: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDWR.union(OFlags::NONBLOCK);
        let file = PrivateFd::place(file::open(Path::new(DEVICE), flags, 0)?)?;
        let port = ask(file.as_fd(), code, request)?;
        // From now on, a process that has the file cannot use it to bind to another domain. Domain
        // 0 cannot be named there.
        let _ = ask(file.as_fd(), RESTRICT_DOMID, &domain.to_ne_bytes());
        let (has_rung, is_whole) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { file, port, has_rung, is_whole })
    }

    /// The number of this end in its domain, never 0.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// The port, if it has been rung and is not confirmed yet. The other end belongs to the peer,
    /// or to a domain to which this port was offered when it was another channel's.
    #[must_use]
    pub fn unconfirmed(&self) -> Option<u32> {
        let has_rung = self.has_rung.load(Ordering::Relaxed);
        (has_rung && !self.is_whole.load(Ordering::Relaxed)).then_some(self.port)
    }

    /// The peer reports that it has the other end.
    pub fn confirm(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }

    /// Wakes the other end. False if the caller has to ring in another way, because this process is
    /// not to use channels, or the other end is not known to exist.
    #[must_use]
    pub fn ring(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
            && !AVOIDED.load(Ordering::Relaxed)
            && notify(self.file.as_fd(), self.port).is_ok()
    }

    /// Silences it, and returns whether it was rung.
    ///
    /// The port is written back before events are read, and, except in a flood, one event is read
    /// at a time: if the process dies in between, other processes with this end find an event, and
    /// not a port that stays masked.
    pub fn silence(&self) -> bool {
        let unmask = || _ = rustix::io::write(&self.file, &self.port.to_ne_bytes());
        let mut was_rung = false;
        for time in 1..=AT_ONCE {
            unmask();
            let mut events = [0; 4 * EVENTS];
            let room = if time < AT_ONCE { 4 } else { events.len() };
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut events[..room])) {
                Ok(1..) => {}
                // More events than it keeps.
                Err(Errno::FBIG) if ask(self.file.as_fd(), RESET, &[]).is_ok() => {}
                Ok(_) | Err(_) => return was_rung,
            }
            was_rung = true;
            self.has_rung.store(true, Ordering::Relaxed);
        }
        unmask();
        was_rung
    }

    /// Whether it is rung.
    #[must_use]
    pub fn is_rung(&self) -> bool {
        // More events than it keeps are an error.
        let events = poll::look(self.file.fd(), Events::READ).unwrap_or_default();
        events.read || events.dead
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn notify(device: BorrowedFd<'_>, port: u32) -> Result<(), Errno> {
    ask(device, NOTIFY, &port.to_ne_bytes()).map(drop)
}

/// Rings between two domains are tested in wire/tests/vm.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_kernels_header() {
        // Printed by a C program with this header.
        assert_eq!((BIND_INTERDOMAIN, BIND_UNBOUND_PORT), (0x0008_4501, 0x0004_4502));
        assert_eq!((NOTIFY, RESET, RESTRICT_DOMID), (0x0004_4504, 0x4505, 0x0002_4506));
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such calls")]
    fn another_file_has_no_channels() {
        let other = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(notify(other.as_fd(), 1), Err(Errno::NOTTY));
        if !Path::new(DEVICE).exists() {
            let error = EventChannel::offer(1).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
