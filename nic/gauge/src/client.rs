//! The client: the end that chooses the tests.

use std::fmt::Display;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::cpu_load::Moment;
use crate::early_stop::{Caller, Interrupted};
use crate::error::Error;
use crate::limits::{ANSWER_LIMIT, GLANCE};
use crate::message::{Account, NAME, Request, Response, VERSION, shown};
use crate::reading::Reading;
use crate::server::Server;
use crate::socket;
use crate::test::{Test, TestKind};
use crate::transfer::{self, Transfer};
use crate::{Limits, lines};

/// How long to wait for the server's reason after a failure.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The first and the longest pause of [`Client::persist`] between two attempts.
const PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];

/// A connection to a server, for one test after another.
#[derive(Debug)]
pub struct Client {
    /// `None` before the first connection and after a lost one.
    control: Option<TcpStream>,
    peer: SocketAddr,
}

impl Client {
    /// Connects to the first address of the name that answers.
    ///
    /// # Errors
    ///
    /// [`Error::Address`], [`Error::Connect`]; [`Error::Busy`]: too many clients; [`Error::Refused`]: another version;
    /// [`Error::Protocol`]: something else listens there.
    pub fn connect(address: impl ToSocketAddrs + Display) -> Result<Self, Error> {
        Self::connect_unless(address, &|| false)
    }

    /// Like [`Client::connect`], but fails when `interrupted` returns true. It is called about
    /// every 100 ms, except during the name lookup.
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`]; [`Error::Interrupted`].
    pub fn connect_unless(
        address: impl ToSocketAddrs + Display,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, Error> {
        let unknown = |reason| Error::Address { address: address.to_string(), reason };
        let addresses = address.to_socket_addrs().map_err(unknown)?;
        let mut connected =
            Err(unknown(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
        for address in addresses {
            connected =
                socket::connect(address, None, interrupted).map(|control| (control, address));
            if matches!(connected, Ok(_) | Err(Error::Interrupted)) {
                break;
            }
        }
        let (control, peer) = connected?;
        introduce(&control, interrupted)?;
        Ok(Self { control: Some(control), peer })
    }

    /// A client that connects for its first test.
    #[must_use]
    pub fn of(server: SocketAddr) -> Self {
        Self { control: None, peer: server }
    }

    /// The address of the server.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Runs one test on a data connection of its own. Connects first if there is no connection to
    /// the server.
    ///
    /// # Errors
    ///
    /// After [`Error::Test`], [`Error::Refused`] and [`Error::Busy`] the client is still connected;
    /// after others the connection is closed, which also ends the test at the server. Those of
    /// [`Client::connect`], if it connects.
    pub fn run(&mut self, test: &Test) -> Result<Reading, Error> {
        self.run_unless(test, &|| false)
    }

    /// Like [`Client::run`], but fails when `interrupted`, called about every 100 ms, returns true.
    ///
    /// # Errors
    ///
    /// Those of [`Client::run`]; [`Error::Interrupted`].
    pub fn run_unless(
        &mut self,
        test: &Test,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Reading, Error> {
        test.check().map_err(Error::Test)?;
        let control = match self.control.take() {
            Some(control) => control,
            None => {
                let control = socket::connect(self.peer, None, interrupted)?;
                introduce(&control, interrupted)?;
                control
            }
        };
        let run = Run { control: &control, peer: self.peer, test, interrupted }.run();
        if matches!(run, Ok(_) | Err(Error::Test(_) | Error::Refused(_) | Error::Busy(_))) {
            self.control = Some(control);
        }
        run
    }

    /// Like [`Client::run_unless`], but retries after temporary failures ([`Error::is_passing`]): a
    /// link comes back after a reset, and a busy server notices after a while that its client has
    /// disconnected. The last attempt begins at most `patience` after the first one has failed.
    ///
    /// # Errors
    ///
    /// Those of the last attempt; see [`Client::run_unless`].
    pub fn persist(
        &mut self,
        test: &Test,
        patience: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Reading, Error> {
        let (mut pause, mut until) = (PAUSE[0], None);
        loop {
            let error = match self.run_unless(test, interrupted) {
                Err(error) if error.is_passing() => error,
                run => return run,
            };
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            if Instant::now() + pause > until {
                return Err(error);
            }
            wait(pause, interrupted)?;
            pause = (2 * pause).min(PAUSE[1]);
        }
    }
}

/// Sleeps for `time`; fails if interrupted.
fn wait(time: Duration, interrupted: Interrupted<'_>) -> Result<(), Error> {
    let end = Instant::now() + time;
    while !interrupted() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::park_timeout(left.min(GLANCE));
    }
    Err(Error::Interrupted)
}

/// Begins a control connection.
fn introduce(control: &TcpStream, interrupted: Interrupted<'_>) -> Result<(), Error> {
    control.set_nodelay(true)?;
    socket::limit(control)?;
    lines::send(control, &Request::Hello { protocol: NAME.to_owned(), version: VERSION })?;
    match answer(control, interrupted)? {
        Response::Welcome { protocol, version } if protocol == NAME && version == VERSION => Ok(()),
        Response::Welcome { version, .. } => {
            Err(Error::Protocol(format!("it has version {version}, this is version {VERSION}")))
        }
        other => Err(unexpected(&other)),
    }
}

/// One test.
struct Run<'a> {
    control: &'a TcpStream,
    peer: SocketAddr,
    test: &'a Test,
    interrupted: Interrupted<'a>,
}

impl Run<'_> {
    fn run(&self) -> Result<Reading, Error> {
        let data = self.begin()?;
        let test = self.test;
        let until = Instant::now() + test.warm_up + test.time + 3 * ANSWER_LIMIT;
        let flow = Transfer::new(&data, test, Caller::new(self.interrupted, until))?;
        self.exchange(&data, &flow).map_err(|error| {
            let _ = data.shutdown(Shutdown::Both);
            match error {
                Error::Interrupted => error,
                _ => self.last_words().unwrap_or(error),
            }
        })
    }

    /// Requests the test and opens its data connection.
    fn begin(&self) -> Result<TcpStream, Error> {
        let congestion = self.test.congestion.as_deref();
        // This may fail, so it precedes the request, after which the server waits for a connection.
        socket::set_congestion(self.control, congestion)?;
        lines::send(self.control, &Request::Test(self.test.clone()))?;
        let token = match self.answer(self.control)? {
            Response::Ready { token } => token,
            other => return Err(unexpected(&other)),
        };
        let data = socket::connect(self.peer, congestion, self.interrupted)?;
        socket::limit(&data)?;
        lines::send(&data, &Request::Data { token })?;
        match self.answer(&data)? {
            Response::Go => Ok(data),
            other => Err(unexpected(&other)),
        }
    }

    fn exchange(
        &self,
        data: &TcpStream,
        flow: &Transfer<'_, Caller<'_>>,
    ) -> Result<Reading, Error> {
        let test = self.test;
        flow.drive(test.kind, test.warm_up, None)?;
        let marking = Instant::now();
        lines::send(self.control, &Request::Mark)?;
        match self.answer(self.control)? {
            Response::Marked => {}
            other => return Err(unexpected(&other)),
        }
        let (marked, sent_before) = (Instant::now(), flow.sent());
        let mut histogram = (test.kind == TestKind::RequestResponse).then(transfer::histogram);
        let received_before = flow.received();
        let start = Moment::now();
        let measured = flow.drive(test.kind, test.time, histogram.as_mut())?;
        let end = Moment::now();
        let received_since = flow.received() - received_before;

        let congestion = socket::congestion(data)?;
        let ending = Instant::now();
        data.shutdown(Shutdown::Write)?;
        lines::send(self.control, &Request::Finish)?;
        flow.finish()?;
        let account = match self.answer(self.control)? {
            Response::Done(account) => account,
            other => return Err(unexpected(&other)),
        };
        let bounds =
            DurationBounds { shortest: ending - marked, longest: marking.elapsed(), sent_before };
        check(&account, flow, test.kind, &bounds)?;
        let (seconds, bytes) = match test.kind {
            TestKind::Stream => (account.load.seconds, account.since_mark),
            TestKind::RequestResponse | TestKind::StreamBack => {
                (measured.as_secs_f64(), received_since)
            }
        };
        let bytes_per_second = bytes as f64 / seconds;
        Ok(Reading {
            test: test.clone(),
            congestion,
            seconds,
            bytes,
            bytes_per_second,
            rate: bytes_per_second / test.size as f64,
            histogram,
            sent: flow.sent(),
            received: flow.received(),
            local: start.until(&end),
            remote: account.load,
        })
    }

    fn answer(&self, stream: &TcpStream) -> Result<Response, Error> {
        answer(stream, self.interrupted)
    }

    /// The reason why the server gave up, if it can still report one.
    fn last_words(&self) -> Option<Error> {
        let _ = lines::send(self.control, &Request::Finish);
        match lines::receive(self.control, Instant::now() + LAST_WORDS, Some(self.interrupted)) {
            Ok(Some(Response::Failed { reason })) => Some(Error::Failed(shown(&reason))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(Error::Interrupted),
            _ => None,
        }
    }
}

/// Bounds, known at this end, on the duration that the other end measured.
struct DurationBounds {
    /// From the end of the mark to the end of the bytes, and from the end of the mark to the end of
    /// the whole exchange.
    shortest: Duration,
    longest: Duration,
    /// Bytes sent at the end of the mark.
    sent_before: u64,
}

/// Tolerated difference of two clocks: relative, and absolute in seconds.
const CLOCKS: (f64, f64) = (0.01, 0.002);

impl DurationBounds {
    fn holds(&self, seconds: f64) -> bool {
        let slack = |span: Duration| CLOCKS.0 * span.as_secs_f64() + CLOCKS.1;
        seconds >= self.shortest.as_secs_f64() - slack(self.shortest)
            && seconds <= self.longest.as_secs_f64() + slack(self.longest)
    }
}

fn check(
    account: &Account,
    flow: &Transfer<'_, Caller<'_>>,
    kind: TestKind,
    bounds: &DurationBounds,
) -> Result<(), Error> {
    // Bytes that were sent after the mark cannot have arrived before it.
    let is_complete = account.since_mark >= flow.sent().saturating_sub(bounds.sent_before);
    let is_possible = account.load.is_plausible()
        && account.since_mark <= account.received
        && (kind != TestKind::Stream || is_complete && bounds.holds(account.load.seconds));
    if !is_possible {
        return Err(Error::Protocol("its counters cannot be right".to_owned()));
    }
    for (sent, received) in [(flow.sent(), account.received), (account.sent, flow.received())] {
        if sent != received {
            return Err(Error::Lost { sent, received });
        }
    }
    Ok(())
}

fn answer(stream: &TcpStream, interrupted: Interrupted<'_>) -> Result<Response, Error> {
    lines::receive(stream, Instant::now() + ANSWER_LIMIT, Some(interrupted))?.ok_or_else(|| {
        Error::Gone(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"))
    })
}

fn unexpected(answer: &Response) -> Error {
    match answer {
        Response::Refused { reason } => Error::Refused(shown(reason)),
        Response::Busy { reason } => Error::Busy(shown(reason)),
        Response::Failed { reason } => Error::Failed(shown(reason)),
        _ => Error::Protocol("unexpected message".to_owned()),
    }
}

/// Runs a test between two threads of this process, over connections to the listener. Both loads
/// are those of the whole process, which contains both ends.
///
/// # Errors
///
/// Those of [`Server::new`], [`Client::connect`] and [`Client::run`].
pub fn between(listener: TcpListener, test: &Test) -> Result<Reading, Error> {
    let server = Server::new(listener, Limits::default())?;
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(|_| {}));
        let reading = Client::connect(server.local_addr()).and_then(|mut client| client.run(test));
        server.stop().stop();
        match serving.join() {
            Ok(served) => served.and(reading),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
