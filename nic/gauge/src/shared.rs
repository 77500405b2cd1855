//! What the threads of one server share: its limits, its listener for events, its connections, and
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

/// What a server takes upon itself. The sizes and times of tests are limited by [`Test`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Clients at once.
    pub clients: usize,
    /// Tests at once. With more than one they disturb each other, and the CPU time of one is in
    /// the reading of another. Each uses at most about 32 MiB.
    pub tests: usize,
    /// How long a client may be without a test.
    pub idle: Duration,
}

impl Default for Limits {
    /// 8 clients, one test at once, two minutes.
    fn default() -> Self {
        Self { clients: 8, tests: 1, idle: Duration::from_secs(120) }
    }
}

/// What a server has to tell.
#[derive(Debug)]
pub enum Event<'a> {
    /// A test begins.
    Begun {
        /// The client.
        peer: SocketAddr,
        /// What is measured.
        test: &'a Test,
    },
    /// A test was run to its end.
    Tested {
        /// The client.
        peer: SocketAddr,
        /// What was measured.
        test: &'a Test,
        /// Bytes received and sent.
        bytes: u64,
    },
    /// A client, or somebody who is none, was refused, perhaps for now only.
    Refused {
        /// Who.
        peer: SocketAddr,
        /// What was said to him.
        reason: &'a str,
    },
    /// A client has gone, or was given up, in the middle of something.
    Failed {
        /// The client.
        peer: SocketAddr,
        /// Why.
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

/// What the threads of one server share.
pub(crate) struct Shared<'a> {
    pub(crate) limits: Limits,
    pub(crate) tell: &'a (dyn Fn(Event<'_>) + Sync),
    pub(crate) strangers: AtomicUsize,
    pub(crate) clients: AtomicUsize,
    pub(crate) tests: AtomicUsize,
    pub(crate) next: AtomicU64,
    /// All connections, to end them.
    pub(crate) open: Arc<Mutex<BTreeMap<u64, TcpStream>>>,
    /// Tokens of data connections, and who waits for them. None: the server has been stopped.
    pub(crate) expected: Mutex<Option<BTreeMap<String, Arc<Handover<Open>>>>>,
}

impl Shared<'_> {
    /// The data connection that comes with `token` goes to `waiting`, until [`Shared::unexpect`].
    pub(crate) fn expect(&self, token: &str, waiting: Arc<Handover<Open>>) {
        if let Some(expected) = &mut *locked(&self.expected) {
            expected.insert(token.to_owned(), waiting);
        }
    }

    pub(crate) fn unexpect(&self, token: &str) -> Option<Arc<Handover<Open>>> {
        locked(&self.expected).as_mut()?.remove(token)
    }

    pub(crate) fn end(&self) {
        // Nobody waits any longer.
        *locked(&self.expected) = None;
        for stream in locked(&self.open).values() {
            // One that is closed already needs no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What is behind a mutex, whoever has panicked: no invariant spans two changes.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of a limited number, until dropped.
pub(crate) struct Permit<'a>(&'a AtomicUsize);

impl<'a> Permit<'a> {
    pub(crate) fn of(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            (now < most).then_some(now + 1)
        });
        taken.ok().map(|_| Self(count))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that ends when the server does.
pub(crate) struct Open {
    pub(crate) stream: TcpStream,
    all: Arc<Mutex<BTreeMap<u64, TcpStream>>>,
    number: u64,
}

impl Open {
    pub(crate) fn new(shared: &Shared<'_>, stream: TcpStream) -> io::Result<Self> {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        locked(&shared.open).insert(number, stream.try_clone()?);
        Ok(Self { stream, all: Arc::clone(&shared.open), number })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        locked(&self.all).remove(&self.number);
    }
}
