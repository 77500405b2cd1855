//! Lines between this process and a launcher, each within a time limit.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::error::{Error, shown};

/// Longer than any line of a launcher: its limits are 1024 bytes for a value and 256 for a name.
const LONGEST: usize = 4096;

/// A connection to a launcher. It is read with the C library's calls, like any connection of the
/// program: only these see the bytes of a program's own TCP connection that shared memory carries.
#[derive(Debug)]
pub(crate) struct Lines {
    socket: Socket,
    /// Bytes received and not consumed yet.
    rest: Vec<u8>,
    limit: Duration,
    /// When the time limit of the current request expires.
    end: Instant,
}

#[derive(Debug)]
enum Socket {
    /// Of any address family: the calls are the same.
    Inherited(UnixStream),
    Port(TcpStream),
}

impl Lines {
    pub(crate) fn inherited(socket: OwnedFd, limit: Duration) -> io::Result<Self> {
        let socket = UnixStream::from(socket);
        // An earlier owner may have set this.
        socket.set_nonblocking(false)?;
        Ok(Self::new(Socket::Inherited(socket), limit))
    }

    pub(crate) fn port(socket: TcpStream, limit: Duration) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self::new(Socket::Port(socket), limit))
    }

    fn new(socket: Socket, limit: Duration) -> Self {
        Self { socket, rest: Vec::new(), limit, end: Instant::now() + limit }
    }

    /// Starts the limit for all requests until the next call of this.
    pub(crate) fn begin(&mut self) {
        self.end = Instant::now() + self.limit;
    }

    /// Sends a request and waits for the first line of the answer. `purpose` is for messages.
    pub(crate) fn ask(&mut self, request: &str, purpose: &str) -> Result<String, Error> {
        self.tell(request, purpose)?;
        self.next(purpose)
    }

    /// Sends a request that has no answer.
    pub(crate) fn tell(&mut self, request: &str, purpose: &str) -> Result<(), Error> {
        let line = format!("{request}\n");
        let mut left = line.as_bytes();
        while !left.is_empty() {
            let sent = self.time_left().and_then(|time| match &mut self.socket {
                Socket::Inherited(socket) => {
                    socket.set_write_timeout(Some(time)).and_then(|()| socket.write(left))
                }
                Socket::Port(socket) => {
                    socket.set_write_timeout(Some(time)).and_then(|()| socket.write(left))
                }
            });
            match sent {
                Ok(0) => return Err(self.failed(io::ErrorKind::WriteZero.into(), purpose)),
                Ok(sent) => left = &left[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error, purpose)),
            }
        }
        Ok(())
    }

    /// Waits for another line.
    pub(crate) fn next(&mut self, purpose: &str) -> Result<String, Error> {
        let mut looked = 0;
        loop {
            if let Some(length) = self.rest[looked..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=looked + length).collect();
                let line = &line[..line.len() - 1];
                let text = std::str::from_utf8(line).map(str::to_owned);
                return text
                    .map_err(|_| Error::Protocol { purpose: purpose.into(), said: shown(line) });
            }
            looked = self.rest.len();
            if looked > LONGEST {
                return Err(Error::Protocol { purpose: purpose.into(), said: shown(&self.rest) });
            }
            let mut piece = [0; 1024];
            let got = self.time_left().and_then(|time| match &mut self.socket {
                Socket::Inherited(socket) => {
                    socket.set_read_timeout(Some(time)).and_then(|()| socket.read(&mut piece))
                }
                Socket::Port(socket) => {
                    socket.set_read_timeout(Some(time)).and_then(|()| socket.read(&mut piece))
                }
            });
            match got {
                Ok(0) => {
                    let end = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "it closed the connection before a complete answer",
                    );
                    return Err(self.failed(end, purpose));
                }
                Ok(got) => self.rest.extend_from_slice(&piece[..got]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error, purpose)),
            }
        }
    }

    /// Never zero, which would mean forever to a socket.
    fn time_left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn failed(&self, reason: io::Error, purpose: &str) -> Error {
        match reason.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Silent {
                waited: format!("the launcher, which was asked {purpose}"),
                seconds: self.limit.as_secs(),
            },
            _ => Error::Gone { purpose: purpose.into(), reason },
        }
    }
}
