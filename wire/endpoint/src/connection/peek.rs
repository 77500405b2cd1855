//! MSG_PEEK on an attached connection: copies the bytes that can be received by either carrier, and
//! leaves them where they are.

use std::io::IoSliceMut;

use seekwire_protocol::Carrier;
use seekwire_transport::Errno;
use seekwire_transport::buffer::zeros;
use seekwire_transport::iov::Scatter;
use seekwire_transport::sys::doorbell::EdgeWatch;
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket::{self, KernelRecv};

use super::call_limit::Limit;
use super::data_path::DataPath;
use super::outcome::RecvOutcome;
use super::state::Connection;
use super::types::RecvFlags;

impl Connection {
    /// A receive of no bytes, for which TCP waits until anything wakes it, even if the buffer has
    /// no room for a byte. An error that exists before the wait is returned; one that ends it is
    /// left to the next call.
    ///
    /// # Errors
    /// As for [`Connection::recv`].
    #[cold]
    pub fn recv_nothing(&self, flags: RecvFlags) -> Result<usize, Errno> {
        let look = RecvFlags { peek: true, dont_wait: true, ..RecvFlags::default() };
        match self.recv(&mut [IoSliceMut::new(&mut [0])], look) {
            Err(Errno::AGAIN) => {}
            looked => return looked.map(|_| 0),
        }
        let Some(data_path) = self.attached().filter(|_| !self.is_seeking()) else {
            // By a peek, which takes nothing away from a seek.
            let look = RecvFlags { dont_wait: flags.dont_wait, ..look };
            return match self.recv(&mut [IoSliceMut::new(&mut [0])], look) {
                Err(Errno::INTR) => Ok(0),
                Err(Errno::AGAIN) if !flags.dont_wait && self.settings.receives_for_a_time() => {
                    Ok(0)
                }
                looked => looked.map(|_| 0),
            };
        };
        let call = self.begin_call();
        let limit = Limit::receive();
        let anything = Events { read: true, hangup: true, ..Events::default() };
        loop {
            if limit.forbids(self, flags.dont_wait) {
                return Err(Errno::AGAIN);
            }
            let carrier = data_path.ring.queue.carriers().1;
            match self.wait_to_receive(data_path, carrier, &limit, (None, None), &call) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(0),
                Err(Errno::AGAIN) if self.settings.receives_for_a_time() => return Ok(0),
                Err(error) => return Err(error),
            }
            let news = poll::look(self.fd(), anything)?;
            let by_ring = data_path.ring.queue.has_data()
                || self.has_data_after_switches(data_path)
                || self.has_spill();
            if by_ring || news.read || news.hangup || news.dead || self.is_seeking() {
                return Ok(0);
            }
        }
    }

    /// Looks again from the first byte on, until there is enough or no more can come.
    #[cold]
    pub(super) fn peek(
        &self,
        data_path: &DataPath,
        bufs: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let room = bufs.iter().map(|buf| buf.len()).sum();
        if room == 0 {
            return Ok(0);
        }
        let limit = Limit::receive();
        let call = self.begin_call();
        let mut seen_before = 0;
        let mut edge_watch: Option<EdgeWatch> = None;
        // Whether no more could come when the last look began.
        let mut has_ended = false;
        loop {
            edge_watch.iter().for_each(EdgeWatch::forget);
            let mark = data_path.ring.queue.published_mark();
            let (seen, carrier) =
                match self.try_recv(data_path, &mut Scatter::new(bufs), flags, true)? {
                    RecvOutcome::Moved(0) | RecvOutcome::Over => return Ok(0),
                    RecvOutcome::Moved(n) if n < room => {
                        (self.peek_both(data_path, bufs)?.max(n), Carrier::Ring)
                    }
                    RecvOutcome::Moved(n) => (n, Carrier::Ring),
                    RecvOutcome::Wait(carrier) => (0, carrier),
                    RecvOutcome::Seeking => return self.recv_seeking(bufs, flags),
                };
            if seen >= self.enough(room, flags) {
                return Ok(seen);
            }
            let stop = |error| if seen > 0 { Ok(seen) } else { Err(error) };
            if seen == 0 && self.is_receive_shut() {
                return self.end_of_shut();
            }
            if self.is_receive_shut() || (has_ended && seen > 0) {
                return Ok(seen);
            }
            if !has_ended && self.has_ended(data_path) {
                has_ended = true;
                continue;
            }
            if limit.forbids(self, flags.dont_wait) {
                return stop(Errno::AGAIN);
            }
            if seen > 0 && self.is_at_mark(data_path, seen)? {
                return Ok(seen);
            }
            let since = (seen > 0).then_some(mark);
            let watch = edge_watch.as_ref().filter(|_| seen > 0);
            let is_watched = watch.is_some();
            let waited = self.wait_to_receive(data_path, carrier, &limit, (since, watch), &call);
            let waited = match waited {
                // The kernel has bytes that were seen already, and would end every sleep. An edge
                // watch wakes only for new ones.
                Ok(true) if seen == seen_before && !is_watched => {
                    edge_watch = EdgeWatch::new(self.fd()).ok();
                    match edge_watch {
                        Some(_) => Ok(()),
                        None => self.wait_a_moment(&limit, &call, None),
                    }
                }
                waited => waited.map(drop),
            };
            if let Err(error) = waited {
                return stop(error);
            }
            seen_before = seen;
        }
    }

    /// Whether an urgent byte follows the bytes seen by TCP: the kernel returns those before it,
    /// however many are wanted.
    fn is_at_mark(&self, data_path: &DataPath, seen: usize) -> Result<bool, Errno> {
        // FIONREAD counts up to an urgent byte.
        Ok(data_path.ring.queue.carriers().1 == Carrier::Tcp
            && poll::is_urgent(self.fd()) == Ok(true)
            && socket::unread(self.fd())? == seen)
    }

    fn peek_both(&self, data_path: &DataPath, bufs: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let room: usize = bufs.iter().map(|buf| buf.len()).sum();
        let rx = self.rx(data_path)?;
        let mut scatter = Scatter::new(bufs);
        self.peek_spill(&mut scatter)?;
        const LITTLE: usize = 16 << 10;
        /// Of the bytes after an urgent one, of which FIONREAD counts none.
        const MOST: usize = 4 << 20;
        // An urgent byte ends what precedes it. The kernel goes on after it if nothing does.
        let is_first = scatter.filled() == 0 && data_path.ring.queue.carriers().1 == Carrier::Tcp;
        let mut by_tcp = Vec::new();
        let looked = rx.peek_both(&mut scatter, || {
            // A buffer may be larger than all that the kernel can hold. If memory is short, the
            // peek returns less.
            let there = match socket::is_at_mark(self.fd()) {
                true if is_first => Ok(MOST),
                true => Ok(0),
                false => socket::unread(self.fd()),
            };
            let len = room.min(there.unwrap_or(0));
            by_tcp = zeros(len).or_else(|_| zeros(len.min(LITTLE))).unwrap_or_default();
            // With an error no bytes are returned. A receive that gets here returns it: the kernel
            // reports an error once, and only if no bytes precede it.
            if !by_tcp.is_empty() {
                let n = socket::recv(self.fd(), &mut by_tcp, KernelRecv::PEEK).unwrap_or(0);
                by_tcp.truncate(n);
            }
            &by_tcp
        });
        drop(rx);
        looked.map_err(|violation| self.violated(data_path, violation))?;
        Ok(scatter.filled())
    }

    /// Whether no more bytes can come.
    fn has_ended(&self, data_path: &DataPath) -> bool {
        let q = &data_path.ring.queue;
        let hangup = Events { hangup: true, ..Events::default() };
        let looked = poll::look(self.fd(), hangup);
        let has_hung_up = looked.is_ok_and(|events| events.hangup || events.dead);
        if has_hung_up {
            q.unhold();
        }
        q.peer_is_shut() || q.peer_has_closed() || has_hung_up
    }
}
