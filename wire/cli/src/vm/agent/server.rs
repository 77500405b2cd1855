//! The port to which the agents of other machines connect. Anybody may connect to it.
//!
//! A client has to send, within [`HELLO_TIMEOUT`], a question that stands in the region of a link.
//! So a stranger learns that an agent runs here, but not which links it has.
//!
//! Every client is accepted, and none is waited for: one thread reads whatever has arrived. When
//! seats are scarce, a newcomer displaces the oldest client of the address that has most of them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use seekwire_link::{Answer, Link};

use super::hello::{ANSWERED, HELLO, Hello, REFUSED};
use super::log::lock;
use super::shared::Agent;

/// How long a client may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of clients at a time whose address belongs to another machine of a link, and
/// again of strangers.
const SEATS: usize = 8;
/// Maximum number of them from one address.
const SHARE: usize = 2;
/// Length of the queue of the listening socket; the kernel allows no more by default
/// (net.core.somaxconn).
const BACKLOG: i32 = 4096;
/// How long to wait after connections could not be accepted, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at all addresses.
///
/// # Errors
///
/// Those of the system.
pub(super) fn listen(port: u16) -> Result<TcpListener> {
    let listener = bind_both(port).or_else(|error| match Errno::from_io_error(&error) {
        // The host has no IPv6.
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        _ => Err(error),
    });
    listener.with_context(|| {
        format!("cannot listen for other agents at port {port}; --port names another one")
    })
}

/// One socket for IPv6 and IPv4, whatever the host's default is (net.ipv6.bindv6only).
fn bind_both(port: u16) -> io::Result<TcpListener> {
    let (family, flags) = (AddressFamily::INET6, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    // As the standard library does: a port is free again as soon as nobody listens there.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Answers until this process ends.
///
/// # Errors
///
/// No thread can be started.
pub(super) fn serve(listener: TcpListener, agent: &Arc<Agent>) -> Result<()> {
    let cannot = "cannot listen for other agents";
    listener.set_nonblocking(true).context(cannot)?;
    // Strangers would fill a short queue more easily, and lock others out.
    rustix::net::listen(&listener, BACKLOG).context(cannot)?;
    let agent = Arc::clone(agent);
    let (expected, others) = (Seats::default(), Seats::default());
    let mut door = Door { agent, listener, rests_until: None, expected, others };
    let serve = move || {
        loop {
            door.step();
        }
    };
    thread::Builder::new().spawn(serve).context("cannot start a thread")?;
    Ok(())
}

struct Door {
    agent: Arc<Agent>,
    listener: TcpListener,
    /// No connection is accepted before this time.
    rests_until: Option<Instant>,
    /// Clients whose address belongs to the other machine of a link, by the map or by its own
    /// claim: strangers must not keep these away.
    expected: Seats,
    others: Seats,
}

impl Door {
    /// Waits for input and handles it. Input that has arrived is handled before another client is
    /// accepted, which could displace its sender.
    fn step(&mut self) {
        let now = Instant::now();
        self.rests_until = self.rests_until.filter(|until| *until > now);
        self.wait(now);
        let now = Instant::now();
        self.expected.read(&self.agent, now);
        self.others.read(&self.agent, now);
        if self.rests_until.is_some() {
            return;
        }
        match self.listener.accept() {
            Ok((stream, from)) => self.let_in(stream, from.ip().to_canonical(), now),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted => {}
                _ => self.rests_until = Some(now + PAUSE),
            },
        }
    }

    fn wait(&self, now: Instant) {
        let seats = || self.expected.0.iter().chain(&self.others.0);
        let mut fds: Vec<PollFd<'_>> =
            seats().map(|seat| PollFd::new(&seat.stream, PollFlags::IN)).collect();
        if self.rests_until.is_none() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let until = seats().map(|seat| seat.until).chain(self.rests_until).min();
        let left = until.map(|until| until.saturating_duration_since(now));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        // The reads follow in any case, whatever poll() returned.
        if poll(&mut fds, left.as_ref()).is_err_and(|error| error != Errno::INTR) {
            thread::sleep(PAUSE);
        }
    }

    fn let_in(&mut self, stream: TcpStream, from: IpAddr, now: Instant) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let is_expected = is_expected(&self.agent, from);
        let of = if is_expected { from } else { network(from) };
        let (until, hello) = (now + HELLO_TIMEOUT, [0; HELLO]);
        let seats = if is_expected { &mut self.expected } else { &mut self.others };
        seats.let_in(Seat { stream, of, until, hello, received: 0 });
    }
}

/// Clients that have not sent everything yet, in the order of their arrival.
#[derive(Default)]
struct Seats(Vec<Seat>);

struct Seat {
    stream: TcpStream,
    /// The address, or network, whose share the seat belongs to.
    of: IpAddr,
    until: Instant,
    hello: [u8; HELLO],
    received: usize,
}

impl Seats {
    /// Reads from all clients, and answers those that have sent a complete question.
    fn read(&mut self, agent: &Agent, now: Instant) {
        self.0.retain_mut(|seat| match seat.read() {
            Ok(false) => now < seat.until,
            Ok(true) => {
                // A client's error concerns nobody else.
                let _ = seat.answer(agent);
                false
            }
            Err(_) => false,
        });
    }

    fn let_in(&mut self, seat: Seat) {
        if let Some(leaves) = self.leaves_for(seat.of) {
            self.0.remove(leaves);
        }
        self.0.push(seat);
    }

    /// The client that has to leave before another one of this address is seated, if any.
    fn leaves_for(&self, of: IpAddr) -> Option<usize> {
        let count = |of: IpAddr| self.0.iter().filter(|seat| seat.of == of).count();
        if count(of) >= SHARE {
            return self.0.iter().position(|seat| seat.of == of);
        }
        if self.0.len() < SEATS {
            return None;
        }
        let most = self.0.iter().map(|seat| count(seat.of)).max()?;
        self.0.iter().position(|seat| count(seat.of) == most)
    }
}

impl Seat {
    /// Reads what has arrived. Returns whether the question is complete.
    fn read(&mut self) -> io::Result<bool> {
        while self.received < HELLO {
            match self.stream.read(&mut self.hello[self.received..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received += length,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }

    fn answer(&mut self, agent: &Agent) -> io::Result<()> {
        let Some(hello) = Hello::decode(&self.hello) else { return Ok(()) };
        let link = links(agent).remove(&hello.link);
        let Some(link) = link.filter(|link| link.is_asked(hello.question)) else {
            return self.stream.write_all(&REFUSED);
        };
        let address = |end: io::Result<SocketAddr>| io::Result::Ok(end?.ip().to_canonical());
        let here = address(self.stream.local_addr())?;
        let there = address(self.stream.peer_addr())?;
        link.answer(hello.question, &Answer { secret: hello.secret, here, there });
        // Nothing was sent yet, so the socket has room.
        self.stream.write_all(&ANSWERED)
    }
}

/// Whether the map assigns this address to a link, or the machine at the other end of one claims
/// it.
fn is_expected(agent: &Agent, from: IpAddr) -> bool {
    lock(&agent.findings).is_in_map(from) || links(agent).values().any(|link| publishes(link, from))
}

fn publishes(link: &Link, address: IpAddr) -> bool {
    link.published().is_some_and(|said| said.addresses.contains(&address))
}

/// The network of a stranger: in IPv6 he can use any address in his 64-bit network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
    }
}

/// Clones, so that the lock is not held while a link is used.
fn links(agent: &Agent) -> BTreeMap<String, Link> {
    lock(&agent.links).open.clone()
}

#[cfg(test)]
mod tests;
