//! Receiving in order on an attached connection: by TCP or from the ring.

use std::io::IoSliceMut;

use seekwire_protocol::Carrier;
use seekwire_protocol::switch::RxStep;
use seekwire_transport::Errno;
use seekwire_transport::iov::Scatter;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Rx, Violation};
use seekwire_transport::ring::Calls;
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket::{self, Control, KernelRecv};

use super::call_limit::Limit;
use super::data_path::DataPath;
use super::next_source::{NextSource, between_looks};
use super::outcome::RecvOutcome;
use super::state::Connection;
use super::types::RecvFlags;

pub(super) enum RecvFailure {
    Violation(Violation),
    Kernel(Errno),
}

impl From<Errno> for RecvFailure {
    fn from(error: Errno) -> Self {
        Self::Kernel(error)
    }
}

impl From<Violation> for RecvFailure {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Connection {
    /// Receives on an attached connection as recv(2) does: waits for SO_RCVLOWAT bytes (or all,
    /// with `wait_all`) unless told not to, and returns how many came; 0 is the end of the stream.
    ///
    /// # Errors
    /// Those of recv(2). EINTR and EAGAIN only when nothing was received; EAGAIN, even where calls
    /// wait, in a signal handler that interrupted a receive on this connection. ENOTCONN when it is
    /// not attached.
    pub fn recv(&self, bufs: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Errno> {
        self.recv_message(bufs, flags, None)
    }

    /// As [`Connection::recv`]; `control` receives the kernel's control messages for bytes that
    /// came by TCP and were taken.
    ///
    /// # Errors
    /// As for [`Connection::recv`].
    pub fn recv_message(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
        control: Option<&mut Control>,
    ) -> Result<usize, Errno> {
        if self.is_seeking() {
            return self.recv_seeking(bufs, flags);
        }
        let Some(data_path) = self.attached() else {
            return self.recv_found_spill(bufs, flags);
        };
        if flags.peek {
            return self.peek(data_path, bufs, flags);
        }
        let mut scatter = Scatter::new(bufs).with_control(control);
        if scatter.remaining() == 0 {
            return Ok(0);
        }
        let room = scatter.remaining();
        let call = self.begin_call();
        let limit = Limit::receive();
        // SO_RCVLOWAT counts with its value at the beginning of the call.
        let mut enough = self.enough(room, flags);
        // A call that is going to sleep need not ask the kernel's socket first: poll does.
        let mut asks_kernel = flags.dont_wait || self.settings.is_nonblocking();
        if enough > 1
            && data_path.ring.queue.unread() < enough
            && !limit.forbids(self, flags.dont_wait)
        {
            call.hold_signals();
        }
        loop {
            let tried = self.try_recv(data_path, &mut scatter, flags, asks_kernel);
            let received = scatter.filled();
            let stop = |error| if received > 0 { Ok(received) } else { Err(error) };
            let carrier = match tried {
                Ok(RecvOutcome::Moved(0) | RecvOutcome::Over) => return Ok(received),
                Ok(RecvOutcome::Moved(_)) if received >= enough => {
                    if scatter.remaining() == 0 || !self.goes_on_elsewhere(data_path) {
                        return Ok(received);
                    }
                    continue;
                }
                Ok(RecvOutcome::Moved(_)) => {
                    call.moved();
                    continue;
                }
                Ok(RecvOutcome::Wait(_)) if received > 0 && received >= enough => {
                    return Ok(received);
                }
                Ok(RecvOutcome::Wait(carrier)) => carrier,
                Ok(RecvOutcome::Seeking) => return self.go_on_seeking(&mut scatter, flags, &limit),
                Err(error) => return stop(error),
            };
            if self.is_receive_shut() {
                return if received > 0 { Ok(received) } else { self.end_of_shut() };
            }
            if limit.forbids(self, flags.dont_wait) {
                self.look_after(data_path);
                return stop(Errno::AGAIN);
            }
            let is_first = !limit.is_set();
            match self.wait_to_receive(data_path, carrier, &limit, (None, None), &call) {
                Ok(socket_is_ready) => {
                    asks_kernel |= socket_is_ready;
                    if is_first {
                        enough = enough.min(self.enough(room, flags));
                    }
                }
                Err(error) => return stop(error),
            }
        }
    }

    /// Whether the next bytes can be received at once, by the other carrier: a program that watches
    /// edges takes a short receive for the last bytes.
    #[inline]
    fn goes_on_elsewhere(&self, data_path: &DataPath) -> bool {
        data_path.ring.queue.has_record()
            && (data_path.ring.queue.has_data()
                || self.has_data_after_switches(data_path)
                || socket::unread(self.fd()).is_ok_and(|bytes| bytes > 0))
    }

    /// For a call that has received something and finds no more: whether the kernel's socket has
    /// news, such as an error, the end, or an urgent byte. Then the call returns. The news stays
    /// there for the next call, since the kernel reports an error only once.
    fn behind_bytes(&self, carrier: Carrier) -> RecvOutcome {
        let news = Events { read: true, hangup: true, ..Events::default() };
        let has_news = poll::look(self.fd(), news)
            .map_or(true, |events| events.read || events.hangup || events.dead)
            // Bytes that have come by TCP meanwhile are no news: they can be received.
            && (carrier == Carrier::Ring || socket::unread(self.fd()).unwrap_or(0) == 0);
        if has_news { RecvOutcome::Over } else { RecvOutcome::Wait(carrier) }
    }

    pub(super) fn enough(&self, room: usize, flags: RecvFlags) -> usize {
        if flags.wait_all { room } else { room.min(self.recv_low_water()) }
    }

    /// One attempt. With `asks_kernel`, an empty ring counts only if the kernel's socket has not
    /// ended.
    #[inline]
    pub(super) fn try_recv(
        &self,
        data_path: &DataPath,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        asks_kernel: bool,
    ) -> Result<RecvOutcome, Errno> {
        if data_path.is_violated() {
            return Err(Errno::CONNRESET);
        }
        let received = data_path.ring.receive_with(|rx, calls| {
            self.inherit(rx);
            if self.is_seeking() {
                // The first seek came after this call began.
                return None;
            }
            Some(self.step(data_path, rx, calls, scatter, flags, asks_kernel))
        });
        let Some(received) = received.ok_or(Errno::AGAIN)? else { return Ok(RecvOutcome::Seeking) };
        if data_path.has_lost_memory() {
            return Err(self.violated(data_path, Violation));
        }
        match received {
            Ok(tried) => {
                self.show_received(data_path);
                Ok(tried)
            }
            Err(RecvFailure::Violation(violation)) => Err(self.violated(data_path, violation)),
            Err(RecvFailure::Kernel(error)) => {
                if error != Errno::STALE {
                    self.note_end(data_path);
                }
                Err(error)
            }
        }
    }

    #[inline]
    fn step(
        &self,
        data_path: &DataPath,
        rx: &Rx<'_, Own, Peer>,
        calls: &Calls,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        asks_kernel: bool,
    ) -> Result<RecvOutcome, RecvFailure> {
        if data_path.ring.queue.spill_len() != 0 {
            if let n @ 1.. = self.recv_spill(data_path, scatter, flags)? {
                return Ok(RecvOutcome::Moved(n));
            }
        }
        loop {
            match NextSource::of(rx)? {
                NextSource::Ring => {
                    let n = match flags {
                        RecvFlags { peek: true, .. } => rx.peek(scatter)?,
                        RecvFlags { truncate: true, .. } => {
                            let n = rx.discard(scatter.remaining())?;
                            scatter.skip(n);
                            n
                        }
                        _ => rx.pull(scatter)?,
                    };
                    return Ok(RecvOutcome::Moved(n));
                }
                // If bytes came for this end, which is shut down both ways, TCP has reset the
                // connection, perhaps before the peer ended it.
                NextSource::End if scatter.filled() == 0 && data_path.ring.queue.refuses() => {
                    return self.end_of_shut().map(RecvOutcome::Moved).map_err(RecvFailure::Kernel);
                }
                NextSource::End => return Ok(RecvOutcome::Moved(0)),
                NextSource::Tcp(bound) => {
                    return self.recv_by_tcp(data_path, rx, calls, scatter, flags, bound);
                }
                NextSource::TcpUnbounded(announced) => {
                    let read = self.recv_by_tcp(data_path, rx, calls, scatter, flags, u64::MAX);
                    drop(announced);
                    match read {
                        Ok(RecvOutcome::Moved(0) | RecvOutcome::Over) if rx.has_more() => {}
                        Ok(RecvOutcome::Moved(0)) => {
                            return self.end_of_stream(data_path, rx);
                        }
                        read => return read,
                    }
                }
                NextSource::Empty if !asks_kernel => return Ok(RecvOutcome::Wait(Carrier::Ring)),
                NextSource::Empty if scatter.filled() > 0 => {
                    let outcome = self.behind_bytes(Carrier::Ring);
                    // Bytes that the peer published before the end come first.
                    if !rx.has_more() {
                        return Ok(outcome);
                    }
                }
                NextSource::Empty => {
                    if let Some(error) = data_path.take_kept_error() {
                        return Err(RecvFailure::Kernel(error));
                    }
                    between_looks();
                    // The end of TCP ends the stream, unless the peer published something before
                    // it.
                    let mut one = [0];
                    match socket::recv(self.fd(), &mut one, KernelRecv::PEEK) {
                        Err(Errno::AGAIN) if !rx.has_more() => {
                            return Ok(RecvOutcome::Wait(Carrier::Ring));
                        }
                        Err(Errno::AGAIN) | Ok(_) if rx.has_more() => {}
                        Err(error) if rx.has_more() => {
                            data_path.keep_error(error);
                        }
                        _ if self.is_stale(data_path) => {
                            return Err(RecvFailure::Kernel(Errno::STALE));
                        }
                        // Bytes that the peer held back come before the end. The hold may have
                        // expired since the last look.
                        Ok(0) if data_path.ring.queue.unhold() => {}
                        Ok(0) => return self.end_of_stream(data_path, rx),
                        Ok(_) => return Err(RecvFailure::Violation(Violation)),
                        Err(error) => return Err(RecvFailure::Kernel(error)),
                    }
                }
            }
        }
    }

    fn recv_by_tcp(
        &self,
        data_path: &DataPath,
        rx: &Rx<'_, Own, Peer>,
        calls: &Calls,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        bound: u64,
    ) -> Result<RecvOutcome, RecvFailure> {
        if rx.discard_left() > 0 && !self.discard_recalled(rx).map_err(RecvFailure::Kernel)? {
            return Ok(RecvOutcome::Wait(Carrier::Tcp));
        }
        if scatter.filled() > 0 {
            if socket::is_at_mark(self.fd()) {
                return Ok(RecvOutcome::Over);
            }
            if socket::unread(self.fd()) == Ok(0) {
                return Ok(self.behind_bytes(Carrier::Tcp));
            }
        }
        let mut how = KernelRecv::empty();
        how.set(KernelRecv::PEEK, flags.peek);
        how.set(KernelRecv::TRUNC, flags.truncate);
        let mut moved = 0;
        // Fills one buffer after another. A peek stops after the first: it would see the same bytes
        // again.
        loop {
            let left = bound - moved as u64;
            let (room, control) =
                scatter.next_room_and_control(usize::try_from(left).unwrap_or(usize::MAX));
            let wanted = room.len();
            let received = match control {
                None => socket::recv(self.fd(), room, how),
                Some(control) => socket::recv_message(self.fd(), room, how, control),
            };
            match received {
                Ok(0) if moved > 0 => return Ok(RecvOutcome::Moved(moved)),
                // The bytes have not arrived yet, and this end does not want them.
                Ok(0)
                    if bound != u64::MAX
                        && self.is_receive_shut()
                        && !socket::ends(self.fd()).peers =>
                {
                    return Ok(RecvOutcome::Moved(0));
                }
                Ok(0) if bound != u64::MAX => return Err(RecvFailure::Kernel(Errno::CONNRESET)),
                Ok(n) => {
                    if !flags.peek {
                        rx.received_by_tcp(n);
                        // Bytes that the peer put on the ring after these can be read from now on,
                        // and it rang for them before: waiters have to be woken again.
                        if n as u64 == left && data_path.ring.queue.has_readers() {
                            calls.own();
                        }
                    }
                    scatter.filled_in_place(n);
                    moved += n;
                    let full = n == wanted && n as u64 != left && scatter.remaining() > 0;
                    // An error after the data is for the next call, so it must not be taken here.
                    if flags.peek
                        || !full
                        || socket::unread(self.fd()).unwrap_or(0) == 0
                        || socket::is_at_mark(self.fd())
                    {
                        return Ok(RecvOutcome::Moved(moved));
                    }
                }
                Err(_) if moved > 0 => return Ok(RecvOutcome::Moved(moved)),
                Err(Errno::AGAIN) => return Ok(RecvOutcome::Wait(Carrier::Tcp)),
                Err(error) => return Err(RecvFailure::Kernel(error)),
            }
        }
    }

    /// FIONREAD: bytes that can be received at once, by either carrier.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn unread(&self) -> Result<usize, Errno> {
        if self.is_seeking() {
            match self.unread_seeking() {
                // A receive that began before the first seek is still asleep: no byte was taken
                // yet.
                Err(Errno::AGAIN) => {}
                unread => return unread,
            }
        }
        let spilled = usize::try_from(self.spill_left()?).unwrap_or(usize::MAX);
        let Some(data_path) = self.attached() else {
            return Ok(spilled + socket::unread(self.fd())?);
        };
        let q = &data_path.ring.queue;
        if q.is_holding() && socket::ends(self.fd()).peers {
            q.unhold();
        }
        let Ok(rx) = self.rx(data_path) else {
            // A signal handler that interrupted a receive cannot lock the half: an estimate.
            return Ok(spilled + q.unread() + socket::unread(self.fd()).unwrap_or(0));
        };
        let step = rx.step();
        // The bytes of the carrier that comes next, and those of the other one if they follow
        // without a gap.
        let by_tcp = || {
            let discards = usize::try_from(rx.discard_left()).unwrap_or(usize::MAX);
            socket::unread(self.fd()).unwrap_or(0).saturating_sub(discards)
        };
        let unread = match step {
            Ok(RxStep::Ring) => q.unread() + by_tcp(),
            Ok(RxStep::Tcp(bound)) => match by_tcp() {
                tcp if tcp as u64 >= bound => tcp + q.unread(),
                tcp => tcp,
            },
            Ok(RxStep::TcpUnbounded) => by_tcp(),
            // The kernel has no byte that the ring does not announce.
            _ => 0,
        };
        drop(rx);
        match step {
            Ok(_) => Ok(spilled + unread),
            Err(violation) => Err(self.violated(data_path, violation)),
        }
    }
}
