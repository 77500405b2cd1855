//! Tag matching: which message belongs to which receive.
//!
//! The rule is MPI's (MPI 4.1, section 3.5): a message goes to the earliest posted receive that it
//! matches, a receive takes the earliest unexpected message that it matches, so messages of one
//! sender that match the same receive never overtake each other.

use std::hash::{Hash, Hasher};

use super::queue::{Queue, Slot};

/// The tags that a receive matches: those that agree with `tag` in the bits of `mask`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Selector {
    /// The bits that are wanted.
    pub tag: u64,
    /// The bits that count; 0 matches every tag, `u64::MAX` just one.
    pub mask: u64,
}

impl Selector {
    /// Matches every tag.
    pub const ANY: Self = Self { tag: 0, mask: 0 };

    /// Matches exactly this tag.
    #[must_use]
    pub fn exact(tag: u64) -> Self {
        Self { tag, mask: u64::MAX }
    }

    /// Whether a message of this tag is wanted.
    #[must_use]
    pub fn matches(self, tag: u64) -> bool {
        (tag ^ self.tag) & self.mask == 0
    }
}

/// Names a posted receive until it is matched or cancelled.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ticket {
    number: u64,
    slot: Slot,
    exact: bool,
}

impl Hash for Ticket {
    /// The number is unique.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

/// A message with its number in the order of arrival.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Labelled<M> {
    number: u64,
    /// Its tag.
    pub tag: u64,
    /// The caller's data for the message.
    pub message: M,
}

/// Posted receives of kind `R` and unexpected messages of kind `M`.
///
/// Receives of one tag and messages of one tag are found without a search, and so is the earliest
/// message; receives of several tags are searched in the order in which they were posted, and
/// search the messages in the order of their arrival. Nothing is allocated once the numbers waiting
/// have been reached before.
#[derive(Debug)]
pub struct Matching<R, M> {
    /// Receives that match one tag, by that tag.
    exact: Queue<R>,
    /// All other receives.
    wild: Queue<(Selector, R)>,
    /// By tag.
    unexpected: Queue<M>,
    next: u64,
}

impl<R, M> Default for Matching<R, M> {
    fn default() -> Self {
        Self {
            exact: Queue::default(),
            wild: Queue::default(),
            unexpected: Queue::default(),
            next: 0,
        }
    }
}

impl<R, M> Matching<R, M> {
    /// A receive waits from now on. To be called when [`Matching::take`] finds nothing for it.
    pub fn wait(&mut self, selector: Selector, receive: R) -> Ticket {
        let number = self.number();
        let exact = selector.mask == u64::MAX;
        let slot = if exact {
            self.exact.insert(number, selector.tag, receive)
        } else {
            self.wild.insert(number, selector.mask, (selector, receive))
        };
        Ticket { number, slot, exact }
    }

    /// Names a receive that does not have to wait.
    pub fn ticket(&mut self) -> Ticket {
        Ticket { number: self.number(), slot: Slot::NOWHERE, exact: true }
    }

    /// A message has arrived: takes the receive that it belongs to, if one waits for it.
    pub fn claim(&mut self, tag: u64) -> Option<(Ticket, R)> {
        let ticket = self.find_posted(tag)?;
        self.cancel(ticket).map(|receive| (ticket, receive))
    }

    /// Whether a message of this tag would find a posted receive.
    #[must_use]
    pub fn is_expected(&self, tag: u64) -> bool {
        self.find_posted(tag).is_some()
    }

    fn find_posted(&self, tag: u64) -> Option<Ticket> {
        let exact =
            self.exact.first_of(tag).map(|(slot, number)| Ticket { number, slot, exact: true });
        let wild = self
            .wild
            .iter()
            .find(|(_, _, _, (selector, _))| selector.matches(tag))
            .map(|(slot, number, ..)| Ticket { number, slot, exact: false });
        match (exact, wild) {
            (Some(exact), Some(wild)) => {
                Some(if exact.number < wild.number { exact } else { wild })
            }
            (exact, wild) => exact.or(wild),
        }
    }

    /// A message waits for a receive: in the order of the labels, whenever it is put there.
    pub fn keep(&mut self, labelled: Labelled<M>) {
        self.unexpected.insert(labelled.number, labelled.tag, labelled.message);
    }

    /// A message has arrived. To be called in the order of arrival.
    pub fn label(&mut self, tag: u64, message: M) -> Labelled<M> {
        Labelled { number: self.number(), tag, message }
    }

    /// Takes a posted receive back; `None` when it has been matched.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<R> {
        if !self.waits(ticket) {
            return None;
        }
        if ticket.exact {
            self.exact.remove(ticket.slot).map(|(_, _, receive)| receive)
        } else {
            self.wild.remove(ticket.slot).map(|(_, _, (_, receive))| receive)
        }
    }

    /// Whether a posted receive still waits.
    #[must_use]
    pub fn waits(&self, ticket: Ticket) -> bool {
        if ticket.exact {
            self.exact.holds(ticket.slot, ticket.number)
        } else {
            self.wild.holds(ticket.slot, ticket.number)
        }
    }

    /// The unexpected message that a receive would get, with its tag.
    #[must_use]
    pub fn probe(&self, selector: Selector) -> Option<(u64, &M)> {
        self.unexpected.get(self.find(selector)?)
    }

    /// Takes that message.
    pub fn take(&mut self, selector: Selector) -> Option<Labelled<M>> {
        let slot = self.find(selector)?;
        self.unexpected.remove(slot).map(|(number, tag, message)| Labelled { number, tag, message })
    }

    fn find(&self, selector: Selector) -> Option<Slot> {
        match selector.mask {
            u64::MAX => self.unexpected.first_of(selector.tag).map(|(slot, _)| slot),
            0 => self.unexpected.first().map(|(slot, _)| slot),
            _ => self
                .unexpected
                .iter()
                .find(|(_, _, tag, _)| selector.matches(*tag))
                .map(|(slot, ..)| slot),
        }
    }

    /// Shows the unexpected messages, earliest first, until `each` returns `false`; it may change
    /// them.
    pub fn for_unexpected(&mut self, mut each: impl FnMut(&mut M) -> bool) {
        let mut next = self.unexpected.first().map(|(slot, _)| slot);
        while let Some(slot) = next {
            next = self.unexpected.after(slot);
            if let Some(message) = self.unexpected.get_mut(slot) {
                if !each(message) {
                    return;
                }
            }
        }
    }

    /// How many messages wait for a receive.
    #[must_use]
    pub fn unexpected_count(&self) -> usize {
        self.unexpected.len()
    }

    /// How many receives wait for a message.
    #[must_use]
    pub fn posted_count(&self) -> usize {
        self.exact.len() + self.wild.len()
    }

    /// All receives that wait, earliest first: for an end of the stream that none of them will
    /// survive.
    pub fn drain_posted(&mut self) -> Vec<(Ticket, R)> {
        let exact =
            self.exact.iter().map(|(slot, number, ..)| Ticket { number, slot, exact: true });
        let wild = self.wild.iter().map(|(slot, number, ..)| Ticket { number, slot, exact: false });
        let mut tickets: Vec<Ticket> = exact.chain(wild).collect();
        tickets.sort_unstable();
        tickets.into_iter().filter_map(|ticket| Some((ticket, self.cancel(ticket)?))).collect()
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}
