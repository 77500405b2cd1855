//! Other processes report: blocks that copies there send, and how copies there fare with theirs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Stream;
use super::state::StreamState;
use crate::memory::block::Queued;
use crate::memory::origin::Origin;
use crate::memory::receipt::Receipt;
use crate::policy::cut::OVERHEAD;
use crate::policy::priority::{Priority, UnitId};
use crate::stream::elsewhere::{RemoteProducers, Unexpected};
use crate::stream::remote_copy::{Back, Done, RemoteCopy};
use crate::stream::unit::Open;
use crate::stream::unit_queue::UnitQueue;

/// Only a faulty peer sends this.
pub(crate) const TOO_MANY_GROUPS: Unexpected = Unexpected("more groups than there can be");

impl Stream {
    /// The process, if that copy sends from there.
    pub(crate) fn producers_of(&self, process: u32, copy: u16) -> Option<&RemoteProducers> {
        let mut all = self.remote.producers.iter();
        all.find(|own| own.process == process && own.copies.contains(&copy.into()))
    }

    /// Takes a block from another process. `unit` is `None` if the unit has ended. After a loss,
    /// which the sender may have learned of first, there may be more than there is room for:
    /// `has_lost` waits for that loss.
    pub(crate) fn sent(
        &self,
        from: &RemoteProducers,
        unit: Option<&Open>,
        at: (u64, u32),
        payload: Bytes,
        origin: Option<Origin>,
        has_lost: impl FnOnce() -> bool,
    ) -> Result<(), Unexpected> {
        let bytes = payload.len() + OVERHEAD;
        let held = self.foreign.add(bytes);
        let is_within = held <= self.foreign.limit() || self.is_replayed() && has_lost();
        let sender = Arc::clone(&from.sender);
        let receipt = Receipt::Room { sender, bytes, ledger: self.foreign };
        let block = Queued { origin, receipt: Some(Box::new(receipt)), ..Queued::new(payload, 0) };
        if !is_within {
            return Err(Unexpected("more than there was room for"));
        }
        let Some(unit) = unit else { return Ok(()) };
        let mut state = self.state();
        self.add_to(&mut state, unit, at, block);
        match state.queues.get(&unit.rank).is_none_or(UnitQueue::is_bounded) {
            true => Ok(()),
            false => Err(TOO_MANY_GROUPS),
        }
    }

    /// A process reports that a copy, which must exist, has begun a block.
    pub(crate) fn started(
        &self,
        process: u32,
        copy: u16,
        unit: UnitId,
        sequence: u64,
    ) -> Result<(), Unexpected> {
        let mut state = self.state();
        let copy = usize::from(copy);
        state.remote_copy(process, copy)?.started(unit, sequence)?;
        state.dealer.began(copy, 1);
        self.feed(&mut state);
        Ok(())
    }

    pub(crate) fn remote_done(
        &self,
        process: u32,
        copy: u16,
        unit: UnitId,
        sequences: &[u64],
        [took, blocked, waited]: [Duration; 3],
    ) -> Result<(), Unexpected> {
        let mut state = self.state();
        let copy = usize::from(copy);
        let remote_copy = state.remote_copy(process, copy)?;
        let done = remote_copy.done(unit, sequences, took, waited)?;
        let Done { rank, count, bytes, unbegun, took, stray } = done;
        state.dealer.began(copy, unbegun);
        state.dealer.done(copy, count, 1, took);
        let busy = took.saturating_sub(blocked);
        let all = busy.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        self.served(&mut state, copy, count, bytes, all);
        let counts_undone = self.counts_undone();
        let queue = state.queues.get_mut(&rank).filter(|_| counts_undone);
        let is_end = queue.is_some_and(|queue| {
            queue.undone -= count;
            queue.ended.is_all()
        });
        self.after_done(&mut state, is_end);
        stray
    }

    pub(crate) fn dropped(
        &self,
        process: u32,
        copy: u16,
        unit: UnitId,
        sequences: &[u64],
        is_begun: bool,
    ) -> Result<(), Unexpected> {
        let mut state = self.state();
        let copy = usize::from(copy);
        for sequence in sequences {
            let (is_unbegun, back) =
                state.remote_copy(process, copy)?.dropped(unit, *sequence, is_begun)?;
            if is_unbegun {
                state.dealer.dropped(copy);
            }
            if let Some(Back { rank, block }) = back {
                self.has_come_back(&mut state, rank, block);
            }
        }
        // It has room again, and copies here that left it a block are not asked again.
        self.after_done(&mut state, false);
        Ok(())
    }

    /// A process is lost: the blocks that its copies had not finished go to others, and nothing
    /// more is awaited from them.
    pub(crate) fn lose(&self, process: u32) {
        let mut state = self.state();
        let is_there =
            |one: &Option<RemoteCopy>| one.as_ref().is_some_and(|one| one.process() == process);
        let copies: Vec<usize> = (0..state.remote_copies.len())
            .filter(|copy| is_there(&state.remote_copies[*copy]))
            .collect();
        for copy in copies {
            if let Some(sizing) = &self.sizing {
                sizing.tuner().lose(copy);
            }
            state.lose(copy);
        }
        let gone = self.remote.producers.iter().filter(|one| one.process == process);
        let gone: Vec<usize> = gone.flat_map(|one| one.copies.iter().copied()).collect();
        let units: Vec<Priority> = state.queues.keys().copied().collect();
        let mut turns = Vec::new();
        for rank in units {
            let Some(queue) = state.queues.get_mut(&rank) else { continue };
            let was_ending = queue.ending.is_all();
            for copy in &gone {
                queue.ending.add(*copy);
                queue.ended.add(*copy);
            }
            let has_ended = queue.ended.is_all();
            let ready = match &mut queue.merge {
                Some(merge) if !was_ending && queue.ending.is_all() => {
                    let ready = merge.begin_last();
                    turns.push((rank.unit, merge.next()));
                    ready
                }
                _ => Vec::new(),
            };
            self.deal(&mut state, rank, ready);
            if has_ended {
                state.has_sent_all(rank.unit, self.is_replayed());
            }
        }
        state.lost_producers.extend(gone);
        state.wake_all();
        // Also those that wait for room: they check for earlier blocks.
        let wakeups = state.consumers.iter().filter_map(|consumer| consumer.wakeup.as_ref());
        wakeups.for_each(|wakeup| wakeup.ring());
        self.feed(&mut state);
        for producers in &self.remote.producers {
            turns.iter().for_each(|(unit, group)| producers.link.turn(*unit, *group));
        }
        drop(state);
        self.ledger.wake_all();
    }
}

impl StreamState {
    pub(super) fn remote_copy(
        &mut self,
        process: u32,
        copy: usize,
    ) -> Result<&mut RemoteCopy, Unexpected> {
        let found = self.remote_copies.get_mut(copy).and_then(Option::as_mut);
        let found = found.filter(|remote_copy| remote_copy.process() == process);
        found.ok_or(Unexpected("a copy that is not there"))
    }

    fn lose(&mut self, copy: usize) {
        if std::mem::replace(&mut self.consumers[copy].is_lost, true) {
            return;
        }
        self.dealer.lose(copy);
        let left = self.remote_copies[copy].as_mut().map(RemoteCopy::lose).unwrap_or_default();
        for Back { rank, block } in left {
            // If its unit has ended, it is dropped.
            if let Some(queue) = self.queues.get_mut(&rank) {
                queue.undone = queue.undone.saturating_sub(1);
                queue.deal_again(block.into_queued());
            }
        }
        let Self { queues, .. } = self;
        for queue in queues.values_mut() {
            for (_, block) in std::mem::take(&mut queue.dealt[copy]) {
                queue.deal_again(block);
            }
            queue.notified.add(copy);
        }
        queues.retain(|_, queue| !queue.notified.is_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::batch::Batch;
    use crate::policy::dealing::DealingPolicy;
    use crate::stream::owned::Remote;
    use crate::stream::unit::{Unit, Units};

    #[test]
    fn nothing_begins_anew_by_what_a_lost_copy_says() {
        let units = Units::default();
        let unit = units.begin(Unit::new(""), vec![1]);
        let remote = Remote { is_replayed: true, ..Remote::default() };
        let stream =
            Stream::new("s".into(), 1 << 20, DealingPolicy::Adaptive, true, [2, 1], false, remote);
        stream.state().lost_producers = vec![1];
        stream.begin_last(&unit, 1);
        stream.end(&unit, 1, 1 << 63);
        assert!(stream.state().queues.is_empty());
        stream.end(&unit, 0, 1 << 63);
        assert!(!stream.state().queues.is_empty());
    }

    #[test]
    fn what_is_dealt_again_comes_before_all_else() {
        let units = Units::default();
        let begin = || units.begin(Unit::new(""), vec![1]);
        let [urgent, other] = [begin(), begin()];
        let remote = Remote { is_redealt: true, local_producers: 1, ..Remote::default() };
        let stream = Stream::new(
            "s".into(),
            1 << 20,
            DealingPolicy::RoundRobin,
            true,
            [1, 2],
            false,
            remote,
        );
        let mut batch = Batch::new(stream.ledger);
        for unit in [&urgent, &other] {
            for index in 0..4 {
                assert!(stream.ledger.reserve(200, usize::MAX));
                stream.send(unit, 0, (index, 0), Queued::new(Bytes::from_static(b"x"), 200));
            }
        }
        stream.state().take(0, true, &mut batch);
        assert_eq!(
            batch.next().map(|block| (block.unit(), block.sequence())),
            Some((UnitId(0), 0))
        );
        assert!(!stream.has_earlier(0, &urgent, 0));
        stream.state().lose(1);
        // It must not wait for room with output of one unit while others wait for another unit.
        assert!(stream.has_earlier(0, &urgent, 0));
        let next = |batch: &mut Batch| {
            stream.state().take(0, true, batch);
            batch.next().map(|block| (batch.is_again(), block.sequence()))
        };
        let order = [(); 7].map(|()| next(&mut batch).unwrap());
        let again = [(true, 1), (true, 3), (true, 1), (true, 3)];
        assert_eq!(
            (&order[..4], &order[4..]),
            (&again[..], &[(false, 2), (false, 0), (false, 2)][..])
        );
        assert!(!stream.has_earlier(0, &urgent, 0));
    }
}
