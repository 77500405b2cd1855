//! The watches of a set.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use libc::{POLLIN, epoll_event, pollfd};
use seekwire_endpoint::readiness::{ALWAYS, EDGE, EXCLUSIVE, ONE_SHOT, Sends};
use seekwire_transport::Errno;
use seekwire_transport::spin::PeerPlace;

use super::fdinfo;
use super::rechecks::Rechecks;
use super::reminder::Reminder;
use super::set_records::Sharing;
use super::tag::{self, GENERATIONS, MAX_WATCHES, Op, Subject, Tag};
use super::watch::{Fired, Life, Place, SocketHandle, Watch};
use crate::look;
use crate::registration::{InnerSet, Registration};

/// The data under the lock of a set.
pub(super) struct SetState<S> {
    pub(super) watches: Vec<Option<Watch<S>>>,
    free: Vec<u32>,
    /// Generations of the free and used indices.
    generations: Vec<u8>,
    pub(super) hot: VecDeque<u32>,
    /// Number of watches that are queued, then of those that are overdue.
    pub(super) queued: usize,
    pub(super) overdue: usize,
    /// Number of threads in the kernel's epoll_wait on this set.
    pub(super) sleepers: usize,
    /// Number of those that sleep only briefly, because of uncertain connections.
    pub(super) watchful: usize,
    /// Number of threads that query the kernel without sleeping.
    pub(super) asking: usize,
    rounds: u64,
    /// Number of walks through the kernel's ready list.
    pub(super) walks: u64,
    /// Number of changes to kernel registrations because a connection had changed.
    pub(super) changes: u64,
    /// Number of installations of watches.
    pub(super) installed: u64,
    rechecks: Rechecks,
    /// Number of passes of checks.
    pub(super) passes: u64,
    /// Set at the first fork.
    pub(super) sharing: Option<Arc<Sharing>>,
    /// Connections whose events only the kernel reports, and that still have unread bytes on the
    /// ring.
    pub(super) left_to_kernel: Vec<Watch<S>>,
    pub(super) is_left_first: bool,
    /// A thread may sleep in the kernel until the set becomes readable, without a call on it.
    pub(super) is_watched_by_kernel: bool,
    /// Numbers of sockets that entered the set before a wait on it was seen.
    pub(super) early: BTreeSet<c_int>,
    /// The sets inside it.
    pub(super) inner: Vec<InnerSet>,
    /// Made for the first uncertain connection that nothing else would check again.
    reminder: Option<Reminder>,
}

impl<S: SocketHandle> SetState<S> {
    pub(super) fn new() -> SetState<S> {
        SetState {
            watches: Vec::new(),
            free: Vec::new(),
            generations: Vec::new(),
            hot: VecDeque::new(),
            queued: 0,
            overdue: 0,
            sleepers: 0,
            watchful: 0,
            asking: 0,
            rounds: 0,
            walks: 0,
            changes: 0,
            installed: 0,
            rechecks: Rechecks::default(),
            passes: 0,
            sharing: None,
            left_to_kernel: Vec::new(),
            is_left_first: false,
            is_watched_by_kernel: false,
            early: BTreeSet::new(),
            inner: Vec::new(),
            reminder: None,
        }
    }

    /// Number of watch indices that have been used so far.
    pub(super) fn places(&self) -> usize {
        self.watches.len()
    }

    pub(super) fn at(&mut self, index: u32) -> Option<&mut Watch<S>> {
        self.watches.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn mark_hot(&mut self, index: u32) {
        if let Some(watch) = self.at(index).filter(|watch| !watch.is_hot()) {
            watch.idle = 0;
            self.move_to(index, Place::Hot);
            self.hot.push_back(index);
        }
    }

    /// The caller has removed a watch from the queue of hot ones. If it was overdue, its doorbell
    /// reports it.
    pub(super) fn cool(&mut self, index: u32) {
        self.move_to(index, Place::Idle);
    }

    pub(super) fn move_to(&mut self, index: u32, place: Place) {
        let Some(watch) = self.at(index) else { return };
        let before = std::mem::replace(&mut watch.place, place);
        let is = |place| (usize::from(before == place), usize::from(watch.place == place));
        let [(left, came), (late, due)] = [is(Place::Queued), is(Place::Overdue)];
        self.queued = self.queued - left + came;
        self.overdue = self.overdue - late + due;
    }

    /// Has every connection checked, armed or not.
    pub(super) fn mark_all_hot(&mut self) {
        for index in 0..self.watches.len() as u32 {
            self.mark_hot(index);
        }
    }

    /// Puts the connection of `registration`, which is already in the set, under watch. `sibling`
    /// is another watch of this connection in this set.
    pub(super) fn install(
        &mut self,
        epfd: c_int,
        socket: S,
        registration: &Registration,
        sibling: Option<u32>,
    ) -> Result<u32, Errno> {
        if socket.connection.doorbell().is_none() {
            return Err(Errno::INVAL);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            // Watches that cannot be noted for other processes are left to the kernel.
            None if self.watches.len()
                == self.sharing.as_ref().map_or(MAX_WATCHES, |sharing| sharing.len()) =>
            {
                return Err(Errno::NOSPC);
            }
            None => {
                self.watches.push(None);
                self.generations.push(0);
                (self.watches.len() - 1) as u32
            }
        };
        let mut watch = Watch::new(socket, registration, index, self.generations[index as usize]);
        watch.owns_doorbell = sibling.is_none();
        if let Some(fired) = fdinfo::fired(epfd, registration) {
            (watch.life, watch.is_silent) = (Life::Fired, fired.is_silent());
        }
        // Written before the kernel has the tag, because another process may receive it in an
        // event.
        self.note_watch(index, &watch);
        if registration.events & EXCLUSIVE != 0
            && let Err(error) = watch.drop_exclusive(epfd, index)
        {
            self.free.push(index);
            return Err(error);
        }
        let updated = match watch.life {
            Life::Fired if watch.is_silent => Ok(()),
            Life::Fired => watch.set_kernel_events(epfd, index, ONE_SHOT),
            _ => watch.update_kernel(epfd, index),
        };
        if let Err(error) = updated {
            self.free.push(index);
            return Err(error);
        }
        if let Err(error) = watch.change_doorbell(epfd, index) {
            watch.remove_doorbell(epfd);
            watch.give_back(epfd, registration, Fired::Kept);
            self.free.push(index);
            return Err(error);
        }
        self.installed += 1;
        if watch.events & ONE_SHOT != 0
            && watch.life == Life::Watched
            && self.sleepers + self.asking > 0
        {
            watch.armed_again = self.installed;
        }
        if let Some(elder) = sibling.and_then(|sibling| self.at(sibling)) {
            watch.sibling = std::mem::replace(&mut elder.sibling, index);
        }
        self.watches[index as usize] = Some(watch);
        self.mark_hot(index);
        Ok(index)
    }

    /// EPOLL_CTL_MOD.
    pub(super) fn change(
        &mut self,
        index: u32,
        epfd: c_int,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let Some(watch) = self.at(index) else { return Err(Errno::NOENT) };
        let before = (watch.events, watch.sends);
        watch.events = events;
        watch.sends = watch.socket.connection.sends();
        if let Err(error) = watch.update_kernel(epfd, index) {
            (watch.events, watch.sends) = before;
            return Err(error);
        }
        if watch.life == Life::Fired {
            watch.was_reported = watch.armed_again > 0;
        } else if !watch.was_reported {
            watch.armed_again = 0;
        }
        watch.renew(data);
        self.note(index);
        self.mark_hot(index);
        Ok(())
    }

    /// Called when the number of a watch is about to be closed: `fd` replaces it.
    pub(super) fn replace(&mut self, index: u32, epfd: c_int, fd: c_int) -> Result<(), Errno> {
        self.at(index).ok_or(Errno::NOENT)?.replace(epfd, index, fd)
    }

    /// EPOLL_CTL_DEL without telling the kernel: many programs remove a socket for every message
    /// and add it again for the next, and the kernel has no events for a connection whose bytes
    /// travel on the ring. Returns false if the kernel has to know.
    pub(super) fn park(&mut self, index: u32) -> bool {
        let Some(watch) = self.at(index) else { return false };
        if !watch.is_lenient() || watch.sibling != index {
            return false;
        }
        watch.disarm();
        watch.events = 0;
        watch.life = Life::Parked;
        self.note(index);
        true
    }

    /// Called when the kernel does have an event for a parked socket: removes it for good.
    pub(super) fn evict(&mut self, index: u32, epfd: c_int) {
        let Some(watch) = self.at(index) else { return };
        let _ = tag::control(epfd, Op::Delete, watch.fd, 0, 0);
        self.remove(index, Some(epfd));
    }

    /// Removes a parked socket for good.
    pub(super) fn unpark(&mut self, index: u32, fd: c_int, epfd: c_int) {
        if self.is_parked(index, fd) {
            self.evict(index, epfd);
        }
    }

    /// True if the watch of `fd` still exists and is parked. If it was removed, its index may
    /// belong to another watch.
    pub(super) fn is_parked(&mut self, index: u32, fd: c_int) -> bool {
        self.at(index).is_some_and(|watch| watch.life == Life::Parked && watch.fd == fd)
    }

    /// Hides EPOLLOUT from the kernel exactly while sends travel on the ring or are held up, and
    /// requests it exactly while bytes have to be retransmitted as well.
    pub(super) fn refresh(&mut self, index: u32, epfd: c_int) {
        let Some(watch) = self.at(index) else { return };
        if !watch.is_stale() {
            return;
        }
        watch.sends = watch.socket.connection.sends();
        // A doorbell that cannot be watched is missing until the next change.
        let _ = watch.change_doorbell(epfd, index);
        if watch.life == Life::Parked {
            return;
        }
        // If the registration were changed, the kernel would repeat earlier reports.
        let is_registered = watch.kernel_events == watch.wanted() && watch.events & ONE_SHOT == 0;
        if watch.life == Life::Watched && !is_registered {
            let _ = watch.update_kernel(epfd, index);
        }
        watch.disarm();
        self.changes += 1;
        self.mark_hot(index);
    }

    /// A send has found no room: if the watch is armed without it, it is checked again.
    pub(super) fn want_room(&mut self, index: u32) {
        if let Some(watch) = self.at(index).filter(|watch| watch.lacks_room()) {
            watch.disarm();
            self.mark_hot(index);
        }
    }

    /// From now on other processes also have the set.
    pub(super) fn share(&mut self, sharing: &Arc<Sharing>) {
        self.sharing = Some(Arc::clone(sharing));
        (0..self.watches.len() as u32).for_each(|index| self.note(index));
    }

    /// Writes down what others have to know about a watch.
    pub(super) fn note(&self, index: u32) {
        if let Some(watch) = self.watches.get(index as usize).and_then(Option::as_ref) {
            self.note_watch(index, watch);
        }
    }

    fn note_watch(&self, index: u32, watch: &Watch<S>) {
        if let Some(sharing) = &self.sharing {
            sharing.note(index, watch.note());
        }
    }

    /// The application's event for a kernel event with another process's tag.
    pub(super) fn as_noted(&self, tag: Tag, events: u32) -> Option<epoll_event> {
        let note = self.sharing.as_ref()?.noted(tag).filter(|note| !note.parked && !note.fired)?;
        let events = events & (note.events | ALWAYS);
        (tag.subject == Subject::Socket && events != 0)
            .then_some(epoll_event { events, u64: note.data })
    }

    /// To be called for an event with the application's `data` from a query of the kernel that
    /// began after so many installations (`installed`). The event may have fired a one-shot
    /// registration whose watch was installed afterwards, and armed again because that was not
    /// known. Then this marks the watch as fired. False if the watch has reported an event since.
    /// Where several watches have these data, none is marked: it could be another one, which would
    /// then be silent.
    pub(super) fn is_first_report(&mut self, data: u64, epfd: c_int, installed: u64) -> bool {
        if self.installed == installed {
            return true;
        }
        let is_it = |watch: &Watch<S>| watch.armed_again > installed && watch.data == data;
        let watches = (0..).zip(&self.watches);
        let mut matching = watches.filter(|(_, it)| it.as_ref().is_some_and(is_it));
        let (Some((index, _)), None) = (matching.next(), matching.next()) else { return true };
        let Some(watch) = self.at(index) else { return true };
        watch.armed_again = 0;
        if watch.life == Life::Fired || watch.was_reported {
            return false;
        }
        watch.life = Life::Fired;
        let _ = watch.set_kernel_events(epfd, index, ONE_SHOT);
        self.note(index);
        true
    }

    /// Removes a watch; with `epfd`, also its doorbell.
    pub(super) fn remove(&mut self, index: u32, epfd: Option<c_int>) {
        if self.at(index).is_some_and(|watch| watch.is_hot()) {
            self.hot.retain(|&hot| hot != index);
        }
        self.move_to(index, Place::Idle);
        let Some(mut watch) = self.watches.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        watch.disarm();
        let mut before = watch.sibling;
        while let Some(sibling) = self.at(before) {
            if sibling.sibling == index {
                sibling.sibling = watch.sibling;
                break;
            }
            before = sibling.sibling;
        }
        if watch.owns_doorbell
            && let Some(epfd) = epfd
        {
            watch.remove_doorbell(epfd);
            if let Some(successor) = self.at(watch.sibling) {
                (successor.owns_doorbell, successor.doorbell) = (true, None);
                let _ = successor.change_doorbell(epfd, watch.sibling);
            }
        }
        if epfd.is_some()
            && let Some(sharing) = &self.sharing
        {
            sharing.strike(index, watch.generation);
        }
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) % GENERATIONS;
        self.free.push(index);
    }

    /// The kernel has an entry with this tag that cannot be removed: no watch may get that tag
    /// again. The caller has removed all watches.
    pub(super) fn retire(&mut self, tag: Tag) {
        let index = tag.watch as usize;
        if index >= MAX_WATCHES {
            return;
        }
        while self.watches.len() <= index {
            self.free.push(self.watches.len() as u32);
            self.watches.push(None);
            self.generations.push(0);
        }
        self.free.retain(|&free| free != tag.watch);
    }

    /// Called when the set is closed.
    pub(super) fn clear(&mut self) {
        for index in 0..self.watches.len() as u32 {
            self.remove(index, None);
        }
        self.left_to_kernel.clear();
        self.reminder = None;
    }

    /// The number of a new wait.
    pub(super) fn round(&mut self) -> u64 {
        self.rounds += 1;
        self.rounds
    }

    /// Arms a watch; returns true if events are ready. The check can move sends off a full ring,
    /// and from then on the kernel reports room.
    pub(super) fn arm_watch(&mut self, index: u32, epfd: c_int) -> bool {
        let Some(watch) = self.at(index) else { return false };
        let ready = watch.arm();
        if !watch.is_stale() {
            return ready;
        }
        self.refresh(index, epfd);
        self.at(index).is_some_and(Watch::arm)
    }

    /// Notes an armed watch whose events may come without a doorbell; returns true if a sleep has to
    /// become shorter because of it.
    pub(super) fn note_uncertain(&mut self, index: u32) -> bool {
        let Some(watch) = self.at(index) else { return false };
        let Some(after) = watch.recheck_after() else { return false };
        let is_noted = std::mem::replace(&mut watch.is_noted, true);
        self.rechecks.note(index, is_noted, after)
    }

    /// Has the uncertain watches checked again that are due. Before that, the kernel reports room as
    /// soon as a read that kept sends from TCP has ended, which also comes without a notification.
    pub(super) fn recheck(&mut self, epfd: c_int) {
        for at in 0..self.rechecks.noted().len() {
            let index = self.rechecks.noted()[at];
            if self.at(index).is_some_and(|watch| watch.sends == Sends::HeldUp) {
                self.refresh(index, epfd);
            }
        }
        for index in self.rechecks.take_due() {
            if let Some(watch) = self.at(index) {
                watch.is_noted = false;
            }
            self.mark_hot(index);
        }
    }

    /// How long a sleep may be, if a watch is uncertain.
    pub(super) fn recheck_after(&self) -> Option<Duration> {
        self.rechecks.left()
    }

    /// Arms every hot watch. If events are ready, returns true with some watches still hot.
    pub(super) fn arm(&mut self, epfd: c_int) -> bool {
        while let Some(index) = self.hot.pop_front() {
            if self.arm_watch(index, epfd) {
                if let Some(watch) = self.at(index) {
                    watch.disarm();
                }
                self.hot.push_front(index);
                return true;
            }
            self.note_uncertain(index);
            self.cool(index);
        }
        false
    }

    /// Arms every hot watch for the threads that sleep in the kernel. Wakes one of them for each
    /// watch that has something to report, and one if a watch is uncertain and no thread would
    /// check it again in time.
    pub(super) fn arm_for_sleepers(&mut self, epfd: c_int) {
        if self.is_watched_by_kernel && self.sleepers == 0 {
            self.recheck(epfd);
            self.arm_all(epfd);
            return self.remind(epfd);
        }
        // Threads that poll the set are not counted.
        if self.arm_all(epfd) || (self.sleepers > 0 && self.watchful == 0) {
            self.call_uncertain();
        }
    }

    /// Wakes a thread because of an uncertain watch, if there is one.
    fn call_uncertain(&mut self) {
        let is_there = |index: &u32| self.watches.get(*index as usize).is_some_and(Option::is_some);
        let last = self.rechecks.noted().iter().rev().copied().find(is_there);
        if let Some(watch) = last.and_then(|index| self.at(index)) {
            watch.socket.connection.ring_own_doorbell();
        }
    }

    /// Makes the set readable soon, if a watch is uncertain.
    fn remind(&mut self, epfd: c_int) {
        let Some(time) = self.recheck_after() else { return };
        if self.reminder.is_none() {
            self.reminder = Reminder::new(epfd).ok();
        }
        let is_set = self.reminder.as_ref().is_some_and(|reminder| reminder.set(time).is_ok());
        if !is_set {
            // Without the timer, the thread has to stay awake until then.
            self.call_uncertain();
        }
    }

    /// Arms every hot watch, and rings for each that has something to report; returns true if a
    /// sleep has to become shorter because of one.
    pub(super) fn arm_all(&mut self, epfd: c_int) -> bool {
        let mut is_sooner = false;
        while let Some(index) = self.hot.pop_front() {
            if self.arm_watch(index, epfd)
                && let Some(watch) = self.at(index)
            {
                watch.socket.connection.ring_own_doorbell();
            }
            is_sooner |= self.note_uncertain(index);
            self.cool(index);
        }
        is_sooner
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_left_ready() || self.hot_watches().any(|watch| watch.look() != 0)
    }

    fn hot_watches(&self) -> impl Iterator<Item = &Watch<S>> {
        self.hot.iter().filter_map(|&index| self.watches.get(index as usize)?.as_ref())
    }

    /// True if some connection has bytes that the kernel does not know about.
    pub(super) fn has_left(&mut self) -> bool {
        self.left_to_kernel.retain(|watch| watch.socket.is_left());
        !self.left_to_kernel.is_empty()
    }

    pub(super) fn is_left_ready(&self) -> bool {
        self.left_to_kernel.iter().any(|watch| watch.look() != 0)
    }

    /// The number has left the set, or stands for another file.
    pub(super) fn drop_left(&mut self, number: c_int) {
        self.left_to_kernel.retain(|watch| watch.fd != number);
    }

    /// If no connection has anything to report, silences the doorbells that ring, and the reminder;
    /// those connections will be checked. Also reduces the kernel's registrations to the wanted
    /// events.
    pub(super) fn silence(&mut self, epfd: c_int) -> bool {
        if self.watches.iter().flatten().any(|watch| watch.look() != 0) {
            return false;
        }
        let owned = self.watches.iter().flatten().filter(|watch| watch.owns_doorbell);
        let mut doorbells: Vec<_> = owned
            .filter_map(|watch| {
                Some(pollfd { fd: watch.doorbell?.raw(), events: POLLIN, revents: 0 })
            })
            .collect();
        if !look::look(&mut doorbells) {
            return false;
        }
        doorbells.retain(|doorbell| doorbell.revents != 0);
        let rings = |watch: &Watch<S>| {
            doorbells
                .iter()
                .any(|doorbell| watch.doorbell.is_some_and(|own| own.raw() == doorbell.fd))
        };
        // Disarmed first: a silenced doorbell rings again while any watch is armed, even for a
        // record that was already reported.
        for index in 0..self.watches.len() as u32 {
            if let Some(watch) = self.at(index).filter(|watch| rings(watch)) {
                watch.disarm();
                self.mark_hot(index);
            }
        }
        for watch in self.watches.iter().flatten().filter(|watch| rings(watch)) {
            watch.socket.connection.quiet_doorbell();
        }
        let asked = self.ask_no_more(epfd);
        let reminded = self.reminder.as_ref().is_some_and(Reminder::silence);
        !doorbells.is_empty() || asked || reminded
    }

    /// Removes from the kernel's set the parked sockets, one-shot registrations that fired without
    /// the kernel, and events that were requested only in advance; returns true if there were any.
    fn ask_no_more(&mut self, epfd: c_int) -> bool {
        let mut any = false;
        for index in 0..self.watches.len() as u32 {
            let Some(watch) = self.at(index) else { continue };
            let wanted = watch.wanted();
            if watch.life == Life::Parked {
                self.evict(index, epfd);
                any = true;
            } else if watch.life == Life::Fired
                && !watch.is_silent
                && watch.kernel_events != ONE_SHOT
            {
                any |= watch.set_kernel_events(epfd, index, ONE_SHOT).is_ok();
            } else if watch.is_lenient() && watch.kernel_events & !wanted & !EDGE != 0 {
                any |= watch.set_kernel_events(epfd, index, wanted).is_ok();
            }
        }
        any
    }

    /// True if a hot watch wants events of a direction that is on TCP.
    pub(super) fn is_for_kernel(&self) -> bool {
        self.hot_watches().any(|watch| {
            watch.life == Life::Watched && watch.socket.connection.is_for_kernel(watch.interest())
        })
    }

    /// Where the peer of a hot watch runs, if one exists for which spinning can pay.
    pub(super) fn place_of_peer(&self) -> Option<PeerPlace> {
        self.hot_watches().find_map(|watch| watch.socket.connection.place_of_peer())
    }

    /// In the child of a fork: the parent disarms its watches, and its sleeping threads do not
    /// exist here.
    pub(super) fn after_fork_child(&mut self) {
        (self.sleepers, self.watchful, self.asking) = (0, 0, 0);
        self.reminder = None;
        for index in 0..self.watches.len() as u32 {
            if let Some(watch) = self.at(index) {
                watch.forget_arm();
            }
            self.mark_hot(index);
        }
    }
}
