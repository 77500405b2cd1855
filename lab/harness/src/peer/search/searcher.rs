//! Code that the search methods share: how a message carries its number, and the
//! connection that it arrives on.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail, ensure};
use seekwire::{LoanBytes, SeekLoan, SeekStream};
use seekwire_transport::buffer::Buffer;

use super::connection::{Connection, Request, Target};
use crate::launch::Traffic;
use crate::search::SearchPlan;

/// Writes its number into a message: into both ends if it is long enough, else into as much of it
/// as fits.
pub(super) fn stamp(message: &mut [u8], number: u64) {
    let number = number.to_le_bytes();
    let length = message.len();
    if length >= 16 {
        message[length - 8..].copy_from_slice(&number);
    }
    let head = length.min(8);
    message[..head].copy_from_slice(&number[..head]);
}

/// The parts of a message that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    head: [u8; 8],
    tail: [u8; 8],
}

impl Ends {
    pub(super) fn of(message: &[u8]) -> Self {
        let mut head = [0; 8];
        let length = message.len().min(8);
        head[..length].copy_from_slice(&message[..length]);
        let tail = message.last_chunk().filter(|_| message.len() >= 16);
        Self { head, tail: tail.copied().unwrap_or(head) }
    }

    /// Those of a message that lies where the sender put it.
    pub(super) fn of_loan(loan: &SeekLoan<'_>, size: usize) -> Self {
        let (mut head, mut tail) = ([0; 8], [0; 8]);
        let mut start = 0;
        for piece in loan.pieces() {
            let end = start + piece.len();
            for (part, at) in [(&mut head, 0), (&mut tail, size.saturating_sub(8))] {
                for index in at.max(start)..(at + 8).min(size).min(end) {
                    part[index - at] = match piece {
                        LoanBytes::Shared(bytes) => bytes[index - start].load(Ordering::Relaxed),
                        LoanBytes::Own(bytes) => bytes[index - start],
                    };
                }
            }
            start = end;
        }
        Self { head, tail: if size >= 16 { tail } else { head } }
    }

    fn expected(size: usize, number: u64) -> Self {
        let mut head = number.to_le_bytes();
        head[size.min(8)..].fill(0);
        Self { head, tail: head }
    }
}

/// Fails unless the received message is message `number`.
pub(super) fn check(plan: SearchPlan, ends: Ends, number: u64) -> Result<()> {
    let expected = Ends::expected(plan.size as usize, number);
    ensure!(ends == expected, "message {number} is not what was sent: {ends:?}, not {expected:?}");
    Ok(())
}

/// A receiver of messages that arrive in one order and are wanted in another.
pub(super) trait Search {
    /// Opens a connection; its SO_RCVBUF, if that was set.
    fn open(&mut self, request: Request) -> Result<Option<u64>>;

    /// Receives all messages of the connection.
    fn receive(&mut self, messages: u64) -> Result<()>;

    /// Bytes of the connection's messages that were copied to receive all of them: by the kernel,
    /// and in this process.
    fn copied(&self, _messages: u64) -> Option<u64> {
        None
    }

    /// Makes sure that nothing more has arrived, and closes the connection. Returns which carriers
    /// the bytes took, where known.
    fn close(&mut self) -> Result<Option<Traffic>>;
}

/// A connection, while there is one.
pub(super) struct Slot<C> {
    pub(super) target: Target,
    pub(super) connection: Option<C>,
}

impl<C> Slot<C> {
    pub(super) fn new(target: Target) -> Self {
        Self { target, connection: None }
    }

    pub(super) fn get(&mut self) -> io::Result<&mut C> {
        self.connection.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<C: Read> Slot<C> {
    /// Takes the connection after the end of its stream.
    pub(super) fn end(&mut self) -> Result<C> {
        let rest = self.get()?.read(&mut [0])?;
        ensure!(rest == 0, "more has arrived than was requested");
        self.connection.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    }
}

/// Memory to receive into that was used before. For all ways it is at the same place in its page:
/// see [`Buffer`].
pub(super) fn touched(len: usize) -> Buffer {
    let mut buffer = Buffer::new(len);
    buffer.fill(1);
    buffer
}

/// A stream that can be received out of order.
pub(super) trait Seekable: Read + Write + Sized {
    /// Opens a connection whose next bytes are the messages; also its SO_RCVBUF if that was set.
    fn open(target: &Target, request: Request) -> Result<(Self, Option<u64>)>;

    /// Fills `message` with the bytes that begin at `offset`.
    fn seek(&self, message: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Bytes that passed through memory of the library, where that is known.
    fn moved(&self) -> Option<u64>;

    fn traffic(&self) -> Option<Traffic>;
}

impl Seekable for SeekStream {
    fn open(target: &Target, request: Request) -> Result<(Self, Option<u64>)> {
        let (connection, receive_buffer) = target.open::<TcpStream>(request)?;
        let stream = Self::new(connection);
        if let Some(name) = std::env::var("SEEKWIRE_SEEK_WAY")
            .ok()
            .filter(|name| stream.way().is_ok_and(|method| method.name() != name))
        {
            bail!("this kernel does not support seeking with \"{name}\"");
        }
        Ok((stream, receive_buffer))
    }

    fn moved(&self) -> Option<u64> {
        self.moved_bytes().ok()
    }

    fn seek(&self, message: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.seek_recv(message, offset)?)
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

impl Seekable for seekwire::Stream {
    fn open(target: &Target, request: Request) -> Result<(Self, Option<u64>)> {
        target.open(request)
    }

    fn moved(&self) -> Option<u64> {
        None
    }

    fn seek(&self, message: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.seek_recv(message, offset)?)
    }

    fn traffic(&self) -> Option<Traffic> {
        Connection::traffic(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_size_carry_their_number() {
        for size in [1, 7, 8, 10, 15, 16, 100] {
            let mut message = vec![1; size];
            stamp(&mut message, 200);
            assert_eq!(Ends::of(&message), Ends::expected(size, 200), "{size}");
            assert_ne!(Ends::of(&message), Ends::expected(size, 199), "{size}");
        }
    }
}
