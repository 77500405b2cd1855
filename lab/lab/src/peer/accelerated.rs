//! Channels over the Rust API of Seekwire: by copying, and in place.

use std::hint::black_box;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::Ordering;

use seekwire::Listener;

use super::channel::{Channel, Copying, SocketStream, read_full};
use crate::launch::Traffic;

/// Distance between the bytes that a receiver in place loads.
const CACHE_LINE: usize = 64;

/// Messages that are copied into and out of the stream.
pub(super) type Copied = Copying<seekwire::Stream>;

impl SocketStream for seekwire::Stream {
    type Listener = Listener;

    fn listen(address: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
        let listener = Listener::bind(address)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &Listener) -> io::Result<Self> {
        Ok(listener.accept()?.0)
    }

    fn connect(address: SocketAddr) -> io::Result<Self> {
        seekwire::Stream::connect(address)
    }

    fn set_nodelay(&self) -> io::Result<()> {
        seekwire::Stream::set_nodelay(self, true)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
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

/// Messages that are written where the receiver will read them.
///
/// The sender writes every byte and the receiver loads one byte of every cache line: the minimum
/// for a program that makes and uses its messages in place.
#[derive(Debug)]
pub(super) struct InPlace {
    stream: seekwire::Stream,
    /// Byte that fills the next message.
    fill: u8,
}

impl InPlace {
    fn new(stream: seekwire::Stream) -> Self {
        Self { stream, fill: 0 }
    }
}

impl Channel for InPlace {
    type Listener = Listener;

    fn listen(address: SocketAddr) -> io::Result<(Listener, SocketAddr)> {
        <seekwire::Stream as SocketStream>::listen(address)
    }

    fn accept(listener: &Listener) -> io::Result<Self> {
        Ok(Self::new(<seekwire::Stream as SocketStream>::accept(listener)?))
    }

    fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::new(<seekwire::Stream as SocketStream>::connect(address)?))
    }

    fn set_nodelay(&self) -> io::Result<()> {
        SocketStream::set_nodelay(&self.stream)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        read_full(&mut self.stream, bytes)
    }

    fn send_message(&mut self, size: usize) -> io::Result<()> {
        self.fill = self.fill.wrapping_add(1);
        let mut left = size;
        while left > 0 {
            let part = left.min(seekwire::Stream::max_reserve());
            let mut reservation = self.stream.reserve(part)?;
            reservation.fill(self.fill);
            reservation.commit(part)?;
            left -= part;
        }
        Ok(())
    }

    fn receive_message(&mut self, size: usize) -> io::Result<bool> {
        let mut left = size;
        while left > 0 {
            match self.receive_some(left)? {
                0 if left == size => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => left -= length,
            }
        }
        Ok(true)
    }

    fn receive_some(&mut self, limit: usize) -> io::Result<usize> {
        let borrowed = self.stream.borrow()?;
        let length = borrowed.len().min(limit);
        let lines = borrowed.as_atomic()[..length].iter().step_by(CACHE_LINE);
        black_box(lines.fold(0, |sum: u8, byte| sum.wrapping_add(byte.load(Ordering::Relaxed))));
        if length > 0 {
            borrowed.consume(length)?;
        }
        Ok(length)
    }

    fn finish(&mut self) -> io::Result<()> {
        SocketStream::finish(&self.stream)
    }

    fn traffic(&self) -> Option<Traffic> {
        SocketStream::traffic(&self.stream)
    }
}
