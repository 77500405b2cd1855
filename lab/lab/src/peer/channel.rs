//! A connection as both sides of a test need it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use crate::launch::Traffic;

/// A connection over which messages travel. Their contents do not matter, only their number of
/// bytes.
pub(super) trait Channel: Sized {
    /// Accepts connections.
    type Listener;

    fn listen(address: SocketAddr) -> io::Result<(Self::Listener, SocketAddr)>;
    fn accept(listener: &Self::Listener) -> io::Result<Self>;
    fn connect(address: SocketAddr) -> io::Result<Self>;

    /// Sends small messages at once.
    fn set_nodelay(&self) -> io::Result<()>;
    /// Sends these bytes.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Fills `bytes`; `false` if the stream ends before the first of them.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<bool>;
    /// Sends a message of `size` bytes.
    fn send_message(&mut self, size: usize) -> io::Result<()>;
    /// Receives a message of `size` bytes; `false` if the stream ends before its first byte.
    fn receive_message(&mut self, size: usize) -> io::Result<bool>;
    /// Receives 1 to `limit` bytes of messages; 0 at the end of the stream.
    fn receive_some(&mut self, limit: usize) -> io::Result<usize>;
    /// Ends the sending direction.
    fn finish(&mut self) -> io::Result<()>;
    /// The carriers that the bytes took, if known.
    fn traffic(&self) -> Option<Traffic>;
}

/// The part of a stream that [`Read`] and [`Write`] leave out.
pub(super) trait SocketStream: Read + Write + Sized {
    type Listener;

    fn listen(address: SocketAddr) -> io::Result<(Self::Listener, SocketAddr)>;
    fn accept(listener: &Self::Listener) -> io::Result<Self>;
    fn connect(address: SocketAddr) -> io::Result<Self>;
    fn set_nodelay(&self) -> io::Result<()>;
    fn finish(&self) -> io::Result<()>;
    fn traffic(&self) -> Option<Traffic>;
}

/// Copies messages out of and into a buffer of its own.
#[derive(Debug)]
pub(super) struct Copying<S> {
    stream: S,
    buffer: Vec<u8>,
}

/// Messages over the sockets of the standard library.
pub(super) type Std = Copying<TcpStream>;

impl<S> Copying<S> {
    fn buffer(&mut self, size: usize) -> (&mut S, &mut [u8]) {
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        (&mut self.stream, &mut self.buffer[..size])
    }
}

impl<S: SocketStream> Channel for Copying<S> {
    type Listener = S::Listener;

    fn listen(address: SocketAddr) -> io::Result<(Self::Listener, SocketAddr)> {
        S::listen(address)
    }

    fn accept(listener: &Self::Listener) -> io::Result<Self> {
        Ok(Self { stream: S::accept(listener)?, buffer: Vec::new() })
    }

    fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { stream: S::connect(address)?, buffer: Vec::new() })
    }

    fn set_nodelay(&self) -> io::Result<()> {
        self.stream.set_nodelay()
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        read_full(&mut self.stream, bytes)
    }

    fn send_message(&mut self, size: usize) -> io::Result<()> {
        let (stream, buffer) = self.buffer(size);
        stream.write_all(buffer)
    }

    fn receive_message(&mut self, size: usize) -> io::Result<bool> {
        let (stream, buffer) = self.buffer(size);
        read_full(stream, buffer)
    }

    fn receive_some(&mut self, limit: usize) -> io::Result<usize> {
        let (stream, buffer) = self.buffer(limit);
        loop {
            match stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.stream.finish()
    }

    fn traffic(&self) -> Option<Traffic> {
        self.stream.traffic()
    }
}

/// Fills `bytes`; `false` if the stream ends before the first of them.
pub(super) fn read_full(stream: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    let mut have = 0;
    while have < bytes.len() {
        match stream.read(&mut bytes[have..]) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => have += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

impl SocketStream for TcpStream {
    type Listener = TcpListener;

    fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &TcpListener) -> io::Result<Self> {
        Ok(listener.accept()?.0)
    }

    fn connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address)
    }

    fn set_nodelay(&self) -> io::Result<()> {
        TcpStream::set_nodelay(self, true)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}
