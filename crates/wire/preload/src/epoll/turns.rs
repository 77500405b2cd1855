//! Which connections of a set are ready, and whose turn it is.

use std::ffi::c_int;

use libc::epoll_event;
use smallvec::SmallVec;

use super::events::Events;
use super::typed::State;
use super::watch::{EDGE, ONE_SHOT};

/// A hot watch that had nothing to say so many times in a row is armed.
pub(super) const IDLE_LOOKS: u8 = 16;

/// Watches that are ready, by index.
pub(super) type Ready = SmallVec<[u32; 16]>;

impl State {
    /// The hot watches that are ready and not reported yet, those first that were reported longest
    /// ago.
    ///
    /// Whatever came before something that is found is found, too: those that were looked at before
    /// it, and had nothing, are looked at again.
    pub(super) fn ready(&mut self, round: u64, epfd: c_int) -> Ready {
        let mut ready = Ready::new();
        self.passes += 1;
        let pass = self.passes;
        // Those without anything; and those of them that were looked at since something was found.
        let (mut empty, mut since) = (0, 0);
        for _ in 0..self.hot.len() {
            let Some(index) = self.hot.pop_front() else { break };
            if self.at(index).is_some_and(|watch| watch.is_stale()) {
                // The peer is gone, its wish for TCP was met, or all is retransmitted: room is the
                // kernel's to tell.
                self.refresh(index, epfd);
            }
            let Some(watch) = self.at(index) else { continue };
            if watch.parked || watch.disabled {
                self.cool(index);
                continue;
            }
            if watch.reported.0 == round {
                watch.found = pass;
            } else if watch.is_found(pass) {
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
            let Some(watch) = self.at(index).filter(|watch| watch.found != pass) else { continue };
            if watch.is_found(pass) {
                ready.push(index);
                (empty, since) = (empty - 1, 0);
            } else {
                since += 1;
            }
        }
        ready
    }

    /// Reports those that are ready, until there is no room.
    pub(super) fn report_all(&mut self, ready: &Ready, round: u64, epfd: c_int, into: &mut Events) {
        for &index in ready {
            self.report(index, round, epfd, into);
        }
    }

    /// Those of `ready` that were not reported come before whatever the kernel has from now on.
    pub(super) fn note_overdue(&mut self, ready: &Ready, round: u64) {
        for &index in ready {
            if let Some(watch) = self.at(index)
                && watch.reported.0 != round
                && !std::mem::replace(&mut watch.overdue, true)
            {
                self.overdue += 1;
            }
        }
    }

    /// Reports those that an earlier wait should have reported.
    pub(super) fn report_overdue(&mut self, round: u64, epfd: c_int, into: &mut Events) {
        for at in 0..self.hot.len() {
            if self.overdue == 0 || into.room() == 0 {
                return;
            }
            let index = self.hot[at];
            if let Some(watch) = self.at(index)
                && std::mem::take(&mut watch.overdue)
            {
                self.overdue -= 1;
                self.report(index, round, epfd, into);
            }
        }
    }

    /// Reports a watch, if it is ready and there is room.
    pub(super) fn report(&mut self, index: u32, round: u64, epfd: c_int, into: &mut Events) {
        if into.room() == 0 {
            return;
        }
        if self.at(index).is_some_and(|watch| watch.is_stale()) {
            self.refresh(index, epfd);
        }
        let Some(watch) = self.at(index).filter(|watch| !watch.parked && watch.reported.0 != round)
        else {
            return;
        };
        let events = watch.take(false);
        if events != 0 {
            watch.reported = (round, into.len());
            into.push(epoll_event { events, u64: watch.data });
            let is_fired = watch.disabled;
            if is_fired {
                self.note(index);
            }
        }
    }

    // ---- in the kernel's ready list -----------------------------------------------------------

    /// How many of this set's watches have a place there.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Another thread may know from the kernel what it has not told yet.
    pub(super) fn is_somebody_between(&self) -> bool {
        self.sleepers + self.asking > 0
    }

    /// Gives those that are ready places in the kernel's ready list, in this order, behind all that
    /// is there.
    pub(super) fn queue(&mut self, ready: &Ready, epfd: c_int) {
        for &index in ready {
            if !self.at(index).is_some_and(|watch| watch.hot) {
                continue;
            }
            if self.arm_watch(index, epfd)
                && let Some(watch) = self.at(index)
            {
                watch.queued = true;
                watch.socket.connection.ring_own_doorbell();
                self.queued += 1;
            }
            self.cool(index);
        }
        let watches = &self.watches;
        self.hot.retain(|&hot| watches[hot as usize].as_ref().is_some_and(|watch| watch.hot));
    }

    /// Level-triggered and reported, and still ready: back to the end of the kernel's list.
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

    /// The kernel's list is at its end. Those whose places were lost, to another process that
    /// shares the set for instance, are looked at again; returns whether there are any.
    pub(super) fn heat_lost(&mut self) -> bool {
        let lost = self.queued > 0;
        if lost {
            for index in 0..self.watches.len() as u32 {
                if self.at(index).is_some_and(|watch| watch.queued) {
                    self.heat(index);
                }
            }
        }
        lost
    }

    /// The end of a wait: who was reported goes behind those who were not, and who has had nothing
    /// for long is armed.
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
            if watch.disabled || is_over && !self.arm_watch(index, epfd) {
                self.note_doubt(index);
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
