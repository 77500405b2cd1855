//! How a stream reaches copies in other processes, and how the blocks of such a stream reach its
//! owner.

use std::sync::Arc;

use super::deferred_messages;
use super::link::Link;
use super::message::{Frame, Message, StreamEnd};
use crate::memory::receipt::{Owner, Sender};
use crate::policy::fit::Cost;
use crate::policy::priority::UnitId;
use crate::stream::elsewhere::{ConsumerLink, ProducerLink, ToConsumer};

/// At the owner of that stream: the way to a process whose copies send to it.
pub(crate) struct ToProducers {
    pub(crate) link: Arc<Link>,
    pub(crate) stream: u16,
}

impl ProducerLink for ToProducers {
    fn turn(&self, unit: UnitId, group: u64) {
        self.link.send(Message::Turn { stream: self.stream, unit, group });
    }

    fn costs(&self, cost: Cost) {
        self.link.send(Message::Costs { stream: self.stream, cost });
    }
}

impl Sender for ToProducers {
    fn freed(&self, bytes: usize) {
        deferred_messages::freed(&self.link, self.stream, bytes);
    }
}

/// At the owner of a stream: the way to a copy that receives from it.
pub(crate) struct ToCopy {
    pub(crate) link: Arc<Link>,
    pub(crate) to: StreamEnd,
}

impl ConsumerLink for ToCopy {
    fn process(&self) -> u32 {
        self.link.rank
    }

    fn cost(&self) -> Option<Cost> {
        self.link.cost()
    }

    fn send(&self, all: &mut Vec<ToConsumer>) {
        let to = self.to;
        self.link.send_all(all.drain(..).map(|one| match one {
            ToConsumer::Block { unit, sequence, is_again, origin, bytes } => Frame {
                message: Message::Block { to, unit, sequence, is_again, origin },
                payload: bytes,
            },
            ToConsumer::Recall { unit, sequence } => Message::Recall { to, unit, sequence }.into(),
            ToConsumer::Over { unit } => Message::Over { to, unit }.into(),
        }));
    }
}

/// In the process of a copy: the way to the owner of that stream.
pub(super) struct ToOwner {
    pub(super) link: Arc<Link>,
    pub(super) stream: u16,
}

impl Owner for ToOwner {
    fn dropped(&self, copy: u16, unit: UnitId, sequence: u64, is_begun: bool) {
        deferred_messages::dropped(&self.link, (self.stream, copy), unit, sequence, is_begun);
    }
}
