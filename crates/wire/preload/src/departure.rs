//! How the threads of the process leave the library, before it leaves the process.
//!
//! A call that sleeps for the library ends in it, with system calls of the library's own, and a
//! filter that is about to be installed may not let those through. So before that each such call is
//! woken, and goes on as what the application has asked for: its own call of the kernel.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use seekwire_endpoint::Until;
use seekwire_transport::sys::thread;

use crate::epoll::Alarm;
use crate::hazard::{self, Where};
use crate::table::Object;
use crate::{fork, log, process};

/// How long a call that is to go on without the library waits for the word.
const WORD: Duration = Duration::from_secs(10);

/// How long all of them may take to leave. Not more: one may be in a signal handler that waits for
/// the thread which installs the filter.
const LIMIT: Duration = Duration::from_secs(1);

const NAP: Duration = Duration::from_micros(200);

/// Whether the library is leaving, or has left: to be asked by a call when it has slept. If so, it
/// may now make the application's own call, and nothing else. Everything that it has to undo by
/// system calls is undone right after this.
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

/// The library is leaving: other threads wait for the word.
pub(crate) struct Departure<'a> {
    objects: Vec<&'a Arc<Object>>,
    /// What ends sleeps, and the numbers of the sets in which it does.
    alarm: Option<Alarm>,
    sets: Vec<c_int>,
    until: Until,
    are_awake: bool,
}

impl<'a> Departure<'a> {
    /// Wakes the calls of other threads on objects of the table, and on those that it had. The sets
    /// are still in the table: who waits on one from now on waits for the word, too, and does not
    /// find what wakes the others.
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
        let mut departure = Self { objects, alarm, sets, until, are_awake: true };
        departure.wake_until(&[Where::Outside, Where::Waiting]);
        // A thread that forks uses no object.
        fork::await_end();
        departure
    }

    /// Gives the word, and waits until each call is the application's own.
    pub(crate) fn end(mut self) {
        if let Some(alarm) = self.alarm.take() {
            // A child that was forked since has it, too, so that it does not go by itself.
            self.sets.iter().for_each(|set| alarm.leave(*set));
        }
        process::retreat();
        self.wake_until(&[Where::Outside]);
        if !self.are_awake {
            log::warn!(
                "calls of other threads did not leave the library in time: a filter for all \
                 threads meets their system calls"
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
