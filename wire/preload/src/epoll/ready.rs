//! The ready connections of a set, and the order in which they are reported.

use std::ffi::c_int;

use libc::epoll_event;
use seekwire_endpoint::readiness::{EDGE, ONE_SHOT};
use smallvec::SmallVec;

use super::events::Events;
use super::typed::{SetState, Watch};
use super::watch::{Life, Place};

/// A hot watch is armed after this many checks in a row without an event.
pub(super) const IDLE_LOOKS: u8 = 16;

/// Watches that are ready, by index.
pub(super) type Ready = SmallVec<[u32; 16]>;

impl SetState {
    /// The hot watches that are ready and not reported yet, the least recently reported first.
    ///
    /// If a later event is found, earlier ones are also found: watches that were checked before it,
    /// and had none, are checked again.
    pub(super) fn ready(&mut self, round: u64, epfd: c_int) -> Ready {
        let mut ready = Ready::new();
        self.passes += 1;
        let pass = self.passes;
        // Watches without an event; then those of them checked since the last event was found.
        let (mut empty, mut since) = (0, 0);
        for _ in 0..self.hot.len() {
            let Some(index) = self.hot.pop_front() else { break };
            if self.at(index).is_some_and(|watch| watch.is_stale()) {
                // The peer is gone, its request for TCP was served, or all bytes are retransmitted:
                // the kernel reports room from now on.
                self.refresh(index, epfd);
            }
            let Some(watch) = self.at(index) else { continue };
            if watch.life != Life::Watched {
                self.cool(index);
                continue;
            }
            if watch.reported.0 == round {
                watch.ready_pass = pass;
            } else if watch.is_ready_in_pass(pass) {
                ready.push(index);
                since = 0;
            } else {
                (empty, since) = (empty + 1, since + 1);
            }
            self.hot.push_back(index);
        }
        let mut places = (0..self.hot.len()).cycle();
        while since < empty
            && let Some(place) = places.next()
        {
            let index = self.hot[place];
            let Some(watch) = self.at(index).filter(|watch| watch.ready_pass != pass) else {
                continue;
            };
            if watch.is_ready_in_pass(pass) {
                ready.push(index);
                (empty, since) = (empty - 1, 0);
            } else {
                since += 1;
            }
        }
        ready
    }

    /// Reports ready watches until there is no room.
    pub(super) fn report_all(&mut self, ready: &Ready, round: u64, epfd: c_int, into: &mut Events) {
        for &index in ready {
            self.report(index, round, epfd, into);
        }
    }

    /// Watches of `ready` that were not reported come before all later events of the kernel.
    pub(super) fn note_overdue(&mut self, ready: &Ready, round: u64) {
        for &index in ready {
            if let Some(watch) = self.at(index)
                && watch.reported.0 != round
                && watch.place == Place::Hot
            {
                self.move_to(index, Place::Overdue);
            }
        }
    }

    /// Reports watches that an earlier wait should have reported.
    pub(super) fn report_overdue(&mut self, round: u64, epfd: c_int, into: &mut Events) {
        for at in 0..self.hot.len() {
            if self.overdue == 0 || into.room() == 0 {
                return;
            }
            let index = self.hot[at];
            if self.at(index).is_some_and(|watch| watch.place == Place::Overdue) {
                self.move_to(index, Place::Hot);
                self.report(index, round, epfd, into);
            }
        }
    }

    /// Reports a watch if it is ready and there is room.
    pub(super) fn report(&mut self, index: u32, round: u64, epfd: c_int, into: &mut Events) {
        if into.room() == 0 {
            return;
        }
        if self.at(index).is_some_and(|watch| watch.is_stale()) {
            self.refresh(index, epfd);
        }
        let Some(watch) = self.at(index).filter(|watch| watch.reported.0 != round) else { return };
        let events = watch.take(false);
        if events != 0 {
            watch.reported = (round, into.len());
            into.push(epoll_event { events, u64: watch.data });
            let is_fired = watch.life == Life::Fired;
            if is_fired {
                self.note(index);
            }
        }
    }

    // ---- in the kernel's ready list -----------------------------------------------------------

    /// Number of this set's watches that are in that list.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Another thread may have events from the kernel that it has not reported yet.
    pub(super) fn is_somebody_between(&self) -> bool {
        self.sleepers + self.asking > 0
    }

    /// Appends ready watches to the kernel's ready list, in this order.
    pub(super) fn queue(&mut self, ready: &Ready, epfd: c_int) {
        for &index in ready {
            if !self.at(index).is_some_and(|watch| watch.is_hot()) {
                continue;
            }
            let is_ready = self.arm_watch(index, epfd);
            self.note_uncertain(index);
            self.move_to(index, if is_ready { Place::Queued } else { Place::Idle });
            if let Some(watch) = self.at(index).filter(|_| is_ready) {
                watch.socket.connection.ring_own_doorbell();
            }
        }
        let watches = &self.watches;
        self.hot.retain(|&hot| watches[hot as usize].as_ref().is_some_and(Watch::is_hot));
    }

    /// Moves level-triggered watches that were reported and are still ready to the end of the
    /// kernel's list.
    pub(super) fn queue_again(&mut self, round: u64, epfd: c_int) {
        let watches = &self.watches;
        let again = |index: &u32| {
            watches[*index as usize].as_ref().is_some_and(|watch| {
                watch.reported.0 == round
                    && watch.events & (EDGE | ONE_SHOT) == 0
                    && watch.look() != 0
            })
        };
        let again = self.hot.iter().copied().filter(again).collect();
        self.queue(&again, epfd);
    }

    /// Called at the end of the kernel's list. Watches that have lost their places, for instance to
    /// another process that shares the set, are checked again; returns whether there are any.
    pub(super) fn recheck_lost(&mut self) -> bool {
        let lost = self.queued > 0;
        if lost {
            for index in 0..self.watches.len() as u32 {
                if self.at(index).is_some_and(|watch| watch.place == Place::Queued) {
                    self.mark_hot(index);
                }
            }
        }
        lost
    }

    /// Ends a wait: moves reported watches after the others, and arms those that have been idle for
    /// long.
    pub(super) fn take_turns(&mut self, round: u64, epfd: c_int) {
        let mut reported = Ready::new();
        for _ in 0..self.hot.len() {
            let Some(index) = self.hot.pop_front() else { break };
            let Some(watch) = self.at(index) else { continue };
            if watch.reported.0 == round {
                reported.push(index);
                continue;
            }
            watch.idle = watch.idle.saturating_add(1);
            let is_over = watch.idle > IDLE_LOOKS;
            if watch.life != Life::Watched || is_over && !self.arm_watch(index, epfd) {
                self.note_uncertain(index);
                self.cool(index);
                continue;
            }
            if let Some(watch) = self.at(index) {
                watch.disarm();
            }
            self.hot.push_back(index);
        }
        self.hot.extend(reported);
    }
}
