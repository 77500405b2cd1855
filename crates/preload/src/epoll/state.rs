//! The watches of a set and the order in which they are looked at.

use std::collections::VecDeque;
use std::ffi::c_int;

use endpoint::Interest;
use libc::{
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDNORM, EPOLLWRNORM, epoll_event,
};
use transport::Errno;
use transport::sys::Fd;

use super::tag::{self, GENERATIONS, MAX_WATCHES, Op, Subject, Tag};
use super::{Answer, Attached};
use crate::socket::Registration;

const READ: u32 = (EPOLLIN | EPOLLRDNORM) as u32;
const WRITE: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
const EDGE: u32 = EPOLLET as u32;
const ONE_SHOT: u32 = EPOLLONESHOT as u32;
/// What the kernel reports whether it was asked to or not.
const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;

/// A hot watch that had nothing to say so many times in a row is armed.
const IDLE_LOOKS: u8 = 16;

/// A connection in an epoll set that is attached or sought.
struct Watch {
    socket: Attached,
    fd: c_int,
    /// As the application asked for them.
    events: u32,
    data: u64,
    generation: u8,
    /// Next watch of the same connection in this set, by a duplicate of its fd: a ring, of one almost always.
    sibling: u32,
    /// The bell, which those of one connection share, carries the tag of this one.
    owns_bell: bool,
    /// The bell that is in the set.
    bell: Option<Fd>,
    /// In the queue of those to be looked at.
    hot: bool,
    /// What the peer was asked to ring for.
    armed: Option<Interest>,
    /// One-shot, and the shot is fired.
    disabled: bool,
    /// Everything is news: just added or changed.
    fresh: bool,
    /// Edge-triggered: what was reported last.
    mark: u64,
    starved: u64,
    /// Looks in a row that found nothing.
    idle: u8,
    /// EPOLLOUT is kept from the kernel.
    masked: bool,
    /// EPOLLOUT is asked of the kernel for the library's own sake: see [`endpoint::Readiness::owes`].
    owes: bool,
    /// What the kernel was last asked to report; level-triggered, it may be more than the application wants.
    told: u32,
    /// The application has taken the socket out of the set, and the kernel has not been told: see
    /// [`State::park`].
    parked: bool,
    /// The wait that reported this watch last, and at which place: one wait reports a watch once.
    reported: (u64, usize),
}

impl Watch {
    fn interest(&self) -> Interest {
        Interest { read: self.events & READ != 0, write: self.events & WRITE != 0 }
    }

    /// What user space alone knows to be ready, as events to report; and the marks that go with it.
    fn look(&self) -> (u32, u64, u64) {
        // Before the readiness: what changes in between is news next time.
        let (mark, starved) = (self.socket.connection.data_mark(), self.socket.starved());
        if self.disabled {
            return (0, mark, starved);
        }
        let ready = self.socket.readiness_for(self.interest());
        let mut events = 0;
        if ready.read {
            events |= READ;
        }
        if ready.write {
            events |= WRITE;
        }
        events &= self.events;
        if self.events & EDGE != 0 && !self.fresh {
            let news =
                events & READ != 0 && mark != self.mark || events & WRITE != 0 && starved != self.starved;
            if !news {
                events = 0;
            }
        }
        (events, mark, starved)
    }

    /// As [`Watch::look`], for somebody who reports what is found.
    fn take(&mut self) -> u32 {
        let (events, mark, starved) = self.look();
        if events != 0 {
            self.mark = mark;
            if events & WRITE != 0 {
                self.starved = starved;
            }
            self.fresh = false;
            self.idle = 0;
            self.disabled = self.events & ONE_SHOT != 0;
        }
        events
    }

    /// From now on the peer rings; true if there is something to report already.
    fn arm(&mut self) -> bool {
        if self.disabled || self.parked {
            return false;
        }
        if self.armed.is_none() {
            let interest = self.interest();
            self.socket.connection.arm(interest);
            self.armed = Some(interest);
        }
        self.look().0 != 0
    }

    fn disarm(&mut self) {
        if let Some(interest) = self.armed.take() {
            self.socket.connection.disarm(interest);
        }
    }

    /// What the kernel has to report of the application's fd.
    fn wanted(&self) -> u32 {
        match (self.masked, self.owes) {
            (true, _) => self.events & !WRITE,
            (false, true) => self.events | EPOLLOUT as u32,
            (false, false) => self.events,
        }
    }

    /// What the connection is to the kernel now: masked, and owing.
    fn state(&self) -> (bool, bool) {
        (self.socket.connection.tx_on_ring(), self.socket.connection.owes())
    }

    fn is_stale(&self) -> bool {
        (self.masked, self.owes) != self.state() || self.socket.connection.bell() != self.bell
    }

    /// Whether events beyond [`Watch::wanted`] do no harm: they are dropped when they come.
    fn is_lenient(&self) -> bool {
        self.events & (EDGE | ONE_SHOT) == 0
    }

    /// Makes the kernel's registration of the application's fd that of this watch, unless it covers what
    /// is wanted.
    fn tell_kernel(&mut self, epfd: c_int, index: u32) -> Answer<()> {
        let wanted = self.wanted();
        if self.is_lenient() && self.told & wanted == wanted && self.told & (EDGE | ONE_SHOT) == 0 {
            return Ok(());
        }
        // The next change is then most likely covered, too.
        self.tell(epfd, index, if self.is_lenient() { wanted | READ } else { wanted })
    }

    fn tell(&mut self, epfd: c_int, index: u32, events: u32) -> Answer<()> {
        let data = Tag { watch: index, generation: self.generation, subject: Subject::Socket }.encode()?;
        tag::control(epfd, Op::Modify, self.fd, events, data)?;
        self.told = events;
        Ok(())
    }

    /// Watches the bell that the connection has now: one that is sought has another.
    fn change_bell(&mut self, epfd: c_int, index: u32) -> Answer<()> {
        let now = self.socket.connection.bell();
        if self.bell == now {
            return Ok(());
        }
        self.remove_bell(epfd);
        if let Some(bell) = now.filter(|_| self.owns_bell) {
            let data = Tag { watch: index, generation: self.generation, subject: Subject::Bell }.encode()?;
            tag::control(epfd, Op::Add, bell.raw(), READ | EDGE, data)?;
        }
        self.bell = now;
        Ok(())
    }

    fn remove_bell(&mut self, epfd: c_int) {
        if let Some(bell) = self.bell.take().filter(|_| self.owns_bell) {
            let _ = tag::control(epfd, Op::Delete, bell.raw(), 0, 0);
        }
    }
}

/// Events on their way to the application.
pub(super) struct Events {
    base: *mut epoll_event,
    max: usize,
    len: usize,
}

impl Events {
    /// # Safety
    ///
    /// `base` must be valid for writes of `max` events as long as the value lives.
    pub(super) unsafe fn new(base: *mut epoll_event, max: usize) -> Events {
        Events { base, max, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn room(&self) -> usize {
        self.max - self.len
    }

    /// Where the kernel may put [`Events::room`] more events.
    pub(super) fn tail(&mut self) -> *mut epoll_event {
        // SAFETY: len <= max, so this is inside or one past the end.
        unsafe { self.base.add(self.len) }
    }

    fn push(&mut self, event: epoll_event) {
        if self.len < self.max {
            // SAFETY: inside the array by the comparison; `new` demanded that it is writable.
            unsafe { self.base.add(self.len).write(event) };
            self.len += 1;
        }
    }

    fn merge(&mut self, at: usize, events: u32) {
        if at < self.len {
            // SAFETY: an event that `push` has written.
            unsafe { (*self.base.add(at)).events |= events };
        }
    }
}

/// What the lock of a set guards.
pub(super) struct State {
    watches: Vec<Option<Watch>>,
    free: Vec<u32>,
    /// Generations of the free and used indices.
    generations: Vec<u8>,
    hot: VecDeque<u32>,
    /// Threads in the kernel's epoll_wait on this set.
    pub(super) sleepers: usize,
    rounds: u64,
    /// Waits since the kernel was last asked.
    pub(super) unasked: u32,
}

impl State {
    pub(super) fn new() -> State {
        State {
            watches: Vec::new(),
            free: Vec::new(),
            generations: Vec::new(),
            hot: VecDeque::new(),
            sleepers: 0,
            rounds: 0,
            unasked: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.watches.len() - self.free.len()
    }

    fn at(&mut self, index: u32) -> Option<&mut Watch> {
        self.watches.get_mut(index as usize)?.as_mut()
    }

    fn heat(&mut self, index: u32) {
        if let Some(watch) = self.watches.get_mut(index as usize).and_then(Option::as_mut)
            && !watch.hot
        {
            watch.hot = true;
            watch.idle = 0;
            self.hot.push_back(index);
        }
    }

    /// Puts the connection of `registration`, whose fd is in the set already, under watch. `sibling`:
    /// another watch of this connection in this set.
    pub(super) fn install(
        &mut self,
        epfd: c_int,
        socket: Attached,
        registration: &Registration,
        sibling: Option<u32>,
    ) -> Answer<u32> {
        if socket.connection.bell().is_none() {
            return Err(Errno::INVAL);
        }
        let (masked, owes) = (socket.connection.tx_on_ring(), socket.connection.owes());
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.watches.len() == MAX_WATCHES => return Err(Errno::NOSPC),
            None => {
                self.watches.push(None);
                self.generations.push(0);
                (self.watches.len() - 1) as u32
            }
        };
        let mut watch = Watch {
            socket,
            fd: registration.fd,
            events: registration.events,
            data: registration.data,
            generation: self.generations[index as usize],
            sibling: index,
            owns_bell: sibling.is_none(),
            bell: None,
            hot: false,
            armed: None,
            disabled: false,
            fresh: true,
            mark: 0,
            starved: 0,
            idle: 0,
            masked,
            owes,
            told: EDGE,
            parked: false,
            reported: (0, 0),
        };
        if let Err(error) = watch.tell_kernel(epfd, index) {
            self.free.push(index);
            return Err(error);
        }
        if let Err(error) = watch.change_bell(epfd, index) {
            watch.remove_bell(epfd);
            let _ = tag::control(epfd, Op::Modify, watch.fd, watch.events, watch.data);
            self.free.push(index);
            return Err(error);
        }
        if let Some(elder) = sibling.and_then(|sibling| self.at(sibling)) {
            watch.sibling = std::mem::replace(&mut elder.sibling, index);
        }
        self.watches[index as usize] = Some(watch);
        self.heat(index);
        Ok(index)
    }

    /// EPOLL_CTL_MOD.
    pub(super) fn change(&mut self, index: u32, epfd: c_int, events: u32, data: u64) -> Answer<()> {
        let Some(watch) = self.at(index) else { return Err(Errno::NOENT) };
        let before = (watch.events, watch.masked, watch.owes);
        watch.events = events;
        (watch.masked, watch.owes) = watch.state();
        if let Err(error) = watch.tell_kernel(epfd, index) {
            (watch.events, watch.masked, watch.owes) = before;
            return Err(error);
        }
        watch.data = data;
        watch.disarm();
        watch.parked = false;
        watch.disabled = false;
        watch.fresh = true;
        self.heat(index);
        Ok(())
    }

    /// EPOLL_CTL_DEL, kept from the kernel: many programs take a socket out for every message and put it
    /// back for the next, and the kernel has nothing to say about one whose bytes travel on the ring.
    /// False if it has to be told.
    pub(super) fn park(&mut self, index: u32) -> bool {
        let Some(watch) = self.at(index) else { return false };
        if !watch.is_lenient() || watch.sibling != index {
            return false;
        }
        watch.disarm();
        watch.events = 0;
        watch.parked = true;
        true
    }

    /// The kernel has something to say about a parked socket after all: it is taken out for good.
    fn evict(&mut self, index: u32, epfd: c_int) {
        let Some(watch) = self.at(index) else { return };
        let _ = tag::control(epfd, Op::Delete, watch.fd, 0, 0);
        self.remove(index, Some(epfd));
    }

    /// Takes a parked socket out for good.
    pub(super) fn unpark(&mut self, index: u32, fd: c_int, epfd: c_int) {
        if self.is_parked(index, fd) {
            self.evict(index, epfd);
        }
    }

    /// Whether the watch of `fd` still exists, parked; one that was taken out may have left its index to
    /// another.
    pub(super) fn is_parked(&mut self, index: u32, fd: c_int) -> bool {
        self.at(index).is_some_and(|watch| watch.parked && watch.fd == fd)
    }

    /// Keeps EPOLLOUT from the kernel exactly while sends travel on the ring, and asks for it exactly while
    /// something is owed besides.
    pub(super) fn refresh(&mut self, index: u32, epfd: c_int) {
        let Some(watch) = self.at(index) else { return };
        if !watch.is_stale() {
            return;
        }
        (watch.masked, watch.owes) = watch.state();
        // One that cannot be watched is missed until the next change.
        let _ = watch.change_bell(epfd, index);
        if watch.parked {
            return;
        }
        if !watch.disabled {
            let _ = watch.tell_kernel(epfd, index);
        }
        // Room on one carrier says nothing about room on the other.
        watch.fresh = true;
        watch.disarm();
        self.heat(index);
    }

    /// Takes a watch out; with `epfd`, its bell too.
    pub(super) fn remove(&mut self, index: u32, epfd: Option<c_int>) {
        let Some(mut watch) = self.watches.get_mut(index as usize).and_then(Option::take) else { return };
        watch.disarm();
        let mut before = watch.sibling;
        while let Some(sibling) = self.at(before) {
            if sibling.sibling == index {
                sibling.sibling = watch.sibling;
                break;
            }
            before = sibling.sibling;
        }
        if watch.owns_bell
            && let Some(epfd) = epfd
        {
            watch.remove_bell(epfd);
            if let Some(heir) = self.at(watch.sibling) {
                (heir.owns_bell, heir.bell) = (true, None);
                let _ = heir.change_bell(epfd, watch.sibling);
            }
        }
        if watch.hot {
            self.hot.retain(|&hot| hot != index);
        }
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) % GENERATIONS;
        self.free.push(index);
    }

    /// The set is closed.
    pub(super) fn clear(&mut self) {
        for index in 0..self.watches.len() as u32 {
            self.remove(index, None);
        }
    }

    /// The number of a new wait.
    pub(super) fn round(&mut self) -> u64 {
        self.rounds += 1;
        self.rounds
    }

    /// Reports what hot watches have, each once, those first that waited longest.
    pub(super) fn collect(&mut self, round: u64, epfd: c_int, into: &mut Events) {
        for _ in 0..self.hot.len() {
            if into.room() == 0 {
                return;
            }
            let Some(index) = self.hot.pop_front() else { return };
            if self.report(index, round, epfd, into) {
                self.hot.push_back(index);
            }
        }
    }

    /// Looks at a hot watch; false if it is not hot any more.
    fn report(&mut self, index: u32, round: u64, epfd: c_int, into: &mut Events) -> bool {
        if self.at(index).is_some_and(|watch| watch.is_stale()) {
            // The peer is gone, its wish for TCP was met, or all is paid: room is the kernel's to tell.
            self.refresh(index, epfd);
        }
        let Some(watch) = self.at(index) else { return false };
        if watch.parked {
            watch.hot = false;
            return false;
        }
        let events = watch.take();
        if events != 0 {
            watch.reported = (round, into.len());
            into.push(epoll_event { events, u64: watch.data });
        } else {
            watch.idle = watch.idle.saturating_add(1);
            if watch.disabled || watch.idle > IDLE_LOOKS && !watch.arm() {
                watch.hot = false;
                return false;
            }
            watch.disarm();
        }
        true
    }

    /// Replaces the library's own among `count` events that the kernel has put at the tail of `into`.
    pub(super) fn translate(&mut self, round: u64, epfd: c_int, count: usize, into: &mut Events) {
        let tail = into.tail();
        let mut woken = smallvec::SmallVec::<[u32; 16]>::new();
        for at in 0..count {
            // SAFETY: the kernel has written `count` events there. `into` grows by at most one for each
            // that was read, so it does not overtake the reader.
            let event = unsafe { tail.add(at).read() };
            let Some(tag) = Tag::decode(event.u64) else {
                into.push(event);
                continue;
            };
            let Some(watch) = self.at(tag.watch).filter(|watch| watch.generation == tag.generation) else {
                continue;
            };
            match tag.subject {
                Subject::Bell => {
                    watch.socket.connection.attend();
                    let mut index = tag.watch;
                    while let Some(watch) = self.at(index) {
                        watch.disarm();
                        woken.push(index);
                        index = watch.sibling;
                        if index == tag.watch {
                            break;
                        }
                    }
                }
                Subject::Socket if watch.parked => self.evict(tag.watch, epfd),
                Subject::Socket => {
                    if event.events & WRITE != 0 && watch.owes {
                        watch.socket.connection.attend();
                    }
                    let owes = watch.socket.connection.owes();
                    let mut events = event.events & (watch.wanted() | ALWAYS);
                    if events != event.events && watch.is_lenient() {
                        let wanted = watch.wanted();
                        let _ = watch.tell(epfd, tag.watch, wanted);
                    }
                    if events & WRITE != 0 && watch.socket.connection.tx_on_ring() {
                        events &= !WRITE;
                        self.refresh(tag.watch, epfd);
                    } else if watch.owes {
                        // What is owed comes before what the application has to send.
                        events &= if owes { !WRITE } else { watch.events | ALWAYS };
                        if events == 0 && watch.events & ONE_SHOT != 0 && !watch.disabled {
                            // The shot was not the application's.
                            let wanted = watch.wanted();
                            let _ = watch.tell(epfd, tag.watch, wanted);
                        }
                        self.refresh(tag.watch, epfd);
                    }
                    self.report_kernel(tag.watch, round, events, into);
                }
            }
        }
        for index in woken {
            let Some(watch) = self.at(index).filter(|watch| !watch.hot) else { continue };
            (watch.hot, watch.idle) = (true, 0);
            if watch.reported.0 == round || into.room() == 0 || self.report(index, round, epfd, into) {
                self.hot.push_back(index);
            }
        }
    }

    /// Reports events of the application's own fd.
    fn report_kernel(&mut self, index: u32, round: u64, events: u32, into: &mut Events) {
        let Some(watch) = self.at(index) else { return };
        if events == 0 {
            return;
        }
        if watch.reported.0 == round {
            into.merge(watch.reported.1, events);
        } else if !watch.disabled {
            watch.reported = (round, into.len());
            watch.disabled = watch.events & ONE_SHOT != 0;
            into.push(epoll_event { events, u64: watch.data });
        }
    }

    /// Arms every hot watch; true, and some stay hot, if there is something to report.
    pub(super) fn arm(&mut self) -> bool {
        while let Some(index) = self.hot.pop_front() {
            let Some(watch) = self.at(index) else { continue };
            if watch.arm() {
                watch.disarm();
                self.hot.push_front(index);
                return true;
            }
            watch.hot = false;
        }
        false
    }

    /// Arms every hot watch for those who sleep in the kernel, and wakes one of them for each that has
    /// something to report.
    pub(super) fn hand_over(&mut self) {
        while let Some(index) = self.hot.pop_front() {
            let Some(watch) = self.at(index) else { continue };
            watch.hot = false;
            if watch.arm() {
                watch.socket.connection.ring_own_bell();
            }
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.hot.iter().any(|&index| {
            self.watches.get(index as usize).and_then(Option::as_ref).is_some_and(|watch| watch.look().0 != 0)
        })
    }

    /// Whether the peer of a hot watch runs on another processor, so that waiting awake for it can pay.
    pub(super) fn is_worth_spinning(&self) -> bool {
        self.hot
            .iter()
            .filter_map(|&index| self.watches.get(index as usize)?.as_ref())
            .any(|watch| watch.socket.connection.worth_spinning())
    }

    /// The parent's arms are the parent's to take back, and its sleeping threads are not here.
    pub(super) fn after_fork_child(&mut self) {
        self.sleepers = 0;
        for index in 0..self.watches.len() as u32 {
            if let Some(watch) = self.at(index) {
                watch.armed = None;
            }
            self.heat(index);
        }
    }
}
