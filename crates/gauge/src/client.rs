//! The end that decides.

use std::fmt::Display;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::flow::{self, Flow};
use crate::load::Moment;
use crate::message::{Account, Answer, Ask, NAME, VERSION, shown};
use crate::reading::Reading;
use crate::server::Server;
use crate::socket::{self, PATIENCE};
use crate::test::{Kind, Test};
use crate::{Limits, lines};

/// How long to wait for the reason when something has failed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A connection to a server, for one test after the other.
#[derive(Debug)]
pub struct Client {
    control: TcpStream,
    peer: SocketAddr,
}

impl Client {
    /// Connects to the first address of a name that answers.
    ///
    /// # Errors
    ///
    /// [`Error::Address`], [`Error::Connect`]; [`Error::Busy`]: too many clients; [`Error::Refused`]: another version;
    /// [`Error::Protocol`]: something else listens there.
    pub fn connect(address: impl ToSocketAddrs + Display) -> Result<Self, Error> {
        let unknown = |reason| Error::Address { address: address.to_string(), reason };
        let addresses = address.to_socket_addrs().map_err(unknown)?;
        let mut connected = Err(unknown(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
        for address in addresses {
            connected = socket::connect(address, None).map(|control| Self { control, peer: address });
            if connected.is_ok() {
                break;
            }
        }
        let client = connected?;
        client.control.set_nodelay(true)?;
        socket::limit(&client.control)?;
        lines::send(&client.control, &Ask::Hello { protocol: NAME.to_owned(), version: VERSION })?;
        match answer(&client.control)? {
            Answer::Welcome { protocol, version } if protocol == NAME && version == VERSION => Ok(client),
            Answer::Welcome { version, .. } => {
                Err(Error::Protocol(format!("it has version {version}, this is version {VERSION}")))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The address of the server.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Runs one test to its end, on a data connection of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Test`], [`Error::Refused`] and [`Error::Busy`]: the next test may be accepted. All others: the server may still be in
    /// the middle of this one, and the client is of no use any more.
    pub fn run(&mut self, test: &Test) -> Result<Reading, Error> {
        test.check().map_err(Error::Test)?;
        let run = self.begin(test).and_then(|data| self.measure(test, &data));
        if !matches!(run, Ok(_) | Err(Error::Test(_) | Error::Refused(_) | Error::Busy(_))) {
            let _ = self.control.shutdown(Shutdown::Both);
        }
        run
    }

    /// Asks for the test and connects.
    fn begin(&self, test: &Test) -> Result<TcpStream, Error> {
        // Before the server is asked: it would wait for the connection.
        socket::set_congestion(&self.control, test.congestion.as_deref())?;
        lines::send(&self.control, &Ask::Test(test.clone()))?;
        let token = match answer(&self.control)? {
            Answer::Ready { token } => token,
            other => return Err(unexpected(&other)),
        };
        let data = socket::connect(self.peer, test.congestion.as_deref())?;
        socket::limit(&data)?;
        lines::send(&data, &Ask::Data { token })?;
        match answer(&data)? {
            Answer::Go => Ok(data),
            other => Err(unexpected(&other)),
        }
    }

    fn measure(&self, test: &Test, data: &TcpStream) -> Result<Reading, Error> {
        let flow = Flow::new(data, test)?.until(Instant::now() + test.warm_up + test.time + 3 * PATIENCE);
        self.exchange(test, data, &flow).map_err(|error| {
            let _ = data.shutdown(Shutdown::Both);
            self.last_words().unwrap_or(error)
        })
    }

    fn exchange(&self, test: &Test, data: &TcpStream, flow: &Flow<'_>) -> Result<Reading, Error> {
        flow.drive(test.kind, test.warm_up, None)?;
        lines::send(&self.control, &Ask::Mark)?;
        match answer(&self.control)? {
            Answer::Marked => {}
            other => return Err(unexpected(&other)),
        }
        let mut histogram = (test.kind == Kind::RequestResponse).then(flow::histogram);
        let received_before = flow.received();
        let start = Moment::now();
        let measured = flow.drive(test.kind, test.time, histogram.as_mut())?;
        let end = Moment::now();
        let received_since = flow.received() - received_before;

        let congestion = socket::congestion(data)?;
        data.shutdown(Shutdown::Write)?;
        lines::send(&self.control, &Ask::Finish)?;
        flow.finish()?;
        let account = match answer(&self.control)? {
            Answer::Done(account) => account,
            other => return Err(unexpected(&other)),
        };
        check(&account, flow)?;
        let (seconds, bytes) = match test.kind {
            Kind::Stream => (account.load.seconds, account.since_mark),
            Kind::RequestResponse | Kind::StreamBack => (measured.as_secs_f64(), received_since),
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

    /// Why the server has given up, if it can still say so.
    fn last_words(&self) -> Option<Error> {
        let _ = lines::send(&self.control, &Ask::Finish);
        match lines::receive(&self.control, Instant::now() + LAST_WORDS) {
            Ok(Some(Answer::Failed { reason })) => Some(Error::Failed(shown(&reason))),
            _ => None,
        }
    }
}

fn check(account: &Account, flow: &Flow<'_>) -> Result<(), Error> {
    if !account.load.is_plausible() || account.since_mark > account.received {
        return Err(Error::Protocol("what it says that it counted cannot be".to_owned()));
    }
    for (sent, received) in [(flow.sent(), account.received), (account.sent, flow.received())] {
        if sent != received {
            return Err(Error::Lost { sent, received });
        }
    }
    Ok(())
}

fn answer(stream: &TcpStream) -> Result<Answer, Error> {
    let received = lines::receive(stream, Instant::now() + PATIENCE);
    // Its time-out was that of the line.
    stream.set_read_timeout(Some(PATIENCE))?;
    received?
        .ok_or_else(|| Error::Gone(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")))
}

fn unexpected(answer: &Answer) -> Error {
    match answer {
        Answer::Refused { reason } => Error::Refused(shown(reason)),
        Answer::Busy { reason } => Error::Busy(shown(reason)),
        Answer::Failed { reason } => Error::Failed(shown(reason)),
        _ => Error::Protocol("an answer to another question".to_owned()),
    }
}

/// Runs a test between two threads of this process, over connections to the listener. Both loads are those of the
/// process, with both ends.
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
