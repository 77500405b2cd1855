//! Sends requests to a server over many connections, and measures: one thread waits for all of
//! them, so that the load takes little of the processors that the server wants.
//!
//! At a closed pace, a connection sends a request upon each answer: that shows the maximum rate of
//! answers. At an open one, requests are due at fixed times, like those of people who do not wait
//! for a server before they move their mouse. Their latency counts from when they were due, even if
//! no connection was free by then: a server that falls behind does not receive fewer requests
//! ("coordinated omission").

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use super::http::{self, Answer};
use crate::launch::interrupt;
use crate::messaging::Latencies;

/// Connections that share requests.
#[derive(Clone, Debug)]
pub(crate) struct ClientLoad {
    pub(crate) connections: usize,
    /// Ordered by the time when they are due.
    pub(crate) requests: Vec<TimedRequest>,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedRequest {
    /// Time since the beginning of the load; without meaning at a closed pace.
    pub(crate) due: Duration,
    /// Index of the path.
    pub(crate) path: usize,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As soon as a connection is free; none after that time.
    Closed(Duration),
    /// When they are due. Latencies count for requests that are due from this time on: before it,
    /// viewers arrive, and a server opens what it has not opened yet.
    Open(Duration),
}

impl Pace {
    /// Whether the latency of requests that are due then is measured.
    fn counts(self, due: Duration) -> bool {
        match self {
            Self::Closed(_) => true,
            Self::Open(from) => due >= from,
        }
    }
}

/// Result of a load.
#[derive(Debug)]
pub(crate) struct LoadMeasurement {
    pub(crate) answers: u64,
    /// Bytes of bodies.
    pub(crate) bytes: u64,
    /// Time until the last answer.
    pub(crate) seconds: f64,
    /// A request without an answer counts with the time that it had waited by the end.
    pub(crate) latencies: Latencies,
    /// Requests without an answer, at an open pace.
    pub(crate) unanswered: u64,
    /// Processor time of the load itself.
    pub(crate) cpu: Duration,
}

impl LoadMeasurement {
    /// Answers in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.answers as f64 / self.seconds
    }
}

/// Timeout for missing answers after the last request.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for connections, and for answers at a closed pace.
const LIMIT: Duration = Duration::from_secs(30);

/// Requests `paths` as the clients specify.
///
/// # Errors
///
/// An answer that is not a JPEG with status 200; a failed connection; a missing answer at a closed
/// pace; no answer at all; an interruption.
pub(crate) fn run(
    address: SocketAddr,
    paths: &[String],
    clients: &[ClientLoad],
    pace: Pace,
) -> Result<LoadMeasurement> {
    let mut load = Load::new(address, paths, clients, pace)?;
    let cpu = own_cpu();
    load.began = Instant::now();
    let end = load.until_done()?;
    let measured = LoadMeasurement {
        answers: load.answers,
        bytes: load.bytes,
        seconds: load.last.as_secs_f64(),
        unanswered: load.give_up(end),
        latencies: load.latencies,
        cpu: own_cpu().saturating_sub(cpu),
    };
    ensure!(measured.answers > 0, "nothing was answered");
    Ok(measured)
}

fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Connection {
    /// Opened when it is first needed, as browsers do: servers that have a thread for each
    /// connection would wait in vain on one without requests.
    stream: Option<TcpStream>,
    client: usize,
    answer: Answer,
    /// The request that it waits for, and from when its latency counts.
    waits: Option<(usize, Duration)>,
    /// Whether it was sent again, because the server closed the connection instead of answering.
    is_second: bool,
}

struct Waiting {
    /// Connections without a request.
    idle: Vec<usize>,
    requests: VecDeque<TimedRequest>,
}

struct Load {
    address: SocketAddr,
    requests: Vec<Vec<u8>>,
    pace: Pace,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    clients: Vec<Waiting>,
    busy: usize,
    began: Instant,
    buffer: Vec<u8>,
    answers: u64,
    bytes: u64,
    /// Time of the last answer.
    last: Duration,
    latencies: Latencies,
}

impl Load {
    fn new(
        address: SocketAddr,
        paths: &[String],
        clients: &[ClientLoad],
        pace: Pace,
    ) -> Result<Self> {
        let (mut connections, mut waiting) = (Vec::new(), Vec::new());
        for (number, client) in clients.iter().enumerate() {
            let first = connections.len();
            connections.extend((0..client.connections).map(|_| Connection {
                stream: None,
                client: number,
                answer: Answer::default(),
                waits: None,
                is_second: false,
            }));
            let idle = (first..connections.len()).rev().collect();
            waiting.push(Waiting { idle, requests: client.requests.iter().copied().collect() });
        }
        Ok(Self {
            address,
            requests: paths.iter().map(|path| http::request(address, path)).collect(),
            pace,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections,
            clients: waiting,
            busy: 0,
            began: Instant::now(),
            buffer: vec![0; 256 << 10],
            answers: 0,
            bytes: 0,
            last: Duration::ZERO,
            latencies: Latencies::new()?,
        })
    }

    /// Runs until all requests are answered, or waiting is useless. Returns when that was.
    fn until_done(&mut self) -> Result<Duration> {
        let due = self
            .clients
            .iter()
            .filter_map(|client| client.requests.back())
            .map(|request| request.due)
            .max();
        let limit = match self.pace {
            Pace::Closed(time) => time + LIMIT,
            Pace::Open(_) => due.unwrap_or_default() + DRAIN_TIMEOUT,
        };
        let mut events = Vec::with_capacity(256);
        loop {
            interrupt::check()?;
            let now = self.began.elapsed();
            if let Pace::Closed(time) = self.pace {
                if now >= time {
                    self.clients.iter_mut().for_each(|client| client.requests.clear());
                }
            }
            self.send_what_is_due(now)?;
            let is_done =
                self.busy == 0 && self.clients.iter().all(|client| client.requests.is_empty());
            if is_done || now >= limit {
                let is_late = !is_done && matches!(self.pace, Pace::Closed(_));
                ensure!(!is_late, "no answer for {} s", LIMIT.as_secs());
                return Ok(now);
            }
            let left = self.next_due(limit).saturating_sub(self.began.elapsed());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for answers"),
            }
            for event in events.drain(..) {
                self.receive(event.data.u64() as usize)?;
            }
        }
    }

    /// Time at which the next request is due, unless an answer arrives first.
    fn next_due(&self, limit: Duration) -> Duration {
        if let Pace::Closed(time) = self.pace {
            // The queue is emptied then.
            return if self.began.elapsed() < time { time } else { limit };
        }
        let sendable = self.clients.iter().filter(|client| !client.idle.is_empty());
        sendable
            .filter_map(|client| Some(client.requests.front()?.due))
            .min()
            .unwrap_or(limit)
            .min(limit)
    }

    fn send_what_is_due(&mut self, now: Duration) -> Result<()> {
        for number in 0..self.clients.len() {
            loop {
                let client = &mut self.clients[number];
                let is_due = |request: &TimedRequest| {
                    matches!(self.pace, Pace::Closed(_)) || request.due <= now
                };
                let Some(request) = client.requests.front().copied().filter(is_due) else { break };
                let Some(connection) = client.idle.pop() else { break };
                client.requests.pop_front();
                let from = match self.pace {
                    Pace::Closed(_) => self.began.elapsed(),
                    Pace::Open(_) => request.due,
                };
                self.busy += 1;
                self.connections[connection].waits = Some((request.path, from));
                self.send(connection)?;
            }
        }
        Ok(())
    }

    /// Sends the request that a connection waits for.
    fn send(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let Some((path, _)) = connection.waits else { return Ok(()) };
        connection.answer.clear();
        let request = &self.requests[path];
        let stream = match &mut connection.stream {
            Some(stream) => stream,
            closed => closed.insert(open(self.address, &self.epoll, number)?),
        };
        match stream.write(request) {
            // The socket's buffer is empty before it, so it takes the whole request.
            Ok(length) if length == request.len() => Ok(()),
            Ok(_) => bail!("the server takes only a part of a request"),
            Err(error) if is_gone(&error) => self.ended(number),
            Err(error) => Err(error).context("cannot send a request"),
        }
    }

    /// Handles a connection that the server has closed: its request is sent again on another one.
    fn ended(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        connection.stream = None;
        if connection.waits.is_none() {
            return Ok(());
        }
        ensure!(!connection.is_second, "the server closes connections instead of answering");
        connection.is_second = true;
        self.send(number)
    }

    /// Receives the bytes that have arrived on a connection.
    fn receive(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let Some(stream) = &mut connection.stream else { return Ok(()) };
        let length = match stream.read(&mut self.buffer) {
            Ok(length) => length,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) if is_gone(&error) => 0,
            Err(error) => return Err(error).context("cannot receive an answer"),
        };
        if length == 0 {
            ensure!(connection.answer.is_empty() || connection.waits.is_none(), "half an answer");
            return self.ended(number);
        }
        let Some((path, from)) = connection.waits else { bail!("an answer to no request") };
        if !connection.answer.push(&self.buffer[..length])? {
            return Ok(());
        }
        let answer = &connection.answer;
        if answer.status() != 200 || !answer.is_jpeg() {
            let request = String::from_utf8_lossy(&self.requests[path]);
            let line = request.lines().next().unwrap_or_default();
            bail!("{line}: {}", answer.complaint());
        }
        self.last = self.began.elapsed();
        if self.pace.counts(from) {
            self.latencies.add(self.last.saturating_sub(from));
        }
        self.answers += 1;
        self.bytes += answer.length() as u64;
        self.busy -= 1;
        if answer.closes() {
            connection.stream = None;
        }
        connection.waits = None;
        connection.is_second = false;
        self.clients[connection.client].idle.push(number);
        Ok(())
    }

    /// Counts the requests unanswered by `end`, with the time that they have waited.
    fn give_up(&mut self, end: Duration) -> u64 {
        let sent = self.connections.iter().filter_map(|connection| Some(connection.waits?.1));
        let unsent = self
            .clients
            .iter()
            .flat_map(|client| client.requests.iter().map(|request| request.due));
        let late: Vec<Duration> = sent.chain(unsent).collect();
        let pace = self.pace;
        for from in late.iter().filter(|from| pace.counts(**from)) {
            self.latencies.add(end.saturating_sub(*from));
        }
        late.len() as u64
    }
}

fn open(address: SocketAddr, epoll: &OwnedFd, number: usize) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, LIMIT)
        .with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let data = epoll::EventData::new_u64(number as u64);
    epoll::add(epoll, &stream, data, epoll::EventFlags::IN)?;
    Ok(stream)
}

/// Whether the server has closed the connection.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Answers each request after this delay; closes a connection after this many.
    fn server(delay: Duration, most: usize) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, counter) = (stream.unwrap(), Arc::clone(&counter));
                std::thread::spawn(move || serve(stream, delay, most, &counter));
            }
        });
        (address, asked)
    }

    fn serve(stream: TcpStream, delay: Duration, most: usize, counter: &AtomicUsize) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut stream = stream;
        for _ in 0..most {
            let Some(Ok(line)) = lines.next() else { return };
            while lines.next().is_some_and(|line| !line.unwrap_or_default().is_empty()) {}
            counter.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(delay);
            let (status, body) = match line.contains("wrong") {
                true => ("404 Not Found", &b"none"[..]),
                false => ("200 OK", &b"\xff\xd8\xff\xd9"[..]),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    }

    fn client(connections: usize, dues: &[u64]) -> ClientLoad {
        let request = |due: &u64| TimedRequest { due: Duration::from_millis(*due), path: 0 };
        ClientLoad { connections, requests: dues.iter().map(request).collect() }
    }

    fn paths(path: &str) -> Vec<String> {
        vec![path.to_owned()]
    }

    #[test]
    fn all_is_asked_once_at_a_closed_pace_also_over_connections_that_end() {
        for most in [usize::MAX, 3] {
            let (address, asked) = server(Duration::ZERO, most);
            let clients = [client(4, &[0; 50])];
            let measured = run(address, &paths("/a"), &clients, Pace::Closed(LIMIT)).unwrap();
            assert_eq!((measured.answers, measured.bytes, measured.unanswered), (50, 200, 0));
            assert_eq!((measured.latencies.count(), asked.load(Ordering::SeqCst)), (50, 50));
            assert!(measured.rate() > 0.0 && measured.seconds > 0.0);
        }
    }

    #[test]
    fn nothing_new_is_asked_for_when_the_time_is_over() {
        let (address, asked) = server(Duration::ZERO, usize::MAX);
        let clients = [client(2, &[0; 50])];
        let error = run(address, &paths("/a"), &clients, Pace::Closed(Duration::ZERO)).unwrap_err();
        assert!(error.to_string().contains("nothing was answered"));
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        // Three are due at once on one connection of a server that takes 20 ms for each.
        let (address, _) = server(Duration::from_millis(20), usize::MAX);
        let clients = [client(1, &[5, 5, 5]), client(1, &[0])];
        let pace = Pace::Open(Duration::from_millis(5));
        let measured = run(address, &paths("/a"), &clients, pace).unwrap();
        assert_eq!((measured.answers, measured.unanswered), (4, 0));
        assert_eq!(measured.latencies.count(), 3, "the first one comes before");
        let quantile = |which| measured.latencies.quantile(which).unwrap();
        assert!(quantile(1.0) >= 59_000_000 && quantile(0.0) >= 19_000_000, "{measured:?}");
    }

    #[test]
    fn a_wrong_answer_is_an_error_that_names_the_request() {
        let (address, _) = server(Duration::ZERO, usize::MAX);
        let clients = [client(1, &[0])];
        let error = run(address, &paths("/wrong"), &clients, Pace::Closed(LIMIT)).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("GET /wrong") && text.contains("status 404: none"), "{text}");
    }
}
