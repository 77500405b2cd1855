//! Waiting on an epoll set.

use std::ffi::c_int;

use libc::epoll_event;
use transport::Errno;
use transport::sys::call;

use super::Set;
use super::state::Events;
use crate::border::{self, guarded_raw, keeping_errno, set_errno};
use crate::table::SetRef;
use crate::timeout::Timeout;

/// While connections have something to report, the kernel is asked in every so many waits, so that
/// ordinary fds and armed connections are not left waiting behind busy ones.
const ASK_EVERY: u32 = 8;

/// While a thread waits awake, the kernel is asked once in so many looks: some microseconds.
const LOOKS_PER_QUESTION: u32 = 128;

/// What a wait found without sleeping.
enum Found {
    Events(usize),
    /// The kernel refused; errno is set.
    Failed,
    /// Every connection is armed and this thread is counted among the sleepers.
    Nothing,
}

/// epoll_wait and its relatives. `sleep` makes the application's own call, with the time that is left.
pub(crate) fn wait(
    set: &SetRef,
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    mut timeout: Timeout,
    sleep: impl Fn(&mut Timeout) -> c_int,
) -> c_int {
    if max <= 0 || events.is_null() {
        return sleep(&mut timeout);
    }
    loop {
        match guarded_raw(|| look(set, epfd, events, max as usize, timeout.is_none())) {
            Some(Found::Events(count)) => return count as c_int,
            Some(Found::Failed) => return -1,
            Some(Found::Nothing) => {}
            None => return sleep(&mut timeout),
        }
        let sleeping = Sleeping(set);
        let result = sleep(&mut timeout);
        drop(sleeping);
        if result < 0 {
            return result;
        }
        let count = guarded_raw(|| translate(set, epfd, events, max as usize, result as usize)).unwrap_or(0);
        // Nothing but a bell that rang in vain: the wait goes on.
        if count > 0 || timeout.is_over() {
            return count as c_int;
        }
    }
}

/// Counted among those who sleep on a set; also when the thread is cancelled there.
struct Sleeping<'a>(&'a Set);

impl Drop for Sleeping<'_> {
    fn drop(&mut self) {
        keeping_errno(|| self.0.state.lock().sleepers -= 1);
    }
}

fn look(set: &Set, epfd: c_int, events: *mut epoll_event, max: usize, only_look: bool) -> Found {
    // SAFETY: the application passes room for `max` events.
    let mut events = unsafe { Events::new(events, max) };
    loop {
        let mut state = set.state.lock();
        let round = state.round();
        state.collect(round, epfd, &mut events);
        state.unasked += 1;
        let found = events.len() > 0;
        let ask = if found { state.unasked >= ASK_EVERY && events.room() > 0 } else { only_look };
        if ask || !found && state.is_worth_spinning() {
            drop(state);
            let awake = if ask {
                Awake::Asked(ask_kernel(epfd, &mut events))
            } else {
                stay_awake(set, epfd, &mut events)
            };
            state = set.state.lock();
            match awake {
                Awake::Asked(count) if count < 0 && !found => return Found::Failed,
                Awake::Asked(count) => {
                    state.unasked = 0;
                    state.translate(round, epfd, count.max(0) as usize, &mut events);
                }
                Awake::Ready => continue,
                Awake::InVain => {}
            }
        }
        if events.len() > 0 || only_look {
            if set.has_sleepers(&state) {
                state.hand_over();
            }
            return Found::Events(events.len());
        }
        if !state.arm() {
            state.sleepers += 1;
            return Found::Nothing;
        }
    }
}

/// What came of waiting awake.
enum Awake {
    /// The kernel was asked, and answered with so many events.
    Asked(isize),
    /// A connection has something to report.
    Ready,
    InVain,
}

/// Looks at the hot connections for a while, if that is likely to pay, and at the others now and then.
fn stay_awake(set: &Set, epfd: c_int, events: &mut Events) -> Awake {
    let mut looks = 0u32;
    let mut asked = 0;
    let awake = set.patience.spin(|| {
        looks += 1;
        if looks.is_multiple_of(LOOKS_PER_QUESTION) {
            asked = ask_kernel(epfd, events);
        }
        asked != 0 || set.is_ready()
    });
    match awake {
        true if asked != 0 => Awake::Asked(asked),
        true => Awake::Ready,
        false => Awake::InVain,
    }
}

/// epoll_wait that neither sleeps nor is a cancellation point.
fn ask_kernel(epfd: c_int, events: &mut Events) -> isize {
    let room = events.room();
    let mask = std::ptr::null::<libc::sigset_t>();
    let before = border::errno();
    // SAFETY: `events` has `room` places, by the contract of `Events`; a null mask is allowed.
    let count = unsafe {
        let (place, room) = (events.tail().expose_provenance(), room.min(c_int::MAX as usize));
        call(libc::SYS_epoll_pwait, [epfd as usize, place, room, 0, mask.expose_provenance(), 8])
    };
    set_errno(count.map_or_else(Errno::raw_os_error, |_| before));
    count.map_or(-1, |count| count as isize)
}

fn translate(set: &Set, epfd: c_int, events: *mut epoll_event, max: usize, count: usize) -> usize {
    // SAFETY: as in `look`.
    let mut events = unsafe { Events::new(events, max) };
    let mut state = set.state.lock();
    let round = state.round();
    state.translate(round, epfd, count, &mut events);
    state.unasked = 0;
    if set.has_sleepers(&state) {
        state.hand_over();
    }
    events.len()
}
