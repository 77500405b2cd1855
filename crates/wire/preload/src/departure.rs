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
use crate::{log, process};

/// How long a call that is to go on without the library waits for the word.
const WORD: Duration = Duration::from_secs(10);

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

/// Wakes the calls of other threads on `objects`, until each makes the application's own call.
pub(crate) fn await_others(objects: &[(c_int, Arc<Object>)], until: Until) {
    process::begin_retreat();
    // Those who wake because of it must not find it again in their own calls.
    let alarm = Alarm::new();
    if let Ok(alarm) = &alarm {
        for (number, _) in objects.iter().filter(|(_, object)| object.as_set().is_some()) {
            // A set that cannot be changed is no set any more.
            let _ = alarm.ring_in(*number);
        }
    }
    let mut are_awake = wake_until(objects, until, &[Where::Outside, Where::Waiting]);
    drop(alarm);
    process::retreat();
    are_awake &= wake_until(objects, until, &[Where::Outside]);
    if !are_awake {
        log::warn!(
            "calls of other threads did not leave the library in time: a filter for all threads \
             meets their system calls"
        );
    }
}

fn wake_until(objects: &[(c_int, Arc<Object>)], until: Until, places: &[Where]) -> bool {
    while !hazard::are_all(places) {
        if until.is_over() {
            return false;
        }
        let sockets = objects.iter().filter_map(|(_, object)| Some((object, object.as_socket()?)));
        for (_, socket) in sockets.filter(|(object, _)| hazard::is_used_inside(Arc::as_ptr(object)))
        {
            socket.connection.interrupt();
        }
        thread::nap(NAP);
    }
    true
}
