//! How the copies of a source learn about new units.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::wakeup::Wakeup;
use crate::policy::priority::Priority;
use crate::stream::unit::Open;

/// Units for one copy of a source.
#[derive(Default)]
pub(crate) struct Feed {
    fed: Mutex<FeedQueue>,
    /// True if it has new units; lets a copy check without the lock.
    pub(crate) is_fed: AtomicBool,
}

#[derive(Default)]
struct FeedQueue {
    units: BTreeMap<Priority, Arc<Open>>,
    /// The copy's wake-up, if it has found none.
    idle: Option<Arc<Wakeup>>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, FeedQueue> {
        self.fed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, unit: Arc<Open>) {
        self.lock().units.insert(unit.rank, unit);
        self.is_fed.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(wakeup) = self.lock().idle.take() {
            wakeup.ring();
        }
    }

    /// Takes the new units; if there are none, the caller is woken when there are.
    pub(crate) fn take(&self, own: &Arc<Wakeup>) -> Vec<Arc<Open>> {
        self.is_fed.store(false, Ordering::Relaxed);
        let mut fed = self.lock();
        if fed.units.is_empty() {
            fed.idle = Some(Arc::clone(own));
        }
        std::mem::take(&mut fed.units).into_values().collect()
    }
}
