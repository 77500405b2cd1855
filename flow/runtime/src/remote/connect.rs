//! The processes of a pipeline come together: a link between each two, before the first unit.
//!
//! Each process connects to those of lower rank, and accepts those of higher rank. Any other client
//! that connects gets nothing and blocks no process: if too many have not proved themselves
//! (`Unauthenticated`), some are disconnected. A process that has proved itself does not count
//! among them any more before it receives the welcome.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use seekwire::Stream;
use thiserror::Error;

use super::handshake::{self, Own, Refused};
use super::link::Link;
use super::unauthenticated::Unauthenticated;

/// How long a process may be silent before it is given up.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Longest time for one attempt to connect, and for a handshake.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Pause between two rounds through the addresses of a process, and after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// How often to check whether the job was called off. The answer may be on another host.
const ASK: Duration = Duration::from_millis(500);

/// Most unauthenticated peers in the middle of a handshake, besides all processes of the job.
const MOST_UNAUTHENTICATED: usize = 128;

/// Another process of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name of its host, for people.
    pub host: String,
    /// Addresses at which this process reaches it, the best first. Each has to be an address of its
    /// host itself, untranslated: both ends prove the address at which they have connected.
    /// Loopback addresses of another host do not belong here, nor addresses that this host also
    /// has: a local listener would be asked instead.
    pub addresses: Vec<SocketAddr>,
}

/// Returns the reason if the processes of a job will not come together any more.
pub type AbortCheck = dyn Fn() -> Option<String> + Send + Sync;

/// Why one attempt to connect to another process failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There was no connection, or it broke off.
    Link(String),
    /// The peer is not a process of a pipeline, or not the wanted one.
    NotThePeer,
    /// One of the two does not know the secret, runs another pipeline, or is at another address
    /// than the other one believes.
    NoProof,
}

impl Refusal {
    fn of(refused: &Refused) -> Self {
        match refused {
            Refused::Io(error) => Self::Link(error.to_string()),
            Refused::NotThePeer | Refused::Another(..) => Self::NotThePeer,
            Refused::NoProof | Refused::Gone => Self::NoProof,
        }
    }
}

/// Called for each failed attempt while the processes come together, with the address of the other
/// one and the reason. Called by several threads.
pub type OnRefusal = dyn Fn(SocketAddr, &Refusal) + Send + Sync;

/// The processes that run a pipeline together. `Debug` does not show their secret.
pub struct ClusterConfig {
    /// The rank of this process. Rank 0 is the coordinator: units are submitted there.
    pub rank: u32,
    /// All of them, by rank.
    pub peers: Vec<Peer>,
    /// Where this process listens.
    pub listener: TcpListener,
    /// A secret that only they know.
    pub secret: [u8; 32],
    /// How long they may take to come together.
    pub limit: Duration,
    /// How long a process may be silent before it is given up, and how long it may go on sending
    /// after it was asked to end; [`SILENCE_LIMIT`] unless there is a reason for another value. Its
    /// first byte may take `limit` longer, since it may have to connect to others before. A process
    /// that sends beats is not given up, whether or not its filters make progress.
    pub patience: Duration,
    /// Called now and then until they have come together, by the thread that waits for them.
    pub called_off: Option<Arc<AbortCheck>>,
}

impl fmt::Debug for ClusterConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClusterConfig")
            .field("rank", &self.rank)
            .field("peers", &self.peers)
            .field("listener", &self.listener)
            .field("limit", &self.limit)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// Why the processes of a pipeline did not come together.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// This process cannot be reached at all, or has no socket or thread.
    #[error("cannot listen for the other processes: {0}")]
    Listen(#[source] io::Error),
    /// The limit has passed.
    #[error(
        "rank {rank} on {host} was not reached within {} s: {why}", .limit.as_secs()
    )]
    Missing {
        /// The missing process.
        rank: u32,
        /// Its host.
        host: String,
        /// The limit.
        limit: Duration,
        /// The reason why the last attempt failed.
        why: String,
    },
    /// The job was called off.
    #[error("the other processes will not connect: {0}")]
    CalledOff(String),
}

/// State that the threads share while the processes come together.
struct ConnectState {
    own: Own,
    refusals: Option<Arc<OnRefusal>>,
    /// All processes.
    size: usize,
    state: Mutex<State>,
    change: Condvar,
}

struct State {
    /// By rank.
    slots: Vec<PeerSlot>,
    /// Why the last attempt failed, by rank.
    why: Vec<String>,
    is_over: bool,
    unauthenticated: Unauthenticated,
}

#[derive(Default)]
struct PeerSlot {
    /// Number of the last accepted connection in which the process has proved itself.
    settled: u64,
    /// The connection `settled`, once the process has received its welcome.
    stream: Option<Stream>,
}

impl ConnectState {
    fn new(job: &ClusterConfig, pipeline: [u8; 32], refusals: Option<Arc<OnRefusal>>) -> Self {
        let size = job.peers.len();
        let addresses = job.peers.iter().flat_map(|peer| &peer.addresses).map(SocketAddr::ip);
        let state = State {
            slots: (0..size).map(|_| PeerSlot::default()).collect(),
            why: vec!["it has not connected".to_owned(); size],
            is_over: false,
            unauthenticated: Unauthenticated::new(MOST_UNAUTHENTICATED + size, addresses),
        };
        let own = Own { rank: job.rank, secret: job.secret, pipeline };
        Self { own, refusals, size, state: Mutex::new(state), change: Condvar::new() }
    }

    /// Reports a failed attempt. Attempts that break off when the wait ends do not count.
    fn refused(&self, address: SocketAddr, refused: &Refused) {
        if let Some(report) = self.refusals.as_ref().filter(|_| !self.state().is_over) {
            report(address, &Refusal::of(refused));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a process that has proved itself is welcome. From here on it is not disconnected,
    /// and one that was disconnected is not welcome any more.
    fn settle(&self, rank: u32, number: u64) -> bool {
        let is_expected = rank > self.own.rank && (rank as usize) < self.size;
        let mut state = self.state();
        if !is_expected || !state.unauthenticated.remove(number) {
            return false;
        }
        // A process that comes again has given up its earlier connection: it did not get the
        // welcome.
        let slot = &mut state.slots[rank as usize];
        let is_last = slot.settled <= number;
        if is_last {
            *slot = PeerSlot { settled: number, stream: None };
        }
        is_last
    }

    /// The process has received its welcome. The thread of an earlier connection may come here
    /// later.
    fn add(&self, rank: u32, number: u64, stream: Stream) {
        let mut state = self.state();
        if state.is_over {
            return;
        }
        let slot = &mut state.slots[rank as usize];
        if slot.settled == number {
            slot.stream = Some(stream);
            self.change.notify_all();
        }
    }

    /// Waits until all others are found.
    fn wait(&self, job: &ClusterConfig, until: Instant) -> Result<(), ConnectError> {
        loop {
            if let Some(why) = job.called_off.as_ref().and_then(|called_off| called_off()) {
                return Err(ConnectError::CalledOff(why));
            }
            let next = until.min(Instant::now() + ASK);
            let mut state = self.state();
            let missing = loop {
                let mut others = (0..self.size).filter(|rank| *rank != job.rank as usize);
                let missing = others.find(|rank| state.slots[*rank].stream.is_none());
                let left = next.saturating_duration_since(Instant::now());
                if missing.is_none() || left.is_zero() {
                    break missing;
                }
                let waited = self.change.wait_timeout(state, left);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            };
            let Some(rank) = missing else { return Ok(()) };
            if next == until {
                return Err(ConnectError::Missing {
                    rank: rank as u32,
                    host: job.peers[rank].host.clone(),
                    limit: job.limit,
                    why: std::mem::take(&mut state.why[rank]),
                });
            }
        }
    }

    /// Ends the wait, and disconnects unauthenticated peers.
    fn end(&self) -> Vec<PeerSlot> {
        let mut state = self.state();
        state.is_over = true;
        state.unauthenticated.hang_up();
        std::mem::take(&mut state.slots)
    }
}

/// Links to all others, by rank.
pub(crate) fn connect_all(
    job: &ClusterConfig,
    pipeline: [u8; 32],
    refusals: Option<Arc<OnRefusal>>,
) -> Result<Vec<Option<Arc<Link>>>, ConnectError> {
    let until = Instant::now() + job.limit;
    let shared = Arc::new(ConnectState::new(job, pipeline, refusals));
    let connected = begin(&shared, job, until).and_then(|()| shared.wait(job, until));
    let slots = shared.end();
    connected?;
    let link = |(rank, slot): (usize, PeerSlot)| {
        let link = |stream| Link::new(rank as u32, stream, job.patience, job.limit).map(Arc::new);
        slot.stream.map(link).transpose().map_err(ConnectError::Listen)
    };
    slots.into_iter().enumerate().map(link).collect()
}

fn begin(
    shared: &Arc<ConnectState>,
    job: &ClusterConfig,
    until: Instant,
) -> Result<(), ConnectError> {
    let listener = job.listener.try_clone().map_err(ConnectError::Listen)?;
    listener.set_nonblocking(true).map_err(ConnectError::Listen)?;
    let accepting = Arc::clone(shared);
    spawn(move || accept_all(&accepting, &listener)).map_err(ConnectError::Listen)?;
    for (rank, peer) in job.peers.iter().enumerate().take(job.rank as usize) {
        let (shared, peer) = (Arc::clone(shared), peer.clone());
        spawn(move || connect_to(&shared, rank as u32, &peer, until))
            .map_err(ConnectError::Listen)?;
    }
    Ok(())
}

/// Starts a detached thread.
fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().spawn(run).map(drop)
}

fn connect_to(shared: &ConnectState, rank: u32, peer: &Peer, until: Instant) {
    if peer.addresses.is_empty() {
        "it has no address".clone_into(&mut shared.state().why[rank as usize]);
        return;
    }
    loop {
        for address in &peer.addresses {
            if shared.state().is_over || Instant::now() >= until {
                return;
            }
            match connect(shared, rank, address, until) {
                Ok(stream) => return shared.add(rank, 0, stream),
                Err(error) => {
                    shared.state().why[rank as usize] = format!("{address}: {error}");
                    shared.refused(*address, &error);
                }
            }
        }
        thread::sleep(PAUSE);
    }
}

fn connect(
    shared: &ConnectState,
    rank: u32,
    address: &SocketAddr,
    until: Instant,
) -> Result<Stream, Refused> {
    let left = until.saturating_duration_since(Instant::now()).min(ATTEMPT);
    let socket = TcpStream::connect_timeout(address, left.max(Duration::from_millis(1)))?;
    let stream = Stream::from_connected(socket)?;
    let mut bounded = Bounded { stream: &stream, until: Instant::now() + ATTEMPT };
    handshake::connect(&mut bounded, &shared.own, *address, rank)?;
    Ok(stream)
}

fn accept_all(shared: &Arc<ConnectState>, listener: &TcpListener) {
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    for number in 0.. {
        let Some((socket, from)) = accept_one(shared, listener, &LOOK) else { return };
        let (Ok(()), Ok(handle)) = (socket.set_nonblocking(false), socket.try_clone()) else {
            continue;
        };
        let chance = getrandom::u32().unwrap_or(number as u32);
        let mut state = shared.state();
        if state.is_over || !state.unauthenticated.admit(number, from.ip(), handle, chance) {
            continue;
        }
        drop(state);
        let of = Arc::clone(shared);
        let spawned = spawn(move || {
            let connected = accept(&of, number, socket);
            of.state().unauthenticated.remove(number);
            match connected {
                Ok((rank, stream)) => of.add(rank, number, stream),
                Err(error) => of.refused(from, &error),
            }
        });
        if spawned.is_err() {
            // Its socket was dropped with the closure of the missing thread, and the handle goes
            // here.
            shared.state().unauthenticated.remove(number);
        }
    }
}

/// Accepts the next connection, until the wait has ended.
fn accept_one(
    shared: &ConnectState,
    listener: &TcpListener,
    look: &Timespec,
) -> Option<(TcpStream, SocketAddr)> {
    while !shared.state().is_over {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        let _ = poll(&mut fds, Some(look));
        match listener.accept() {
            Ok(accepted) => return Some(accepted),
            // The error belongs to a client, or nothing can be accepted for now although a client
            // waits, for example because no descriptor is left.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(_) => {}
        }
    }
    None
}

fn accept(shared: &ConnectState, number: u64, socket: TcpStream) -> Result<(u32, Stream), Refused> {
    let at = socket.local_addr()?;
    let stream = Stream::from_accepted(socket)?;
    let mut bounded = Bounded { stream: &stream, until: Instant::now() + ATTEMPT };
    let settle = |rank| shared.settle(rank, number);
    let rank = handshake::accept(&mut bounded, &shared.own, at, settle)?;
    Ok((rank, stream))
}

/// A stream with a deadline: a peer that sends a byte now and then does not stay forever.
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

#[cfg(test)]
mod tests {
    use super::*;

    const PIPELINE: [u8; 32] = [1; 32];

    /// Rank 0 of two, and the credentials of rank 1.
    fn coordinator() -> (ClusterConfig, Own) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = |host: &str| Peer { host: host.to_owned(), addresses: vec![address] };
        let job = ClusterConfig {
            rank: 0,
            peers: vec![peer("host0"), peer("host1")],
            listener,
            secret: [213; 32],
            limit: Duration::from_secs(60),
            patience: SILENCE_LIMIT,
            called_off: None,
        };
        let other = Own { rank: 1, secret: job.secret, pipeline: PIPELINE };
        (job, other)
    }

    /// Both ends of a connection.
    fn connection(job: &ClusterConfig) -> (TcpStream, TcpStream) {
        let near = TcpStream::connect(job.listener.local_addr().unwrap()).unwrap();
        (near, job.listener.accept().unwrap().0)
    }

    /// The results of a handshake for both ends, at the address that the connecting end has
    /// dialled.
    fn shake_hands(
        shared: &ConnectState,
        number: u64,
        mut near: TcpStream,
        far: TcpStream,
        other: &Own,
        dialled: SocketAddr,
    ) -> (Result<(), Refused>, Result<u32, Refused>) {
        thread::scope(|scope| {
            let accepted = scope.spawn(move || accept(shared, number, far));
            let connected = handshake::connect(&mut near, other, dialled, 0);
            drop(near);
            (connected, accepted.join().unwrap().map(|(rank, _)| rank))
        })
    }

    #[test]
    fn who_is_welcome_is_not_hung_up_on_and_who_was_hung_up_on_is_not_welcome() {
        let (job, other) = coordinator();
        let address = job.listener.local_addr().unwrap();
        let shared = ConnectState::new(&job, PIPELINE, None);
        let (near, far) = connection(&job);
        let handle = far.try_clone().unwrap();
        assert!(shared.state().unauthenticated.admit(7, address.ip(), handle, 0));
        let (connected, accepted) = shake_hands(&shared, 7, near, far, &other, address);
        connected.unwrap();
        assert_eq!(accepted.unwrap(), 1);
        assert!(!shared.state().unauthenticated.remove(7));

        // It knows the secret, but was disconnected meanwhile.
        let (near, far) = connection(&job);
        let (connected, accepted) = shake_hands(&shared, 8, near, far, &other, address);
        assert!(connected.is_err(), "{connected:?}");
        assert!(matches!(accepted, Err(Refused::NotThePeer)), "{accepted:?}");
    }

    #[test]
    fn who_passes_on_what_was_said_at_another_address_is_refused() {
        let (job, other) = coordinator();
        let address = job.listener.local_addr().unwrap();
        let elsewhere = SocketAddr::new([10, 0, 0, 1].into(), address.port());
        let shared = ConnectState::new(&job, PIPELINE, None);
        let (near, far) = connection(&job);
        let (connected, accepted) = shake_hands(&shared, 0, near, far, &other, elsewhere);
        assert!(matches!(connected, Err(Refused::NoProof)), "{connected:?}");
        assert!(accepted.is_err());
    }

    #[test]
    fn an_earlier_connection_does_not_take_the_place_of_a_later_one() {
        let (job, _) = coordinator();
        let shared = ConnectState::new(&job, PIPELINE, None);
        let stream = || Stream::from_connected(connection(&job).0).unwrap();
        let from = job.listener.local_addr().unwrap().ip();
        for number in 3..8 {
            assert!(shared.state().unauthenticated.admit(number, from, connection(&job).0, 0));
        }
        let is_connected = || shared.state().slots[1].stream.is_some();
        assert!(shared.settle(1, 5));
        shared.add(1, 5, stream());
        assert!(is_connected() && !shared.settle(1, 4) && is_connected());
        // It comes again: the earlier connection is useless, even if its thread is late.
        assert!(shared.settle(1, 6) && !is_connected());
        shared.add(1, 5, stream());
        assert!(!is_connected());
        shared.add(1, 6, stream());
        assert!(is_connected());
        // No process is welcome in the place of another, nor afterwards.
        assert!(!shared.settle(0, 7) && !shared.settle(2, 3));
        shared.end();
        shared.add(1, 6, stream());
        assert!(!shared.settle(1, 7));
    }

    #[test]
    fn a_job_that_is_called_off_is_not_waited_for() {
        let (job, _) = coordinator();
        let called_off: Arc<AbortCheck> = Arc::new(|| Some("rank 1: no memory".to_owned()));
        let job = ClusterConfig { called_off: Some(called_off), ..job };
        let error = connect_all(&job, PIPELINE, None).err().unwrap().to_string();
        assert_eq!(error, "the other processes will not connect: rank 1: no memory");
    }

    #[test]
    fn the_secret_is_not_shown() {
        let text = format!("{:?}", coordinator().0);
        assert!(text.contains("host1") && !text.contains("213, 213"), "{text}");
    }
}
