//! State shared by the threads of one server: its limits, its event callback, its connections, and
//! which thread waits for which of them.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Display;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::handover::Handover;
use crate::test::Test;

/// Limits of a server. [`Test`] limits the sizes and durations of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of clients at a time.
    pub clients: usize,
    /// Maximum number of tests at a time. Concurrent tests disturb each other, and the CPU time of
    /// one is part of the reading of another. Each uses at most about 32 MiB.
    pub tests: usize,
    /// How long a client may stay connected without a test.
    pub idle: Duration,
}

impl Default for Limits {
    /// 8 clients, one test at once, two minutes.
    fn default() -> Self {
        Self { clients: 8, tests: 1, idle: Duration::from_secs(120) }
    }
}

/// An event of a server.
#[derive(Debug)]
pub enum Event<'a> {
    /// A test began.
    Begun {
        /// The client.
        peer: SocketAddr,
        /// The test.
        test: &'a Test,
    },
    /// A test completed.
    Tested {
        /// The client.
        peer: SocketAddr,
        /// The test.
        test: &'a Test,
        /// Bytes received and sent.
        bytes: u64,
    },
    /// A peer was refused, perhaps temporarily. It need not be a client.
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// The reason that was sent to the peer.
        reason: &'a str,
    },
    /// A client disconnected or was dropped in the middle of an exchange.
    Failed {
        /// The client.
        peer: SocketAddr,
        /// The error.
        error: &'a Error,
    },
}

impl Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun { peer, test } => {
                write!(f, "{peer}: {}, {} bytes each: begun", test.kind, test.size)
            }
            Self::Tested { peer, test, bytes } => {
                write!(f, "{peer}: {}, {} bytes each, {bytes} bytes in all", test.kind, test.size)
            }
            Self::Refused { peer, reason } => write!(f, "{peer}: refused: {reason}"),
            Self::Failed { peer, error } => write!(f, "{peer}: {error}"),
        }
    }
}

/// State shared by the threads of one server.
pub(crate) struct ServerState<'a> {
    pub(crate) limits: Limits,
    pub(crate) tell: &'a (dyn Fn(Event<'_>) + Sync),
    pub(crate) unauthenticated: AtomicUsize,
    pub(crate) clients: AtomicUsize,
    pub(crate) tests: AtomicUsize,
    pub(crate) next: AtomicU64,
    /// All open connections, to be shut down when the server stops.
    pub(crate) open: Arc<Mutex<BTreeMap<u64, TcpStream>>>,
    /// Tokens of expected data connections, and the sessions that wait for them. `None` once the
    /// server has stopped.
    pub(crate) expected: Mutex<Option<BTreeMap<String, Arc<Handover<OpenConnection>>>>>,
}

impl ServerState<'_> {
    /// Routes the data connection that presents `token` to `waiting`, until
    /// [`ServerState::unexpect`].
    pub(crate) fn expect(&self, token: &str, waiting: Arc<Handover<OpenConnection>>) {
        if let Some(expected) = &mut *locked(&self.expected) {
            expected.insert(token.to_owned(), waiting);
        }
    }

    pub(crate) fn unexpect(&self, token: &str) -> Option<Arc<Handover<OpenConnection>>> {
        locked(&self.expected).as_mut()?.remove(token)
    }

    pub(crate) fn end(&self) {
        // No session waits any longer.
        *locked(&self.expected) = None;
        for stream in locked(&self.open).values() {
            // It fails for a connection that is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Locks a mutex and ignores poisoning: no invariant spans two changes.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One unit of a limited number, returned when dropped.
pub(crate) struct Permit<'a>(&'a AtomicUsize);

impl<'a> Permit<'a> {
    pub(crate) fn of(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            (now < most).then_some(now + 1)
        });
        added.ok().map(|_| Self(count))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is shut down when the server stops.
pub(crate) struct OpenConnection {
    pub(crate) stream: TcpStream,
    all: Arc<Mutex<BTreeMap<u64, TcpStream>>>,
    number: u64,
}

impl OpenConnection {
    pub(crate) fn new(shared: &ServerState<'_>, stream: TcpStream) -> io::Result<Self> {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        locked(&shared.open).insert(number, stream.try_clone()?);
        Ok(Self { stream, all: Arc::clone(&shared.open), number })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        locked(&self.all).remove(&self.number);
    }
}
