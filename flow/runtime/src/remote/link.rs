//! The connection to another process of the pipeline: one for each pair.
//!
//! A thread writes what others put into its queue, so that a thread that deals blocks never waits
//! for a peer; another thread reads. The blocks in the queue are bounded by the streams' limits: a
//! block is in it only if the receiver has room. What copies send to the owner of a stream waits
//! there by unit: more urgent units come first, whatever was sent before. A copy that is faster than
//! the link waits at the end of a group. Each end receives something from the
//! other at least once a second; an end that is silent for longer than the patience is given up.
//! The patience begins with the first byte: while a process still connects to others, it sends and
//! reads nothing.
//! Beats come from a thread of their own, so they show that a process runs, and not that its
//! filters make progress. From a process that was asked to end, they are accepted for one patience
//! and no longer.
//!
//! On the ring, a block is copied once into the segment, and out of it into memory of its own: a
//! filter must not see bytes that the peer can still change, and may keep a block for longer than
//! later ones, while segments are returned in order.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{self, SocketAddrAny, sockopt};
use seekwire::Stream;
use socket2::SockRef;

use super::frame_reader::FrameReader;
use super::heartbeat::Heartbeat;
use super::link_error::LinkError;
use super::message::{Frame, Message};
use super::protocol_error::ProtocolError;
use crate::panics::caught;
use crate::policy::fit::{Cost, Fit};
use crate::policy::priority::Priority;

/// Interval of beats, which an idle end sends.
const BEAT: Duration = Duration::from_secs(1);

/// Most frames to write at once, and most bytes of them: a connection switches to the ring between
/// two calls.
const AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 128 << 10;

/// How long both ends on one host try to switch to the ring before they send anything: a large
/// first message would otherwise go by TCP.
const UPGRADE: Duration = Duration::from_millis(500);

/// Most waiting frames besides blocks and what copies send. They are short, and any running process
/// reads them soon. A process that stops reading would otherwise fill the memory.
const MOST_WAITING: usize = 1 << 18;

/// Number of waiting frames of a unit from which copies wait before they send more.
const BACKLOG: usize = 1 << 16;

/// Number of frames at the end of the queue that are checked for one that a new frame can join.
const JOINABLE: usize = 8;

pub(crate) struct Link {
    pub(crate) rank: u32,
    stream: Stream,
    pub(crate) patience: Duration,
    /// How long the first byte may take.
    first_byte: Duration,
    queue: Mutex<Queue>,
    more: Condvar,
    /// Copies wait here until the queue of a unit is shorter.
    less: Condvar,
    /// Why the writer has cut the link; the reader only sees its end.
    cut_for: Mutex<Option<LinkError>>,
    /// True if received frames are ignored.
    is_given_up: AtomicBool,
    /// When the link is cut in any case: a patience after the other end was asked to end.
    ends: OnceLock<Instant>,
    /// How long blocks occupy the link.
    fit: Mutex<Fit>,
    pub(crate) heartbeat: Heartbeat,
}

#[derive(Default)]
struct Queue {
    frames: Vec<Frame>,
    /// Number of these that are no blocks.
    messages: usize,
    /// Frames from copies here to owners there, by unit and in order; all other frames go first.
    units: BTreeMap<Priority, VecDeque<Frame>>,
    /// True while the writer waits for frames.
    is_waiting: bool,
    /// Number of copies that wait until the queue of a unit is shorter.
    waiting_copies: usize,
    /// True if no frames are added; those in the queue are still sent.
    is_closed: bool,
    /// True if the writer has finished.
    is_written: bool,
}

impl Link {
    /// `limit`: how long the other end may take to connect to the rest.
    pub(crate) fn new(
        rank: u32,
        stream: Stream,
        patience: Duration,
        limit: Duration,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let first_byte = limit.saturating_add(patience);
        set_timeouts(&stream, first_byte)?;
        let socket = stream.kernel_socket();
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5))?;
        // Nothing more urgent can overtake bytes that the kernel has queued and not sent (tcp(7),
        // TCP_NOTSENT_LOWAT).
        SockRef::from(&socket).set_tcp_notsent_lowat(BYTES_AT_ONCE as u32)?;
        let (queue, cut_for) = (Mutex::default(), Mutex::default());
        let (more, less) = (Condvar::new(), Condvar::new());
        let (is_given_up, ends) = (AtomicBool::new(false), OnceLock::new());
        let (fit, heartbeat) = (Mutex::new(Fit::of_link()), Heartbeat::new());
        Ok(Self {
            rank,
            stream,
            patience,
            first_byte,
            queue,
            more,
            less,
            cut_for,
            is_given_up,
            ends,
            fit,
            heartbeat,
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_for(&self) -> MutexGuard<'_, Option<LinkError>> {
        self.cut_for.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fit(&self) -> MutexGuard<'_, Fit> {
        self.fit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long blocks occupy the link on their way from here; `None` if not known yet.
    pub(crate) fn cost(&self) -> Option<Cost> {
        self.fit().cost()
    }

    /// Puts a frame into the queue. After the end of the link it is dropped.
    pub(crate) fn send(&self, frame: impl Into<Frame>) {
        self.put(|queue| {
            let frame = frame.into();
            if !queue.joins(&frame.message) {
                queue.push(frame);
            }
        });
    }

    /// The same for several frames.
    pub(crate) fn send_all(&self, frames: impl Iterator<Item = Frame>) {
        self.put(|queue| frames.for_each(|frame| queue.push(frame)));
    }

    /// Puts a frame of a unit after those of this unit and of more urgent ones. True if so many
    /// wait that the sender should [wait](Link::wait_for_backlog).
    pub(crate) fn send_of(&self, unit: Priority, frame: impl Into<Frame>) -> bool {
        let mut is_backlog = false;
        self.put(|queue| {
            let frames = queue.units.entry(unit).or_default();
            frames.push_back(frame.into());
            is_backlog = frames.len() > BACKLOG;
        });
        is_backlog
    }

    /// Waits until fewer frames of that unit wait, the unit has ended, or the link is closed. The
    /// writer never waits for a filter, so this does not either.
    pub(crate) fn wait_for_backlog(&self, unit: Priority, has_ended: impl Fn() -> bool) {
        let mut queue = self.queue();
        queue.waiting_copies += 1;
        while queue.waiting_of(unit) > BACKLOG / 2 && !queue.is_closed && !has_ended() {
            queue = self.less.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.waiting_copies -= 1;
    }

    /// A unit has ended: copies that wait to send for it check again.
    pub(crate) fn wake_copies(&self) {
        if self.queue().waiting_copies > 0 {
            self.less.notify_all();
        }
    }

    /// Puts frames into the queue with `into`.
    fn put(&self, into: impl FnOnce(&mut Queue)) {
        let mut queue = self.queue();
        if queue.is_closed {
            return;
        }
        into(&mut queue);
        if queue.messages > MOST_WAITING {
            drop(queue);
            self.cut_for().get_or_insert(LinkError::NotReading);
            self.cut();
        } else if std::mem::take(&mut queue.is_waiting) {
            drop(queue);
            self.more.notify_all();
        }
    }

    /// The process at the other end is lost for all. If it is alive, it may still learn so; its
    /// work goes to others, and is not kept here until the process is known to be dead.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.has_to_end();
        let mut queue = self.queue();
        queue.is_closed = true;
        let frames = std::mem::take(&mut queue.frames).into_iter();
        let blocks: Vec<Frame>;
        (queue.frames, blocks) = frames.partition(|frame| frame.payload.is_empty());
        let units = std::mem::take(&mut queue.units);
        drop(queue);
        self.notify_all();
        // Their memory comes from a filter, and is freed without the lock.
        drop((blocks, units));
    }

    /// Whether the process at the other end has connected to all others: it sends nothing before.
    pub(crate) fn has_begun(&self) -> bool {
        !self.heartbeat.last().is_zero()
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Sends what is in the queue, and then ends the link.
    pub(crate) fn finish(&self) {
        self.has_to_end();
        self.queue().is_closed = true;
        self.notify_all();
    }

    /// The queue is closed.
    fn notify_all(&self) {
        self.more.notify_all();
        self.less.notify_all();
    }

    /// From now on, the other end has one patience to also end the link.
    fn has_to_end(&self) {
        if let Some(ends) = Instant::now().checked_add(self.patience) {
            let _ = self.ends.set(ends);
        }
    }

    /// Waits until [`write`](Link::write) has returned. False if it has not by that time.
    pub(crate) fn is_written_until(&self, until: Option<Instant>) -> bool {
        let mut queue = self.queue();
        while !queue.is_written {
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            let waited = self.more.wait_timeout(queue, left);
            (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Sends and receives nothing more.
    pub(crate) fn cut(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        let frames = (std::mem::take(&mut queue.frames), std::mem::take(&mut queue.units));
        drop(queue);
        self.notify_all();
        // It may be disconnected already.
        let _ = self.stream.shutdown(Shutdown::Both);
        // As in `give_up`.
        drop(frames);
    }

    /// Writes the frames of the queue, until it is closed. An error is reported to the reader.
    pub(crate) fn write(&self) {
        // The memory of a block comes from its filter.
        let written = caught(|| self.write_all()).unwrap_or(Err(LinkError::Panic));
        if let Err(error) = written {
            // The reader itself notices that the other end is gone, and maybe what it sent before.
            let has_gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            if !matches!(&error, LinkError::Io(error) if has_gone.contains(&error.kind())) {
                self.cut_for().get_or_insert(error);
            }
            self.cut();
        }
        self.queue().is_written = true;
        self.more.notify_all();
    }

    /// Neither end may wait in a read meanwhile.
    fn come_to_the_ring(&self) {
        let socket = self.stream.kernel_socket();
        let ends = (net::getsockname(socket), net::getpeername(socket));
        let host = |end: SocketAddrAny| SocketAddr::try_from(end).ok().map(|end| end.ip());
        if let (Ok(own), Ok(Some(other))) = ends {
            if host(own) == host(other) {
                // A later read or write reports errors.
                let _ = self.stream.upgrade(UPGRADE);
            }
        }
    }

    fn write_all(&self) -> Result<(), LinkError> {
        self.come_to_the_ring();
        let mut frames: Vec<Frame> = Vec::new();
        let mut heads = Vec::new();
        // This process has connected to all others.
        self.write_some(&[Message::Beat.into()], &mut heads)?;
        loop {
            let is_last = self.next(&mut frames);
            let mut rest = &frames[..];
            while !rest.is_empty() {
                let (some, others) = rest.split_at(at_once(rest.iter()));
                self.write_some(some, &mut heads)?;
                rest = others;
            }
            frames.clear();
            if is_last {
                // The other end reads what was sent, and then the end of the stream.
                return self.stream.shutdown(Shutdown::Write).map_err(LinkError::Io);
            }
        }
    }

    /// Takes the waiting frames; after a while without any, a beat. True if these are the last
    /// ones.
    fn next(&self, into: &mut Vec<Frame>) -> bool {
        let mut queue = self.queue();
        while queue.is_empty() && !queue.is_closed {
            queue.is_waiting = true;
            let waited = self.more.wait_timeout(queue, BEAT);
            let (waited, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = waited;
            queue.is_waiting = false;
            if outcome.timed_out() && queue.is_empty() && !queue.is_closed {
                into.push(Message::Beat.into());
                return false;
            }
        }
        std::mem::swap(&mut queue.frames, into);
        queue.messages = 0;
        let left = queue.take_most_urgent(into);
        if queue.waiting_copies > 0 && left <= BACKLOG / 2 {
            self.less.notify_all();
        }
        queue.is_closed && queue.is_empty()
    }

    fn write_some(&self, frames: &[Frame], heads: &mut Vec<u8>) -> Result<(), LinkError> {
        let began = Instant::now();
        heads.clear();
        let mut ends = Vec::with_capacity(frames.len());
        for frame in frames {
            frame.message.write(frame.payload.len(), heads)?;
            ends.push(heads.len());
        }
        let mut slices = Vec::with_capacity(2 * frames.len());
        let mut start = 0;
        // Heads without a payload between them are written as one.
        for (frame, end) in frames.iter().zip(ends) {
            if !frame.payload.is_empty() {
                slices.push(IoSlice::new(&heads[start..end]));
                slices.push(IoSlice::new(&frame.payload));
                start = end;
            }
        }
        if start < heads.len() {
            slices.push(IoSlice::new(&heads[start..]));
        }
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match (&self.stream).write_vectored(rest) {
                Ok(0) => return Err(LinkError::Io(ErrorKind::WriteZero.into())),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.named(error)),
            }
        }
        let blocks = frames.iter().filter(|frame| !frame.payload.is_empty());
        let (blocks, bytes) =
            blocks.fold((0, 0), |(blocks, bytes), one| (blocks + 1, bytes + one.payload.len()));
        self.fit().add(blocks, bytes as u64, began.elapsed());
        Ok(())
    }

    fn named(&self, error: io::Error) -> LinkError {
        let limit = if self.has_begun() { self.patience } else { self.first_byte };
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => LinkError::Silent(limit),
            // If nothing was acknowledged for that long, TCP returns an error that it received, if
            // any (tcp(7), TCP_USER_TIMEOUT).
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => LinkError::Silent(limit),
            ErrorKind::UnexpectedEof => LinkError::Ended,
            _ => LinkError::Io(error),
        }
    }

    /// Reads at least one byte. Any byte is a sign of life, whatever it belongs to.
    fn read_some(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        loop {
            let mut is_last = false;
            if let Some(ends) = self.ends.get() {
                is_last = true;
                let left = ends.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(LinkError::Stays(self.patience));
                }
                self.stream.set_read_timeout(Some(left)).map_err(LinkError::Io)?;
            }
            match (&self.stream).read(into) {
                Ok(0) => return Err(LinkError::Ended),
                Ok(count) => {
                    let had_begun = self.has_begun();
                    self.heartbeat.beat();
                    if !had_begun {
                        set_timeouts(&self.stream, self.patience).map_err(LinkError::Io)?;
                    }
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The rest of that time may be a moment, in which the other end need not send
                // anything.
                Err(error) if is_last && error.kind() == ErrorKind::WouldBlock => {
                    return Err(LinkError::Stays(self.patience));
                }
                Err(error) => return Err(self.named(error)),
            }
        }
    }

    /// Passes received frames to `take`, until the end of the link; calls it with `None` when
    /// nothing more is there for now. No payload is longer than `largest`.
    pub(crate) fn read(
        &self,
        largest: usize,
        mut take: impl FnMut(Option<Frame>) -> Result<(), ProtocolError>,
    ) -> LinkError {
        let mut reader = FrameReader::new(|into| self.read_some(into));
        self.come_to_the_ring();
        loop {
            let result = match reader.has_frame() {
                true => Ok(()),
                false => take(None),
            };
            let result = result.map_err(LinkError::from);
            let result = result.and_then(|()| Ok(take(Some(reader.frame(largest)?))?));
            if let Err(error) = result {
                self.cut();
                return match error {
                    LinkError::Ended => self.cut_for().take().unwrap_or(error),
                    _ => error,
                };
            }
        }
    }
}

/// Sets how long the other end may be silent, and how long it may leave bytes unread or
/// unacknowledged.
fn set_timeouts(stream: &Stream, timeout: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    // The kernel takes it for a signed number.
    let most = i32::MAX as u32;
    let in_milliseconds = u32::try_from(timeout.as_millis()).map_or(most, |all| all.min(most));
    Ok(sockopt::set_tcp_user_timeout(stream.kernel_socket(), in_milliseconds)?)
}

impl Queue {
    fn push(&mut self, frame: Frame) {
        self.messages += usize::from(!frame.message.has_payload());
        self.frames.push(frame);
    }

    /// Number of frames of that unit.
    fn waiting_of(&self, unit: Priority) -> usize {
        self.units.get(&unit).map_or(0, VecDeque::len)
    }

    /// Joins the message with one that waits, if it can: a turn replaces the previous one, and
    /// rejections and freed room add up. A stream of tiny blocks may drop more of them at once than
    /// messages may wait.
    fn joins(&mut self, new: &Message) -> bool {
        let mut last = self.frames.iter_mut().rev().take(JOINABLE);
        last.any(|frame| match (&mut frame.message, new) {
            (
                Message::Turn { stream, unit, group },
                Message::Turn { stream: of, unit: within, group: next },
            ) if (&*stream, &*unit) == (of, within) => {
                *group = *next;
                true
            }
            (Message::Freed { stream, bytes }, Message::Freed { stream: of, bytes: more })
                if stream == of =>
            {
                *bytes += more;
                true
            }
            (
                Message::Rejected { filter, count },
                Message::Rejected { filter: of, count: more },
            ) if filter == of => {
                *count += more;
                true
            }
            _ => false,
        })
    }

    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.units.is_empty()
    }

    /// Takes only what is written at once: something more urgent may arrive meanwhile. Returns the
    /// number of frames of the same unit that are left.
    fn take_most_urgent(&mut self, into: &mut Vec<Frame>) -> usize {
        let Some(mut unit) = self.units.first_entry() else { return 0 };
        let frames = unit.get_mut();
        let count = at_once(frames.iter());
        into.extend(frames.drain(..count));
        let left = frames.len();
        if left == 0 {
            unit.remove();
        }
        left
    }
}

/// How many of these are written at once.
fn at_once<'f>(frames: impl Iterator<Item = &'f Frame>) -> usize {
    let mut bytes = 0;
    let fits = |frame: &&Frame| {
        bytes += frame.payload.len();
        bytes <= BYTES_AT_ONCE
    };
    frames.take(AT_ONCE).take_while(fits).count().max(1)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
