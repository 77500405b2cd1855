//! Every order of events of the lock, within a bound on preemptions. Deaths are tested elsewhere.
#![cfg(loom)]

#[path = "common/heap.rs"]
#[allow(dead_code, reason = "other models use the rest")]
mod heap;

use heap::{Heap, Shared};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use seekwire_transport::layout::{Geometry, TX_LOCK};
use seekwire_transport::lock::acquire;

/// Caught: the lock taken or released relaxed (a race on the data that it protects); the waiters'
/// bit dropped by a waiter that had slept, or no wake-up at the end (a deadlock).
#[test]
fn one_at_a_time_and_nobody_is_forgotten() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let memory = Shared(Arc::new(Heap::new(Geometry::tiny(4, 64, 1))));
        let counted = Arc::new(UnsafeCell::new(0));
        let count = |memory: &Shared, counted: &UnsafeCell<u32>| {
            let _held = acquire(memory, TX_LOCK);
            // SAFETY: under the lock; loom reports it if not.
            counted.with_mut(|counted| unsafe { *counted += 1 });
        };
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (memory, counted) = (memory.clone(), counted.clone());
                thread::spawn(move || count(&memory, &counted))
            })
            .collect();
        count(&memory, &counted);
        others.into_iter().for_each(|other| other.join().unwrap());
        // SAFETY: the others have ended.
        assert_eq!(counted.with(|counted| unsafe { *counted }), 3);
    });
}
