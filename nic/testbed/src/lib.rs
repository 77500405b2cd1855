//! Two hosts in one: network namespaces joined by a veth pair, with processes in them.
//!
//! ```text
//!   namespace of Side::Near              namespace of Side::Far
//!   +----------------------+             +----------------------+
//!   |  processes   near ===|==== veth ===|=== far    processes  |
//!   |          198.18.0.1  |             |  198.18.0.2          |
//!   +----------------------+             +----------------------+
//!
//! namespace   a network namespace that lives as long as its handle; threads that enter it
//! cable       the veth pair: links, addresses, a slower rate
//! quota       a share of the processors for processes (cgroup v2 or v1)
//! ```
//!
//! ```no_run
//! use std::process::Command;
//! use seekwire_testbed::{CpuQuota, Side, Testbed};
//!
//! let testbed = Testbed::new()?;
//! let mut server = testbed.end(Side::Far).spawn(Command::new("iperf3").args(["-s", "-1"]))?;
//! let quota = CpuQuota::new(30.0)?;
//! quota.add(server.id())?;
//! let address = testbed.end(Side::Far).address().to_string();
//! testbed.end(Side::Near).run(|| Command::new("iperf3").args(["-c", &address]).status())??;
//! server.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The namespaces have no names: the kernel removes them, with their interfaces, when the last
//! handle and the last process in them are gone, however this process ends. Nothing outside them is
//! changed, except that a quota makes a cgroup: below the one that this process is in, or, with
//! cgroup v2, below the next one above that passes the cpu controller on.
//!
//! It does not start servers, wait for them or kill them: that is left to the caller.

#![forbid(unsafe_code)]

mod cable;
mod error;
mod namespace;
mod quota;

use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command};

pub use error::Error;
use namespace::Namespace;
pub use quota::CpuQuota;

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Usually the client's end.
    Near,
    /// Usually the server's end.
    Far,
}

/// Two joined network namespaces. They are removed when this is dropped and no process is left in
/// them.
#[derive(Debug)]
pub struct Testbed {
    near: TestHost,
    far: TestHost,
}

impl Testbed {
    /// Creates both namespaces, with all links up, including loopback.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`] names the capability that is missing; [`Error::Unsupported`]: no veth interfaces in this
    /// kernel; [`Error::System`].
    pub fn new() -> Result<Self, Error> {
        let near = TestHost::new("near", Ipv4Addr::new(198, 18, 0, 1))?;
        let far = TestHost::new("far", Ipv4Addr::new(198, 18, 0, 2))?;
        near.run(|| cable::lay(near.interface, far.interface, &far.namespace))??;
        for end in [&near, &far] {
            end.run(|| cable::switch_on(end.interface, end.address))??;
        }
        Ok(Self { near, far })
    }

    /// One of the ends.
    #[must_use]
    pub fn end(&self, side: Side) -> &TestHost {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

/// A network namespace with one end of the cable. Can be used by several threads at once.
#[derive(Debug)]
pub struct TestHost {
    namespace: Namespace,
    interface: &'static str,
    address: Ipv4Addr,
}

impl TestHost {
    /// `address` belongs to 198.18.0.0/15, which is reserved for benchmarks (RFC 2544).
    fn new(interface: &'static str, address: Ipv4Addr) -> Result<Self, Error> {
        Ok(Self { namespace: Namespace::new()?, interface, address })
    }

    /// The address of this end, which the other end can reach.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The name of this end's interface: `near` or `far`.
    #[must_use]
    pub fn interface(&self) -> &str {
        self.interface
    }

    /// Runs `work` in a thread of its own inside the namespace. Sockets that it creates and
    /// processes that it starts belong to the namespace for good. A panic of `work` is resumed in
    /// the caller.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::System`]: the namespace cannot be entered, and `work` has not been run.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.namespace.run(work)
    }

    /// Starts a program in the namespace. The caller has to wait for it.
    ///
    /// # Errors
    ///
    /// Those of [`Command::spawn`]; of the kind [`io::ErrorKind::Other`] if the namespace cannot be
    /// entered.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.run(|| command.spawn()).map_err(io::Error::other)?
    }

    /// Limits the sending rate of this end, in bits per second (decimal), with a token bucket
    /// (tc-tbf(8)). Zero removes the limit. It applies to the packets that the stack hands to the
    /// interface, so a packet of up to 64 KiB counts once.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: no tbf in this kernel; [`Error::System`].
    pub fn limit_rate(&self, bits_per_second: u64) -> Result<(), Error> {
        self.run(|| cable::limit(self.interface, bits_per_second))?
    }

    /// Adds a default route to the other end.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::System`].
    pub fn add_default_route(&self) -> Result<(), Error> {
        self.run(|| cable::add_default_route(self.interface))?
    }
}
