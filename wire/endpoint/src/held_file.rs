//! The files on which calls sleep, by numbers of the library's own: once the application has closed
//! its number, the child of a fork finds them only here.

use std::sync::{Arc, Mutex, MutexGuard};

use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::PrivateFd;

/// A duplicate of the socket on which calls sleep; none once it is closed.
#[derive(Debug)]
pub(crate) struct HeldFile {
    fd: Fd,
    placed: Mutex<Option<PrivateFd>>,
}

/// Files whose number the application has closed. A forked child has no calls that sleep on them,
/// and closes them.
static NUMBERLESS: Mutex<Vec<Arc<HeldFile>>> = Mutex::new(Vec::new());

impl HeldFile {
    pub(crate) fn duplicate(fd: Fd) -> Option<Arc<Self>> {
        let placed = PrivateFd::duplicate(fd).ok()?;
        Some(Arc::new(Self { fd: placed.fd(), placed: Mutex::new(Some(placed)) }))
    }

    pub(crate) fn close(&self) {
        let placed = lock(&self.placed).and_then(|mut placed| placed.take());
        drop(placed);
    }

    /// Notes that the application has closed the number.
    pub(crate) fn set_numberless(self: &Arc<Self>) {
        if let Some(mut numberless) = lock(&NUMBERLESS) {
            numberless.push(Arc::clone(self));
        }
    }

    /// The number of the library's own.
    pub(crate) fn fd(&self) -> Fd {
        self.fd
    }

    /// Notes that it is closed: a forked child has nothing to close.
    pub(crate) fn forget(self: &Arc<Self>) {
        if let Some(mut numberless) = lock(&NUMBERLESS) {
            numberless.retain(|other| !Arc::ptr_eq(other, self));
        }
    }
}

/// Closes, in the child of a fork, the files on which calls of the parent sleep.
pub(crate) fn close_numberless() {
    let files = lock(&NUMBERLESS).map(|mut files| std::mem::take(&mut *files)).unwrap_or_default();
    files.iter().for_each(|file| file.close());
}

/// Takes a lock, or none if it is held: the caller may be a signal handler that has interrupted the
/// holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    const LOOKS: u32 = 10_000;
    (0..LOOKS).find_map(|_| {
        let guard = mutex.try_lock().ok();
        if guard.is_none() {
            std::thread::yield_now();
        }
        guard
    })
}
