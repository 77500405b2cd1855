//! The output ports of a copy: they cut what a filter sends into blocks, and wait for room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::memory::block::Queued;
use crate::memory::ledger::Charge;
use crate::memory::origin::Origin;
use crate::memory::wakeup::Wakeup;
use crate::memory::{compaction, deferred_release};
use crate::policy::cut::{Cut, OVERHEAD};
use crate::policy::priority::UnitId;
use crate::policy::sizes::Sizes;
use crate::remote::deferred_messages;
use crate::run::filter_error::{FilterError, NoOrderYet, NotOfABlock, TooLarge, UnitEnded};
use crate::run::meter::{Meter, Phase};
use crate::run::stream_ends::{Input, StreamSender, StreamTarget};
use crate::stream::merge;
use crate::stream::observer::{CopyObserver, Span};
use crate::stream::unit::Open;

/// A copy that finds no room first waits until there is much: a wake-up for each block that fits
/// would cost more than the block. After this long it takes what there is.
const ROOM_WAIT_LIMIT: Duration = Duration::from_micros(500);

/// This many blocks are much. The timer of such a wait costs as much as some of them.
const ROOM_WAIT_BLOCKS: usize = 32;

/// Output of a copy for a unit that is not a whole block yet, for each receiving stream of each
/// port.
#[derive(Default)]
pub(crate) struct Filling(pub(crate) Vec<Vec<Slot>>);

#[derive(Default)]
pub(crate) struct Slot {
    partial: Option<Partial>,
    /// Whole blocks, kept while there are more in the copy's batch.
    pub(crate) outbox: Vec<Queued>,
    /// Room that was taken for the next blocks, while there are more in the batch.
    pub(crate) ahead: usize,
    /// Number of blocks sent for the group.
    index: u32,
}

struct Partial {
    bytes: Vec<u8>,
    /// Origin of the first byte.
    origin: Option<Origin>,
    /// Size of the whole block.
    size: usize,
    charge: Charge,
}

impl Filling {
    pub(crate) fn new(senders: &[Vec<StreamSender>]) -> Self {
        let slots = |port: &Vec<StreamSender>| port.iter().map(|_| Slot::default()).collect();
        Self(senders.iter().map(slots).collect())
    }
}

/// Output of a block that may still be rejected.
#[derive(Default)]
pub(crate) struct Held {
    /// Each with its port.
    pieces: Vec<(usize, Bytes)>,
    /// Bytes of all pieces of each port.
    bytes: BTreeMap<usize, usize>,
}

/// The outputs of a filter, during a call.
pub struct Outputs<'a> {
    pub(crate) senders: &'a [Vec<StreamSender>],
    pub(crate) filling: &'a mut Filling,
    pub(crate) unit: &'a Open,
    /// The sending copy.
    pub(crate) copy: usize,
    pub(crate) group: u64,
    /// The input that provided the group's block.
    pub(crate) input: Option<&'a Input>,
    /// True during `init`.
    pub(crate) is_init: bool,
    /// Blocks in the copy's batch, including the one being processed; 0 if it has only this one.
    pub(crate) in_batch: usize,
    pub(crate) meter: &'a Meter,
    pub(crate) watch: &'a CopyObserver,
    pub(crate) wakeup: &'a Arc<Wakeup>,
    /// Output of a block that may still be rejected.
    pub(crate) held: Option<Held>,
    /// Counts and reports a rejection, with its reason.
    pub(crate) tell: &'a dyn Fn(&str),
    /// Origin of the bytes that are sent.
    pub(crate) origin: Option<Origin>,
    /// True if the origin gives the position of each byte sent.
    pub(crate) is_source: bool,
}

impl Outputs<'_> {
    /// Sends bytes to the output port with this number; to each of its streams, if there are
    /// several. Waits until there is room.
    ///
    /// A buffer that is mostly empty is replaced by a smaller one, so that a block takes hardly
    /// more memory than its part of the limit, except for up to 256 short ones in a stream. But
    /// blocks that are cut out of `bytes` share its memory, as do bytes whose buffer is still used
    /// by the filter or its source, and each is charged only for its own part: it is up to the
    /// filter to bound what it sends at once, and to copy a small piece of a large block.
    ///
    /// # Errors
    ///
    /// [`UnitEnded`], [`TooLarge`], and [`NoOrderYet`].
    ///
    /// # Panics
    ///
    /// If there is no such port.
    pub fn send(&mut self, port: usize, bytes: impl Into<Bytes>) -> Result<(), FilterError> {
        let bytes = bytes.into();
        match self.held {
            Some(_) => self.hold(port, bytes),
            None => self.send_now(port, bytes),
        }
    }

    /// Sets the origin of the bytes of the next [`send`](Self::send), which are consecutive there.
    /// An error of a later filter then names the source.
    ///
    /// A [`blockwise`](crate::Graph::blockwise) filter need not call this: all its output has the
    /// origin of its block.
    pub fn begins_at(&mut self, origin: Origin) {
        self.origin = Some(origin);
        self.is_source = true;
    }

    /// The origin of the byte at this offset from the beginning.
    fn origin_after(&self, bytes: usize) -> Option<Origin> {
        let origin = self.origin.as_ref()?;
        Some(if self.is_source { origin.skip(bytes as u64) } else { origin.clone() })
    }

    /// Reports and counts that some of the input was rejected, for that reason; the unit goes on.
    pub fn reject(&mut self, why: &str) {
        self.meter.rejected();
        (self.tell)(why);
    }

    /// As [`send`](Self::send), but deferred until it is known that the block is not rejected.
    fn hold(&mut self, port: usize, bytes: Bytes) -> Result<(), FilterError> {
        let before = self.held.as_ref().and_then(|held| held.bytes.get(&port));
        let all = before.copied().unwrap_or(0) + bytes.len();
        for sender in &self.senders[port] {
            let stream = &sender.stream;
            self.check_size(stream, all + OVERHEAD, stream.largest())?;
        }
        let held = self.held.get_or_insert_default();
        held.bytes.insert(port, all);
        held.pieces.push((port, bytes));
        Ok(())
    }

    /// Sends the deferred output.
    pub(crate) fn release(&mut self) -> Result<(), FilterError> {
        for (port, bytes) in self.held.take().unwrap_or_default().pieces {
            self.send_now(port, bytes)?;
        }
        Ok(())
    }

    fn send_now(&mut self, port: usize, mut bytes: Bytes) -> Result<(), FilterError> {
        // Before it is shared.
        let is_looked_at = |sender: &StreamSender| {
            let len = bytes.len();
            sender.cut.keeps(len) && compaction::is_worth_it(len, sender.stream.ledger())
        };
        if self.senders[port].iter().any(is_looked_at) {
            bytes = compaction::compact(bytes);
        }
        let last = self.senders[port].len().saturating_sub(1);
        for at in 0..last {
            self.send_to(port, at, bytes.clone())?;
        }
        self.send_to(port, last, bytes)?;
        if std::mem::take(&mut self.is_source) {
            self.origin = None;
        }
        Ok(())
    }

    fn send_to(&mut self, port: usize, at: usize, bytes: Bytes) -> Result<(), FilterError> {
        match self.senders[port][at].cut {
            Cut::Whole => self.emit(port, at, bytes, self.origin.clone()),
            Cut::Bytes(_) | Cut::Auto(_) => self.cut(port, at, bytes),
            Cut::Lines(size) => self.cut_lines(port, at, &bytes, size),
        }
    }

    /// The unit of work of this call.
    #[must_use]
    pub fn unit(&self) -> UnitId {
        self.unit.rank.unit
    }

    /// Whether the unit of work has ended early, so that there is no point in going on.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.unit.is_closed()
    }

    fn emit(
        &mut self,
        port: usize,
        at: usize,
        bytes: Bytes,
        origin: Option<Origin>,
    ) -> Result<(), FilterError> {
        let held = bytes.len() + OVERHEAD;
        self.reserve(port, at, held, false)?;
        self.give(port, at, Queued { origin, ..Queued::new(bytes, held) });
        Ok(())
    }

    fn give(&mut self, port: usize, at: usize, queued: Queued) {
        let slot = &mut self.filling.0[port][at];
        let (group, index) = (self.group, slot.index);
        slot.index = slot.index.wrapping_add(1);
        if let Some(stream) = self.batches(port, at) {
            return self.send_later(stream, port, at, queued);
        }
        let sizes = self.senders[port][at].stream.sizing().map(|sizing| &sizing.sizes);
        let began = sizes.is_some_and(Sizes::is_timed).then(Instant::now);
        if let Some(sizes) = sizes {
            sizes.passed(queued.bytes.len());
        }
        match &self.senders[port][at].stream {
            StreamTarget::Here(stream) => stream.send(self.unit, self.copy, (group, index), queued),
            StreamTarget::Elsewhere(producer) => {
                producer.send(self.unit, self.copy, group, index, queued)
            }
        }
        if let Some(began) = began {
            match &self.senders[port][at].stream {
                StreamTarget::Here(stream) => stream.sending_took(began.elapsed()),
                StreamTarget::Elsewhere(producer) => producer.sending_took(began.elapsed()),
            }
        }
    }

    fn cut(&mut self, port: usize, at: usize, mut bytes: Bytes) -> Result<(), FilterError> {
        let all = bytes.len();
        while !bytes.is_empty() {
            if self.filling.0[port][at].partial.is_none() {
                let origin = self.origin_after(all - bytes.len());
                let size = self.next_size(port, at);
                if bytes.len() >= size {
                    self.emit(port, at, bytes.split_to(size), origin)?;
                    continue;
                }
                // Take room for the whole block before it is filled.
                let charge = self.charge(port, at, size + OVERHEAD)?;
                let bytes = Vec::with_capacity(size);
                self.filling.0[port][at].partial = Some(Partial { bytes, origin, size, charge });
            }
            let Some(partial) = &mut self.filling.0[port][at].partial else { continue };
            let part = bytes.split_to(bytes.len().min(partial.size - partial.bytes.len()));
            partial.bytes.extend_from_slice(&part);
            if partial.bytes.len() == partial.size {
                self.flush_one(port, at);
            }
        }
        Ok(())
    }

    /// The size of the next block.
    fn next_size(&self, port: usize, at: usize) -> usize {
        let sender = &self.senders[port][at];
        match sender.cut {
            Cut::Bytes(size) => size,
            _ => sender.stream.next_size(self.unit()).unwrap_or(usize::MAX),
        }
    }

    fn cut_lines(
        &mut self,
        port: usize,
        at: usize,
        bytes: &[u8],
        size: usize,
    ) -> Result<(), FilterError> {
        let mut before = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = match &self.filling.0[port][at].partial {
                Some(partial) => partial.charge.bytes() - OVERHEAD - partial.bytes.len(),
                None => {
                    let charge = self.charge(port, at, size + OVERHEAD)?;
                    let origin = self.origin_after(before);
                    let partial = Partial { bytes: Vec::new(), origin, size, charge };
                    self.filling.0[port][at].partial = Some(partial);
                    size
                }
            };
            before += line.len();
            let more = line.len().saturating_sub(room);
            let held = &self.filling.0[port][at].partial;
            let held = held.as_ref().map_or(0, |held| held.charge.bytes());
            let stream = &self.senders[port][at].stream;
            // Each copy has its share: none waits for room that another one holds and fills.
            self.check_size(stream, held + more, stream.share())?;
            let more = if more > 0 { Some(self.charge_more(port, at, more)?) } else { None };
            let Some(partial) = &mut self.filling.0[port][at].partial else { continue };
            if let Some(more) = more {
                partial.charge.join(more);
            }
            compaction::make_room(&mut partial.bytes, line.len(), size);
            partial.bytes.extend_from_slice(line);
            if partial.bytes.len() >= size && line.ends_with(b"\n") {
                self.flush_one(port, at);
            }
        }
        Ok(())
    }

    fn check_size(
        &self,
        stream: &StreamTarget,
        bytes: usize,
        most: usize,
    ) -> Result<(), FilterError> {
        if bytes <= most {
            return Ok(());
        }
        let [bytes, most] = [bytes, most].map(|all| all.saturating_sub(OVERHEAD));
        Err(TooLarge { stream: Arc::clone(stream.name()), bytes, most }.into())
    }

    /// Takes room, waiting for it if needed.
    fn charge(&mut self, port: usize, at: usize, bytes: usize) -> Result<Charge, FilterError> {
        self.reserve(port, at, bytes, false)?;
        Ok(Charge::new(self.senders[port][at].stream.ledger(), bytes))
    }

    /// The same for a block that has some already.
    fn charge_more(&mut self, port: usize, at: usize, bytes: usize) -> Result<Charge, FilterError> {
        self.reserve(port, at, bytes, true)?;
        Ok(Charge::new(self.senders[port][at].stream.ledger(), bytes))
    }

    fn reserve(
        &mut self,
        port: usize,
        at: usize,
        bytes: usize,
        is_more: bool,
    ) -> Result<(), FilterError> {
        let stream = &self.senders[port][at].stream;
        if stream.is_ordered() && self.is_init {
            return Err(NoOrderYet(Arc::clone(stream.name())).into());
        }
        if stream.is_replayed() && merge::is_last(self.group) {
            return Err(NotOfABlock(Arc::clone(stream.name())).into());
        }
        self.check_size(stream, bytes, stream.largest())?;
        if !self.unit.is_closed() && self.reserve_ahead(port, at, bytes) {
            return Ok(());
        }
        let senders = self.senders;
        let stream = &senders[port][at].stream;
        let mut before = None;
        let outcome = loop {
            if self.unit.is_closed() {
                break Err(UnitEnded.into());
            }
            let most = stream.most(self.unit, self.group);
            if stream.ledger().reserve(bytes, most) {
                break Ok(());
            }
            // The stream may never hold that little, so patience ends. In an ordered stream, a
            // block that has arrived may be the one that all others wait for.
            let much = stream.ledger().limit() / 4;
            let is_patient =
                before.is_none() && !stream.is_ordered() && much >= ROOM_WAIT_BLOCKS * bytes;
            let patience = if is_patient { much } else { 0 };
            if stream.ledger().reserve_or_wait(bytes, most, patience, self.wakeup) {
                break Ok(());
            }
            // From here on this thread is woken. The values read before may have changed since.
            if self.unit.is_closed() || stream.most(self.unit, self.group) != most {
                continue;
            }
            let input = self.input.filter(|_| stream.is_ordered());
            // All others wait for that block, which only comes after this one is sent.
            let is_awaited =
                input.is_some_and(|input| input.has_earlier(self.copy, self.unit, self.group));
            // A group of another unit may have room that this one needs, and need room that this
            // one has.
            let is_in_circle = || is_more && stream.is_one_of_turns(self.unit, self.group);
            if is_awaited || is_in_circle() {
                stream.ledger().lend((self.unit(), self.group), bytes);
                if self.unit.is_closed() {
                    // Perhaps no later call would take it back.
                    stream.ledger().repay(self.unit(), u64::MAX);
                }
                break Ok(());
            }
            self.settle();
            deferred_release::settle();
            deferred_messages::tell();
            if before.is_none() {
                before = Some(self.meter.enter(Phase::Blocked));
                self.watch.began(|| Span::Blocked { stream: stream.number() });
            }
            if is_patient {
                self.wakeup.wait_for(ROOM_WAIT_LIMIT);
            } else {
                self.wakeup.wait();
            }
        };
        if let Some(before) = before {
            self.meter.enter(before);
            self.watch.ended(std::iter::once(stream.account()));
        }
        outcome
    }

    fn flush_one(&mut self, port: usize, at: usize) {
        let Some(mut partial) = self.filling.0[port][at].partial.take() else { return };
        let charge = partial.charge.split(partial.bytes.len() + OVERHEAD);
        let block = Queued::new(compaction::gathered(partial.bytes), charge.into_bytes());
        self.give(port, at, Queued { origin: partial.origin, ..block });
    }

    /// Sends partly filled blocks: all of them at the end of the unit, otherwise only where groups
    /// must not be joined.
    pub(crate) fn flush(&mut self, is_end: bool) {
        for port in 0..self.senders.len() {
            for at in 0..self.senders[port].len() {
                if is_end || self.senders[port][at].stream.keeps_groups() {
                    self.flush_one(port, at);
                }
            }
        }
    }

    /// The group is complete.
    pub(crate) fn end_group(&mut self) {
        let slots = self.filling.0.iter_mut().flatten();
        let mut is_ahead = false;
        for (sender, slot) in self.senders.iter().flatten().zip(slots) {
            slot.index = 0;
            match &sender.stream {
                // Groups of copies here are those of blocks under way.
                StreamTarget::Here(stream) => _ = stream.end_group(self.unit, self.group),
                StreamTarget::Elsewhere(producer) => {
                    is_ahead |= producer.end_group(self.unit, self.copy, self.group);
                }
            }
        }
        if is_ahead {
            self.wait_for_links();
        }
    }

    /// Waits until the links to the owners of the streams have caught up.
    fn wait_for_links(&mut self) {
        self.settle();
        deferred_release::settle();
        deferred_messages::tell();
        let before = self.meter.enter(Phase::Blocked);
        for StreamSender { stream, .. } in self.senders.iter().flatten() {
            if let StreamTarget::Elsewhere(producer) = stream {
                self.watch.began(|| Span::Blocked { stream: stream.number() });
                producer.wait_for_link(self.unit);
                self.watch.ended(std::iter::once(stream.account()));
            }
        }
        self.meter.enter(before);
    }

    /// From now on, the output is that of the end of the unit.
    pub(crate) fn begin_last(&self) {
        for sender in self.senders.iter().flatten() {
            match &sender.stream {
                StreamTarget::Here(stream) => stream.begin_last(self.unit, self.copy),
                StreamTarget::Elsewhere(producer) => producer.begin_last(self.unit, self.copy),
            }
        }
    }

    /// The output for this unit is complete.
    pub(crate) fn end(&self) {
        for sender in self.senders.iter().flatten() {
            match &sender.stream {
                StreamTarget::Here(stream) => _ = stream.end(self.unit, self.copy, self.group),
                StreamTarget::Elsewhere(producer) => producer.end(self.unit, self.copy, self.group),
            }
        }
    }
}
