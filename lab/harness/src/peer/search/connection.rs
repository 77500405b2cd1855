//! Connections between sender and receiver, and the exchange before the messages.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::launch::Traffic;

const MAGIC: u64 = 0x5357_5345_4152_4348;

/// SO_SNDBUF of the sender over TCP, which the kernel doubles.
const SEND_BUFFER: usize = 64 << 10;

/// How long both ends may take to find the ring.
const UPGRADE: Duration = Duration::from_secs(10);

/// The receiver's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Bytes of each message.
    pub(super) size: u64,
    pub(super) messages: u64,
    /// Bytes of each write.
    pub(super) piece: u64,
    /// Tags, if the ends are to be mailboxes; else 0.
    pub(super) tags: u64,
}

impl Request {
    const LENGTH: usize = 40;

    fn encode(self) -> [u8; Self::LENGTH] {
        let words = [MAGIC, self.size, self.messages, self.piece, self.tags].map(u64::to_le_bytes);
        std::array::from_fn(|index| words[index / 8][index % 8])
    }

    fn decode(bytes: &[u8; Self::LENGTH]) -> Option<Self> {
        let word =
            |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[8 * at + index]));
        let request = Self { size: word(1), messages: word(2), piece: word(3), tags: word(4) };
        let valid = word(0) == MAGIC && (1..=1 << 30).contains(&request.size) && request.piece > 0;
        valid.then_some(request)
    }
}

/// One end of a connection.
pub(super) trait Connection: Read + Write + Sized {
    type Listener;

    fn listen() -> io::Result<(Self::Listener, SocketAddr)>;
    fn accept(listener: &Self::Listener) -> io::Result<Self>;
    /// Wraps a connected socket that has not carried any bytes yet.
    fn connected(socket: TcpStream) -> io::Result<Self>;
    /// Makes it ready for the messages; both ends call it at the same time.
    fn prepare(&mut self) -> Result<()>;
    fn set_nodelay(&self) -> io::Result<()>;
    /// Ends the sending direction.
    fn finish(&self) -> io::Result<()>;
    fn traffic(&self) -> Option<Traffic>;
}

impl Connection for TcpStream {
    type Listener = TcpListener;

    fn listen() -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &TcpListener) -> io::Result<Self> {
        let (socket, _) = listener.accept()?;
        // Bytes that wait in the sender's socket are sent when an acknowledgement arrives, and on
        // loopback that happens in the receiver's system call and time: they should be few, and
        // need no timers (BBR paces).
        sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        let _ = sockopt::set_tcp_congestion(&socket, "reno");
        Ok(socket)
    }

    fn connected(socket: TcpStream) -> io::Result<Self> {
        Ok(socket)
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn set_nodelay(&self) -> io::Result<()> {
        TcpStream::set_nodelay(self, true)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

impl Connection for seekwire::Stream {
    type Listener = seekwire::Listener;

    fn listen() -> io::Result<(seekwire::Listener, SocketAddr)> {
        let listener = seekwire::Listener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &seekwire::Listener) -> io::Result<Self> {
        Ok(listener.accept()?.0)
    }

    fn connected(socket: TcpStream) -> io::Result<Self> {
        Self::from_connected(socket)
    }

    fn prepare(&mut self) -> Result<()> {
        ensure!(self.upgrade(UPGRADE)?, "the two ends did not find each other's shared memory");
        Ok(())
    }

    fn set_nodelay(&self) -> io::Result<()> {
        seekwire::Stream::set_nodelay(self, true)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }

    fn traffic(&self) -> Option<Traffic> {
        let totals = self.status().ok()?.totals;
        Some(Traffic {
            ring: totals.tx_ring + totals.rx_ring,
            tcp: totals.tx_tcp + totals.rx_tcp,
            ..Traffic::default()
        })
    }
}

/// Where a receiver connects, and with which buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    sender: SocketAddr,
    /// SO_RCVBUF to request; `None`: the kernel's choice.
    receive_buffer: Option<u64>,
}

impl Target {
    /// Connections to `sender` with receive buffers of `receive_buffer` bytes, if the kernel allows
    /// that. A buffer that is too small would be worse than the kernel's own choice.
    pub(super) fn new(sender: SocketAddr, receive_buffer: u64) -> Result<Self> {
        let trial = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let granted =
            ask(&trial, receive_buffer).is_ok_and(|granted| granted >= 2 * receive_buffer);
        Ok(Self { sender, receive_buffer: granted.then_some(receive_buffer) })
    }

    /// Opens a connection on which the messages follow; also returns its SO_RCVBUF if that was set.
    pub(super) fn open<C: Connection>(&self, request: Request) -> Result<(C, Option<u64>)> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // Before it connects, because the window's scale is settled then.
        let granted = self.receive_buffer.map(|bytes| ask(&socket, bytes)).transpose()?;
        rustix::net::connect(&socket, &self.sender)
            .with_context(|| format!("cannot connect to {}", self.sender))?;
        let mut connection = C::connected(TcpStream::from(socket))?;
        connection.write_all(&request.encode())?;
        connection.prepare()?;
        connection.read_exact(&mut [0]).context("the sender did not begin")?;
        Ok((connection, granted))
    }
}

/// Sets SO_RCVBUF and returns the resulting value: the kernel doubles it, for its own overhead.
fn ask(socket: &impl std::os::fd::AsFd, bytes: u64) -> io::Result<u64> {
    let bytes = bytes as usize;
    // Beyond rmem_max this takes CAP_NET_ADMIN.
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    Ok(sockopt::socket_recv_buffer_size(socket)? as u64)
}

/// The sender's side of [`Target::open`].
pub(super) fn welcome<C: Connection>(connection: &mut C) -> Result<Request> {
    let mut bytes = [0; Request::LENGTH];
    connection.read_exact(&mut bytes)?;
    let Some(request) = Request::decode(&bytes) else { bail!("this is not a request") };
    connection.prepare()?;
    connection.write_all(&[0])?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_wire() {
        let request = Request { size: 1460, messages: 1000, piece: 64, tags: 3 };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        assert_eq!(Request::decode(&[0; Request::LENGTH]), None);
    }
}
