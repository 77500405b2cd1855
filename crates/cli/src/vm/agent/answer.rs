//! The port at which the agents of other machines ask. Anybody may connect to it.
//!
//! Who asks has to say, within a moment, a question that stands in the region of a link. So a
//! stranger learns that there is an agent, and is hung up on.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use seekwire_link::{Answer, Link};

use super::hello::{ANSWERED, HELLO, Hello};
use super::{Agent, lock};

/// How long one who asks may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many are listened to at once who have an address of another machine, and so many others.
const SEATS: usize = 8;
/// When connections cannot be taken in, as where this process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at all addresses.
///
/// # Errors
///
/// What the system says.
pub(super) fn listen(port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|error| {
        // Without IPv6; an error of the port is the same once more.
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(|_| error)
    });
    listener.with_context(|| {
        format!("cannot listen for other agents at port {port}; --port names another one")
    })
}

/// Answers until this process ends.
///
/// # Errors
///
/// No thread can be started.
pub(super) fn serve(listener: TcpListener, agent: &Arc<Agent>) -> Result<()> {
    let agent = Arc::clone(agent);
    let answering = Arc::new(Mutex::new(()));
    let seats = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let serve = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                thread::sleep(PAUSE);
                continue;
            };
            let seat = Seat::take(&seats[usize::from(is_expected(&agent, &stream))]);
            let Some(seat) = seat else { continue };
            let (agent, answering) = (Arc::clone(&agent), Arc::clone(&answering));
            let listen = move || {
                // What one who asks does wrong is of no interest to anybody else.
                let _ = answer(stream, &agent, &answering);
                drop(seat);
            };
            // If there is no thread for it, it is hung up on.
            let _ = thread::Builder::new().spawn(listen);
        }
    };
    thread::Builder::new().spawn(serve).context("cannot start a thread")?;
    Ok(())
}

/// One of a number of places, until it is dropped.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        if taken.fetch_add(1, Ordering::Relaxed) < SEATS {
            return Some(Self(Arc::clone(taken)));
        }
        taken.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a connection comes from an address that a machine at the other end of a link is said to
/// have: strangers are not to keep these away.
fn is_expected(agent: &Agent, stream: &TcpStream) -> bool {
    let Ok(from) = stream.peer_addr() else { return false };
    let from = from.ip().to_canonical();
    lock(&agent.findings).is_in_map(from) || links(agent).values().any(|link| publishes(link, from))
}

fn publishes(link: &Link, address: IpAddr) -> bool {
    link.published().is_some_and(|said| said.addresses.contains(&address))
}

/// Clones, so that nobody waits for the lock while one of them is asked.
fn links(agent: &Agent) -> BTreeMap<String, Link> {
    lock(&agent.links).open.clone()
}

fn answer(mut stream: TcpStream, agent: &Agent, answering: &Mutex<()>) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut hello = [0; HELLO];
    let mut heard = 0;
    while heard < HELLO {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut hello[heard..])? {
            0 => return Ok(()),
            length => heard += length,
        }
    }
    let Some(hello) = Hello::decode(&hello) else { return Ok(()) };
    let Some(link) = links(agent).remove(&hello.link) else { return Ok(()) };
    if !link.is_asked(hello.question) {
        return Ok(());
    }
    let address = |end: io::Result<SocketAddr>| io::Result::Ok(end?.ip().to_canonical());
    let (here, there) = (address(stream.local_addr())?, address(stream.peer_addr())?);
    {
        let _one = lock(answering);
        link.answer(hello.question, &Answer { secret: hello.secret, here, there });
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&ANSWERED)
}
