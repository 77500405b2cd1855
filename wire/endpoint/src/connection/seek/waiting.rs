//! Sleeping for bytes in the middle of a stream.

use std::sync::atomic::{Ordering, fence};

use seekwire_protocol::Carrier;
use seekwire_transport::Errno;
use seekwire_transport::seek::{At, Attempt, Leader, SeekGuard, SeekOptions, Source};
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::{Fd, socket};

use super::source::{LazyReceivePath, ReceivePath, ReceivePathSource};
use super::state::{SeekState, Seeking};
use crate::connection::call::Call;
use crate::connection::call_limit::Limit;
use crate::connection::state::Connection;
use crate::connection::waiting::{ToReceive, as_again};

/// How to wait.
enum How {
    /// Not at all: the bytes may be there, or cannot come.
    Not,
    /// On the kernel's socket, in the plain phase.
    Kernel,
    /// On the ring, until the peer has published enough.
    Ring,
    /// On the ring, until this carrier has news, or the peer publishes anything after this mark was
    /// taken.
    News(Carrier, u64),
}

/// The state of the stream, locked.
type StateGuard<'s> = SeekGuard<'s, Option<SeekState>>;

impl Connection {
    /// Sleeps until an attempt may succeed. Returns whether the caller has to ask the kernel's
    /// socket whether it has ended.
    pub(super) fn wait_for(
        &self,
        seeking: &Seeking,
        attempt: &Attempt,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        call.begin_wait()?;
        self.sleep_for(seeking, attempt, until, call)
            .and_then(|ready| call.not_interrupted().map(|()| ready))
            .map_err(as_again)
    }

    /// As [`Self::wait_for`], for a receive in order; without an attempt, for a byte at the head.
    pub(super) fn wait_for_more(
        &self,
        seeking: &Seeking,
        attempt: Option<Attempt>,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let at_head = SeekOptions::PEEK.partial(true);
        let attempt = match attempt {
            Some(attempt) => Ok(attempt),
            None => self
                .with_engine(seeking, false, |engine, _| engine.begin(At::Offset(0), 1, at_head)),
        };
        match attempt {
            Ok(attempt) => self.wait_for(seeking, &attempt, until, call),
            Err(Errno::AGAIN) => self.wait_at_door(seeking, until, call).map(|()| false),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until all receives that began before the first seek have returned.
    ///
    /// # Errors
    /// EAGAIN at the deadline, and in a signal handler that interrupted such a receive: it would
    /// wait for itself.
    pub(super) fn wait_at_door(
        &self,
        seeking: &Seeking,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<(), Errno> {
        if seeking.state.is_mine() {
            return Err(Errno::AGAIN);
        }
        if let Some(data_path) = self.attached() {
            self.rx(data_path)?;
        }
        if seeking.door.get().is_none() {
            let door = Doorbell::new()
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?;
            let _ = seeking.door.set(door);
        }
        let Some(door) = seeking.door.get() else { return Ok(()) };
        if !self.gate.has_receivers() {
            return Ok(());
        }
        let sleep = call.sleep(until);
        // Never silenced: it is rung once.
        let waited = poll::wait(door.fd(), Fd::new(-1), Events::default(), sleep.until);
        waited.map(drop).map_err(as_again)
    }

    /// Called when the last receive that began before the first seek returns.
    pub(in crate::connection) fn open_door(&self) {
        if let Some(door) = self.seeking.get().and_then(|seeking| seeking.door.get()) {
            door.ring();
        }
    }

    /// Makes all sleepers for bytes look again.
    pub(in crate::connection) fn wake_seekers(&self) {
        if let Some(seeking) = self.intact_seeking() {
            if let Ok(mut guard) = seeking.state.lock() {
                if let Some(state) = guard.as_mut() {
                    seeking.call_leader(state);
                    if let Some(data_path) = self.attached() {
                        data_path.ring.doorbell.ring();
                    }
                    state.sleepers.wake(u64::MAX);
                    state.waits.wake_all(self.fd());
                }
            }
        }
    }

    fn sleep_for(
        &self,
        seeking: &Seeking,
        attempt: &Attempt,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let mut guard = self.lock(seeking)?;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        let watched = seeking.is_watched.load(Ordering::SeqCst);
        let how = self.with_state(seeking, state, true, |state, path, front| {
            self.prepare(state, path, front, attempt, watched)
        })?;
        if call.is_in_vain_at(state.engine.front()) {
            return self.nap(seeking, guard, until, call);
        }
        let mark = match how {
            How::Not => return Ok(true),
            How::Kernel => {
                // A caller watches for the next byte: the kernel has to wake for every one.
                let end = if watched {
                    state.engine.front() + 1
                } else {
                    state.engine.needed_end(attempt)
                };
                return self.sleep_in_kernel(seeking, guard, end, until, call);
            }
            How::Ring => None,
            How::News(carrier, mark) => Some((carrier, mark)),
        };
        let end = state.engine.needed_end(attempt);
        match state.sleepers.leader(end) {
            Some(leader) => self.follow(seeking, guard, end, leader, until, call),
            None => self.lead(seeking, guard, end, mark, until, call),
        }
    }

    /// Sleeps for a moment, whatever comes: the caller was woken many times in vain.
    fn nap(
        &self,
        seeking: &Seeking,
        mut guard: StateGuard<'_>,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let state = guard.as_mut().ok_or(Errno::IO)?;
        match self
            .with_state(seeking, state, false, |state, path, front| self.drain(state, path, front))
        {
            Ok(_) | Err(Errno::NOBUFS) => {}
            Err(error) => return Err(error),
        }
        drop(guard);
        self.service_peer();
        self.wait_a_moment(&Limit::at(until), call, None).map(|()| true)
    }

    /// Sleeps on the kernel's socket until it holds the bytes before `end`.
    fn sleep_in_kernel(
        &self,
        seeking: &Seeking,
        mut guard: StateGuard<'_>,
        end: u64,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let Some(bracket) = self.enter_plain() else { return Ok(false) };
        let SeekState { engine, cursor, waits, .. } = guard.as_mut().ok_or(Errno::IO)?;
        let sleep = waits.begin(self.fd(), engine.reach(cursor.leaves_holes()), end)?;
        drop(guard);
        let asleep = call.sleep(until);
        let slept = sleep.sleep(asleep.fd, asleep.until);
        drop(asleep);
        drop(bracket);
        let mut guard = self.lock(seeking)?;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        let SeekState { engine, cursor, waits, .. } = &mut *state;
        let reach = engine.reach(cursor.leaves_holes());
        let need = reach.bytes_before(sleep.position());
        let is_told = waits.end(self.fd(), reach, sleep, slept.unwrap_or_default());
        let is_late = slept?.is_late;
        if (is_told || is_late) && (socket::unread(self.fd())? as u64) < need {
            // The rest cannot come while these bytes fill the receive buffer.
            let drained = self.with_state(seeking, state, false, |state, path, front| {
                self.drain(state, path, front)
            });
            match drained {
                // The range may still come, but more slowly.
                Err(Errno::NOBUFS) if is_late => state.waits.leave_there(),
                drained => drop(drained?),
            }
        }
        Ok(true)
    }

    /// Sleeps until the leader, the thread that sleeps on the ring for all, reports that the bytes
    /// before `end` are there. If the leader waits for later bytes ([`Leader::Late`]), makes it
    /// look again.
    fn follow(
        &self,
        seeking: &Seeking,
        mut guard: StateGuard<'_>,
        end: u64,
        leader: Leader,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let state = guard.as_mut().ok_or(Errno::IO)?;
        let sleep = state.sleepers.begin(end)?;
        if leader == Leader::Late {
            if let Some(data_path) = self.attached() {
                seeking.call_leader(state);
                data_path.ring.doorbell.ring();
            }
        }
        drop(guard);
        let asleep = call.sleep(until);
        let slept = sleep.sleep(Fd::new(-1), Events::default(), asleep.until);
        drop(asleep);
        if let Some(state) = self.lock(seeking)?.as_mut() {
            state.sleepers.end(sleep);
        }
        slept.map(|_| true)
    }

    /// Sleeps on the ring, for all waiters for bytes: until those before `end` are published, or,
    /// with a mark, until anything is published that was not when the mark was taken.
    fn lead(
        &self,
        seeking: &Seeking,
        mut guard: StateGuard<'_>,
        end: u64,
        news: Option<(Carrier, u64)>,
        until: Deadline,
        call: &Call<'_>,
    ) -> Result<bool, Errno> {
        let Some(data_path) = self.attached() else { return Ok(false) };
        let q = &data_path.ring.queue;
        let state = guard.as_mut().ok_or(Errno::IO)?;
        let front = state.engine.front();
        let wakes_at = state.sleepers.lead(if news.is_some() { front } else { end }, front);
        let published = if news.is_some() { 0 } else { q.published_with(wakes_at - front) };
        let moves = seeking.moves.load(Ordering::Acquire);
        seeking.leader_called.store(false, Ordering::SeqCst);
        drop(guard);
        // Receives that began before the first seek check, just before they sleep, whether the
        // connection seeks: either they see it, or they are counted and seen here.
        fence(Ordering::SeqCst);
        if self.others_are_called() {
            data_path.ring.doorbell.ring();
        }
        let ready = || {
            news.map_or_else(
                || q.peer_has_published(published),
                |(_, mark)| q.published_mark() != mark,
            ) || seeking.moves.load(Ordering::Acquire) != moves
        };
        let carrier = news.map_or(Carrier::Ring, |(carrier, _)| carrier);
        let limit = &Limit::at(until);
        let wait = ToReceive { carrier, limit, published, edge_watch: None, among: None };
        let slept = self
            .wait_until(data_path, &wait, call, ready)
            .map(|by_socket| by_socket || q.peer_is_shut());
        let guard = self.lock(seeking);
        seeking.leader_called.store(false, Ordering::SeqCst);
        if let Some(state) = guard?.as_mut() {
            state.sleepers.end_lead();
        }
        slept
    }

    /// Moves the bytes that have arrived into library memory.
    fn drain<'c>(
        &'c self,
        state: &mut SeekState,
        path: &LazyReceivePath<'c>,
        front: u64,
    ) -> Result<bool, Errno> {
        let SeekState { engine, cursor, loans, violation, .. } = state;
        let mut source = ReceivePathSource {
            connection: self,
            path,
            cursor,
            loans,
            front,
            asks_kernel: false,
            violation,
        };
        engine.drain(&mut source)
    }

    /// Opens the window as far as possible. Returns how to wait for the missing bytes.
    fn prepare<'c>(
        &'c self,
        state: &mut SeekState,
        path: &LazyReceivePath<'c>,
        front: u64,
        attempt: &Attempt,
        watched: bool,
    ) -> Result<How, Errno> {
        let SeekState { engine, cursor, loans, violation, .. } = state;
        // A sleeper on the ring also sleeps on the socket, which reports its own end.
        let mut source = ReceivePathSource {
            connection: self,
            path,
            cursor,
            loans,
            front,
            asks_kernel: false,
            violation,
        };
        engine.discard_taken(&mut source)?;
        if engine.needs(attempt) == 0 {
            return Ok(How::Not);
        }
        let ReceivePath::Attached(data_path, rx) = path.get()? else {
            if watched {
                engine.drain(&mut source)?;
            }
            return Ok(if engine.needs(attempt) == 0 { How::Not } else { How::Kernel });
        };
        let q = &data_path.ring.queue;
        // The mark is taken before the look at the ring: anything published afterwards is news.
        let mark = q.published_mark();
        if !q.rx_on_ring() {
            // Bytes in the kernel would end every sleep on its socket at once.
            engine.drain(&mut source)?;
            let done = engine.needs(attempt) == 0 || q.rx_on_ring();
            return Ok(if done { How::Not } else { How::News(Carrier::Tcp, mark) });
        }
        // The peer claims to have published enough, or to be unable to publish more, but the ring
        // does not show it: it has yet to, or it lies. Only news ends the sleep then.
        let is_said = q.peer_has_published(q.published_with(engine.needs(attempt)));
        let arrived = source.arrived()?;
        let (_, bytes) = rx.arrived().map_err(|_| Errno::CONNRESET)?;
        if engine.needs(attempt) <= arrived.max(bytes) {
            return Ok(How::Not);
        }
        let news = How::News(Carrier::Ring, mark);
        if q.peer_is_full() {
            if engine.drain(&mut source)? {
                return Ok(How::Not);
            }
            // Nothing on the ring can be moved to make room. It is full of loans, or of segments
            // that the peer has reserved.
            return if loans.count() > 0 { Err(Errno::NOBUFS) } else { Ok(news) };
        }
        Ok(if is_said { news } else { How::Ring })
    }
}

#[cfg(test)]
mod tests;
