//! Asks the kernel about interfaces and changes them: ethtool over generic netlink
//! (Documentation/networking/ethtool-netlink.rst), links and routes over rtnetlink.
//!
//! ```text
//! link        names, sizes, drivers
//! route       which interfaces the default routes use
//!   nexthop     what routes have in common
//! feature     offloads
//! parameter   coalescing, rings, channels, private flags
//! ```

/// Messages from user space (linux/ethtool_netlink.h).
mod command {
    pub(super) const STRSET_GET: u8 = 1;
    pub(super) const LINKMODES_GET: u8 = 4;
    pub(super) const FEATURES_GET: u8 = 11;
    pub(super) const FEATURES_SET: u8 = 12;
    pub(super) const PRIVFLAGS_GET: u8 = 13;
    pub(super) const PRIVFLAGS_SET: u8 = 14;
    pub(super) const RINGS_GET: u8 = 15;
    pub(super) const RINGS_SET: u8 = 16;
    pub(super) const CHANNELS_GET: u8 = 17;
    pub(super) const COALESCE_GET: u8 = 19;
    pub(super) const COALESCE_SET: u8 = 20;
}

/// A request of netlink-bindings with the kernel's number. The bindings number the messages of both
/// directions in one row, so that a question gets the number of another one's answer, or of a
/// command.
macro_rules! request {
    ($operation:ident, $command:ident) => {{
        let mut request = ethtool::Request::new().$operation();
        request.header_mut().cmd = command::$command;
        request
    }};
}

mod feature;
mod link;
mod nexthop;
mod parameter;
mod route;

use std::io;
use std::time::{Duration, Instant};

use netlink_bindings::traits::NetlinkRequest;
use netlink_bindings::utils::ErrorContext;
use netlink_socket2::{NetlinkSocket, ReplyError};
use rustix::io::Errno;

use crate::error::Error;
use crate::interface::Interface;
use crate::setting::{Group, Value};

/// ETHTOOL_FLAG_COMPACT_BITSETS: words instead of a list with names. Lists of all features do not
/// fit into one reply.
const COMPACT: u32 = 1;
/// ETHTOOL_FLAG_OMIT_REPLY.
const OMIT_REPLY: u32 = 2;

/// The connection to the kernel, for the network namespace of the thread that opened it. Not for
/// several threads at once.
pub struct Kernel {
    socket: NetlinkSocket,
}

/// Identifies an interface.
#[derive(Debug, Clone, Copy)]
enum Which<'a> {
    /// The name, or an alternative one.
    Name(&'a str),
    Index(u32),
}

/// The name of an interface, and what was read about it or why not.
pub type Read = (String, Result<Interface, Error>);

/// Why the kernel did not do something.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    errno: Option<Errno>,
    /// In words, with what the driver said about it (extended acknowledgement).
    pub(crate) reason: String,
}

impl From<ReplyError> for Refusal {
    fn from(error: ReplyError) -> Self {
        let said = error
            .ext_ack()
            .and_then(|ack| Some(ack.get_msg().ok()?.to_string_lossy().into_owned()));
        let refusal = Self::from_io(error.as_io_error());
        match said {
            Some(said) => Self { reason: format!("{said} ({})", refusal.reason), ..refusal },
            None => refusal,
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::from_io(&error)
    }
}

impl From<ErrorContext> for Refusal {
    fn from(error: ErrorContext) -> Self {
        Self { errno: None, reason: format!("the kernel's answer is not understood: {error}") }
    }
}

impl Refusal {
    fn from_io(error: &io::Error) -> Self {
        let text = error.to_string();
        let reason = text.split(" (os error").next().unwrap_or(&text).to_owned();
        Self { errno: error.raw_os_error().map(Errno::from_raw_os_error), reason }
    }

    /// Whether a driver may do it with other settings beside it: not for lack of permission, nor
    /// while the device is away.
    pub(crate) fn is_of_combination(&self) -> bool {
        matches!(self.errno, Some(Errno::INVAL | Errno::OPNOTSUPP))
    }

    /// `is_there`: whether there still is an interface of that name.
    fn on(self, name: &str, what: &str, is_there: bool) -> Error {
        match self.errno {
            Some(Errno::NODEV) if is_there => Error::Detached(name.to_owned()),
            Some(Errno::NODEV) => Error::NoSuchInterface(name.to_owned()),
            Some(Errno::PERM | Errno::ACCESS) => Error::NotPermitted(name.to_owned()),
            _ => Error::Kernel { what: format!("{what} of {name}"), reason: self.reason },
        }
    }
}

/// How long to wait for a detached device. Resets of drivers take one to ten seconds.
const RESET: Duration = Duration::from_secs(15);
/// How long to wait between two attempts.
const GLANCE: Duration = Duration::from_millis(100);

/// Repeats `read` while the device is detached, for up to `patience`.
fn attached<T>(patience: Duration, mut read: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let until = Instant::now() + patience;
    loop {
        match read() {
            Err(Error::Detached(_)) if Instant::now() < until => std::thread::park_timeout(GLANCE),
            read => return read,
        }
    }
}

impl Kernel {
    /// Opens netlink sockets in the network namespace of this thread.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: the kernel has no ethtool netlink (Linux 5.6 has), or netlink sockets are forbidden.
    pub fn open() -> Result<Self, Error> {
        let mut kernel = Self { socket: NetlinkSocket::new() };
        // Both sockets are made here and stay in this namespace wherever the thread goes.
        let opened = kernel.links().map(drop).and_then(|()| kernel.feature_names().map(drop));
        opened.map_err(|refusal| Error::Kernel {
            what: "asking the kernel for network interfaces (netlink)".to_owned(),
            reason: refusal.reason,
        })?;
        Ok(kernel)
    }

    /// Reads all interfaces of the namespace, in order of their numbers, each with its name. One
    /// that goes in the meantime is left out; one that cannot be read does not keep the others from
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: there is no list.
    pub fn interfaces(&mut self) -> Result<Vec<Read>, Error> {
        let links = self
            .links()
            .map_err(|refusal| refusal.on("all interfaces", "reading the list", false))?;
        let read =
            links.into_iter().map(|link| (self.interface_at(link.index, &link.name), link.name));
        let read = read.map(|(interface, name)| (name, interface));
        Ok(read.filter(|(_, read)| !matches!(read, Err(Error::NoSuchInterface(_)))).collect())
    }

    /// Reads everything about an interface. `name` may be an alternative name; the answer has the
    /// real one.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchInterface`], [`Error::Detached`], [`Error::Kernel`].
    pub fn interface(&mut self, name: &str) -> Result<Interface, Error> {
        self.find(Which::Name(name), name)
    }

    /// The same as [`Kernel::interface_at`], but a device that its driver has detached, as for a
    /// reset, is waited for: it is back in seconds.
    pub(crate) fn interface_back_at(&mut self, index: u32, name: &str) -> Result<Interface, Error> {
        attached(RESET, || self.interface_at(index, name))
    }

    /// Reads everything about the interface of that number, whatever it is called now; `name` is
    /// for errors.
    pub(crate) fn interface_at(&mut self, index: u32, name: &str) -> Result<Interface, Error> {
        self.find(Which::Index(index), name)
    }

    fn find(&mut self, which: Which<'_>, name: &str) -> Result<Interface, Error> {
        self.read(which).map_err(|refusal| {
            let is_there = self.link(which).is_ok();
            refusal.on(name, "reading the settings", is_there)
        })
    }

    fn read(&mut self, which: Which<'_>) -> Result<Interface, Refusal> {
        let link = self.link(which)?;
        let index = link.index;
        let (speed_mbps, duplex) = self.speed(index)?.unwrap_or_default();
        let channels = self.channels(index)?.unwrap_or_default();
        Ok(Interface {
            default_route: self.carries_default_route(index)?,
            features: self.features(index)?,
            coalescing: self.coalescing(index)?.unwrap_or_default(),
            rings: self.rings(index)?.unwrap_or_default(),
            private_flags: self.private_flags(index)?.unwrap_or_default(),
            driver: link.driver(),
            bus: link.bus(),
            kind: link.kind,
            address: link.address,
            has_permanent_address: link.has_permanent_address,
            name: link.name,
            index,
            mtu: link.mtu,
            speed_mbps,
            duplex,
            up: link.up,
            queues: crate::interface::Queues { rx: link.rx_queues, tx: link.tx_queues, channels },
        })
    }

    /// Sets values of one group, in one request.
    pub(crate) fn set(
        &mut self,
        index: u32,
        group: Group,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        match group {
            Group::Feature => self.set_features(index, values),
            Group::PrivateFlag => self.set_private_flags(index, values),
            Group::Ring => self.set_rings(index, values),
            Group::Coalescing => self.set_coalescing(index, values),
        }
    }

    /// Asks for a change of nothing: fails when any change would for lack of permission.
    pub(crate) fn check_permission(&mut self, name: &str, index: u32) -> Result<(), Error> {
        self.set_features(index, &[]).map_err(|refusal| {
            let is_there = self.link(Which::Index(index)).is_ok();
            refusal.on(name, "changing the settings", is_there)
        })
    }

    /// Makes a request whose only answer is success.
    fn order<R: NetlinkRequest>(&mut self, request: &R) -> Result<(), Refusal> {
        Ok(self.socket.request(request)?.recv_ack()?)
    }

    /// Makes a request and converts its answer into `T`. `None` if the driver does not support it.
    fn ask<R, T>(
        &mut self,
        request: &R,
        understand: impl FnOnce(R::ReplyType<'_>) -> Result<T, ErrorContext>,
    ) -> Result<Option<T>, Refusal>
    where
        R: NetlinkRequest,
    {
        let mut replies = self.socket.request(request)?;
        let answer = match replies.recv_one() {
            Ok(reply) => Ok(Some(understand(reply)?)),
            Err(error) => {
                let refusal = Refusal::from(error);
                if refusal.errno == Some(Errno::OPNOTSUPP) { Ok(None) } else { Err(refusal) }
            }
        };
        // The acknowledgement behind the answer.
        while let Some(rest) = replies.recv() {
            rest?;
        }
        answer
    }
}

/// The names of the bits that are set in a compact bitset.
fn set_bits(bits: &[u8]) -> Vec<bool> {
    // Words of 32 bits in the host's order.
    let words =
        bits.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    words.flat_map(|word| (0..32).map(move |bit| word & (1 << bit) != 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_across_words() {
        let bytes: Vec<u8> = [1u32 << 31 | 2, 1].into_iter().flat_map(u32::to_ne_bytes).collect();
        let bits = set_bits(&bytes);
        let set: Vec<usize> = (0..bits.len()).filter(|bit| bits[*bit]).collect();
        assert_eq!(set, [1, 31, 32]);
        assert!(set_bits(&[]).is_empty());
    }

    #[test]
    fn a_detached_device_is_waited_for_and_nothing_else() {
        let detached = || Err(Error::Detached("eth7".to_owned()));
        let mut answers = vec![Ok(7), detached(), detached()];
        assert_eq!(attached(RESET, || answers.pop().unwrap()).unwrap(), 7);
        assert!(answers.is_empty());
        let mut answers = vec![Ok(7), Err(Error::NoSuchInterface("eth7".to_owned()))];
        assert!(matches!(
            attached(RESET, || answers.pop().unwrap()),
            Err(Error::NoSuchInterface(_))
        ));
        let mut answers = vec![Ok(7), detached()];
        assert!(matches!(
            attached(Duration::ZERO, || answers.pop().unwrap()),
            Err(Error::Detached(_))
        ));
    }

    #[test]
    fn a_refusal_keeps_the_kernels_words() {
        let refusal = Refusal::from(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()));
        assert_eq!(refusal.reason, "Invalid argument");
        let error = |errno: Errno, is_there| {
            let refusal = Refusal::from(io::Error::from_raw_os_error(errno.raw_os_error()));
            refusal.on("eth7", "x", is_there).to_string()
        };
        let permission = error(Errno::PERM, true);
        assert!(permission.contains("eth7 needs the capability CAP_NET_ADMIN"), "{permission}");
        assert!(error(Errno::NODEV, false).contains("there is no interface `eth7`"));
        assert!(error(Errno::NODEV, true).contains("eth7 does not answer"));
    }
}
