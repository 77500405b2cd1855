//! One call of the application, and how it keeps the file open while it sleeps.
//!
//! A system call that sleeps holds the file, not the number: another thread may close the number,
//! and the kernel may give it to a new connection, which is no business of the call. So a call that
//! sleeps here does so on a descriptor of the library's own, a duplicate that all sleeping calls of
//! the connection share; and while one of them is under way, the end of the connection waits, as in
//! the kernel. Where there is one thread only, nobody can close the number meanwhile.
//!
//! A signal ends a system call wherever in the call it comes, once the call can be seen to have
//! begun: since it sleeps, or has moved something. So before either, signals are held back, and
//! come in by the sleeps of the call alone. So they are before a call stays awake for longer than
//! sleeping would take on one host: a handler that ran then would be lost to the sleep.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use seekwire_transport::Errno;
use seekwire_transport::sys::poll::Deadline;
use seekwire_transport::sys::signal::HeldBack;
use seekwire_transport::sys::{Fd, thread};

use super::number::Hold;
use super::state::Connection;
use crate::fork;
use crate::held_file::{HeldFile, lock};

/// One call, until it is dropped.
pub(super) struct Call<'c> {
    connection: &'c Connection,
    interrupts: u32,
    /// Its number, if the file is held.
    holds: Cell<Option<Fd>>,
    /// Waits since something was moved.
    waits: Cell<u32>,
    /// Where the stream was when it waited last, if it seeks.
    front: Cell<Option<u64>>,
    /// Signals that wait while the call sleeps more than once. The last field, so that they come in
    /// when all else is released.
    signals: OnceCell<HeldBack>,
}

/// So many waits with nothing moved in between do not happen by chance: the peer lets nobody sleep.
const IN_VAIN: u32 = 1000;

/// A thread that sleeps, until this is dropped.
pub struct Asleep<'c>(&'c Connection);

/// A sleep of a call, until it is dropped.
pub(super) struct Sleep<'c> {
    /// The number to sleep on.
    pub(super) fd: Fd,
    /// Until when, if no signal comes.
    pub(super) until: Deadline,
    _asleep: Asleep<'c>,
}

/// The file, held for a call that sleeps on the application's number, until this is dropped.
pub struct Holding<'c>(&'c Connection);

impl Connection {
    /// The socket.
    #[inline]
    #[must_use]
    pub fn fd(&self) -> Fd {
        Fd::new(self.number.fd.load(Ordering::Relaxed))
    }

    /// The number it was known by was closed; the same socket lives on under this one.
    pub fn set_fd(&self, fd: Fd) {
        self.number.fd.store(fd.raw(), Ordering::Relaxed);
    }

    /// A call begins that may sleep.
    #[inline]
    pub(super) fn begin_call(&self) -> Call<'_> {
        Call {
            connection: self,
            interrupts: self.interrupts(),
            holds: Cell::new(None),
            waits: Cell::new(0),
            front: Cell::new(None),
            signals: OnceCell::new(),
        }
    }

    /// Calls that sleep hold the file: to be said once, where numbers are closed while calls use
    /// them.
    pub fn hold_in_sleep(&self) {
        self.number.holds_in_sleep.store(true, Ordering::Relaxed);
    }

    /// The caller sleeps, on numbers of its own, until the result is dropped.
    #[must_use]
    pub fn fall_asleep(&self) -> Asleep<'_> {
        self.number.asleep.fetch_add(1, Ordering::SeqCst);
        Asleep(self)
    }

    /// The caller is about to sleep, and its call holds the file until the result is dropped: if
    /// the number is closed meanwhile, [`Connection::fd`] is another one. `None` where nobody else
    /// can close it.
    #[must_use]
    pub fn hold_file(&self) -> Option<Holding<'_>> {
        let holds = self.number.holds_in_sleep.load(Ordering::Relaxed)
            && !thread::is_only_one()
            && self.count_holder();
        holds.then_some(Holding(self))
    }

    /// How many threads sleep in calls on the connection: they use its number no more before they
    /// have asked for it again ([`Connection::divert`]).
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

    /// The number stands for the connection no more.
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

    /// Whether no number of the application's stands for the connection.
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
            // A fork meanwhile finds it among the numberless; to close it may take as long as
            // SO_LINGER says.
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

    /// In the child of a fork: calls of other threads are not under way here.
    pub(super) fn forget_holds(&self) {
        let mut hold = self.number.hold.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = std::mem::take(&mut *hold).file {
            file.close();
        }
        self.number.asleep.store(0, Ordering::SeqCst);
    }
}

impl Call<'_> {
    /// ECANCELED if [`Connection::interrupt`] was called since the call began.
    pub(super) fn not_interrupted(&self) -> Result<(), Errno> {
        if self.is_interrupted() { Err(Errno::CANCELED) } else { Ok(()) }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.connection.interrupts() != self.interrupts
    }

    /// Another wait begins. True if too many before it were in vain: what the peer's memory says
    /// lets nobody sleep, and still nothing can be moved. Then the caller has to sleep for a moment
    /// whatever comes, since it notices only in a sleep that its time is over.
    ///
    /// # Errors
    /// EINTR if a signal has come since signals are held back, even if there is no need to wait any
    /// more, as in the kernel.
    pub(super) fn begin_wait(&self) -> Result<bool, Errno> {
        if let Some(signals) = self.signals.get() {
            signals.let_in()?;
        }
        self.waits.set(self.waits.get().saturating_add(1));
        Ok(self.waits.get() > IN_VAIN)
    }

    /// The waits so far were not in vain: something was moved, or the call has slept undisturbed
    /// until a deadline.
    #[inline]
    pub(super) fn moved(&self) {
        self.waits.set(0);
    }

    /// As the result of [`Self::begin_wait`], for a seek: whether the waits were in vain although
    /// the front of the stream, now at `front`, may have moved.
    pub(super) fn is_in_vain_at(&self, front: u64) -> bool {
        if self.front.replace(Some(front)) != Some(front) {
            self.moved();
        }
        self.waits.get() > IN_VAIN
    }

    /// Whether it has a number of its own.
    pub(super) fn holds_file(&self) -> bool {
        self.holds.get().is_some()
    }

    /// The call is about to move a part of what it was asked for, and to wait for the rest: a
    /// signal from now on ends it.
    #[cold]
    pub(super) fn hold_signals(&self) {
        self.signals.get_or_init(HeldBack::new);
    }

    /// Signals are held back from now on; returns whether none has come since they are.
    pub(super) fn is_undisturbed(&self) -> bool {
        !self.signals.get_or_init(HeldBack::new).has_come()
    }

    /// The call sleeps until the result is dropped.
    pub(super) fn sleep(&self, until: Deadline) -> Sleep<'_> {
        let connection = self.connection;
        // Before it is counted: who sees it asleep may send the one signal that is to wake it.
        let until = until.letting_in(self.signals.get_or_init(HeldBack::new));
        if self.holds.get().is_none()
            && connection.number.holds_in_sleep.load(Ordering::Relaxed)
            && !thread::is_only_one()
        {
            self.holds.set(connection.take_hold());
        }
        let _asleep = connection.fall_asleep();
        // Without a descriptor to be had, the number that may be closed has to do.
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
        // A child that was forked by a handler in this very sleep has begun anew.
        let fewer = |now: u32| Some(now.saturating_sub(1));
        let _ = self.0.number.asleep.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}
