//! This process among those that run a pipeline: what it knows of them, and what it asks of them.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::consumer::RemoteConsumer;
use super::heard::Heard;
use super::link::Link;
use super::message::{Frame, Message};
use super::producer::RemoteProducer;
use super::protocol_error::ProtocolError;
use super::stats::{EncodedStats, Stats};
use crate::encoding::LONGEST_TEXT;
use crate::panics::caught;
use crate::policy::priority::UnitId;
use crate::stream::local_pipeline::{LocalPipeline, Others};
use crate::stream::owned::Stream;
use crate::stream::report::Failure;
use crate::stream::unit::{Open, Unit, UnitHandle};

/// How long rank 0 waits for the reports of the other processes.
const ANSWER: Duration = Duration::from_secs(2);

pub(super) const COORDINATOR: u32 = 0;

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
    /// For each filter, the process to which its rejections are reported.
    rejects_to: Vec<u32>,
    pub(crate) owned: Vec<Option<Arc<Stream>>>,
    pub(crate) producers: Vec<Option<Arc<RemoteProducer>>>,
    /// By stream and owner.
    pub(crate) consumers: HashMap<(u16, u32), Arc<RemoteConsumer>>,
    /// The largest possible payload.
    largest: usize,
    /// Weak, since it refers to this node.
    shared: OnceLock<Weak<LocalPipeline>>,
    pub(super) report: OnceLock<Box<dyn Fn() -> Stats + Send + Sync>>,
    /// Held by the thread that asks the others: each takes all of their answers.
    asking: Mutex<()>,
    state: Mutex<NodeState>,
    pub(super) change: Condvar,
}

#[derive(Default)]
pub(super) struct NodeState {
    pub(super) is_lost: Vec<bool>,
    /// Number of units that have begun here.
    pub(super) begun: u64,
    /// True if the coordinator has announced that there are no more units.
    pub(super) is_finished: bool,
    /// Lost processes that the pipeline does without.
    pub(super) losses: Vec<Failure>,
    /// Why the pipeline cannot go on.
    pub(super) broken: Option<Failure>,
    /// The reports of others since they were asked, while a thread waits for them.
    stats: Option<HashMap<u32, Stats>>,
    /// How many requests each of them has not answered.
    unanswered: Vec<usize>,
}

/// The parts of a [`Node`].
pub(crate) struct NodeConfig {
    pub(crate) rank: u32,
    pub(crate) hosts: Vec<Arc<str>>,
    pub(crate) links: Vec<Option<Arc<Link>>>,
    pub(crate) copies: Vec<usize>,
    pub(crate) can_lose: Vec<bool>,
    pub(crate) needed: Vec<Vec<u32>>,
    pub(crate) rejects_to: Vec<u32>,
    pub(crate) owned: Vec<Option<Arc<Stream>>>,
    pub(crate) producers: Vec<Option<Arc<RemoteProducer>>>,
    pub(crate) consumers: HashMap<(u16, u32), Arc<RemoteConsumer>>,
    pub(crate) largest: usize,
}

impl Node {
    pub(crate) fn new(parts: NodeConfig) -> Self {
        let size = parts.hosts.len();
        let (is_lost, unanswered) = (vec![false; size], vec![0; size]);
        let state = NodeState { is_lost, unanswered, ..NodeState::default() };
        let NodeConfig {
            rank,
            hosts,
            links,
            copies,
            can_lose,
            needed,
            rejects_to,
            owned,
            producers,
            consumers,
            largest,
        } = parts;
        Self {
            rank,
            hosts,
            links,
            copies,
            can_lose,
            needed,
            rejects_to,
            owned,
            producers,
            consumers,
            largest,
            shared: OnceLock::new(),
            report: OnceLock::new(),
            asking: Mutex::new(()),
            state: Mutex::new(state),
            change: Condvar::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shared(&self) -> Result<Arc<LocalPipeline>, ProtocolError> {
        let shared = self.shared.get().and_then(Weak::upgrade);
        shared.ok_or(ProtocolError::Unexpected("nothing runs here"))
    }

    pub(crate) fn is_coordinator(&self) -> bool {
        self.rank == COORDINATOR
    }

    pub(super) fn others(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.links.iter().flatten()
    }

    /// How long ago the last byte arrived from that process.
    pub(crate) fn silence(&self, rank: u32) -> Option<Duration> {
        let link = self.links.get(usize::try_from(rank).ok()?)?.as_ref();
        link.map(|link| link.heartbeat.silence())
    }

    pub(super) fn to_coordinator(&self, message: Message) {
        if let Some(Some(coordinator)) = self.links.first() {
            coordinator.send(message);
        }
    }

    /// Starts the threads that send and those that read. The senders, which are returned first, end
    /// with the pipeline. The readers end when the other ends do, or one patience after those were
    /// asked to.
    pub(crate) fn start(
        self: &Arc<Self>,
        shared: &Arc<LocalPipeline>,
        report: impl Fn() -> Stats + Send + Sync + 'static,
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

    /// At the coordinator: begins a unit everywhere.
    pub(crate) fn submit(&self, shared: &LocalPipeline, unit: Unit) -> UnitHandle {
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

    pub(super) fn tell_of_success(&self, unit: UnitId) {
        let closed = Message::Closed { unit, failure: None };
        self.others().for_each(|link| link.send(closed.clone()));
        self.clear(unit);
    }

    /// Clears the state that is kept for a unit after it was done.
    pub(super) fn clear(&self, unit: UnitId) {
        self.producers.iter().flatten().for_each(|producer| producer.clear(unit));
        self.owned.iter().flatten().for_each(|owner| owner.clear(unit));
    }

    /// Finds the unit of a message from that process, if it has not ended. Waits if needed: a
    /// process other than the coordinator may have learned earlier that it begins.
    pub(super) fn find(
        &self,
        from: &Link,
        unit: UnitId,
    ) -> Result<Option<Arc<Open>>, ProtocolError> {
        let hears_first = self.is_coordinator() || from.rank == COORDINATOR;
        let patience = if hears_first { Duration::ZERO } else { from.patience };
        if !self.waits_until(patience, |state| state.begun > unit.0) {
            return Err(ProtocolError::Unexpected("a unit that has not begun"));
        }
        Ok(self.shared()?.units.find(unit))
    }

    /// Waits for the loss of a process: a peer that acts as if one was lost may have learned it
    /// first.
    pub(super) fn hears_of_a_loss(&self, patience: Duration) -> bool {
        self.waits_until(patience, |state| state.is_lost.contains(&true))
    }

    /// Waits until that is so, or no unit begins any more. False if neither is so by then.
    fn waits_until(&self, patience: Duration, is_so: impl Fn(&NodeState) -> bool) -> bool {
        let until = Instant::now().checked_add(patience);
        let mut state = self.state();
        while !is_so(&state) && state.broken.is_none() && !state.is_finished {
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

    /// There are no more units.
    pub(crate) fn finish(&self) {
        self.state().is_finished = true;
        self.change.notify_all();
        for link in self.others() {
            if self.is_coordinator() {
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

    /// Waits until all others have connected to each other, or are lost.
    pub(crate) fn wait_for_others(&self) {
        let mut state = self.state();
        let is_awaited = |state: &NodeState, link: &Arc<Link>| {
            !state.is_lost[link.rank as usize] && !link.has_begun()
        };
        let is_over = |state: &NodeState| state.is_finished || state.broken.is_some();
        while !is_over(&state) && self.others().any(|link| is_awaited(&state, link)) {
            state = self.change.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the coordinator announces that there are no more units, or the pipeline cannot
    /// go on.
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

    /// Waits for the next lost process that the pipeline does without, after the first `seen`
    /// ones. `None` if there are no more units.
    pub(crate) fn next_loss(&self, seen: usize) -> Option<Failure> {
        let mut state = self.state();
        loop {
            match state.losses.get(seen) {
                Some(failure) => return Some(failure.clone()),
                None if state.is_finished || state.broken.is_some() => return None,
                None => state = self.change.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// At the coordinator: the reports of the others about their copies and streams, without those
    /// that do not answer.
    pub(crate) fn ask(&self) -> Vec<Stats> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.stats = Some(HashMap::new());
        for link in self.others() {
            state.unanswered[link.rank as usize] += 1;
            link.send(Message::AskStats);
        }
        let until = Instant::now() + ANSWER;
        loop {
            let has_reported =
                |rank| state.stats.as_ref().is_some_and(|stats| stats.contains_key(&rank));
            let is_missing =
                |link: &Arc<Link>| !state.is_lost[link.rank as usize] && !has_reported(link.rank);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.others().any(is_missing) {
                return state.stats.take().unwrap_or_default().into_values().collect();
            }
            let waited = self.change.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Another process has answered. The answer is read only if a thread waits for it.
    pub(super) fn take_stats(
        &self,
        from: u32,
        encoded: &EncodedStats,
    ) -> Result<(), ProtocolError> {
        let rank = from as usize;
        let mut state = self.state();
        let unanswered = state.unanswered[rank].checked_sub(1);
        let unanswered =
            unanswered.ok_or(ProtocolError::Unexpected("a report that was not requested"))?;
        state.unanswered[rank] = unanswered;
        if unanswered > 0 || state.stats.is_none() {
            return Ok(());
        }
        drop(state);
        let stats =
            encoded.read([self.copies[rank], self.copies.iter().sum()], self.owned.len())?;
        if let Some(received) = &mut self.state().stats {
            received.insert(from, stats);
        }
        self.change.notify_all();
        Ok(())
    }
}

impl Others for Node {
    fn host(&self) -> Arc<str> {
        Arc::clone(&self.hosts[self.rank as usize])
    }

    fn tell_of_end(&self, unit: UnitId, failure: Failure) {
        if self.is_coordinator() {
            let closed = Message::Closed { unit, failure: Some(failure) };
            self.others().for_each(|link| link.send(closed.clone()));
        } else {
            self.to_coordinator(Message::EndEarly { unit, failure });
        }
    }

    fn forget(&self, unit: &Open) {
        self.consumers.values().for_each(|consumer| consumer.forget(unit));
        self.producers.iter().flatten().for_each(|producer| producer.forget(unit));
    }

    fn copy_is_done(&self, unit: UnitId) {
        if !self.is_coordinator() {
            self.to_coordinator(Message::CopyDone { unit });
        } else if let Ok(shared) = self.shared() {
            let is_over = shared.units.copy_is_done(unit, self.rank) == Some(true);
            if is_over {
                self.tell_of_success(unit);
            }
        }
    }

    fn copy_has_rejected(&self, filter: usize) {
        if !self.is_coordinator() {
            let message = Message::Rejected { filter: filter as u32, count: 1 };
            let to = self.rejects_to.get(filter).copied().unwrap_or(COORDINATOR);
            match &self.links[to as usize] {
                Some(link) => link.send(message),
                // This process deals the blocks.
                None => self.to_coordinator(message),
            }
        }
    }
}
