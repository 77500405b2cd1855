//! A network namespace of a test's own, with a pair of connected interfaces. It goes when the test ends, and nothing
//! outside it is touched.

use std::io::Write;
use std::thread;

use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::rt_route::{self, Rtmsg};
use netlink_socket2::NetlinkSocket;
use nix::sched::{CloneFlags, unshare};

/// Runs `test` in a thread that is in a namespace with the pair `near` and `veth0`; programs that it starts are there,
/// too. Where no namespace can be made, it says so and does nothing.
pub(crate) fn with_pair(test: impl FnOnce() + Send) {
    let run = || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return not_run(&format!(
                "no network namespace can be made here: {error}; it needs CAP_SYS_ADMIN"
            ));
        }
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        request.encode().push_ifname(c"near").nested_linkinfo().push_kind(c"veth");
        let made = NetlinkSocket::new().request(&request).map(|mut reply| reply.recv_ack());
        if let Err(error) | Ok(Err(error)) = made.map_err(Into::into) {
            return not_run(&format!("no veth interfaces can be made here: {error}"));
        }
        test();
    };
    // The thread's end is the namespace's end.
    if let Err(panic) = thread::scope(|scope| scope.spawn(run).join()) {
        std::panic::resume_unwind(panic);
    }
}

/// Says so past the test harness, which swallows what a test that passes has to say.
pub(crate) fn not_run(why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {why}");
}

/// Switches an interface on and makes an IPv4 default route through it.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn add_default_route(index: u32) {
    const UP: u32 = 1;
    const IPV4: u8 = 2;
    // RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST.
    let (table, protocol, scope, unicast) = (254, 4, 253, 1);
    let mut socket = NetlinkSocket::new();
    let header = Ifinfomsg { ifi_index: index as i32, ifi_flags: UP, ifi_change: UP, ..Ifinfomsg::new() };
    socket.request(&rt_link::Request::new().op_setlink_do(&header)).unwrap().recv_ack().unwrap();
    let header = Rtmsg {
        rtm_family: IPV4,
        rtm_table: table,
        rtm_protocol: protocol,
        rtm_scope: scope,
        rtm_type: unicast,
        ..Rtmsg::new()
    };
    let mut request = rt_route::Request::new().set_create().op_newroute_do(&header);
    request.encode().push_oif(index);
    socket.request(&request).unwrap().recv_ack().unwrap();
}
