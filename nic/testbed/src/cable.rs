//! The veth pair: links and addresses over rtnetlink (rtnetlink(7)), and a token bucket on it.

use std::ffi::CString;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use netlink_bindings::rt_addr::{self, Ifaddrmsg};
use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::rt_route::{self, Rtmsg};
use netlink_bindings::tc::{self, TcRatespec, TcTbfQopt, Tcmsg};
use netlink_bindings::traits::NetlinkRequest;
use netlink_socket2::NetlinkSocket;
use rustix::io::Errno;

use crate::error::Error;
use crate::namespace::Namespace;

/// IFF_UP of net_device_flags.
const UP: u32 = 1;
const IPV4: u8 = 2;
/// Network of the two addresses.
const PREFIX: u8 = 30;
/// The interface that every new namespace has.
const LOOPBACK: u32 = 1;

/// TC_H_ROOT and TC_LINKLAYER_ETHERNET of linux/pkt_sched.h.
const ROOT: u32 = u32::MAX;
const ETHERNET: u8 = 1;
/// Bucket size: the largest packet that segmentation offload makes, with its headers, and an
/// allowance for the timer's delay.
const BURST: u32 = 256 << 10;
/// Maximum number of queued bytes; more are dropped.
const QUEUE: u32 = 1 << 20;

const CAPABILITY: &str = "CAP_NET_ADMIN";
const LAY: &str = "make a pair of veth interfaces";
const LIMIT: &str = "limit the rate of an interface";

/// Joins this thread's namespace to a second new one, which gets the end `far`.
pub(crate) fn lay(near: &str, far: &str, far_namespace: &Namespace) -> Result<(), Error> {
    let run = || -> io::Result<()> {
        let mut socket = NetlinkSocket::new();
        let mut request =
            rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        request.encode().push_ifname_bytes(near.as_bytes()).nested_linkinfo().push_kind(c"veth");
        order(&mut socket, &request)?;
        // The bindings cannot name the other end, so the kernel has chosen its name.
        let other = index("veth0")?;
        let mut request = rt_link::Request::new().op_setlink_do(&header(other, 0));
        let descriptor = far_namespace.file().as_raw_fd().unsigned_abs();
        request.encode().push_net_ns_fd(descriptor).push_ifname_bytes(far.as_bytes());
        order(&mut socket, &request)
    };
    run().map_err(|source| error(LAY, "veth", source))
}

/// Sets up the address and links of an end in this thread's namespace.
pub(crate) fn switch_on(interface: &str, address: Ipv4Addr) -> Result<(), Error> {
    let run = || -> io::Result<()> {
        let mut socket = NetlinkSocket::new();
        let index = index(interface)?;
        let header = Ifaddrmsg {
            ifa_family: IPV4,
            ifa_prefixlen: PREFIX,
            ifa_index: index,
            ..Ifaddrmsg::new()
        };
        let mut request = rt_addr::Request::new().set_create().set_excl().op_newaddr_do(&header);
        request.encode().push_local(address.into()).push_address(address.into());
        order(&mut socket, &request)?;
        for index in [LOOPBACK, index] {
            order(&mut socket, &rt_link::Request::new().op_setlink_do(&self::header(index, UP)))?;
        }
        Ok(())
    };
    run().map_err(|source| error(LAY, "veth", source))
}

/// Limits the rate of an interface of this thread's namespace; 0 removes the limit.
pub(crate) fn limit(interface: &str, bits_per_second: u64) -> Result<(), Error> {
    let run = || -> io::Result<()> {
        let mut socket = NetlinkSocket::new();
        let header = Tcmsg { ifindex: index(interface)? as i32, parent: ROOT, ..Tcmsg::new() };
        if bits_per_second == 0 {
            return match order(&mut socket, &tc::Request::new().op_delqdisc_do(&header)) {
                // There was no limit.
                Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(()),
                done => done,
            };
        }
        let bytes = (bits_per_second / 8).max(1);
        let rate = TcRatespec {
            linklayer: ETHERNET,
            rate: u32::try_from(bytes).unwrap_or(u32::MAX),
            ..TcRatespec::new()
        };
        let mut request = tc::Request::new().set_create().set_replace().op_newqdisc_do(&header);
        let mut options = request.encode().nested_options_tbf();
        options = options
            .push_parms(TcTbfQopt { rate, limit: QUEUE, ..TcTbfQopt::new() })
            .push_burst(BURST);
        if bytes > u64::from(u32::MAX) {
            options = options.push_rate64(bytes);
        }
        drop(options);
        order(&mut socket, &request)
    };
    run().map_err(|source| error(LIMIT, "sch_tbf", source))
}

/// Adds a default route through an interface of this thread's namespace.
pub(crate) fn add_default_route(interface: &str) -> Result<(), Error> {
    // RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST.
    let (table, protocol, scope, unicast) = (254, 4, 253, 1);
    let run = || -> io::Result<()> {
        let header = Rtmsg {
            rtm_family: IPV4,
            rtm_table: table,
            rtm_protocol: protocol,
            rtm_scope: scope,
            rtm_type: unicast,
            ..Rtmsg::new()
        };
        let mut request = rt_route::Request::new().set_create().op_newroute_do(&header);
        request.encode().push_oif(index(interface)?);
        order(&mut NetlinkSocket::new(), &request)
    };
    run().map_err(|source| Error::new("add a default route", CAPABILITY, source))
}

fn header(index: u32, flags: u32) -> Ifinfomsg {
    Ifinfomsg { ifi_index: index as i32, ifi_flags: flags, ifi_change: flags, ..Ifinfomsg::new() }
}

/// The index of an interface of this thread's namespace.
fn index(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    let mut request = rt_link::Request::new().op_getlink_do(&Ifinfomsg::new());
    request.encode().push_ifname(&name);
    let mut socket = NetlinkSocket::new();
    let mut replies = socket.request(&request)?;
    let (header, _) = replies.recv_one()?;
    Ok(header.ifi_index.unsigned_abs())
}

fn order<R: NetlinkRequest>(socket: &mut NetlinkSocket, request: &R) -> io::Result<()> {
    Ok(socket.request(request)?.recv_ack()?)
}

fn error(what: &'static str, module: &'static str, source: io::Error) -> Error {
    let unsupported = [Errno::OPNOTSUPP, Errno::NOENT].map(|errno| Some(errno.raw_os_error()));
    if unsupported.contains(&source.raw_os_error()) {
        return Error::Unsupported { what, module };
    }
    Error::new(what, CAPABILITY, source)
}
