//! The server that other hosts measure against: accepts connections, enforces the limits, and
//! stops.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::error::Error;
use crate::message::{NAME, Request, Response, VERSION};
use crate::server_state::{Event, Limits, OpenConnection, Permit, ServerState};
use crate::{lines, session, socket};

/// Maximum number of connections at a time that have not introduced themselves; more are closed.
const MOST_UNAUTHENTICATED: usize = 32;
/// How long a connection may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// A listening socket. Threads may share it, but only one can serve at a time.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
    stop: Stop,
}

/// Ends [`Server::serve`], from any thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Makes the server close all its connections and [`Server::serve`] return. A later `serve`
    /// returns at once.
    pub fn stop(&self) {
        // It fails only when the counter overflows, after 2^64 writes.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Server {
    /// Listens on the first address of the name where that is possible; port 0 means any free port.
    ///
    /// # Errors
    ///
    /// [`Error::Address`], [`Error::Listen`], [`Error::Host`].
    pub fn bind(address: impl ToSocketAddrs + Display) -> Result<Self, Error> {
        let unknown = |reason| Error::Address { address: address.to_string(), reason };
        let mut bound = Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        for address in address.to_socket_addrs().map_err(unknown)? {
            bound = socket::listen(address);
            if bound.is_ok() {
                break;
            }
        }
        let listener =
            bound.map_err(|reason| Error::Listen { address: address.to_string(), reason })?;
        Self::new(listener, Limits::default())
    }

    /// Serves on an existing listener, perhaps of another network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Host`].
    pub fn new(listener: TcpListener, limits: Limits) -> Result<Self, Error> {
        let prepare = || {
            socket::prepare(&listener)?;
            listener.set_nonblocking(true)?;
            let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok((listener.local_addr()?, Stop(Arc::new(stop))))
        };
        let (address, stop) =
            prepare().map_err(Error::host("cannot prepare the listening socket"))?;
        Ok(Self { listener, address, limits, stop })
    }

    /// Replaces the limits.
    #[must_use]
    pub fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The address on which the server listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// A handle that stops the server.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is stopped. Several threads call `tell`.
    ///
    /// # Errors
    ///
    /// [`Error::Host`]: connections cannot be accepted any more.
    pub fn serve(&self, tell: impl Fn(Event<'_>) + Sync) -> Result<(), Error> {
        let shared = &ServerState {
            limits: self.limits,
            tell: &tell,
            unauthenticated: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            tests: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            open: Arc::default(),
            expected: Mutex::new(Some(BTreeMap::new())),
        };
        thread::scope(|scope| {
            let accepted = self.accept(|stream, peer| {
                // Too many connections, no descriptor or no thread: close it.
                let Some(greeting) = Permit::of(&shared.unauthenticated, MOST_UNAUTHENTICATED)
                else {
                    return;
                };
                let Ok(open) = OpenConnection::new(shared, stream) else { return };
                let _ = thread::Builder::new()
                    .spawn_scoped(scope, move || greet(shared, open, peer, greeting));
            });
            shared.end();
            accepted.map_err(Error::host("cannot accept connections"))
        })
    }

    fn accept(&self, take: impl Fn(TcpStream, SocketAddr)) -> io::Result<()> {
        let mut spare = self.spare();
        loop {
            let mut fds = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&*self.stop.0, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            match self.listener.accept() {
                Ok((stream, peer)) => take(stream, peer),
                Err(error) => match Trouble::of(&error) {
                    Trouble::Connection => {}
                    Trouble::Scarcity => {
                        // Accept with the spare descriptor and close at once, so that the client
                        // does not wait for an answer in vain.
                        let is_out = spare.take().is_some() && self.listener.accept().is_ok();
                        spare = self.spare();
                        if !is_out {
                            self.pause()?;
                        }
                    }
                    Trouble::Listener => return Err(error),
                },
            }
        }
    }

    /// A descriptor that can be closed to make room for another one.
    fn spare(&self) -> Option<OwnedFd> {
        self.stop.0.try_clone().ok()
    }

    /// Gives others time to free descriptors or memory.
    fn pause(&self) -> io::Result<()> {
        let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match poll(&mut [PollFd::new(&*self.stop.0, PollFlags::IN)], Some(&time)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            waited => Ok(waited.map(drop)?),
        }
    }
}

/// Kinds of failures of accept(2).
enum Trouble {
    /// The connection or its network failed; the next one may be accepted.
    Connection,
    /// Descriptors or memory are exhausted at the moment.
    Scarcity,
    /// No connection will ever be accepted.
    Listener,
}

impl Trouble {
    fn of(error: &io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Self::Scarcity,
            Some(Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP)
            | None => Self::Listener,
            Some(_) => Self::Connection,
        }
    }
}

/// Reads the first message of a connection and dispatches the connection.
fn greet(shared: &ServerState<'_>, open: OpenConnection, peer: SocketAddr, greeting: Permit<'_>) {
    let answer = |answer: Response, reason: &str| {
        // The peer may have disconnected.
        let _ = lines::send(&open.stream, &answer);
        (shared.tell)(Event::Refused { peer, reason });
    };
    let refuse = |reason: &str| answer(Response::Refused { reason: reason.to_owned() }, reason);
    let prepared = open.stream.set_nodelay(true).and_then(|()| socket::limit(&open.stream));
    let asked =
        prepared.and_then(|()| lines::receive(&open.stream, Instant::now() + INTRODUCTION, None));
    drop(greeting);
    match asked {
        Ok(Some(Request::Data { token })) => {
            match shared.unexpect(&token) {
                // If the session has just given up, the handover drops the connection.
                Some(waiting) => waiting.give(open),
                None => refuse("no test expects this connection"),
            }
        }
        Ok(Some(Request::Hello { protocol, version }))
            if protocol == NAME && version == VERSION =>
        {
            match Permit::of(&shared.clients, shared.limits.clients) {
                Some(_client) => {
                    if let Err(error) = session::serve(shared, &open.stream, peer) {
                        (shared.tell)(Event::Failed { peer, error: &error });
                    }
                }
                None => {
                    let reason =
                        format!("too many clients ({}); try again later", shared.limits.clients);
                    answer(Response::Busy { reason: reason.clone() }, &reason);
                }
            }
        }
        Ok(Some(Request::Hello { protocol, version })) if protocol == NAME => {
            refuse(&format!(
                "this is version {VERSION} of the protocol, not {version}; use the same release at both ends"
            ));
        }
        Ok(Some(_)) => refuse("unexpected first message"),
        // A probe whether the port is open.
        Ok(None) => {}
        Err(error) => refuse(&format!("this is not a client of {NAME}: {error}")),
    }
}
