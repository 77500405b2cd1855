//! How the process's threads leave the library before the library leaves the process.
//!
//! A call that sleeps for the library returns through system calls of the library, which a filter
//! that is about to be installed may block. So each such call is woken first, and continues as the
//! application's own kernel call.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use seekwire_endpoint::Until;
use seekwire_transport::sys::thread;

use crate::epoll::Alarm;
use crate::hazard::{self, Where};
use crate::table::Object;
use crate::{log, process};

/// How long a call waits for permission to continue without the library.
const WORD: Duration = Duration::from_secs(10);

/// How long all calls may take to leave. Not longer: a call may be in a signal handler that waits
/// for the thread which installs the filter.
const LIMIT: Duration = Duration::from_secs(1);

const NAP: Duration = Duration::from_micros(200);

/// True if the library is leaving or has left: a call has to check this after sleeping. If true, it
/// may make the application's own call, and nothing else. System calls needed for cleanup have to
/// come right after this check.
#[cold]
pub(crate) fn has_begun() -> bool {
    if !process::retreats() {
        return false;
    }
    let until = Until::after(Some(WORD));
    hazard::being(Where::Waiting, || {
        while !process::has_retreated() && !until.is_over() {
            thread::nap(NAP);
        }
    });
    true
}

/// The library is leaving: other threads wait for permission to continue.
pub(crate) struct Unload<'a> {
    objects: Vec<&'a Arc<Object>>,
    /// Ends sleeps, followed by the numbers of the sets in which it does.
    alarm: Option<Alarm>,
    sets: Vec<c_int>,
    until: Until,
    are_awake: bool,
}

impl<'a> Unload<'a> {
    /// Wakes the calls of other threads on objects of the table, and on objects that were removed
    /// from it. The sets stay in the table: a call that begins to wait on one now also waits for
    /// permission, and does not see the event that wakes the others.
    pub(crate) fn begin(entered: &'a [(c_int, Arc<Object>)], retired: &'a [Arc<Object>]) -> Self {
        process::begin_retreat();
        let alarm = Alarm::new().ok();
        let sets = entered.iter().filter(|(_, object)| object.as_set().is_some());
        let sets = sets.map(|(number, _)| *number);
        let sets =
            sets.filter(|set| alarm.as_ref().is_some_and(|alarm| alarm.ring_in(*set).is_ok()));
        let sets = sets.collect();
        let objects = entered.iter().map(|(_, object)| object).chain(retired).collect();
        let until = Until::after(Some(LIMIT));
        let mut unload = Self { objects, alarm, sets, until, are_awake: true };
        unload.wake_until(&[Where::Outside, Where::Waiting]);
        unload
    }

    /// Gives permission, and waits until each call is the application's own.
    pub(crate) fn end(mut self) {
        if let Some(alarm) = self.alarm.take() {
            // A child forked since then also has the alarm, so closing it is not enough.
            self.sets.iter().for_each(|set| alarm.leave(*set));
        }
        process::retreat();
        self.wake_until(&[Where::Outside]);
        if !self.are_awake {
            log::warn!(
                "calls of other threads did not leave the library in time: a filter for all \
                 threads applies to their system calls"
            );
        }
    }

    fn wake_until(&mut self, places: &[Where]) {
        while !hazard::are_all(places) {
            if self.until.is_over() {
                self.are_awake = false;
                return;
            }
            let is_used = |object: &&&Arc<Object>| hazard::is_used_inside(Arc::as_ptr(object));
            for socket in self.objects.iter().filter(is_used).filter_map(|of| of.as_socket()) {
                socket.connection.interrupt();
            }
            thread::nap(NAP);
        }
    }
}
