//! The ways to get at a message that lies behind others.
//!
//! All of them look at the same bytes of each message: its ends, which carry its number. Whatever
//! memory a way needs besides its connection is there, and has been touched, before anything is
//! measured.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail, ensure};
use rustix::event::{PollFd, PollFlags};
use seekwire::{At, LoanBytes, SeekLoan, SeekStream};
use seekwire_transport::buffer::Buffer;
use seekwire_transport::sys::{Fd, socket};

use super::connection::{Connection, Request, Target};
use super::tagged::{Aside, Mailboxes};
use crate::launch::Traffic;
use crate::search::{Carrier, Plan, Way};

/// Memory into which [`Bulk`] reads, at least.
const BULK: usize = 256 << 10;

/// Writes its number into a message: into both ends if it is long enough, else into as much of it
/// as there is.
pub(super) fn stamp(message: &mut [u8], number: u64) {
    let number = number.to_le_bytes();
    let length = message.len();
    if length >= 16 {
        message[length - 8..].copy_from_slice(&number);
    }
    let head = length.min(8);
    message[..head].copy_from_slice(&number[..head]);
}

/// What is looked at of a message.
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

    /// Of a message that lies where the sender put it.
    fn of_loan(loan: &SeekLoan<'_>, size: usize) -> Self {
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

/// A receiver of messages that come in one order and are wanted in another.
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

    /// Makes sure that nothing more has come, and closes the connection. Which carriers the bytes
    /// took, where known.
    fn close(&mut self) -> Result<Option<Traffic>>;
}

/// A receiver that is told what is wanted.
trait Pick {
    /// Receives the message behind `skip` others.
    fn wanted(&mut self, skip: usize) -> io::Result<Ends>;

    /// Receives number `index` of the `skip` messages that were skipped; asked for in order.
    fn skipped(&mut self, index: usize, skip: usize) -> io::Result<Ends>;
}

/// Receives all messages of a connection: group after group, of each the last message first. What
/// is left at the end makes a smaller group.
fn all_groups(pick: &mut impl Pick, plan: Plan, messages: u64) -> Result<()> {
    let mut first = 0;
    while first < messages {
        let skip = plan.skip.min(messages - first - 1);
        check(plan, pick.wanted(skip as usize)?, first + skip)?;
        for index in 0..skip {
            check(plan, pick.skipped(index as usize, skip as usize)?, first + index)?;
        }
        first += skip + 1;
    }
    Ok(())
}

/// Whether what was found is message `number`.
pub(super) fn check(plan: Plan, found: Ends, number: u64) -> Result<()> {
    let expected = Ends::expected(plan.size as usize, number);
    ensure!(
        found == expected,
        "message {number} is not what was sent: {found:?}, not {expected:?}"
    );
    Ok(())
}

/// The receiver of a way on a carrier.
pub(super) fn search(
    way: Way,
    carrier: Carrier,
    plan: Plan,
    target: Target,
) -> Result<Box<dyn Search>> {
    Ok(match (way, carrier) {
        (Way::Pool, Carrier::Tcp) => Box::new(Pool::<TcpStream>::new(plan, target)),
        (Way::Pool, Carrier::Ring) => Box::new(Pool::<seekwire::Stream>::new(plan, target)),
        (Way::Awaited, Carrier::Tcp) => Box::new(Awaited { pool: Pool::new(plan, target), plan }),
        (Way::Bulk, Carrier::Tcp) => Box::new(Bulk::<TcpStream>::new(plan, target)),
        (Way::Bulk, Carrier::Ring) => Box::new(Bulk::<seekwire::Stream>::new(plan, target)),
        (Way::Seek, Carrier::Tcp) => Box::new(Seek::<SeekStream>::new(plan, target)),
        (Way::Module | Way::Peek | Way::Drain, Carrier::Tcp) => {
            Box::new(Seek::<SeekStream>::new(plan, target))
        }
        (Way::Mailbox, Carrier::Tcp) => Box::new(Mailboxes::<SeekStream>::new(plan, target)),
        (Way::Aside, Carrier::Tcp) => Box::new(Aside::<TcpStream>::new(plan, target)),
        (Way::Aside, Carrier::Ring) => Box::new(Aside::<seekwire::Stream>::new(plan, target)),
        (Way::Seek, Carrier::Ring) => Box::new(Seek::<seekwire::Stream>::new(plan, target)),
        (Way::Borrow, Carrier::Ring) => Box::new(Borrow { plan, slot: Slot::new(target) }),
        (Way::Mailbox, Carrier::Ring) => Box::new(Mailboxes::<seekwire::Stream>::new(plan, target)),
        (Way::Awaited | Way::Module | Way::Peek | Way::Drain, Carrier::Ring)
        | (Way::Borrow, Carrier::Tcp)
        | (Way::Fabric, _) => {
            bail!("this program cannot do {way:?} on {}", carrier.name())
        }
    })
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
    /// Takes the connection, after the end of its stream.
    pub(super) fn end(&mut self) -> Result<C> {
        let rest = self.get()?.read(&mut [0])?;
        ensure!(rest == 0, "there is more than was asked for");
        self.connection.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    }
}

/// Memory to receive into that was used before. All ways have it at the same place in its page: see
/// [`Buffer`].
pub(super) fn touched(len: usize) -> Buffer {
    let mut buffer = Buffer::new(len);
    buffer.fill(1);
    buffer
}

/// Each message that is skipped is received into a pool by itself.
struct Pool<C> {
    plan: Plan,
    slot: Slot<C>,
    pool: Buffer,
    message: Buffer,
}

impl<C: Connection> Pool<C> {
    fn new(plan: Plan, target: Target) -> Self {
        let pool = touched((plan.skip * plan.size) as usize);
        Self { plan, slot: Slot::new(target), pool, message: touched(plan.size as usize) }
    }
}

impl<C: Connection> Search for Pool<C> {
    fn open(&mut self, request: Request) -> Result<Option<u64>> {
        let (connection, receive_buffer) = self.slot.target.open(request)?;
        self.slot.connection = Some(connection);
        Ok(receive_buffer)
    }

    fn receive(&mut self, messages: u64) -> Result<()> {
        let plan = self.plan;
        all_groups(self, plan, messages)
    }

    fn copied(&self, messages: u64) -> Option<u64> {
        // Each once out of the kernel; those that were skipped once more out of the pool.
        let skipped = messages - messages.div_ceil(self.plan.skip + 1);
        Some((messages + skipped) * self.plan.size)
    }

    fn close(&mut self) -> Result<Option<Traffic>> {
        Ok(self.slot.end()?.traffic())
    }
}

impl<C: Connection> Pick for Pool<C> {
    fn wanted(&mut self, skip: usize) -> io::Result<Ends> {
        let connection = self.slot.get()?;
        let size = self.message.len();
        self.pool
            .chunks_exact_mut(size)
            .take(skip)
            .try_for_each(|message| connection.read_exact(message))?;
        connection.read_exact(&mut self.message)?;
        Ok(Ends::of(&self.message))
    }

    fn skipped(&mut self, index: usize, _: usize) -> io::Result<Ends> {
        let size = self.message.len();
        self.message.copy_from_slice(&self.pool[index * size..][..size]);
        Ok(Ends::of(&self.message))
    }
}

/// As [`Pool`], but sleeps until the whole group has arrived. What a seek saves against this it
/// saves by copying less, not by waking up less often.
struct Awaited {
    pool: Pool<TcpStream>,
    plan: Plan,
}

impl Search for Awaited {
    fn open(&mut self, request: Request) -> Result<Option<u64>> {
        let receive_buffer = self.pool.open(request)?;
        let group = u32::try_from(self.plan.group_bytes()).unwrap_or(u32::MAX);
        socket::set_receive_low_water(Fd::from(&*self.pool.slot.get()?), group)?;
        Ok(receive_buffer)
    }

    fn receive(&mut self, messages: u64) -> Result<()> {
        let plan = self.plan;
        all_groups(self, plan, messages)
    }

    fn copied(&self, messages: u64) -> Option<u64> {
        self.pool.copied(messages)
    }

    fn close(&mut self) -> Result<Option<Traffic>> {
        self.pool.close()
    }
}

impl Pick for Awaited {
    fn wanted(&mut self, skip: usize) -> io::Result<Ends> {
        let mut fds = [PollFd::new(self.pool.slot.get()?, PollFlags::IN)];
        rustix::event::poll(&mut fds, None)?;
        self.pool.wanted(skip)
    }

    fn skipped(&mut self, index: usize, skip: usize) -> io::Result<Ends> {
        self.pool.skipped(index, skip)
    }
}

/// Whatever has arrived is read at once into a buffer that holds two groups, or [`BULK`] if that is
/// more.
struct Bulk<C> {
    plan: Plan,
    slot: Slot<C>,
    buffer: Buffer,
    /// Where the group begins, and where what was read ends.
    start: usize,
    end: usize,
    /// Bytes that were copied to make room for more, on this connection.
    moved: u64,
    message: Buffer,
}

impl<C: Connection> Bulk<C> {
    fn new(plan: Plan, target: Target) -> Self {
        let buffer = touched(BULK.max(2 * plan.group_bytes() as usize));
        let message = touched(plan.size as usize);
        Self { plan, slot: Slot::new(target), buffer, start: 0, end: 0, moved: 0, message }
    }

    fn read_until(&mut self, needed: usize) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + needed > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.moved += (self.end - self.start) as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < needed {
            match self.slot.get()?.read(&mut self.buffer[self.end..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.end += length,
            }
        }
        Ok(())
    }

    fn copy(&mut self, index: usize) -> Ends {
        let size = self.message.len();
        self.message.copy_from_slice(&self.buffer[self.start + index * size..][..size]);
        Ends::of(&self.message)
    }
}

impl<C: Connection> Search for Bulk<C> {
    fn open(&mut self, request: Request) -> Result<Option<u64>> {
        let (connection, receive_buffer) = self.slot.target.open(request)?;
        self.slot.connection = Some(connection);
        (self.start, self.end, self.moved) = (0, 0, 0);
        Ok(receive_buffer)
    }

    fn receive(&mut self, messages: u64) -> Result<()> {
        let plan = self.plan;
        all_groups(self, plan, messages)
    }

    fn copied(&self, messages: u64) -> Option<u64> {
        Some(2 * messages * self.plan.size + self.moved)
    }

    fn close(&mut self) -> Result<Option<Traffic>> {
        Ok(self.slot.end()?.traffic())
    }
}

impl<C: Connection> Pick for Bulk<C> {
    fn wanted(&mut self, skip: usize) -> io::Result<Ends> {
        let group = (skip + 1) * self.message.len();
        self.read_until(group)?;
        let ends = self.copy(skip);
        if skip == 0 {
            self.start += group;
        }
        Ok(ends)
    }

    fn skipped(&mut self, index: usize, skip: usize) -> io::Result<Ends> {
        let ends = self.copy(index);
        if index + 1 == skip {
            self.start += (skip + 1) * self.message.len();
        }
        Ok(ends)
    }
}

/// A stream that can be received out of order.
pub(super) trait Seekable: Read + Write + Sized {
    /// A connection of which the messages are the next bytes, and its SO_RCVBUF if that was set.
    fn open(target: &Target, request: Request) -> Result<(Self, Option<u64>)>;

    /// Fills `message` with the bytes that begin at `offset`.
    fn seek(&self, message: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Bytes that went through memory of the library, where that is known.
    fn moved(&self) -> Option<u64>;

    fn traffic(&self) -> Option<Traffic>;
}

impl Seekable for SeekStream {
    fn open(target: &Target, request: Request) -> Result<(Self, Option<u64>)> {
        let (connection, receive_buffer) = target.open::<TcpStream>(request)?;
        let stream = Self::new(connection);
        if let Some(name) = std::env::var("SEEKWIRE_SEEK_WAY")
            .ok()
            .filter(|name| stream.way().is_ok_and(|way| way.name() != name))
        {
            bail!("this kernel does not seek by the way \"{name}\"");
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

/// The message that is wanted is taken out of the middle of the stream; those before it are
/// received afterwards, as the stream's next bytes.
struct Seek<S> {
    plan: Plan,
    slot: Slot<S>,
    message: Buffer,
}

impl<S: Seekable> Seek<S> {
    fn new(plan: Plan, target: Target) -> Self {
        Self { plan, slot: Slot::new(target), message: touched(plan.size as usize) }
    }
}

impl<S: Seekable> Search for Seek<S> {
    fn open(&mut self, request: Request) -> Result<Option<u64>> {
        let (stream, receive_buffer) = S::open(&self.slot.target, request)?;
        self.slot.connection = Some(stream);
        Ok(receive_buffer)
    }

    fn receive(&mut self, messages: u64) -> Result<()> {
        let plan = self.plan;
        all_groups(self, plan, messages)
    }

    fn copied(&self, messages: u64) -> Option<u64> {
        // Each once to where it is wanted, and what came through library memory once more.
        Some(messages * self.plan.size + self.slot.connection.as_ref()?.moved()?)
    }

    fn close(&mut self) -> Result<Option<Traffic>> {
        Ok(self.slot.end()?.traffic())
    }
}

impl<S: Seekable> Pick for Seek<S> {
    fn wanted(&mut self, skip: usize) -> io::Result<Ends> {
        let size = self.message.len();
        if self.slot.get()?.seek(&mut self.message, (skip * size) as u64)? < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Ends::of(&self.message))
    }

    fn skipped(&mut self, _: usize, _: usize) -> io::Result<Ends> {
        self.slot.get()?.read_exact(&mut self.message)?;
        Ok(Ends::of(&self.message))
    }
}

/// As [`Seek`], but all messages are used where the sender put them, and not copied.
struct Borrow {
    plan: Plan,
    slot: Slot<seekwire::Stream>,
}

impl Borrow {
    fn take(&mut self, skip: usize) -> io::Result<Ends> {
        let size = self.plan.size as usize;
        let loan = self.slot.get()?.seek_borrow(At::Offset((skip * size) as u64), size)?;
        if loan.len() < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Ends::of_loan(&loan, size))
    }
}

impl Search for Borrow {
    fn open(&mut self, request: Request) -> Result<Option<u64>> {
        let (stream, receive_buffer) = self.slot.target.open(request)?;
        self.slot.connection = Some(stream);
        Ok(receive_buffer)
    }

    fn receive(&mut self, messages: u64) -> Result<()> {
        let plan = self.plan;
        all_groups(self, plan, messages)
    }

    fn close(&mut self) -> Result<Option<Traffic>> {
        Ok(Connection::traffic(&self.slot.end()?))
    }
}

impl Pick for Borrow {
    fn wanted(&mut self, skip: usize) -> io::Result<Ends> {
        self.take(skip)
    }

    fn skipped(&mut self, _: usize, _: usize) -> io::Result<Ends> {
        self.take(0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::send::serve_one;
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

    /// Every way gets every message, in the order in which they are wanted.
    #[test]
    fn all_ways_receive_all_messages() {
        for way in [Way::Pool, Way::Awaited, Way::Bulk, Way::Seek, Way::Mailbox, Way::Aside] {
            for (size, skip, messages, piece) in [
                (10, 2, 50, 10),
                (1000, 16, 40, 1000),
                (70_000, 4, 23, 4096),
                (300_000, 3, 1, 300_000),
            ] {
                let tags = if matches!(way, Way::Mailbox | Way::Aside) { skip + 3 } else { 0 };
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let sender = std::thread::spawn(move || {
                    for _ in 0..2 {
                        serve_one(&mut listener.accept().unwrap().0).unwrap();
                    }
                });
                let plan = Plan { tags: (tags > 0).then_some(tags), ..Plan::search(size, skip) };
                let target = Target::new(address, plan.receive_buffer()).unwrap();
                let mut search = search(way, Carrier::Tcp, plan, target).unwrap();
                for _ in 0..2 {
                    search.open(Request { size, messages, piece, tags }).unwrap();
                    search.receive(messages).unwrap();
                    search.close().unwrap();
                }
                sender.join().unwrap();
            }
        }
    }
}
