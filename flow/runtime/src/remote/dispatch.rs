//! Handles the messages of other processes.

use std::sync::Arc;
use std::time::Instant;

use super::consumer::{Arrival, RemoteConsumer};
use super::heard::Heard;
use super::link::Link;
use super::message::{Frame, Message, Sequences, StreamEnd};
use super::node::{COORDINATOR, Node};
use super::producer::RemoteProducer;
use super::protocol_error::ProtocolError;
use super::stats::EncodedStats;
use crate::encoding::LONGEST_TEXT;
use crate::policy::priority::UnitId;
use crate::stream::elsewhere::RemoteProducers;
use crate::stream::owned::Stream;
use crate::stream::owned::reports::TOO_MANY_GROUPS;
use crate::stream::unit::{Open, Unit};

impl Node {
    /// As [`Node::find`]; most blocks have the same unit as the previous one.
    fn find_again(
        &self,
        from: &Link,
        unit: UnitId,
        heard: &mut Heard,
    ) -> Result<(), ProtocolError> {
        let is_same = |open: &Arc<Open>| open.rank.unit == unit && !open.is_closed();
        if !heard.unit.as_ref().is_some_and(is_same) {
            // This may wait for the unit.
            heard.ring();
            heard.unit = self.find(from, unit)?;
        }
        Ok(())
    }

    pub(super) fn take(
        &self,
        link: &Arc<Link>,
        frame: Frame,
        heard: &mut Heard,
    ) -> Result<(), ProtocolError> {
        let Frame { message, payload } = frame;
        if !matches!(message, Message::Block { .. }) {
            // This may wait for something.
            heard.ring();
        }
        // Another process may report that this one is lost before its last rejections are read.
        let is_rejection = matches!(message, Message::Rejected { .. });
        if link.is_given_up() && link.rank != COORDINATOR && !is_rejection {
            return Ok(());
        }
        match message {
            Message::Beat => {
                // It may be the first one.
                drop(self.state());
                self.change.notify_all();
                // Time has passed.
                self.owned.iter().flatten().for_each(|owner| owner.look_again());
            }
            Message::Sent { from, unit, group, index, origin } => {
                let (owner, producers) = self.owner_for(link, from)?;
                self.find_again(link, unit, heard)?;
                let has_lost = || self.hears_of_a_loss(link.patience);
                let origin = heard.origin(origin);
                owner.sent(
                    producers,
                    heard.unit.as_deref(),
                    (group, index),
                    payload,
                    origin,
                    has_lost,
                )?;
            }
            Message::GroupEnd { from, unit, group } => {
                let (owner, _) = self.owner_for(link, from)?;
                if let Some(open) = self.find(link, unit)? {
                    owner.end_group(&open, group).then_some(()).ok_or(TOO_MANY_GROUPS)?;
                }
                if owner.is_replayed() {
                    link.send(Message::GroupKept { from, unit, group });
                }
            }
            Message::Last { from, unit } => {
                let (owner, _) = self.owner_for(link, from)?;
                if let Some(open) = self.find(link, unit)? {
                    owner.begin_last(&open, from.1.into());
                }
            }
            Message::SentAll { from, unit, group } => {
                let (owner, _) = self.owner_for(link, from)?;
                if let Some(open) = self.find(link, unit)? {
                    let is_bounded = owner.end(&open, from.1.into(), group);
                    is_bounded.then_some(()).ok_or(TOO_MANY_GROUPS)?;
                }
            }
            Message::Freed { stream, bytes } => self.producer(link, stream)?.freed(bytes)?,
            Message::Turn { stream, unit, group } => {
                let producer = self.producer(link, stream)?;
                if let Some(open) = self.find(link, unit)? {
                    producer.set_turn(&open, group);
                }
            }
            Message::Costs { stream, cost } => self.producer(link, stream)?.costs(cost),
            Message::GroupKept { from, unit, group } => {
                let source = self.producer(link, from.0)?.source.as_ref();
                if let (Some(source), Some(open)) = (source, self.find(link, unit)?) {
                    source.confirmed(from.1, &open, group);
                }
            }
            Message::Block { to, unit, sequence, is_again, origin } => {
                let consumer = self.consumer(to.0, link)?;
                self.find_again(link, unit, heard)?;
                let origin = heard.origin(origin);
                match &heard.unit {
                    Some(open) => {
                        let has_lost = || self.hears_of_a_loss(link.patience);
                        let arrival = Arrival { sequence, is_again, bytes: payload, origin };
                        let idle = consumer.block(to, open, arrival, has_lost)?;
                        heard.to_ring.extend(idle);
                    }
                    None => {
                        let sequences = Sequences(vec![sequence]);
                        link.send(Message::Dropped { to, unit, sequences, is_begun: false });
                    }
                }
            }
            Message::Over { to, unit } => {
                let consumer = self.consumer(to.0, link)?;
                if let Some(open) = self.find(link, unit)? {
                    consumer.over(to, &open)?;
                }
            }
            Message::Recall { to, unit, sequence } => {
                self.consumer(to.0, link)?.recall(to, unit, sequence)?;
            }
            Message::Started { to, unit, sequence } => {
                self.owner(to.0)?.started(link.rank, to.1, unit, sequence)?;
            }
            Message::Done { to, unit, sequences, took, blocked, waited } => {
                let owner = self.owner(to.0)?;
                owner.remote_done(link.rank, to.1, unit, &sequences.0, [took, blocked, waited])?;
            }
            Message::Dropped { to, unit, sequences, is_begun } => {
                self.owner(to.0)?.dropped(link.rank, to.1, unit, &sequences.0, is_begun)?;
            }
            Message::Rejected { filter, count } if link.rank != COORDINATOR => {
                self.take_rejections(filter, count)?;
            }
            other if link.rank == COORDINATOR => self.take_from_coordinator(other)?,
            other if self.is_coordinator() => self.take_at_coordinator(link.rank, other)?,
            _ => return Err(ProtocolError::Unexpected("this is not the coordinator")),
        }
        Ok(())
    }

    fn take_from_coordinator(&self, message: Message) -> Result<(), ProtocolError> {
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
            Message::AskStats => {
                let stats = self.report.get().map(|report| report()).unwrap_or_default();
                self.to_coordinator(Message::Stats(EncodedStats::new(&stats)));
            }
            Message::Finish => self.finish(),
            _ => return Err(ProtocolError::Unexpected("the coordinator does not send that")),
        }
        Ok(())
    }

    fn take_at_coordinator(&self, from: u32, message: Message) -> Result<(), ProtocolError> {
        let shared = self.shared()?;
        match message {
            Message::CopyDone { unit } => {
                let is_over = shared.units.copy_is_done(unit, from);
                match is_over {
                    Some(true) => self.tell_of_success(unit),
                    Some(false) => {}
                    None => return Err(ProtocolError::Unexpected("more copies than it has")),
                }
            }
            // Both are passed on to all others.
            Message::EndEarly { unit, failure } => {
                check_text(&failure.to_string())?;
                shared.end_early(unit, failure);
            }
            Message::Lost { rank, why } => {
                check_text(&why)?;
                self.judge(from, rank, &why);
            }
            Message::Stats(stats) => self.take_stats(from, &stats)?,
            _ => return Err(ProtocolError::Unexpected("only the coordinator sends that")),
        }
        Ok(())
    }

    /// Counts rejections in another process, or passes them on.
    fn take_rejections(&self, filter: u32, count: u64) -> Result<(), ProtocolError> {
        let own = if self.is_coordinator() { count } else { 0 };
        if !self.shared()?.count_rejected(filter as usize, own) {
            return Err(ProtocolError::Unexpected("a filter that is not there"));
        }
        if !self.is_coordinator() {
            self.to_coordinator(Message::Rejected { filter, count });
        }
        Ok(())
    }

    fn owner(&self, stream: u16) -> Result<&Arc<Stream>, ProtocolError> {
        let owner = self.owned.get(usize::from(stream)).and_then(Option::as_ref);
        owner.ok_or(ProtocolError::Unexpected("the owner of a stream that is not here"))
    }

    /// The owner of a stream to which that copy sends from there.
    fn owner_for(
        &self,
        link: &Link,
        from: StreamEnd,
    ) -> Result<(&Arc<Stream>, &RemoteProducers), ProtocolError> {
        let (stream, copy) = from;
        let owner = self.owner(stream)?;
        match owner.producers_of(link.rank, copy) {
            Some(producers) => Ok((owner, producers)),
            None => Err(ProtocolError::Unexpected("a copy that does not send from there")),
        }
    }

    fn producer(&self, owner: &Link, stream: u16) -> Result<&Arc<RemoteProducer>, ProtocolError> {
        let producer = self.producers.get(usize::from(stream)).and_then(Option::as_ref);
        let producer = producer.filter(|producer| producer.owner.rank == owner.rank);
        producer.ok_or(ProtocolError::Unexpected("nobody sends to that stream here"))
    }

    fn consumer(&self, stream: u16, owner: &Link) -> Result<&Arc<RemoteConsumer>, ProtocolError> {
        let consumer = self.consumers.get(&(stream, owner.rank));
        consumer.ok_or(ProtocolError::Unexpected("nobody receives from that stream here"))
    }
}

/// No error is as long: with others around it, it would not fit into a message.
fn check_text(text: &str) -> Result<(), ProtocolError> {
    if text.len() > 2 * LONGEST_TEXT { Err(ProtocolError::TooLong(text.len())) } else { Ok(()) }
}
