//! Waiting on an epoll set.
//!
//! Events come from two sources: the kernel's ready list, and the checks of hot connections. A wait
//! that reports anything queries both, the kernel after the checks and the connections once more
//! after the kernel, until neither has news: so if a later event is reported, all earlier ones are
//! also reported. If there is no room for all, the ready connections ring their own doorbells and
//! join the kernel's list, which reports one after the other.

use std::ffi::c_int;
use std::slice;
use std::time::Duration;

use libc::epoll_event;
use seekwire_transport::Errno;
use seekwire_transport::spin::PeerPlace;
use seekwire_transport::sys::signal::HeldBack;

use super::answer::ReadyListWalk;
use super::events::Events;
use super::kernel_query::{ask_kernel, has_events, has_more};
use super::ready::Ready;
use super::typed::{Set, SetState};
use super::{forked_sets, kernel_sets, seen_waits};
use crate::ffi::{fail, guarded_raw, keeping_errno};
use crate::lock::Guard;
use crate::process;
use crate::table::SetRef;
use crate::timeout::Timeout;
use crate::unload;
use crate::waiter::{MOST_QUESTIONS, Spun, Waiter, stay_awake, until_armed};

/// Maximum number of walks through the kernel's ready list per wait.
const MAX_WALKS: u32 = 8;

/// epoll_wait and its relatives. `sleep` sleeps for the given time, or for the rest of it. If there
/// are no signals to let in, it makes the application's own call.
pub(crate) fn wait(
    set: &SetRef,
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    mut timeout: Timeout,
    sleep: impl Fn(&mut Timeout, Option<&HeldBack>) -> c_int,
) -> c_int {
    if max <= 0 || events.is_null() {
        return sleep(&mut timeout, None);
    }
    // Used from the first sleep on, or when the thread stays awake for long: a signal ends the wait
    // even if it comes while the thread is awake.
    let mut signals = None;
    let keep_true = |count| {
        if !set.has_inner() {
            return count;
        }
        // SAFETY: the application passes room for `max` events, of which this many were written.
        let reported = unsafe { slice::from_raw_parts_mut(events, count) };
        guarded_raw(|| seen_waits::keep_true(set, reported)).unwrap_or(count)
    };
    loop {
        if unload::has_begun() {
            return kernel_sets::go_on(timeout, signals, sleep);
        }
        if !forked_sets::is_alone(set, epfd) {
            return kernel_sets::wait(set, epfd, events, max, &mut timeout, signals, sleep);
        }
        seen_waits::note_wait(set);
        if set.has_inner() {
            guarded_raw(|| seen_waits::silence_inner(set, seen_waits::MOST_LEVELS));
        }
        // SAFETY: the application passes room for `max` events.
        let into = unsafe { Events::new(events, max as usize) };
        let mut call =
            Call { set, epfd, into, timeout: &timeout, signals: &mut signals, peer: None };
        let (sleeping, installed) = match guarded_raw(|| until_armed(&mut call, timeout.is_none()))
        {
            Some(Ok(armed)) => armed,
            Some(Err(Ok(count))) => {
                let kept = keep_true(count);
                if kept > 0 || count == 0 || timeout.is_none() || timeout.is_over() {
                    return kept as c_int;
                }
                continue;
            }
            Some(Err(Err(error))) => return fail(error),
            None => return sleep(&mut timeout, signals.as_ref()),
        };
        let short = sleeping.recheck_after;
        if !set.is_own() || process::retreats() {
            continue;
        }
        let signals = signals.get_or_insert_with(HeldBack::new);
        let result = sleep(&mut timeout.at_most(short), Some(signals));
        if result < 0 {
            return result;
        }
        let translated =
            || translate(sleeping, epfd, events, max as usize, result as usize, installed);
        let count = keep_true(guarded_raw(translated).unwrap_or(0));
        // Only a doorbell has rung in vain: the wait continues.
        if count > 0 || timeout.is_over() {
            return count as c_int;
        }
    }
}

/// Counts a thread as a sleeper on a set, also if it is cancelled there.
struct Sleeping<'a> {
    set: &'a Set,
    /// Limit for the sleep, because an event may come without a doorbell.
    recheck_after: Option<Duration>,
}

impl<'a> Sleeping<'a> {
    /// Ends the sleep; the caller still has to pass the kernel's events to the state, which no
    /// other thread sees in between.
    fn end(self) -> (&'a Set, Guard<'a, SetState>) {
        let set = self.set;
        let mut state = set.state.lock();
        set.is_awake(&mut state, self.recheck_after.is_some());
        std::mem::forget(self);
        (set, state)
    }
}

/// The sleep has ended without an answer of the kernel: by a signal, or because the thread is
/// cancelled.
impl Drop for Sleeping<'_> {
    fn drop(&mut self) {
        keeping_errno(|| {
            let set = self.set;
            // Another sleeper, or the reminder, has to check the uncertain watches instead.
            let watches = self.recheck_after.is_some() && set.is_own() && !process::retreats();
            let epfd = if watches { set.number() } else { None };
            let mut state = set.state.lock();
            set.is_awake(&mut state, self.recheck_after.is_some());
            if let Some(epfd) = epfd.filter(|_| set.has_sleepers(&state)) {
                state.arm_for_sleepers(epfd);
            }
        });
    }
}

/// One call, until it sleeps.
struct Call<'w, 'a> {
    set: &'a Set,
    epfd: c_int,
    into: Events,
    timeout: &'w Timeout,
    signals: &'w mut Option<HeldBack>,
    /// The peer for which to spin, after a look that found nothing.
    peer: Option<PeerPlace>,
}

impl<'a> Waiter for Call<'_, 'a> {
    /// The number of events.
    type Answer = Result<usize, Errno>;
    /// Every connection is armed, and this thread counts as a sleeper. Also the number of
    /// installations of watches until then.
    type Armed = (Sleeping<'a>, u64);

    fn look(&mut self, asks: bool) -> Option<Result<usize, Errno>> {
        let Self { set, epfd, ref mut into, .. } = *self;
        let mut state = set.state.lock();
        // Only the kernel knows about a direction that is on TCP, and mostly at once.
        let asks = asks || state.is_for_kernel();
        state.recheck(epfd);
        let round = state.round();
        match gather(set, epfd, state, round, into, asks) {
            Ok(held) => state = held,
            Err(error) => return Some(Err(error)),
        }
        if into.len() == 0 && !self.timeout.is_none() {
            self.peer = state.place_of_peer();
            return None;
        }
        state.take_turns(round, epfd);
        if set.has_sleepers(&state) {
            state.arm_for_sleepers(epfd);
        }
        Some(Ok(self.into.len()))
    }

    fn spin(&mut self) -> Spun {
        let Self { set, epfd, timeout, .. } = *self;
        let Some(peer) = self.peer else { return Spun::InVain };
        let kernel_has_events = || has_events(epfd);
        stay_awake(&set.spinner, peer, timeout, self.signals, kernel_has_events, || set.is_ready())
    }

    fn arm(&mut self) -> Option<Self::Armed> {
        let mut state = self.set.state.lock();
        if state.arm(self.epfd) {
            return None;
        }
        let installed = state.installed;
        let recheck_after = self.set.falls_asleep(&mut state);
        Some((Sleeping { set: self.set, recheck_after }, installed))
    }
}

/// Reports ready events while there is room. If no connection is ready, the kernel is queried only
/// if `ask`. Returns an error if the kernel did and there is nothing else to report.
fn gather<'a>(
    set: &'a Set,
    epfd: c_int,
    mut state: Guard<'a, SetState>,
    round: u64,
    into: &mut Events,
    ask: bool,
) -> Result<Guard<'a, SetState>, Errno> {
    // They were ready when the kernel had no events, so they come first.
    state.report_overdue(round, epfd, into);
    if into.room() == 0 {
        return Ok(state);
    }
    let mut ready = state.ready(round, epfd);
    if !ask && ready.is_empty() && into.len() == 0 && state.queued() == 0 {
        return Ok(state);
    }
    let queues = if state.queued() > 0 {
        true
    } else if ready.len() >= into.room() {
        let has_more;
        (state, has_more) = asking(set, state, || has_events(epfd));
        if !has_more {
            state.report_all(&ready, round, epfd, into);
            state.note_overdue(&ready, round);
            return Ok(state);
        }
        true
    } else {
        false
    };
    if queues {
        state.queue(&ready, epfd);
        ready.clear();
    }
    // Number of coming answers of the kernel after which the reported events must go back to the
    // end of its list before the next one is taken.
    let mut queued = state.queued();
    let mut exhausted = 0;
    let (mut walk, mut walks) = (ReadyListWalk::new(&mut state, into), 1);
    loop {
        if walk.is_left(&state) && walks < MAX_WALKS {
            (walk, walks) = (ReadyListWalk::new(&mut state, into), walks + 1);
        }
        let room = if queued > 0 { 1 } else { into.room() - ready.len() };
        let (changes, installed) = (state.changes, state.installed);
        let count;
        (state, count) = asking(set, state, || ask_kernel(epfd, into, room));
        if let Err(error) = count
            && into.len() == 0
            && ready.is_empty()
        {
            return Err(error);
        }
        let count = count.unwrap_or(0);
        let left = state.queued();
        let outcome = state.translate(round, &mut walk, epfd, count, installed, into);
        if queued > 0 && count > 0 && !outcome.again {
            queued = queued.saturating_sub(left.saturating_sub(state.queued()));
            state.queue_again(round, epfd);
            if into.room() == 0 {
                break;
            }
            continue;
        }
        queued = 0;
        let crowded = queues || !ready.is_empty();
        state.report_all(&ready, round, epfd, into);
        ready.clear();
        if into.room() == 0 {
            let more;
            (state, more) = asking(set, state, || crowded || has_more(epfd, into));
            if more {
                state.queue_again(round, epfd);
            }
            break;
        }
        if count == room && (!outcome.again || walk.is_left(&state) && walks < MAX_WALKS) {
            // Useless events took the places of others.
            continue;
        }
        exhausted += 1;
        let missed = state.recheck_lost();
        let is_changed = state.changes != changes;
        if exhausted == MOST_QUESTIONS || !outcome.news && !missed && !is_changed && into.len() > 0
        {
            break;
        }
        let others = next(&mut state, round, epfd, into);
        state.report_all(&others, round, epfd, into);
        // If a connection has left the ring in the meantime, the kernel reports it.
        if others.is_empty() && state.changes == changes || into.room() == 0 {
            break;
        }
    }
    Ok(state)
}

/// The other connections that are ready after the kernel has answered.
fn next(state: &mut SetState, round: u64, epfd: c_int, into: &Events) -> Ready {
    if into.len() == 0 && state.is_somebody_between() {
        // Another thread may know that an armed connection's doorbell was rung, and not have
        // reported it yet.
        state.mark_all_hot();
    }
    state.ready(round, epfd)
}

/// Releases the lock while the kernel is queried.
fn asking<'a, T>(
    set: &'a Set,
    mut state: Guard<'a, SetState>,
    ask: impl FnOnce() -> T,
) -> (Guard<'a, SetState>, T) {
    state.asking += 1;
    drop(state);
    let answer = ask();
    let mut state = set.state.lock();
    state.asking -= 1;
    (state, answer)
}

fn translate(
    sleeping: Sleeping<'_>,
    epfd: c_int,
    events: *mut epoll_event,
    max: usize,
    count: usize,
    installed: u64,
) -> usize {
    // SAFETY: as in `wait`.
    let mut events = unsafe { Events::new(events, max) };
    let (set, mut state) = sleeping.end();
    let round = state.round();
    let mut walk = ReadyListWalk::new(&mut state, &events);
    state.translate(round, &mut walk, epfd, count, installed, &mut events);
    if count == max && events.len() > 0 && events.room() > 0 {
        // Useless events took the places of others.
        state =
            gather(set, epfd, state, round, &mut events, true).unwrap_or_else(|_| set.state.lock());
    } else if count == max {
        let more;
        (state, more) = asking(set, state, || has_more(epfd, &events));
        if more {
            state.queue_again(round, epfd);
        }
    }
    state.take_turns(round, epfd);
    if set.has_sleepers(&state) {
        state.arm_for_sleepers(epfd);
    }
    events.len()
}
