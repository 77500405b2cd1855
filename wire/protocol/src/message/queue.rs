//! An ordered queue. Entries of equal key are also chained, so the first entry of all and the first
//! of each key are found without a search. Once the queue has grown to its final size, it allocates
//! nothing.

use std::collections::{HashMap, hash_map};

use foldhash::fast::RandomState;

/// Index of no entry.
const NONE: u32 = u32::MAX;

/// Where an entry is kept.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Slot(u32);

impl Slot {
    /// The slot of no entry.
    pub(super) const NOWHERE: Self = Self(NONE);
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    all: Ends,
    chains: HashMap<u64, Ends, RandomState>,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    key: u64,
    /// `None`: the entry is free.
    value: Option<T>,
    /// Its neighbours in the order of all.
    all: Neighbors,
    /// Its neighbours among those of the same key.
    chain: Neighbors,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Neighbors {
    before: u32,
    after: u32,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

impl Ends {
    /// The neighbours between which a number belongs.
    fn place<T>(
        self,
        entries: &[Entry<T>],
        number: u64,
        links: impl Fn(&Entry<T>) -> Neighbors,
    ) -> Neighbors {
        if entries.get(self.last as usize).is_none_or(|last| last.number < number) {
            return Neighbors { before: self.last, after: NONE };
        }
        let mut after = self.first;
        while let Some(entry) = entries.get(after as usize).filter(|entry| entry.number < number) {
            after = links(entry).after;
        }
        let before = entries.get(after as usize).map_or(NONE, |entry| links(entry).before);
        Neighbors { before, after }
    }

    /// Makes `next` follow `at.before`, and `previous` precede `at.after`.
    fn join<T>(
        &mut self,
        entries: &mut [Entry<T>],
        at: Neighbors,
        next: u32,
        previous: u32,
        links: impl Fn(&mut Entry<T>) -> &mut Neighbors,
    ) {
        match entries.get_mut(at.before as usize) {
            Some(before) => links(before).after = next,
            None => self.first = next,
        }
        match entries.get_mut(at.after as usize) {
            Some(after) => links(after).before = previous,
            None => self.last = previous,
        }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), all: EMPTY, chains: HashMap::default() }
    }
}

impl<T> Queue<T> {
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds an entry. Numbers are unique. An entry whose number is not the highest is placed by a
    /// search from the front.
    pub(super) fn insert(&mut self, number: u64, key: u64, value: T) -> Slot {
        let Self { entries, free, all, chains } = self;
        let chain = chains.entry(key).or_insert(EMPTY);
        let entry = Entry {
            number,
            key,
            value: Some(value),
            all: all.place(entries, number, |entry| entry.all),
            chain: chain.place(entries, number, |entry| entry.chain),
        };
        let (in_all, in_chain) = (entry.all, entry.chain);
        let slot = match free.pop() {
            Some(slot) => {
                entries[slot as usize] = entry;
                slot
            }
            None => {
                entries.push(entry);
                (entries.len() - 1) as u32
            }
        };
        all.join(entries, in_all, slot, slot, |entry| &mut entry.all);
        chain.join(entries, in_chain, slot, slot, |entry| &mut entry.chain);
        Slot(slot)
    }

    /// Takes an entry out: its number, key and value.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<(u64, u64, T)> {
        let Self { entries, free, all, chains } = self;
        let entry = entries.get_mut(slot.0 as usize)?;
        let value = entry.value.take()?;
        let (number, key, in_all, in_chain) = (entry.number, entry.key, entry.all, entry.chain);
        all.join(entries, in_all, in_all.after, in_all.before, |entry| &mut entry.all);
        if let hash_map::Entry::Occupied(mut chain) = chains.entry(key) {
            let Neighbors { before, after } = in_chain;
            chain.get_mut().join(entries, in_chain, after, before, |entry| &mut entry.chain);
            if chain.get().first == NONE {
                chain.remove();
            }
        }
        free.push(slot.0);
        Some((number, key, value))
    }

    /// Whether the entry of this number is still where it was put.
    pub(super) fn holds(&self, slot: Slot, number: u64) -> bool {
        self.entries
            .get(slot.0 as usize)
            .is_some_and(|entry| entry.value.is_some() && entry.number == number)
    }

    /// The first entry of all, with its number.
    pub(super) fn first(&self) -> Option<(Slot, u64)> {
        self.at(self.all.first)
    }

    /// The first entry of this key, with its number.
    pub(super) fn first_of(&self, key: u64) -> Option<(Slot, u64)> {
        if self.all.first == NONE {
            return None;
        }
        self.at(self.chains.get(&key)?.first)
    }

    /// The entry that follows this one in the order of all.
    pub(super) fn after(&self, slot: Slot) -> Option<Slot> {
        let after = self.entries.get(slot.0 as usize)?.all.after;
        (after != NONE).then_some(Slot(after))
    }

    fn at(&self, slot: u32) -> Option<(Slot, u64)> {
        self.entries.get(slot as usize).map(|entry| (Slot(slot), entry.number))
    }

    pub(super) fn get(&self, slot: Slot) -> Option<(u64, &T)> {
        let entry = self.entries.get(slot.0 as usize)?;
        Some((entry.key, entry.value.as_ref()?))
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.entries.get_mut(slot.0 as usize)?.value.as_mut()
    }

    /// All entries in order: their slots, numbers, keys and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, u64, u64, &T)> {
        let mut next = self.all.first;
        std::iter::from_fn(move || {
            let entry = self.entries.get(next as usize)?;
            let slot = Slot(next);
            next = entry.all.after;
            Some((slot, entry.number, entry.key, entry.value.as_ref()?))
        })
    }
}
