//! The processes of a pipeline come together: a link between each two, before the first unit.
//!
//! Each connects to those of lower rank, and accepts those of higher rank. Whoever else connects
//! gets nothing and stops nobody: the oldest of too many that have proved nothing is hung up on.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use seekwire::Stream;
use thiserror::Error;

use super::handshake::{self, Own, Refused};
use super::link::Link;

/// How long a process may say nothing before it is given up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One attempt to connect takes no longer, nor does a handshake.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Between two rounds through the addresses of a process, and after one could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// So many can be in the middle of a handshake.
const STRANGERS: usize = 128;

/// Another process of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name of its host, for people.
    pub host: String,
    /// Where it listens, the best first.
    pub addresses: Vec<SocketAddr>,
}

/// The processes that run a pipeline together.
#[derive(Debug)]
pub struct Job {
    /// Which of them this one is. Rank 0 is the front: units are submitted there.
    pub rank: u32,
    /// All of them, by rank.
    pub peers: Vec<Peer>,
    /// Where this one listens.
    pub listener: TcpListener,
    /// What only they know.
    pub secret: [u8; 32],
    /// How long they may take to come together.
    pub limit: Duration,
    /// How long one may say nothing before it is given up; [`PATIENCE`] if nothing speaks against it.
    pub patience: Duration,
}

/// Why the processes of a pipeline did not come together.
#[derive(Debug, Error)]
pub enum MeetError {
    /// Nothing of this process can be reached, or it has no socket or thread.
    #[error("cannot listen for the other processes: {0}")]
    Listen(#[source] io::Error),
    /// The limit is over.
    #[error(
        "rank {rank} on {host} was not reached within {} s: {why}", .limit.as_secs()
    )]
    Missing {
        /// Who is missing.
        rank: u32,
        /// Its host.
        host: String,
        /// How long it was waited for.
        limit: Duration,
        /// What happened at the last attempt.
        why: String,
    },
}

/// What the threads share while the processes come together.
struct Meeting {
    own: Own,
    state: Mutex<State>,
    change: Condvar,
}

struct State {
    /// By rank.
    found: Vec<Option<Stream>>,
    /// What happened to the last attempt, by rank.
    why: Vec<String>,
    is_over: bool,
    /// Those that have proved nothing yet.
    strangers: VecDeque<Arc<TcpStream>>,
}

impl Meeting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self, rank: u32, stream: Stream) {
        let mut state = self.state();
        if !state.is_over {
            // One that comes again has not heard that it was welcome.
            state.found[rank as usize] = Some(stream);
            self.change.notify_all();
        }
    }
}

/// Links to all others, by rank.
pub(crate) fn meet(job: &Job, pipeline: [u8; 32]) -> Result<Vec<Option<Arc<Link>>>, MeetError> {
    let until = Instant::now() + job.limit;
    let size = job.peers.len();
    let own = Own { rank: job.rank, secret: job.secret, pipeline };
    let meeting = Arc::new(Meeting {
        own,
        state: Mutex::new(State {
            found: (0..size).map(|_| None).collect(),
            why: vec!["it has not connected".to_owned(); size],
            is_over: false,
            strangers: VecDeque::new(),
        }),
        change: Condvar::new(),
    });
    let listener = job.listener.try_clone().map_err(MeetError::Listen)?;
    listener.set_nonblocking(true).map_err(MeetError::Listen)?;
    let accepting = Arc::clone(&meeting);
    thread::spawn(move || accept_all(&accepting, &listener));
    for (rank, peer) in job.peers.iter().enumerate().take(job.rank as usize) {
        let (meeting, peer) = (Arc::clone(&meeting), peer.clone());
        thread::spawn(move || connect_to(&meeting, rank as u32, &peer, until));
    }
    let mut state = meeting.state();
    let missing = loop {
        let mut others = (0..size).filter(|rank| *rank != job.rank as usize);
        let missing = others.find(|rank| state.found[*rank].is_none());
        let left = until.saturating_duration_since(Instant::now());
        if missing.is_none() || left.is_zero() {
            break missing;
        }
        let waited = meeting.change.wait_timeout(state, left);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    };
    state.is_over = true;
    for stranger in state.strangers.drain(..) {
        let _ = stranger.shutdown(Shutdown::Both);
    }
    if let Some(rank) = missing {
        return Err(MeetError::Missing {
            rank: rank as u32,
            host: job.peers[rank].host.clone(),
            limit: job.limit,
            why: std::mem::take(&mut state.why[rank]),
        });
    }
    let found = std::mem::take(&mut state.found);
    drop(state);
    let link = |(rank, stream): (usize, Option<Stream>)| {
        let link = |stream| Link::new(rank as u32, stream, job.patience).map(Arc::new);
        stream.map(link).transpose().map_err(MeetError::Listen)
    };
    found.into_iter().enumerate().map(link).collect()
}

fn connect_to(meeting: &Meeting, rank: u32, peer: &Peer, until: Instant) {
    loop {
        for address in &peer.addresses {
            if meeting.state().is_over || Instant::now() >= until {
                return;
            }
            match connect(meeting, rank, address, until) {
                Ok(stream) => return meeting.found(rank, stream),
                Err(error) => {
                    meeting.state().why[rank as usize] = format!("{address}: {error}");
                }
            }
        }
        thread::sleep(PAUSE);
    }
}

fn connect(
    meeting: &Meeting,
    rank: u32,
    address: &SocketAddr,
    until: Instant,
) -> Result<Stream, Refused> {
    let left = until.saturating_duration_since(Instant::now()).min(ATTEMPT);
    let socket = TcpStream::connect_timeout(address, left.max(Duration::from_millis(1)))?;
    let stream = Stream::from_connected(socket)?;
    let mut bounded = Bounded { stream: &stream, until: Instant::now() + ATTEMPT };
    handshake::connect(&mut bounded, &meeting.own, rank)?;
    Ok(stream)
}

fn accept_all(meeting: &Arc<Meeting>, listener: &TcpListener) {
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !meeting.state().is_over {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&LOOK));
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) => {
                // It is that of one who wanted to connect, or nothing can be accepted for now, though
                // somebody waits: no descriptor is left, say.
                if error.kind() != io::ErrorKind::WouldBlock {
                    thread::sleep(PAUSE);
                }
                continue;
            }
        };
        let (Ok(()), Ok(handle)) = (socket.set_nonblocking(false), socket.try_clone()) else {
            continue;
        };
        let handle = Arc::new(handle);
        let mut state = meeting.state();
        if state.strangers.len() >= STRANGERS {
            if let Some(oldest) = state.strangers.pop_front() {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        state.strangers.push_back(Arc::clone(&handle));
        drop(state);
        let meeting = Arc::clone(meeting);
        // Without a thread for it, it is hung up on.
        let _ = thread::Builder::new().spawn(move || {
            let met = accept(&meeting, socket);
            meeting.state().strangers.retain(|other| !Arc::ptr_eq(other, &handle));
            if let Ok((rank, stream)) = met {
                meeting.found(rank, stream);
            }
        });
    }
}

fn accept(meeting: &Meeting, socket: TcpStream) -> Result<(u32, Stream), Refused> {
    let stream = Stream::from_accepted(socket)?;
    let mut bounded = Bounded { stream: &stream, until: Instant::now() + ATTEMPT };
    let is_expected = |rank: u32| {
        let size = meeting.state().found.len();
        rank > meeting.own.rank && (rank as usize) < size
    };
    let rank = handshake::accept(&mut bounded, &meeting.own, is_expected)?;
    Ok((rank, stream))
}

/// A stream until a moment: who sends a byte now and then does not stay for ever.
struct Bounded<'s> {
    stream: &'s Stream,
    until: Instant,
}

impl Bounded<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
