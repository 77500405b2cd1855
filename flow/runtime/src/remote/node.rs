//! This process among those that run a pipeline: it handles their messages.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::inlet::Inlet;
use super::link::Link;
use super::message::{End, Frame, Garbled, LONGEST_TEXT, Message, Sequences};
use super::outlet::Outlet;
use super::told::{Known, Told};
use crate::home::TOO_MANY_GROUPS;
use crate::origin::Origin;
use crate::panics::caught;
use crate::report::Failure;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::unit::{Open, Unit, UnitHandle, UnitId};
use crate::wakeup::Wakeup;

/// How long rank 0 waits for the reports of the other processes.
const ANSWER: Duration = Duration::from_secs(2);

pub(super) const FRONT: u32 = 0;

pub(crate) struct Node {
    pub(crate) rank: u32,
    pub(super) hosts: Vec<Arc<str>>,
    pub(super) links: Vec<Option<Arc<Link>>>,
    /// Number of copies in each process.
    copies: Vec<usize>,
    /// Whether the pipeline can do without each process.
    pub(super) can_lose: Vec<bool>,
    /// The processes of each filter that can lose some of them.
    pub(super) needed: Vec<Vec<u32>>,
    pub(crate) homes: Vec<Option<Arc<Stream>>>,
    pub(crate) outlets: Vec<Option<Arc<Outlet>>>,
    /// By stream and home.
    pub(crate) inlets: HashMap<(u16, u32), Arc<Inlet>>,
    /// The largest possible payload.
    largest: usize,
    /// Weak, since it refers to this node.
    shared: OnceLock<Weak<Shared>>,
    report: OnceLock<Box<dyn Fn() -> Known + Send + Sync>>,
    /// Held by the thread that asks the others: each takes all of their answers.
    asking: Mutex<()>,
    state: Mutex<State>,
    pub(super) change: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) is_lost: Vec<bool>,
    /// Number of units that have begun here.
    pub(super) begun: u64,
    /// True if the front has announced that there are no more units.
    pub(super) is_finished: bool,
    /// Lost processes that the pipeline does without.
    pub(super) losses: Vec<Failure>,
    /// Why the pipeline cannot go on.
    pub(super) broken: Option<Failure>,
    /// The reports of others since they were asked, while a thread waits for them.
    told: Option<HashMap<u32, Known>>,
    /// How many requests each of them has not answered.
    unanswered: Vec<usize>,
}

/// The parts of a [`Node`].
pub(crate) struct Parts {
    pub(crate) rank: u32,
    pub(crate) hosts: Vec<Arc<str>>,
    pub(crate) links: Vec<Option<Arc<Link>>>,
    pub(crate) copies: Vec<usize>,
    pub(crate) can_lose: Vec<bool>,
    pub(crate) needed: Vec<Vec<u32>>,
    pub(crate) homes: Vec<Option<Arc<Stream>>>,
    pub(crate) outlets: Vec<Option<Arc<Outlet>>>,
    pub(crate) inlets: HashMap<(u16, u32), Arc<Inlet>>,
    pub(crate) largest: usize,
}

/// The state of a thread that reads from a link.
#[derive(Default)]
struct Heard {
    /// The unit of the last block, if it is under way.
    unit: Option<Arc<Open>>,
    /// Copies that have got blocks: they are rung when nothing more is there, or before the thread
    /// waits.
    to_ring: Vec<Arc<Wakeup>>,
    /// The source of the last block that has one.
    source: Option<Arc<str>>,
}

impl Heard {
    /// Shares the memory of the name among blocks of one source.
    fn origin(&mut self, origin: Option<Origin>) -> Option<Origin> {
        origin.map(|origin| origin.share(&mut self.source))
    }

    fn ring(&mut self) {
        self.to_ring.drain(..).for_each(|wakeup| wakeup.ring());
    }
}

impl Node {
    pub(crate) fn new(parts: Parts) -> Self {
        let size = parts.hosts.len();
        let (is_lost, unanswered) = (vec![false; size], vec![0; size]);
        let state = State { is_lost, unanswered, ..State::default() };
        let Parts { rank, hosts, links, copies, can_lose, needed, homes, outlets, inlets, largest } =
            parts;
        Self {
            rank,
            hosts,
            links,
            copies,
            can_lose,
            needed,
            homes,
            outlets,
            inlets,
            largest,
            shared: OnceLock::new(),
            report: OnceLock::new(),
            asking: Mutex::new(()),
            state: Mutex::new(state),
            change: Condvar::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shared(&self) -> Result<Arc<Shared>, Garbled> {
        let shared = self.shared.get().and_then(Weak::upgrade);
        shared.ok_or(Garbled::Unexpected("nothing runs here"))
    }

    pub(crate) fn is_front(&self) -> bool {
        self.rank == FRONT
    }

    pub(crate) fn host(&self) -> Arc<str> {
        Arc::clone(&self.hosts[self.rank as usize])
    }

    pub(super) fn others(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.links.iter().flatten()
    }

    /// How long ago the last byte arrived from that process.
    pub(crate) fn silence(&self, rank: u32) -> Option<Duration> {
        let link = self.links.get(usize::try_from(rank).ok()?)?.as_ref();
        link.map(|link| link.pulse.silence())
    }

    pub(super) fn to_front(&self, message: Message) {
        if let Some(Some(front)) = self.links.first() {
            front.send(message);
        }
    }

    /// Starts the threads that send and those that read. The senders, which are returned first, end
    /// with the pipeline. The readers end when the other ends do, or one patience after those were
    /// asked to.
    pub(crate) fn start(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        report: impl Fn() -> Known + Send + Sync + 'static,
    ) -> std::io::Result<[Vec<JoinHandle<()>>; 2]> {
        let _ = self.shared.set(Arc::downgrade(shared));
        let _ = self.report.set(Box::new(report));
        let (mut senders, mut listeners) = (Vec::new(), Vec::new());
        for link in self.others() {
            let (node, reader) = (Arc::clone(self), Arc::clone(link));
            let name = |what: &str| format!("{what} rank {}", link.rank);
            let listener = thread::Builder::new().name(name("from")).spawn(move || {
                let mut heard = Heard::default();
                let take = |frame: Option<Frame>| {
                    let Some(frame) = frame else {
                        heard.ring();
                        return Ok(());
                    };
                    match node.shared() {
                        Ok(_stays) => node.take(&reader, frame, &mut heard),
                        // The pipeline is gone. Until the other process knows that, it may send
                        // something.
                        Err(_) => Ok(()),
                    }
                };
                let read = caught(|| reader.read(node.largest, take));
                let why = match read {
                    Ok(error) => error.to_string(),
                    // All have to learn of it, as of any other end.
                    Err(_) => {
                        reader.cut();
                        "its messages could not be processed".to_owned()
                    }
                };
                heard.ring();
                node.lost_link(reader.rank, &why);
            })?;
            listeners.push(listener);
            let writer = Arc::clone(link);
            let sender = thread::Builder::new().name(name("to")).spawn(move || writer.write())?;
            senders.push(sender);
        }
        Ok([senders, listeners])
    }

    // ---- units --------------------------------------------------------------------------------

    /// At the front: begins a unit everywhere.
    pub(crate) fn submit(&self, shared: &Shared, unit: Unit) -> UnitHandle {
        // All processes learn of units in the order of their numbers.
        let mut state = self.state();
        let lost = |(copies, is_lost): (&usize, &bool)| if *is_lost { 0 } else { *copies };
        let copies = self.copies.iter().zip(&state.is_lost).map(lost).collect();
        let argument = unit.argument.clone();
        let open = shared.units.begin(unit, copies);
        let deadline = open.deadline();
        let id = open.rank.unit;
        state.begun = id.0 + 1;
        let (bytes, most) = (argument.len(), LONGEST_TEXT);
        let is_long = bytes > most;
        let broken = state.broken.clone();
        let broken =
            broken.or_else(|| is_long.then_some(Failure::LongArgument { unit: id, bytes, most }));
        // They are notified in any case: the unit ends at once.
        let argument = if is_long { String::new() } else { argument };
        if state.broken.is_none() {
            let now = Instant::now();
            let time_left = deadline.map(|deadline| deadline.saturating_duration_since(now));
            let begin = Message::Begin { unit: id, argument, time_left };
            self.others().for_each(|link| link.send(begin.clone()));
        }
        drop(state);
        match broken {
            Some(failure) => shared.end_early(id, failure),
            None => shared.feeds.iter().for_each(|feed| feed.add(Arc::clone(&open))),
        }
        UnitHandle { open }
    }

    /// Notifies the others that a unit has ended early here.
    pub(crate) fn tell_of_end(&self, unit: UnitId, failure: Failure) {
        if self.is_front() {
            let closed = Message::Closed { unit, failure: Some(failure) };
            self.others().for_each(|link| link.send(closed.clone()));
        } else {
            self.to_front(Message::EndEarly { unit, failure });
        }
    }

    pub(crate) fn copy_is_done(&self, unit: UnitId) {
        if !self.is_front() {
            self.to_front(Message::CopyDone { unit });
        } else if let Ok(shared) = self.shared() {
            let is_over = shared.units.copy_is_done(unit, self.rank) == Some(true);
            if is_over {
                self.tell_of_success(unit);
            }
        }
    }

    /// A copy of that process is done with the unit, or no longer awaited. The home of its input
    /// reports that, once.
    pub(crate) fn copy_has_ended(&self, unit: UnitId, rank: u32) {
        if !self.is_front() {
            return self.to_front(Message::CopyEnded { unit, rank });
        }
        // Copies of a lost process are not awaited.
        let is_there = self.state().is_lost.get(rank as usize) == Some(&false);
        let Ok(shared) = self.shared() else { return };
        if is_there && shared.units.copy_is_done(unit, rank) == Some(true) {
            self.tell_of_success(unit);
        }
    }

    pub(super) fn tell_of_success(&self, unit: UnitId) {
        let closed = Message::Closed { unit, failure: None };
        self.others().for_each(|link| link.send(closed.clone()));
        self.clear(unit);
    }

    /// Clears the state that is kept for a unit after it was done.
    fn clear(&self, unit: UnitId) {
        self.outlets.iter().flatten().for_each(|outlet| outlet.clear(unit));
        self.homes.iter().flatten().for_each(|home| home.clear(unit));
        self.inlets.values().for_each(|inlet| inlet.clear(unit));
    }

    pub(crate) fn forget(&self, unit: &Open) {
        self.inlets.values().for_each(|inlet| inlet.forget(unit));
        self.outlets.iter().flatten().for_each(|outlet| outlet.forget(unit));
    }

    /// Finds the unit of a message from that process, if it has not ended. Waits if needed: a
    /// process other than the front may have learned earlier that it begins.
    fn find(&self, from: &Link, unit: UnitId) -> Result<Option<Arc<Open>>, Garbled> {
        let hears_first = self.is_front() || from.rank == FRONT;
        let until = Instant::now().checked_add(from.patience);
        let mut state = self.state();
        while state.begun <= unit.0 && state.broken.is_none() && !state.is_finished {
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if hears_first || left.is_zero() {
                return Err(Garbled::Unexpected("a unit that has not begun"));
            }
            let waited = self.change.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        Ok(self.shared()?.units.find(unit))
    }

    /// Waits for the loss of a process: a peer that acts as if one was lost may have learned it
    /// first.
    fn hears_of_a_loss(&self, patience: Duration) -> bool {
        let until = Instant::now().checked_add(patience);
        let mut state = self.state();
        while !state.is_lost.contains(&true) && state.broken.is_none() && !state.is_finished {
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            let waited = self.change.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    // ---- messages -----------------------------------------------------------------------------

    /// As [`Node::find`]; most blocks have the same unit as the previous one.
    fn find_again(&self, from: &Link, unit: UnitId, heard: &mut Heard) -> Result<(), Garbled> {
        let is_same = |open: &Arc<Open>| open.rank.unit == unit && !open.is_closed();
        if !heard.unit.as_ref().is_some_and(is_same) {
            // This may wait for the unit.
            heard.ring();
            heard.unit = self.find(from, unit)?;
        }
        Ok(())
    }

    fn take(&self, link: &Arc<Link>, frame: Frame, heard: &mut Heard) -> Result<(), Garbled> {
        let Frame { message, payload } = frame;
        if !matches!(message, Message::Block { .. }) {
            // This may wait for something.
            heard.ring();
        }
        if link.is_given_up() && link.rank != FRONT {
            return Ok(());
        }
        match message {
            // Time has passed.
            Message::Beat => self.homes.iter().flatten().for_each(|home| home.look_again()),
            Message::Sent { from, unit, group, index, origin } => {
                let home = self.home_for(link, from)?;
                self.find_again(link, unit, heard)?;
                let has_lost = || self.hears_of_a_loss(link.patience);
                let block = (payload, heard.origin(origin));
                home.sent(link, heard.unit.as_deref(), (group, index), block, has_lost)?;
            }
            Message::GroupEnd { from, unit, group } => {
                let home = self.home_for(link, from)?;
                if let Some(open) = self.find(link, unit)? {
                    home.end_group(&open, group).then_some(()).ok_or(TOO_MANY_GROUPS)?;
                }
                if home.is_replayed() {
                    link.send(Message::GroupKept { from, unit, group });
                }
            }
            Message::Last { from, unit } => {
                let home = self.home_that_ends(link, from)?;
                if let Some(open) = self.find(link, unit)? {
                    home.begin_last(&open, from.1.into());
                }
            }
            Message::SentAll { from, unit, group } => {
                let home = self.home_that_ends(link, from)?;
                if let Some(open) = self.find(link, unit)? {
                    let is_bounded = home.end(&open, from.1.into(), group);
                    is_bounded.then_some(()).ok_or(TOO_MANY_GROUPS)?;
                }
            }
            Message::Freed { stream, bytes } => self.outlet(link, stream)?.freed(bytes)?,
            Message::Turn { stream, unit, group } => {
                let outlet = self.outlet(link, stream)?;
                if let Some(open) = self.find(link, unit)? {
                    outlet.set_turn(&open, group);
                }
            }
            Message::Costs { stream, cost } => self.outlet(link, stream)?.costs(cost),
            Message::GroupKept { from, unit, group } => {
                let source = self.outlet(link, from.0)?.source.as_ref();
                if let (Some(source), Some(open)) = (source, self.find(link, unit)?) {
                    source.confirmed(from.1, &open, group);
                }
            }
            Message::Block { to, unit, sequence, is_again, origin } => {
                let inlet = self.inlet(to.0, link)?;
                self.find_again(link, unit, heard)?;
                let block = (payload, heard.origin(origin));
                match &heard.unit {
                    Some(open) => {
                        let has_lost = || self.hears_of_a_loss(link.patience);
                        let idle = inlet.block(to, open, (sequence, is_again), block, has_lost)?;
                        heard.to_ring.extend(idle);
                    }
                    None => {
                        let sequences = Sequences(vec![sequence]);
                        link.send(Message::Dropped { to, unit, sequences, is_begun: false });
                    }
                }
            }
            Message::Over { to, unit } => {
                let inlet = self.inlet(to.0, link)?;
                if let Some(open) = self.find(link, unit)? {
                    inlet.over(to, &open)?;
                }
            }
            Message::EndedFor { to, unit } => {
                let inlet = self.inlet(to.0, link)?;
                inlet.ended_for(to, unit, self.find(link, unit)?.is_some())?;
            }
            Message::Through { to, unit } => self.home(to.0)?.through((link.rank, to.1), unit)?,
            Message::Recall { to, unit, sequence } => {
                self.inlet(to.0, link)?.recall(to, unit, sequence)?;
            }
            Message::Started { to, unit, sequence } => {
                self.home(to.0)?.started((link.rank, to.1), unit, sequence)?;
            }
            Message::Done { to, unit, sequences, took, blocked, waited } => {
                let home = self.home(to.0)?;
                home.distant_done((link.rank, to.1), (unit, &sequences), [took, blocked, waited])?;
            }
            Message::Dropped { to, unit, sequences, is_begun } => {
                self.home(to.0)?.dropped((link.rank, to.1), (unit, &sequences), is_begun)?;
            }
            other if link.rank == FRONT => self.take_of_front(other)?,
            other if self.is_front() => self.take_at_front(link.rank, other)?,
            _ => return Err(Garbled::Unexpected("this is not the front")),
        }
        Ok(())
    }

    fn take_of_front(&self, message: Message) -> Result<(), Garbled> {
        let shared = self.shared()?;
        match message {
            Message::Begin { unit, argument, time_left } => {
                let deadline = time_left.and_then(|left| Instant::now().checked_add(left));
                let open = shared.units.begin_as(
                    unit,
                    Unit { argument, deadline, expires: false },
                    Vec::new(),
                );
                shared.feeds.iter().for_each(|feed| feed.add(Arc::clone(&open)));
                self.state().begun = unit.0.saturating_add(1);
                self.change.notify_all();
                shared.has_begun(unit);
            }
            Message::Closed { unit, failure: None } => {
                shared.units.is_done(unit);
                self.clear(unit);
            }
            Message::Closed { unit, failure: Some(failure) } => {
                shared.end_here(unit, failure);
            }
            Message::Dead { rank, why } => self.lose(rank, &why),
            Message::Ask => {
                let known = self.report.get().map(|report| report()).unwrap_or_default();
                self.to_front(Message::Told(Told::new(&known)));
            }
            Message::Finish => self.finish(),
            _ => return Err(Garbled::Unexpected("the front does not send that")),
        }
        Ok(())
    }

    fn take_at_front(&self, from: u32, message: Message) -> Result<(), Garbled> {
        let shared = self.shared()?;
        match message {
            Message::CopyDone { unit } => {
                let is_over = shared.units.copy_is_done(unit, from);
                match is_over {
                    Some(true) => self.tell_of_success(unit),
                    Some(false) => {}
                    None => return Err(Garbled::Unexpected("more copies than it has")),
                }
            }
            Message::CopyEnded { unit, rank } => self.copy_has_ended(unit, rank),
            // Both are passed on to all others.
            Message::EndEarly { unit, failure } => {
                check_text(&failure.to_string())?;
                shared.end_early(unit, failure);
            }
            Message::Lost { rank, why } => {
                check_text(&why)?;
                self.judge(from, rank, &why);
            }
            Message::Told(told) => self.told(from, &told)?,
            _ => return Err(Garbled::Unexpected("only the front sends that")),
        }
        Ok(())
    }

    fn home(&self, stream: u16) -> Result<&Arc<Stream>, Garbled> {
        let home = self.homes.get(usize::from(stream)).and_then(Option::as_ref);
        home.ok_or(Garbled::Unexpected("the home of a stream that is not here"))
    }

    /// The home of a stream to which that copy sends from there.
    fn home_for(&self, link: &Link, (stream, copy): End) -> Result<&Arc<Stream>, Garbled> {
        let home = self.home(stream)?;
        match home.has_producer(link.rank, copy) {
            true => Ok(home),
            false => Err(Garbled::Unexpected("a copy that does not send from there")),
        }
    }

    /// The same, if another process may report the end of the copy's output.
    fn home_that_ends(&self, link: &Link, from: End) -> Result<&Arc<Stream>, Garbled> {
        let home = self.home(from.0)?;
        match home.is_ended_by(link.rank, from.1) {
            true => Ok(home),
            false => self.home_for(link, from),
        }
    }

    fn outlet(&self, home: &Link, stream: u16) -> Result<&Arc<Outlet>, Garbled> {
        let outlet = self.outlets.get(usize::from(stream)).and_then(Option::as_ref);
        let outlet = outlet.filter(|outlet| outlet.home.rank == home.rank);
        outlet.ok_or(Garbled::Unexpected("nobody sends to that stream here"))
    }

    fn inlet(&self, stream: u16, home: &Link) -> Result<&Arc<Inlet>, Garbled> {
        let inlet = self.inlets.get(&(stream, home.rank));
        inlet.ok_or(Garbled::Unexpected("nobody receives from that stream here"))
    }

    // ---- the end ------------------------------------------------------------------------------

    /// There are no more units.
    pub(crate) fn finish(&self) {
        self.state().is_finished = true;
        self.change.notify_all();
        for link in self.others() {
            if self.is_front() {
                link.send(Message::Finish);
            }
            link.finish();
        }
    }

    /// Waits, for one patience at most, until everything was sent: a peer that reads a byte now and
    /// then must not keep this process from ending. Its reader cuts a peer that goes on sending.
    pub(crate) fn see_off(&self) {
        let patience = self.others().map(|link| link.patience).max().unwrap_or_default();
        let until = Instant::now().checked_add(patience);
        for link in self.others() {
            if !link.is_written_until(until) {
                link.cut();
            }
        }
    }

    /// Waits until the front announces that there are no more units, or the pipeline cannot go on.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        let mut state = self.state();
        loop {
            match &state.broken {
                Some(failure) => return Err(failure.clone()),
                None if state.is_finished => return Ok(()),
                None => state = self.change.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits for the next lost process that the pipeline does without, after the first `known`
    /// ones. `None` if there are no more units.
    pub(crate) fn next_loss(&self, known: usize) -> Option<Failure> {
        let mut state = self.state();
        loop {
            match state.losses.get(known) {
                Some(failure) => return Some(failure.clone()),
                None if state.is_finished || state.broken.is_some() => return None,
                None => state = self.change.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// At the front: the reports of the others about their copies and streams, without those that
    /// do not answer.
    pub(crate) fn ask(&self) -> Vec<Known> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.told = Some(HashMap::new());
        for link in self.others() {
            state.unanswered[link.rank as usize] += 1;
            link.send(Message::Ask);
        }
        let until = Instant::now() + ANSWER;
        loop {
            let has_told = |rank| state.told.as_ref().is_some_and(|told| told.contains_key(&rank));
            let is_missing =
                |link: &Arc<Link>| !state.is_lost[link.rank as usize] && !has_told(link.rank);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.others().any(is_missing) {
                return state.told.take().unwrap_or_default().into_values().collect();
            }
            let waited = self.change.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Another process has answered. The answer is read only if a thread waits for it.
    fn told(&self, from: u32, told: &Told) -> Result<(), Garbled> {
        let rank = from as usize;
        let mut state = self.state();
        let unanswered = state.unanswered[rank].checked_sub(1);
        let unanswered =
            unanswered.ok_or(Garbled::Unexpected("a report that was not requested"))?;
        state.unanswered[rank] = unanswered;
        if unanswered > 0 || state.told.is_none() {
            return Ok(());
        }
        drop(state);
        let known = told.read([self.copies[rank], self.copies.iter().sum()], self.homes.len())?;
        if let Some(told) = &mut self.state().told {
            told.insert(from, known);
        }
        self.change.notify_all();
        Ok(())
    }
}

/// No error is as long: with others around it, it would not fit into a message.
fn check_text(text: &str) -> Result<(), Garbled> {
    if text.len() > 2 * LONGEST_TEXT { Err(Garbled::TooLong(text.len())) } else { Ok(()) }
}
