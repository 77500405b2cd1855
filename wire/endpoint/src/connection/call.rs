//! One call of the application, and how it keeps the file open while it sleeps.
//!
//! A system call that sleeps holds the file, not the number: another thread may close the number,
//! and the kernel may give it to a new connection, which the call must not touch. So a call that
//! sleeps here does so on a descriptor of the library's own, a duplicate that all sleeping calls of
//! the connection share; and while one of them is under way, the end of the connection waits, as in
//! the kernel. Where there is one thread only, nobody can close the number meanwhile.
//!
//! Once a system call visibly has begun, because it sleeps or has moved bytes, a signal ends it at
//! any point. So signals are held back before either, and are delivered only during the sleeps of
//! the call. They are also held back before a call spins for longer than sleeping would take on one
//! host: otherwise, a handler could run without ending the sleep.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, OnceLock, PoisonError};

use seekwire_transport::Errno;
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::signal::HeldBack;
use seekwire_transport::sys::{Fd, thread};

use super::socket_fd::Hold;
use super::state::Connection;
use crate::fork;
use crate::held_file::{HeldFile, lock};

/// One call, until it is dropped.
pub(super) struct Call<'c> {
    connection: &'c Connection,
    /// The number of its own under which it holds the file.
    holds: Cell<Option<Fd>>,
    /// Waits since bytes were last moved.
    waits: Cell<u32>,
    /// Whether so many of them were in vain that the present one is a sleep in any case.
    is_in_vain: Cell<bool>,
    /// The front of the stream at the last wait, if the call seeks.
    front: Cell<Option<u64>>,
    /// Signals that are held back between the sleeps of the call. The last field, so that they are
    /// delivered after all else is released.
    signals: OnceCell<HeldBack>,
}

/// After this many waits in which nothing moved, the peer is taken to prevent sleep.
const IN_VAIN: u32 = 1000;
/// After the first wait that is a sleep in any case, this many may show that sleep is possible
/// again. More would keep a processor busy while something ends every sleep.
const PROBES: u32 = 1;

/// A thread that sleeps, until this is dropped.
pub struct Asleep<'c>(&'c Connection);

/// A sleep of a call, until it is dropped.
pub(super) struct Sleep<'c> {
    /// The number to sleep on.
    pub(super) fd: Fd,
    /// When it ends, unless a signal comes.
    pub(super) until: Deadline,
    _asleep: Asleep<'c>,
}

/// The file, held for a call that sleeps on the application's number, until this is dropped.
pub struct Holding<'c>(&'c Connection);

/// Whether the calling thread has to leave a call that sleeps.
static LEAVES: OnceLock<fn() -> bool> = OnceLock::new();

impl Connection {
    /// Registers `leaves`: a receive or send of a thread for which it returns true does not sleep,
    /// and returns the bytes that it has moved, or ECANCELED. Only the first registration counts.
    pub fn leave_calls_if(leaves: fn() -> bool) {
        let _ = LEAVES.set(leaves);
    }

    /// The socket.
    #[inline]
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::new(self.number.fd.load(Ordering::Relaxed))
    }

    /// Its number was closed; the same socket lives on under this one.
    pub fn set_fd(&self, fd: Fd) {
        self.number.fd.store(fd.raw(), Ordering::Relaxed);
    }

    /// A call begins that may sleep.
    #[inline]
    pub(super) fn begin_call(&self) -> Call<'_> {
        Call {
            connection: self,
            holds: Cell::new(None),
            waits: Cell::new(0),
            is_in_vain: Cell::new(false),
            front: Cell::new(None),
            signals: OnceCell::new(),
        }
    }

    /// Makes calls that sleep hold the file. Called once, by programs that close numbers while
    /// calls use them.
    pub fn hold_in_sleep(&self) {
        self.number.holds_in_sleep.store(true, Ordering::Relaxed);
    }

    /// Counts the caller as asleep, on numbers of its own, until the result is dropped.
    #[must_use]
    pub fn fall_asleep(&self) -> Asleep<'_> {
        self.number.asleep.fetch_add(1, Ordering::SeqCst);
        Asleep(self)
    }

    /// For a caller that is about to sleep: holds the file until the result is dropped. If the
    /// number is closed meanwhile, [`Connection::fd`] is another one. `None` if no other thread can
    /// close it.
    #[must_use]
    pub fn hold_file(&self) -> Option<Holding<'_>> {
        let holds = self.number.holds_in_sleep.load(Ordering::Relaxed)
            && !thread::is_only_one()
            && self.count_holder();
        holds.then_some(Holding(self))
    }

    /// Number of threads that sleep in calls on the connection: before they use its number again,
    /// they ask for it ([`Connection::divert`]).
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.number.asleep.load(Ordering::SeqCst) as usize
    }

    /// The number is about to be closed: from now on calls that hold the file use a number of the
    /// library's own. True if that is new: a call that was awake may still use the old one.
    pub fn divert(&self) -> bool {
        let _inside = fork::enter();
        let Some(mut hold) = self.hold() else { return false };
        // Calls that sleep in the kernel on the application's number hold the file there: none of
        // them has made a duplicate.
        if hold.calls > 0 && hold.file.is_none() {
            hold.file = HeldFile::duplicate(self.fd());
        }
        let Some(file) = hold.file.clone() else { return false };
        drop(hold);
        let is_new = self.number.fd.swap(file.fd().raw(), Ordering::SeqCst) != file.fd().raw();
        if is_new {
            file.set_numberless();
        }
        is_new
    }

    /// The number no longer stands for the connection.
    pub fn leave_number(&self) {
        self.number.is_closed.store(true, Ordering::Release);
    }

    /// Leaves the end of the connection to the last call that holds the file, if there is one.
    pub(super) fn leave_to_holders(&self) -> bool {
        let Some(mut hold) = self.hold() else { return false };
        hold.is_closing = hold.calls > 0 && hold.file.is_some();
        hold.is_closing
    }

    fn hold(&self) -> Option<MutexGuard<'_, Hold>> {
        lock(&self.number.hold)
    }

    /// Whether the application has no number left for the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.number.is_closed.load(Ordering::Acquire)
    }

    fn count_holder(&self) -> bool {
        let _inside = fork::enter();
        let hold = self.hold();
        hold.map(|mut hold| hold.calls += 1).is_some()
    }

    fn take_hold(&self) -> Option<Fd> {
        let _inside = fork::enter();
        let mut hold = self.hold()?;
        if hold.file.is_none() {
            hold.file = HeldFile::duplicate(self.fd());
        }
        let file = hold.file.as_ref()?.fd();
        hold.calls += 1;
        Some(file)
    }

    fn let_go(&self) {
        let inside = fork::enter();
        let mut hold = self.number.hold.lock().unwrap_or_else(PoisonError::into_inner);
        hold.calls = hold.calls.saturating_sub(1);
        if hold.calls > 0 {
            return;
        }
        let Some(file) = hold.file.take() else { return };
        let is_closing = std::mem::take(&mut hold.is_closing);
        drop(hold);
        if is_closing {
            // A fork meanwhile finds it in the list of those without a number. Closing it may take
            // as long as SO_LINGER allows.
            drop(inside);
            self.end();
            file.close();
            let _inside = fork::enter();
            file.forget();
        } else {
            file.close();
            file.forget();
        }
    }

    /// In the child of a fork, no other thread's call is under way.
    pub(super) fn forget_holds(&self) {
        let mut hold = self.number.hold.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = std::mem::take(&mut *hold).file {
            file.close();
        }
        self.number.asleep.store(0, Ordering::SeqCst);
    }
}

impl Call<'_> {
    /// ECANCELED if this thread must not sleep ([`Connection::leave_calls_if`]).
    pub(super) fn not_interrupted(&self) -> Result<(), Errno> {
        if self.is_interrupted() { Err(Errno::CANCELED) } else { Ok(()) }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        LEAVES.get().is_some_and(|leaves| leaves())
    }

    /// Begins another wait. True if too many before it were in vain: the peer's memory prevents
    /// sleep, although nothing can be moved. Then the caller has to sleep for a moment in any case,
    /// since it notices only in a sleep that its deadline has passed.
    ///
    /// # Errors
    /// EINTR if a signal has arrived since signals were held back, even if waiting is no longer
    /// necessary, as in the kernel.
    pub(super) fn begin_wait(&self) -> Result<bool, Errno> {
        if let Some(signals) = self.signals.get() {
            signals.let_in()?;
        }
        let waits = self.waits.get() + 1;
        let is_in_vain = waits > IN_VAIN;
        self.waits.set(if is_in_vain { IN_VAIN - PROBES } else { waits });
        self.is_in_vain.set(is_in_vain);
        Ok(is_in_vain)
    }

    /// Notes that the waits so far were not in vain: bytes were moved, or the call has slept
    /// undisturbed until a deadline.
    #[inline]
    pub(super) fn moved(&self) {
        self.waits.set(0);
        self.is_in_vain.set(false);
    }

    /// For a seek: the result of [`Self::begin_wait`], taking into account whether the front of the
    /// stream, now at `front`, has moved.
    pub(super) fn is_in_vain_at(&self, front: u64) -> bool {
        if self.front.replace(Some(front)) != Some(front) {
            self.moved();
        }
        self.is_in_vain.get()
    }

    /// Whether the call has a number of its own.
    pub(super) fn holds_file(&self) -> bool {
        self.holds.get().is_some()
    }

    /// The call is about to move a part of its bytes, and then to wait for the others: from now on,
    /// a signal ends it.
    #[cold]
    pub(super) fn hold_signals(&self) {
        self.signals.get_or_init(HeldBack::new);
    }

    /// Holds signals back from now on; returns whether none has arrived since.
    pub(super) fn is_undisturbed(&self) -> bool {
        !self.signals.get_or_init(HeldBack::new).has_come()
    }

    /// Makes the call count as asleep until the result is dropped.
    pub(super) fn sleep(&self, until: Deadline) -> Sleep<'_> {
        let connection = self.connection;
        // Before it is counted: an observer that sees it asleep may send the one signal that is to
        // wake it.
        let until = until.letting_in(self.signals.get_or_init(HeldBack::new));
        if self.holds.get().is_none()
            && connection.number.holds_in_sleep.load(Ordering::Relaxed)
            && !thread::is_only_one()
        {
            self.holds.set(connection.take_hold());
        }
        let _asleep = connection.fall_asleep();
        // If no descriptor is free, the application's number has to do, although it may be closed.
        Sleep { fd: self.holds.get().unwrap_or_else(|| connection.fd()), until, _asleep }
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.holds.get().is_some() {
            self.connection.let_go();
        }
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        // A child that a handler forked during this very sleep has begun anew.
        let fewer = |now: u32| Some(now.saturating_sub(1));
        let _ = self.0.number.asleep.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::seek::pair::Pair;

    #[test]
    fn who_could_not_sleep_for_a_while_tries_again() {
        let pair = Pair::plain();
        let call = pair.to.begin_call();
        assert!(!call.is_in_vain_at(0));
        let in_vain = |waits: u32| (0..waits).filter(|_| call.begin_wait() == Ok(true)).count();
        assert_eq!((in_vain(IN_VAIN), in_vain(1)), (0, 1));
        assert!(call.is_in_vain_at(0));
        assert_eq!((in_vain(PROBES), in_vain(1)), (0, 1));
        call.moved();
        assert_eq!((in_vain(IN_VAIN), in_vain(1)), (0, 1));
    }
}
