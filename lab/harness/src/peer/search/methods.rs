//! The methods to get at a message that follows others.
//!
//! All of them look at the same bytes of each message: its ends, which carry its number. Memory
//! that a way needs besides its connection exists and has been touched before anything is measured.

use std::io;
use std::net::TcpStream;

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags};
use seekwire::{At, SeekStream};
use seekwire_transport::buffer::Buffer;
use seekwire_transport::sys::{Fd, socket};

use super::connection::{Connection, Request, Target};
use super::searcher::{Ends, Search, Seekable, Slot, check, touched};
use super::tagged::{Aside, Mailboxes};
use crate::launch::Traffic;
use crate::search::{Carrier, SearchMethod, SearchPlan};

/// Minimum size of the memory into which [`Bulk`] reads.
const BULK: usize = 256 << 10;

/// A receiver that takes requests for single messages.
trait Pick {
    /// Receives the message after `skip` others.
    fn wanted(&mut self, skip: usize) -> io::Result<Ends>;

    /// Receives number `index` of the `skip` messages that were skipped; called in order.
    fn skipped(&mut self, index: usize, skip: usize) -> io::Result<Ends>;
}

/// Receives all messages of a connection, group by group, the last message of each first. The
/// messages left at the end make a smaller group.
fn all_groups(pick: &mut impl Pick, plan: SearchPlan, messages: u64) -> Result<()> {
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

/// The receiver of a way on a carrier.
pub(super) fn search(
    method: SearchMethod,
    carrier: Carrier,
    plan: SearchPlan,
    target: Target,
) -> Result<Box<dyn Search>> {
    Ok(match (method, carrier) {
        (SearchMethod::Pool, Carrier::Tcp) => Box::new(Pool::<TcpStream>::new(plan, target)),
        (SearchMethod::Pool, Carrier::Ring) => {
            Box::new(Pool::<seekwire::Stream>::new(plan, target))
        }
        (SearchMethod::Awaited, Carrier::Tcp) => {
            Box::new(Awaited { pool: Pool::new(plan, target), plan })
        }
        (SearchMethod::Bulk, Carrier::Tcp) => Box::new(Bulk::<TcpStream>::new(plan, target)),
        (SearchMethod::Bulk, Carrier::Ring) => {
            Box::new(Bulk::<seekwire::Stream>::new(plan, target))
        }
        (SearchMethod::Seek, Carrier::Tcp) => Box::new(Seek::<SeekStream>::new(plan, target)),
        (SearchMethod::Module | SearchMethod::Peek | SearchMethod::Drain, Carrier::Tcp) => {
            Box::new(Seek::<SeekStream>::new(plan, target))
        }
        (SearchMethod::Mailbox, Carrier::Tcp) => {
            Box::new(Mailboxes::<SeekStream>::new(plan, target))
        }
        (SearchMethod::Aside, Carrier::Tcp) => Box::new(Aside::<TcpStream>::new(plan, target)),
        (SearchMethod::Aside, Carrier::Ring) => {
            Box::new(Aside::<seekwire::Stream>::new(plan, target))
        }
        (SearchMethod::Seek, Carrier::Ring) => {
            Box::new(Seek::<seekwire::Stream>::new(plan, target))
        }
        (SearchMethod::Borrow, Carrier::Ring) => Box::new(Borrow { plan, slot: Slot::new(target) }),
        (SearchMethod::Mailbox, Carrier::Ring) => {
            Box::new(Mailboxes::<seekwire::Stream>::new(plan, target))
        }
        (
            SearchMethod::Awaited | SearchMethod::Module | SearchMethod::Peek | SearchMethod::Drain,
            Carrier::Ring,
        )
        | (SearchMethod::Borrow, Carrier::Tcp)
        | (SearchMethod::Fabric, _) => {
            bail!("this program cannot do {method:?} on {}", carrier.name())
        }
    })
}

/// Receives each skipped message into a pool of its own.
struct Pool<C> {
    plan: SearchPlan,
    slot: Slot<C>,
    pool: Buffer,
    message: Buffer,
}

impl<C: Connection> Pool<C> {
    fn new(plan: SearchPlan, target: Target) -> Self {
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
        // Each once out of the kernel; the skipped ones once more out of the pool.
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

/// As [`Pool`], but sleeps until the whole group has arrived. A seek saves against this by copying
/// less, not by waking up less often.
struct Awaited {
    pool: Pool<TcpStream>,
    plan: SearchPlan,
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

/// Reads arrived bytes at once into a buffer that holds two groups, or [`BULK`] if that is more.
struct Bulk<C> {
    plan: SearchPlan,
    slot: Slot<C>,
    buffer: Buffer,
    /// Beginning of the group, and end of the bytes read.
    start: usize,
    end: usize,
    /// Bytes that were copied to make room for more, on this connection.
    moved: u64,
    message: Buffer,
}

impl<C: Connection> Bulk<C> {
    fn new(plan: SearchPlan, target: Target) -> Self {
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

/// Takes the wanted message out of the middle of the stream; the preceding ones are received
/// afterwards, as the stream's next bytes.
struct Seek<S> {
    plan: SearchPlan,
    slot: Slot<S>,
    message: Buffer,
}

impl<S: Seekable> Seek<S> {
    fn new(plan: SearchPlan, target: Target) -> Self {
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
        // Each once to where it is wanted, and bytes that passed through library memory once more.
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

/// As [`Seek`], but all messages are used where the sender put them, without a copy.
struct Borrow {
    plan: SearchPlan,
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

    /// Every way receives every message, in the order in which they are wanted.
    #[test]
    fn all_methods_receive_all_messages() {
        for method in [
            SearchMethod::Pool,
            SearchMethod::Awaited,
            SearchMethod::Bulk,
            SearchMethod::Seek,
            SearchMethod::Mailbox,
            SearchMethod::Aside,
        ] {
            for (size, skip, messages, piece) in [
                (10, 2, 50, 10),
                (1000, 16, 40, 1000),
                (70_000, 4, 23, 4096),
                (300_000, 3, 1, 300_000),
            ] {
                let tags = if matches!(method, SearchMethod::Mailbox | SearchMethod::Aside) {
                    skip + 3
                } else {
                    0
                };
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let sender = std::thread::spawn(move || {
                    for _ in 0..2 {
                        serve_one(&mut listener.accept().unwrap().0).unwrap();
                    }
                });
                let plan = SearchPlan {
                    tags: (tags > 0).then_some(tags),
                    ..SearchPlan::search(size, skip)
                };
                let target = Target::new(address, plan.receive_buffer()).unwrap();
                let mut search = search(method, Carrier::Tcp, plan, target).unwrap();
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
