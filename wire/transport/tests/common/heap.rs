//! Memory of an end on the heap: for loom, which must see every access; for Miri, which has no mmap
//! of files; and for tests of a death before every single access.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::{Arc, Condvar, Mutex};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::{Arc, Condvar, Mutex};

use seekwire_protocol::record::CELL;
use seekwire_transport::layout::{Geometry, TABLES};
use seekwire_transport::mem::{OwnMemory, PeerMemory};
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::sys::futex::Futex;

/// A word; and, if it is used as payload, a cell for loom, which reports payload that is read and
/// written, or written twice, without an order between the two.
#[derive(Debug)]
struct Word {
    value: AtomicU64,
    #[cfg(loom)]
    payload: loom::cell::UnsafeCell<()>,
}

impl Word {
    fn new() -> Self {
        Self {
            value: AtomicU64::new(0),
            #[cfg(loom)]
            payload: loom::cell::UnsafeCell::new(()),
        }
    }

    fn is_read(&self) {
        #[cfg(loom)]
        self.payload.with(|_| ());
    }

    fn is_written(&self) {
        #[cfg(loom)]
        self.payload.with_mut(|_| ());
    }
}

/// Words of the memory, payload included.
#[derive(Debug)]
pub(crate) struct Heap {
    areas: Vec<(usize, Vec<Word>)>,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Heap {
    /// The areas that are used in memory of this geometry, if the peer has as many segments; all of
    /// it would be too much for loom.
    pub(crate) fn new(geometry: Geometry) -> Self {
        /// Number of kept bytes, which follow the segments; all of them under loom.
        const KEPT: usize = 64;
        let segments = geometry.segments() * geometry.segment_size();
        let returned = geometry.return_at(0, geometry);
        let descriptors = geometry.cell_at(0);
        let area =
            |from: usize, bytes: usize| (from, (0..bytes / 8).map(|_| Word::new()).collect());
        Self {
            areas: vec![
                area(0, TABLES),
                area(TABLES, returned + geometry.segments() * 8 - TABLES),
                area(descriptors, geometry.cells() * CELL),
                area(geometry.segment_at(0), segments + KEPT),
            ],
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn at(&self, offset: usize) -> &Word {
        assert!(offset % 8 == 0, "unaligned word");
        let within = |(from, words): &'_ &(usize, Vec<Word>)| {
            (*from..from + words.len() * 8).contains(&offset)
        };
        let (from, words) = self.areas.iter().find(within).expect("outside the memory");
        &words[(offset - from) / 8]
    }
}

impl OwnMemory for Heap {
    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.at(offset).value
    }

    fn write(&self, offset: usize, from: &[u8]) {
        let mut at = offset;
        let mut from = from;
        while !from.is_empty() {
            let (word, skip) = (self.at(at / 8 * 8), at % 8);
            let n = (8 - skip).min(from.len());
            word.is_written();
            let mut bytes =
                if n == 8 { [0; 8] } else { word.value.load(Ordering::Relaxed).to_ne_bytes() };
            bytes[skip..skip + n].copy_from_slice(&from[..n]);
            word.value.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            from = &from[n..];
            at += n;
        }
    }
}

impl PeerMemory for Heap {
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.at(offset).value.load(order)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let mut at = offset;
        let mut into = into;
        while !into.is_empty() {
            let (word, skip) = (self.at(at / 8 * 8), at % 8);
            let n = (8 - skip).min(into.len());
            let (now, later) = into.split_at_mut(n);
            word.is_read();
            now.copy_from_slice(&word.value.load(Ordering::Relaxed).to_ne_bytes()[skip..skip + n]);
            into = later;
            at += n;
        }
    }
}

impl Futex for Heap {
    fn futex_wait(&self, offset: usize, expected: u32) -> bool {
        let guard = self.sleepers.lock().unwrap();
        if self.at(offset).value.load(Ordering::Relaxed) as u32 == expected {
            drop(self.woken.wait(guard).unwrap());
        }
        true
    }

    fn futex_wake(&self, _offset: usize) {
        let _guard = self.sleepers.lock().unwrap();
        // No test has threads asleep on two words at once.
        self.woken.notify_one();
    }
}

/// Memory that is held by both ends.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Arc<Heap>);

impl OwnMemory for Shared {
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(offset)
    }

    fn write(&self, offset: usize, from: &[u8]) {
        self.0.write(offset, from);
    }
}

impl PeerMemory for Shared {
    fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.0.load(offset, order)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.0.read(offset, into);
    }
}

impl Futex for Shared {
    fn futex_wait(&self, offset: usize, expected: u32) -> bool {
        self.0.futex_wait(offset, expected)
    }

    fn futex_wake(&self, offset: usize) {
        self.0.futex_wake(offset);
    }
}

pub(crate) type End = QueuePair<Shared, Shared>;

/// Two ends of this geometry, ready for each other.
pub(crate) fn pair(geometry: Geometry) -> (End, End) {
    let memory = || {
        let heap = Heap::new(geometry);
        queue::format(&heap, geometry);
        Shared(Arc::new(heap))
    };
    let (a, b) = (memory(), memory());
    let ends = (
        QueuePair::new(a.clone(), geometry, b.clone(), geometry),
        QueuePair::new(b, geometry, a, geometry),
    );
    ends.0.set_ready();
    ends.1.set_ready();
    ends
}
