//! Translates what the kernel reports of a set into the application's events.

use std::ffi::c_int;

use libc::epoll_event;
use seekwire_endpoint::Sends;
use seekwire_endpoint::readiness::{ALWAYS, ONE_SHOT, WRITE};
use smallvec::SmallVec;

use super::events::Events;
use super::ready::Ready;
use super::tag::{Subject, Tag};
use super::typed::{SetState, Watch};
use super::watch::Life;

/// A walk through the kernel's ready list in several queries. Entries that the library changes in
/// the set move to the end of the list, after entries that are reported again: then another walk
/// begins.
pub(super) struct ReadyListWalk {
    number: u64,
    changes: u64,
    /// Application events before this position come from earlier walks; `repeated` lists those that
    /// this walk has also reported.
    begin: usize,
    repeated: SmallVec<[usize; 8]>,
    /// The first of the library's own events in this walk that mean nothing to this process.
    foreign: Option<Tag>,
}

impl ReadyListWalk {
    pub(super) fn new(state: &mut SetState, into: &Events) -> ReadyListWalk {
        state.walks += 1;
        ReadyListWalk {
            number: state.walks,
            changes: state.changes,
            begin: into.len(),
            repeated: SmallVec::new(),
            foreign: None,
        }
    }

    /// True if an entry has moved to the end of the list since the walk began.
    pub(super) fn is_left(&self, state: &SetState) -> bool {
        self.changes != state.changes
    }

    /// Notes an event that is already at `place`; returns whether this walk has reported it before.
    fn has_reported(&mut self, place: usize) -> bool {
        let before = place >= self.begin || self.repeated.contains(&place);
        if !before {
            self.repeated.push(place);
        }
        before
    }

    /// Notes one of the library's events that mean nothing here; returns whether this walk has
    /// reported it before.
    fn has_reported_foreign(&mut self, tag: Tag) -> bool {
        let before = self.foreign == Some(tag);
        self.foreign.get_or_insert(tag);
        before
    }
}

/// The value of one answer of the kernel.
#[derive(Copy, Clone, Default)]
pub(super) struct AnswerOutcome {
    /// The wait has learned something new from it.
    pub(super) news: bool,
    /// The kernel has reported an event twice in this walk: its list has wrapped around.
    pub(super) again: bool,
}

impl SetState {
    /// Replaces the library's own events among the last `count` in `into`, which the kernel has
    /// stored there. `installed` is the number of installations before the kernel was queried.
    pub(super) fn translate(
        &mut self,
        round: u64,
        walk: &mut ReadyListWalk,
        epfd: c_int,
        count: usize,
        installed: u64,
        into: &mut Events,
    ) -> AnswerOutcome {
        let tail = into.tail();
        // Answers to earlier queries of this wait, or other events with the same data.
        let (before, mut place) = (into.len(), 0);
        let mut outcome = AnswerOutcome::default();
        let mut woken = Ready::new();
        for at in 0..count {
            // SAFETY: the kernel has written `count` events there. `into` grows by at most one for
            // each that was read, so it does not overtake the reader.
            let event = unsafe { tail.add(at).read() };
            let tag = Tag::decode(event.u64);
            let own_tag = tag.filter(|tag| {
                self.at(tag.watch).is_some_and(|watch| watch.generation == tag.generation)
            });
            let Some(tag) = own_tag else {
                let event = match tag {
                    None if !self.is_first_report(event.u64, epfd, installed) => continue,
                    None => event,
                    Some(tag) => match self.as_noted(tag, event.events) {
                        Some(event) => event,
                        None => {
                            outcome.again |= walk.has_reported_foreign(tag);
                            continue;
                        }
                    },
                };
                if let Some(same) = into.find(event.u64, before, place) {
                    // The kernel repeats level-triggered events.
                    into.merge(same, event.events);
                    place = same + 1;
                    outcome.again |= walk.has_reported(same);
                } else {
                    into.push(event);
                    outcome.news = true;
                }
                continue;
            };
            let Some(watch) = self.at(tag.watch) else { continue };
            let before = &mut watch.reported_walks[usize::from(tag.subject == Subject::Doorbell)];
            outcome.again |= std::mem::replace(before, walk.number) == walk.number;
            match tag.subject {
                Subject::Doorbell => {
                    watch.socket.connection.service_peer();
                    let mut index = tag.watch;
                    while let Some(watch) = self.at(index) {
                        watch.disarm();
                        let next = watch.sibling;
                        self.mark_hot(index);
                        if index == tag.watch {
                            self.report(index, round, epfd, into);
                        } else {
                            woken.push(index);
                        }
                        index = next;
                        if index == tag.watch {
                            break;
                        }
                    }
                    outcome.news = true;
                }
                Subject::Socket if watch.life == Life::Parked => self.evict(tag.watch, epfd),
                Subject::Socket => {
                    watch.is_silent = watch.kernel_events & ONE_SHOT != 0;
                    if event.events & WRITE != 0 && watch.sends == Sends::Retransmit {
                        watch.socket.connection.service_peer();
                    }
                    let retransmits = watch.socket.connection.retransmits();
                    let mut events = event.events & (watch.wanted() | ALWAYS);
                    if events != event.events && watch.is_lenient() {
                        let wanted = watch.wanted();
                        let _ = watch.set_kernel_events(epfd, tag.watch, wanted);
                    }
                    let now = watch.socket.connection.sends();
                    if events & WRITE != 0 && matches!(now, Sends::Ring | Sends::HeldUp) {
                        self.refresh(tag.watch, epfd);
                        // Asks for the watch's current view: it may have changed again, and the
                        // kernel reports requested room only once.
                        let is_kernels = |watch: &mut Watch| watch.wanted() & WRITE != 0;
                        if !self.at(tag.watch).is_some_and(is_kernels) {
                            events &= !WRITE;
                        }
                    } else if watch.sends == Sends::Retransmit {
                        // Bytes to retransmit come before those that the application wants to send.
                        events &= if retransmits { !WRITE } else { watch.events | ALWAYS };
                        if events == 0
                            && watch.events & ONE_SHOT != 0
                            && watch.life == Life::Watched
                        {
                            // The one-shot event was not for the application.
                            let wanted = watch.wanted();
                            let _ = watch.set_kernel_events(epfd, tag.watch, wanted);
                        }
                        self.refresh(tag.watch, epfd);
                    }
                    outcome.news |= self.report_kernel(tag.watch, round, events, into);
                }
            }
        }
        self.report_all(&woken, round, epfd, into);
        outcome
    }

    /// Reports events of the application's own fd; returns true if this wait had not reported it
    /// before.
    fn report_kernel(&mut self, index: u32, round: u64, events: u32, into: &mut Events) -> bool {
        let Some(watch) = self.at(index) else { return false };
        if events == 0 {
            return false;
        }
        if watch.reported.0 == round {
            watch.note_kernel_report(events);
            into.merge(watch.reported.1, events);
            return false;
        }
        if watch.is_old(events) {
            return false;
        }
        watch.note_kernel_report(events);
        // One event reports everything that is ready.
        let events = events | watch.take(true);
        watch.reported = (round, into.len());
        watch.fire();
        into.push(epoll_event { events, u64: watch.data });
        let is_fired = watch.life == Life::Fired;
        if is_fired {
            self.note(index);
        }
        true
    }
}
