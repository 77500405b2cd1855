//! Tag matching: which message belongs to which receive.
//!
//! The rule is MPI's (MPI 4.1, section 3.5): a message goes to the earliest posted receive that it matches,
//! a receive takes the earliest unexpected message that it matches, so messages of one sender that match
//! the same receive never overtake each other.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Which tags a receive matches: those that agree with `tag` in the bits of `mask`.
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

    /// Matches just this one.
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
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(u64);

/// What became of a receive that was posted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Post<R, M> {
    /// An unexpected message had been waiting for it.
    Matched(R, u64, M),
    /// It waits.
    Waiting(Ticket),
}

/// What became of a message that arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Arrival<R, M> {
    /// A receive had been waiting for it.
    Expected(Ticket, R, M),
    /// It waits for a receive.
    Unexpected,
}

/// Posted receives of kind `R` and unexpected messages of kind `M`.
#[derive(Debug)]
pub struct Matching<R, M> {
    posted: BTreeMap<u64, (Selector, R)>,
    unexpected: BTreeMap<u64, (u64, M)>,
    /// The unexpected messages of each tag, in order of arrival: a receive of one tag does not search.
    by_tag: HashMap<u64, VecDeque<u64>>,
    next: u64,
}

impl<R, M> Default for Matching<R, M> {
    fn default() -> Self {
        Self { posted: BTreeMap::new(), unexpected: BTreeMap::new(), by_tag: HashMap::new(), next: 0 }
    }
}

impl<R, M> Matching<R, M> {
    /// A receive is wanted.
    pub fn post(&mut self, selector: Selector, receive: R) -> Post<R, M> {
        if let Some((tag, message)) = self.take(selector) {
            return Post::Matched(receive, tag, message);
        }
        let number = self.number();
        self.posted.insert(number, (selector, receive));
        Post::Waiting(Ticket(number))
    }

    /// A message has arrived. Messages are to be given in the order of their arrival.
    pub fn arrive(&mut self, tag: u64, message: M) -> Arrival<R, M> {
        let first =
            self.posted.iter().find(|(_, (selector, _))| selector.matches(tag)).map(|(&number, _)| number);
        if let Some(number) = first
            && let Some((_, receive)) = self.posted.remove(&number)
        {
            return Arrival::Expected(Ticket(number), receive, message);
        }
        let number = self.number();
        self.unexpected.insert(number, (tag, message));
        self.by_tag.entry(tag).or_default().push_back(number);
        Arrival::Unexpected
    }

    /// Whether a message of this tag would find a posted receive.
    #[must_use]
    pub fn is_expected(&self, tag: u64) -> bool {
        self.posted.values().any(|(selector, _)| selector.matches(tag))
    }

    /// Takes a posted receive back; `None` when it has been matched.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<R> {
        self.posted.remove(&ticket.0).map(|(_, receive)| receive)
    }

    /// The unexpected message that a receive would get, with its tag.
    #[must_use]
    pub fn probe(&self, selector: Selector) -> Option<(u64, &M)> {
        let number = self.find(selector)?;
        self.unexpected.get(&number).map(|(tag, message)| (*tag, message))
    }

    /// Takes that message.
    pub fn take(&mut self, selector: Selector) -> Option<(u64, M)> {
        let number = self.find(selector)?;
        let (tag, message) = self.unexpected.remove(&number)?;
        if let Some(numbers) = self.by_tag.get_mut(&tag) {
            // The first of its tag: `find` gives the earliest.
            numbers.pop_front();
            if numbers.is_empty() {
                self.by_tag.remove(&tag);
            }
        }
        Some((tag, message))
    }

    fn find(&self, selector: Selector) -> Option<u64> {
        match selector.mask {
            u64::MAX => self.by_tag.get(&selector.tag)?.front().copied(),
            0 => self.unexpected.keys().next().copied(),
            _ => {
                self.unexpected.iter().find(|(_, (tag, _))| selector.matches(*tag)).map(|(&number, _)| number)
            }
        }
    }

    /// The unexpected messages, earliest first.
    pub fn unexpected_mut(&mut self) -> impl Iterator<Item = &mut M> {
        self.unexpected.values_mut().map(|(_, message)| message)
    }

    /// How many messages wait for a receive.
    #[must_use]
    pub fn unexpected_count(&self) -> usize {
        self.unexpected.len()
    }

    /// How many receives wait for a message.
    #[must_use]
    pub fn posted_count(&self) -> usize {
        self.posted.len()
    }

    /// All receives that wait, earliest first: for an end of the stream that none of them will survive.
    pub fn drain_posted(&mut self) -> impl Iterator<Item = (Ticket, R)> {
        std::mem::take(&mut self.posted).into_iter().map(|(number, (_, receive))| (Ticket(number), receive))
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}
