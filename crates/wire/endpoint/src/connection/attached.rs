//! The data path of an attached connection: each direction on TCP or on the ring.

use std::io::{IoSlice, IoSliceMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use seekwire_protocol::switch::RxStep;
use seekwire_protocol::{Carrier, Reason};
use seekwire_transport::Errno;
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Full, Rx, Tx, Violation};
use seekwire_transport::ring::{Calls, Ring};
use seekwire_transport::spin::Spinner;
use seekwire_transport::sys::poll::{self, Events};
use seekwire_transport::sys::socket::{self, Control, KernelRecv, KernelSend};
use seekwire_transport::sys::thread;

use super::next::{Next, between_looks};
use super::peer::Watch;
use super::settings::Limit;
use super::{Connection, Link, RecvFlags, SendFlags};
use crate::Config;

/// The ring is as it should be.
const SOUND: u8 = 0;
/// The peer died or closed: what is in the ring can be read, sends go to the kernel, which knows
/// the right error and signal.
const PEER_GONE: u8 = 1;
/// The peer's memory said something impossible; the connection was reset.
const VIOLATED: u8 = 2;

impl Link {
    pub(super) fn new(ring: Ring, peer_pid: u32) -> Self {
        Self {
            ring,
            rx_spinner: Spinner::default(),
            tx_spinner: Spinner::default(),
            broken: AtomicU8::new(SOUND),
            peer_pid,
            shown: AtomicU8::new(0),
            watch: Watch::default(),
            has_ended: AtomicBool::new(false),
            untold: AtomicI32::new(0),
            identity: OnceLock::new(),
        }
    }

    pub(super) fn peer_is_gone(&self) {
        let _ =
            self.broken.compare_exchange(SOUND, PEER_GONE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The error that [`Link::untold`] keeps, if there is one: it is told now.
    fn take_untold(&self) -> Option<Errno> {
        let is_none = self.untold.load(Ordering::Relaxed) == 0;
        let error = if is_none { 0 } else { self.untold.swap(0, Ordering::Relaxed) };
        (error != 0).then(|| Errno::from_raw_os_error(error))
    }

    pub(super) fn is_sound(&self) -> bool {
        self.broken.load(Ordering::Relaxed) == SOUND
    }

    pub(super) fn is_violated(&self) -> bool {
        self.broken.load(Ordering::Relaxed) == VIOLATED
    }
}

/// What one try to send came to.
pub(super) enum Sent {
    /// Some bytes, or all.
    Some,
    /// Nothing now; wait for room on the ring or in the kernel's socket.
    Wait(Carrier),
    /// The receiver is inside a read that keeps this end from TCP, and does not tell when it is
    /// over: try again soon.
    Later,
}

/// What one try to send came to while the sending half was held.
enum Tried {
    Ring(Sent),
    Tcp(Result<Sent, Errno>),
    /// The peer has gone, or this direction was shut down.
    Nobody,
    Violation(Violation),
}

/// What one try to receive came to.
pub(super) enum Try {
    /// So many bytes; 0 is the end of the stream, or a zero-length request.
    Moved(usize),
    /// Nothing more for this call, which has received something: what is left to say is the next
    /// call's.
    Over,
    /// Nothing now; wait for the ring or for the kernel's socket.
    Wait(Carrier),
    /// The connection has begun to seek: receive through the engine.
    Seeking,
}

impl Connection {
    // ---- sending ------------------------------------------------------------------------------

    /// Sends from an attached connection as send(2) does: waits until everything is sent unless
    /// told not to, and returns how many bytes were.
    ///
    /// # Errors
    /// Those of send(2). EINTR and EAGAIN only when nothing was sent; EAGAIN, even where calls
    /// wait, in a signal handler that interrupted a send on this connection. ENOTCONN when it is
    /// not attached.
    pub fn send(&self, bufs: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Errno> {
        let link = self.attached().ok_or(Errno::NOTCONN)?;
        let mut gather = Gather::new(bufs);
        let total = gather.remaining();
        let call = self.begin_call();
        let limit = Limit::send();
        if !link.ring.queue.fits(total) && !limit.forbids(self, flags.dont_wait) {
            call.hold_signals();
        }
        loop {
            let sent = total - gather.remaining();
            let tried = self.try_send(link, &mut gather, flags, sent > 0);
            // An error after some bytes were sent is the next call's, as with the kernel.
            let stop = |error| if sent > 0 { Ok(sent) } else { Err(error) };
            let carrier = match tried {
                Ok(Sent::Some) if gather.remaining() == 0 => return Ok(total),
                Ok(Sent::Some) => {
                    call.moved();
                    continue;
                }
                Ok(Sent::Wait(carrier)) => Some(carrier),
                Ok(Sent::Later) => None,
                Err(error) => return stop(error),
            };
            if limit.forbids(self, flags.dont_wait) {
                if sent == 0
                    && carrier == Some(Carrier::Ring)
                    && self.overflow_if_due(link, flags.patient)?
                {
                    continue;
                }
                return stop(Errno::AGAIN);
            }
            let waited = match carrier {
                Some(carrier) => self.wait_to_send(link, carrier, &limit, &call),
                None => self.wait_a_moment(&limit, &call, None),
            };
            if let Err(error) = waited {
                return stop(error);
            }
        }
    }

    /// One try. `begun` says that this call has sent something already: then whatever error is
    /// returned only ends the call.
    #[inline]
    pub(super) fn try_send(
        &self,
        link: &Link,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<Sent, Errno> {
        let q = &link.ring.queue;
        let tried = link.ring.send_with(|tx, calls| {
            // Under the lock: a shutdown that another thread makes is before all of this send, or
            // after it.
            let is_done = q.peer_is_done();
            if is_done && self.is_stale(link) {
                return Tried::Tcp(Err(Errno::STALE));
            }
            if !link.is_sound() || q.is_shut() || (is_done && q.peer_refuses()) {
                return Tried::Nobody;
            }
            match self.due_carrier(link, tx, calls) {
                Ok(Carrier::Ring) => match tx.push(gather) {
                    Ok(0) => Tried::Ring(Sent::Wait(Carrier::Ring)),
                    Ok(_) => Tried::Ring(Sent::Some),
                    Err(violation) => Tried::Violation(violation),
                },
                Ok(Carrier::Tcp) => Tried::Tcp(self.send_by_tcp(tx, link, gather, flags, begun)),
                Err(Full::NoRoom) => Tried::Ring(Sent::Wait(Carrier::Ring)),
                Err(Full::Violation(violation)) => Tried::Violation(violation),
            }
        });
        match tried.ok_or(Errno::AGAIN)? {
            Tried::Ring(sent) => {
                self.show_sent(link);
                if link.looks_lost() {
                    self.doubt_peer(link);
                }
                Ok(sent)
            }
            Tried::Tcp(sent) => sent,
            Tried::Nobody => self.send_to_nobody(link, gather, flags, begun),
            Tried::Violation(violation) => Err(self.violated(link, violation)),
        }
    }

    #[cold]
    fn send_by_tcp(
        &self,
        tx: &Tx<'_, Own, Peer>,
        link: &Link,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<Sent, Errno> {
        if !self.may_use_tcp(link, tx)? {
            return Ok(Sent::Later);
        }
        if !self.retransmit(link, tx)? {
            return Ok(Sent::Wait(Carrier::Tcp));
        }
        if begun && self.has_error() {
            return Err(Errno::PIPE);
        }
        match socket::send(self.fd(), &gather.rest(), kernel_flags(flags)) {
            Ok(n) => {
                let mut kept = 0;
                gather.take(n, |piece| {
                    tx.keep(kept, piece);
                    kept += piece.len();
                });
                tx.sent_by_tcp(n);
                self.show_sent(link);
                Ok(Sent::Some)
            }
            Err(Errno::AGAIN) => Ok(Sent::Wait(Carrier::Tcp)),
            Err(error) => Err(error),
        }
    }

    /// After the peer has gone or this direction was shut down, the kernel's socket gives the error
    /// and the signal that the application expects.
    #[cold]
    fn send_to_nobody(
        &self,
        link: &Link,
        gather: &mut Gather<'_>,
        flags: SendFlags,
        begun: bool,
    ) -> Result<Sent, Errno> {
        if link.is_violated() {
            return Err(Errno::CONNRESET);
        }
        if begun {
            return Err(Errno::PIPE);
        }
        if link.ring.queue.is_shut() {
            // The kernel may not have been told to shut down yet: that comes after what is to be
            // retransmitted, or another thread is about to do it.
            if !self.has_error() {
                if !flags.no_signal {
                    thread::raise_broken_pipe();
                }
                return Err(Errno::PIPE);
            }
        }
        match socket::send(self.fd(), &gather.rest(), kernel_flags(flags)) {
            Ok(n) => {
                gather.take(n, |_| ());
                Ok(Sent::Some)
            }
            Err(Errno::AGAIN) => Ok(Sent::Wait(Carrier::Tcp)),
            Err(error) => Err(error),
        }
    }

    /// Whether the kernel's socket has an error to tell, which is told once.
    pub(super) fn has_error(&self) -> bool {
        poll::look(self.fd(), Events::default()).is_ok_and(|events| events.dead)
    }

    #[inline]
    pub(super) fn show_sent(&self, link: &Link) {
        let (tcp, _) = link.ring.queue.tcp_bytes();
        let (ring, _) = link.ring.queue.ring_bytes();
        if let Some(slot) = self.slot.get() {
            slot.show_sent(tcp, ring);
        }
        self.show_switches(link);
        if let Some(after) = Config::get().fall_back_after
            && ring >= after
        {
            self.forced_back(link);
        }
    }

    /// Tells the registry when a direction has changed its carrier.
    #[inline]
    fn show_switches(&self, link: &Link) {
        let q = &link.ring.queue;
        let now = u8::from(q.tx_on_ring()) | u8::from(q.rx_on_ring()) << 1;
        if link.shown.load(Ordering::Relaxed) != now {
            link.shown.store(now, Ordering::Relaxed);
            if q.peer_wants_tcp() && self.reason().is_none() {
                self.set_reason(Some(Reason::AskedByPeer));
            } else {
                self.show_carriers();
            }
        }
    }

    #[cold]
    fn forced_back(&self, link: &Link) {
        if !link.ring.queue.is_tcp_only() {
            link.ring.queue.set_tcp_only();
            self.set_reason(Some(Reason::Forced));
        }
    }

    /// What the next send travels on, having made the switch that is due.
    ///
    /// # Errors
    /// ECONNRESET when the peer misbehaved; EAGAIN in a signal handler that interrupted a send.
    pub fn next_carrier(&self) -> Result<Carrier, Errno> {
        let Some(link) = self.attached() else { return Ok(Carrier::Tcp) };
        let tx = self.tx(link)?;
        let carrier = self.due_carrier(link, &tx, tx.calls());
        drop(tx);
        match carrier {
            Ok(carrier) => Ok(carrier),
            Err(Full::NoRoom) => Ok(Carrier::Tcp),
            Err(Full::Violation(violation)) => Err(self.violated(link, violation)),
        }
    }

    // ---- receiving ----------------------------------------------------------------------------

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

    /// As [`Connection::recv`]; `control` takes what the kernel tells of bytes that came by TCP and
    /// were taken.
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
        let link = self.attached().ok_or(Errno::NOTCONN)?;
        if flags.peek {
            return self.peek(link, bufs, flags);
        }
        let mut scatter = Scatter::new(bufs).with_control(control);
        if scatter.remaining() == 0 {
            return Ok(0);
        }
        let room = scatter.remaining();
        let call = self.begin_call();
        let limit = Limit::receive();
        // SO_RCVLOWAT counts as it was when the call began.
        let mut enough = self.enough(room, flags);
        // Before a call sleeps it need not ask the kernel's socket: poll does.
        let mut asks_kernel = flags.dont_wait || self.settings.is_nonblocking();
        if enough > 1 && link.ring.queue.unread() < enough && !limit.forbids(self, flags.dont_wait)
        {
            call.hold_signals();
        }
        loop {
            let tried = self.try_recv(link, &mut scatter, flags, asks_kernel);
            let received = scatter.filled();
            let stop = |error| if received > 0 { Ok(received) } else { Err(error) };
            let carrier = match tried {
                Ok(Try::Moved(0) | Try::Over) => return Ok(received),
                Ok(Try::Moved(_)) if received >= enough => {
                    if scatter.remaining() == 0 || !self.goes_on_elsewhere(link) {
                        return Ok(received);
                    }
                    continue;
                }
                Ok(Try::Moved(_)) => {
                    call.moved();
                    continue;
                }
                Ok(Try::Wait(_)) if received > 0 && received >= enough => {
                    return Ok(received);
                }
                Ok(Try::Wait(carrier)) => carrier,
                Ok(Try::Seeking) => return self.go_on_seeking(&mut scatter, flags, &limit),
                Err(error) => return stop(error),
            };
            if self.is_receive_shut() {
                return if received > 0 { Ok(received) } else { self.end_of_shut() };
            }
            if limit.forbids(self, flags.dont_wait) {
                return stop(Errno::AGAIN);
            }
            let is_first = !limit.is_known();
            match self.wait_to_receive(link, carrier, &limit, None, &call) {
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

    /// Whether what comes next can be received at once, by the other carrier: to a program that
    /// watches edges, less than it asked for means that there is no more.
    #[inline]
    fn goes_on_elsewhere(&self, link: &Link) -> bool {
        link.ring.queue.has_record()
            && (link.ring.queue.has_data()
                || self.has_data_after_switches(link)
                || socket::unread(self.fd()).is_ok_and(|bytes| bytes > 0))
    }

    /// For a call that has received something and finds no more: whether the kernel's socket has
    /// something to say, such as an error, the end, or an urgent byte. Then the call is over. The
    /// news stays there for the next call, since the kernel tells an error only once.
    fn behind_bytes(&self, carrier: Carrier) -> Try {
        let news = Events { read: true, hangup: true, ..Events::default() };
        let has_news = poll::look(self.fd(), news)
            .map_or(true, |events| events.read || events.hangup || events.dead)
            // Bytes that have come by TCP meanwhile are no news: they can be received.
            && (carrier == Carrier::Ring || socket::unread(self.fd()).unwrap_or(0) == 0);
        if has_news { Try::Over } else { Try::Wait(carrier) }
    }

    pub(super) fn enough(&self, room: usize, flags: RecvFlags) -> usize {
        if flags.wait_all { room } else { room.min(self.recv_low_water()) }
    }

    /// One try. With `asks_kernel` an empty ring is believed only when the kernel's socket has not
    /// ended.
    #[inline]
    pub(super) fn try_recv(
        &self,
        link: &Link,
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        asks_kernel: bool,
    ) -> Result<Try, Errno> {
        if link.is_violated() {
            return Err(Errno::CONNRESET);
        }
        let tried = link.ring.receive_with(|rx, calls| {
            self.inherit(rx);
            if self.is_seeking() {
                // The first seek came after this call began.
                return None;
            }
            Some(self.step(link, (rx, calls), scatter, flags, asks_kernel))
        });
        let Some(tried) = tried.ok_or(Errno::AGAIN)? else { return Ok(Try::Seeking) };
        match tried {
            Ok(tried) => {
                self.show_received(link);
                Ok(tried)
            }
            Err(Failure::Violation(violation)) => Err(self.violated(link, violation)),
            Err(Failure::Kernel(error)) => {
                if error != Errno::STALE {
                    self.note_end(link);
                }
                Err(error)
            }
        }
    }

    #[inline]
    pub(super) fn show_received(&self, link: &Link) {
        let q = &link.ring.queue;
        if let Some(slot) = self.slot.get() {
            slot.show_received(q.tcp_bytes().1, q.ring_bytes().1);
        }
        self.show_switches(link);
    }

    #[inline]
    fn step(
        &self,
        link: &Link,
        (rx, calls): (&Rx<'_, Own, Peer>, &Calls),
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        asks_kernel: bool,
    ) -> Result<Try, Failure> {
        loop {
            match Next::of(rx)? {
                Next::Ring => {
                    let n = match flags {
                        RecvFlags { peek: true, .. } => rx.peek(scatter)?,
                        RecvFlags { truncate: true, .. } => {
                            let n = rx.discard(scatter.remaining())?;
                            scatter.skip(n);
                            n
                        }
                        _ => rx.pull(scatter)?,
                    };
                    return Ok(Try::Moved(n));
                }
                // If something came for this end, which is shut down both ways, TCP has reset the
                // connection, perhaps before the peer ended it.
                Next::End if scatter.filled() == 0 && link.ring.queue.refuses() => {
                    return self.end_of_shut().map(Try::Moved).map_err(Failure::Kernel);
                }
                Next::End => return Ok(Try::Moved(0)),
                Next::Tcp(bound) => {
                    return self.recv_by_tcp(link, (rx, calls), scatter, flags, bound);
                }
                Next::TcpUnbounded(announced) => {
                    let read = self.recv_by_tcp(link, (rx, calls), scatter, flags, u64::MAX);
                    drop(announced);
                    match read {
                        Ok(Try::Moved(0) | Try::Over) if rx.has_more() => {}
                        Ok(Try::Moved(0)) => {
                            return self.end_of_stream(link).map_err(Failure::Kernel);
                        }
                        read => return read,
                    }
                }
                Next::Empty if !asks_kernel => return Ok(Try::Wait(Carrier::Ring)),
                Next::Empty if scatter.filled() > 0 => {
                    let said = self.behind_bytes(Carrier::Ring);
                    // Bytes that the peer published before the end come first.
                    if !rx.has_more() {
                        return Ok(said);
                    }
                }
                Next::Empty => {
                    if let Some(error) = link.take_untold() {
                        return Err(Failure::Kernel(error));
                    }
                    between_looks();
                    // The end of TCP ends the stream, unless the peer published something before
                    // it.
                    let mut one = [0];
                    match socket::recv(self.fd(), &mut one, KernelRecv::PEEK) {
                        Err(Errno::AGAIN) if !rx.has_more() => return Ok(Try::Wait(Carrier::Ring)),
                        Err(Errno::AGAIN) | Ok(_) if rx.has_more() => {}
                        Err(error) if rx.has_more() => {
                            link.untold.store(error.raw_os_error(), Ordering::Relaxed);
                        }
                        _ if self.is_stale(link) => return Err(Failure::Kernel(Errno::STALE)),
                        Ok(0) => return self.end_of_stream(link).map_err(Failure::Kernel),
                        Ok(_) => return Err(Failure::Violation(Violation)),
                        Err(error) => return Err(Failure::Kernel(error)),
                    }
                }
            }
        }
    }

    fn recv_by_tcp(
        &self,
        link: &Link,
        (rx, calls): (&Rx<'_, Own, Peer>, &Calls),
        scatter: &mut Scatter<'_, '_>,
        flags: RecvFlags,
        bound: u64,
    ) -> Result<Try, Failure> {
        if rx.void_left() > 0 && !self.discard_void(rx).map_err(Failure::Kernel)? {
            return Ok(Try::Wait(Carrier::Tcp));
        }
        if scatter.filled() > 0 && socket::unread(self.fd()) == Ok(0) {
            return Ok(self.behind_bytes(Carrier::Tcp));
        }
        let mut how = KernelRecv::empty();
        how.set(KernelRecv::PEEK, flags.peek);
        how.set(KernelRecv::TRUNC, flags.truncate);
        let mut moved = 0;
        // Fills one buffer after the other. A peek stops at the first: it would see the same bytes
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
                Ok(0) if moved > 0 => return Ok(Try::Moved(moved)),
                Ok(0) if bound != u64::MAX => return Err(Failure::Kernel(Errno::CONNRESET)),
                Ok(n) => {
                    if !flags.peek {
                        rx.received_by_tcp(n);
                        // What the peer put on the ring after these bytes can be read from now on,
                        // and it rang for that before: waiters have to hear of it again.
                        if n as u64 == left && link.ring.queue.has_readers() {
                            calls.own();
                        }
                    }
                    scatter.filled_in_place(n);
                    moved += n;
                    let full = n == wanted && n as u64 != left && scatter.remaining() > 0;
                    // An error behind the data is the next call's, so it must not be taken here.
                    if flags.peek || !full || socket::unread(self.fd()).unwrap_or(0) == 0 {
                        return Ok(Try::Moved(moved));
                    }
                }
                Err(_) if moved > 0 => return Ok(Try::Moved(moved)),
                Err(Errno::AGAIN) => return Ok(Try::Wait(Carrier::Tcp)),
                Err(error) => return Err(Failure::Kernel(error)),
            }
        }
    }

    // ---- the rest -----------------------------------------------------------------------------

    /// The peer broke the protocol: the connection is reset, and both directions say so from now
    /// on.
    #[cold]
    pub(super) fn violated(&self, link: &Link, violation: Violation) -> Errno {
        if link.broken.swap(VIOLATED, Ordering::Relaxed) != VIOLATED {
            tracing::error!(
                "fd {}: process {}: {violation}; reset",
                self.fd().raw(),
                link.peer_pid
            );
            self.set_reason(Some(Reason::PeerViolation));
            socket::reset(self.fd());
            link.ring.doorbell.ring();
        }
        Errno::CONNRESET
    }

    /// FIONREAD: bytes that can be received at once, by either carrier.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn unread(&self) -> Result<usize, Errno> {
        if self.is_seeking() {
            match self.unread_seeking() {
                // A receive that began before the first seek is still asleep: nothing was taken
                // yet.
                Err(Errno::AGAIN) => {}
                unread => return unread,
            }
        }
        let Some(link) = self.attached() else { return socket::unread(self.fd()) };
        let q = &link.ring.queue;
        let Ok(rx) = self.rx(link) else {
            // In a signal handler that interrupted a receive the half cannot be taken: an estimate.
            return Ok(q.unread() + socket::unread(self.fd()).unwrap_or(0));
        };
        let step = rx.step();
        // The bytes of the carrier whose turn it is, and those of the other one if they follow
        // without a gap.
        let void = usize::try_from(rx.void_left()).unwrap_or(usize::MAX);
        let tcp = socket::unread(self.fd()).unwrap_or(0).saturating_sub(void);
        let unread = match step {
            Ok(RxStep::Ring) => q.unread() + tcp,
            Ok(RxStep::Tcp(bound)) if tcp as u64 >= bound => tcp + q.unread(),
            Ok(RxStep::Tcp(_) | RxStep::TcpUnbounded) => tcp,
            _ => 0,
        };
        drop(rx);
        match step {
            Ok(_) => Ok(unread),
            Err(violation) => Err(self.violated(link, violation)),
        }
    }

    /// SIOCOUTQ: bytes sent that the peer's kernel has not acknowledged. What lies on the ring has
    /// arrived, as bytes in the peer's receive queue have.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn unsent(&self) -> Result<usize, Errno> {
        let recalled = self.attached().map_or(0, |link| link.ring.queue.to_retransmit());
        Ok(socket::unsent(self.fd())? + recalled)
    }
}

enum Failure {
    Violation(Violation),
    Kernel(Errno),
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

fn kernel_flags(flags: SendFlags) -> KernelSend {
    let mut how = KernelSend::empty();
    how.set(KernelSend::NOSIGNAL, flags.no_signal);
    how.set(KernelSend::MORE, flags.more);
    how
}
