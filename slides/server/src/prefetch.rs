//! Makes images before they are requested: the neighbours of the most recently requested ones.
//!
//! No request waits for this. One image at a time is made, only if at least two threads do such
//! work, and only while no image is being made for a client and none was for a while. If a client
//! then requests another image, this one is abandoned; if it requests this one, it gets it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::render::{Images, Picture};
use crate::slide_cache::Open;

/// Maximum queue length; the newest images are made first, the oldest dropped.
const WANTED: usize = 64;
/// Time without a client that waits for an image before prefetching begins. Requests of a viewer
/// that pans follow each other faster.
const QUIET: Duration = Duration::from_millis(50);

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct PrefetchCounts {
    pub(crate) made: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) used: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The queue of wanted images, and whether there is time for them.
pub(crate) struct Prefetch {
    /// Neighbours of each tile.
    most: usize,
    state: Mutex<State>,
    /// Signals a change of the state.
    changed: Notify,
    counts: PrefetchCounts,
}

struct State {
    /// Number of images that clients wait for.
    busy: usize,
    /// When a client last stopped waiting.
    ended: Instant,
    /// The newest first.
    wanted: VecDeque<PrefetchRequest>,
    current: Option<Current>,
}

/// An image that may be requested soon. It does not keep the slide open.
struct PrefetchRequest {
    open: Weak<Open>,
    picture: Picture,
}

struct Current {
    opening: u64,
    picture: Picture,
    /// Signals that the image is to be abandoned.
    stop: Arc<Notify>,
}

/// The next step.
enum NextStep {
    Make(PrefetchRequest),
    /// Wait until this time.
    At(Instant),
    Nothing,
}

impl State {
    fn next(&mut self, now: Instant) -> NextStep {
        if self.busy > 0 || self.wanted.is_empty() {
            return NextStep::Nothing;
        }
        let quiet = self.ended + QUIET;
        if now < quiet {
            return NextStep::At(quiet);
        }
        self.wanted.pop_front().map_or(NextStep::Nothing, NextStep::Make)
    }
}

/// Exists while a client waits for an image.
pub(crate) struct Busy {
    prefetch: Arc<Prefetch>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.prefetch.state();
        state.busy -= 1;
        state.ended = Instant::now();
        drop(state);
        self.prefetch.changed.notify_one();
    }
}

impl Prefetch {
    /// Makes `most` neighbours of each tile; 0 disables prefetching.
    pub(crate) fn new(most: usize) -> Self {
        let state =
            State { busy: 0, ended: Instant::now(), wanted: VecDeque::new(), current: None };
        let (state, changed) = (Mutex::new(state), Notify::new());
        Self { most, state, changed, counts: PrefetchCounts::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of neighbours of a tile to make.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn counts(&self) -> &PrefetchCounts {
        &self.counts
    }

    /// A client requests an image: until it has it, no other image is begun here, and the current
    /// one is abandoned, unless it is the same.
    pub(crate) fn busy(self: &Arc<Self>, open: &Open, picture: &Picture) -> Busy {
        let mut state = self.state();
        state.busy += 1;
        if let Some(current) = &state.current {
            match current.opening == open.number && current.picture == *picture {
                true => add(&self.counts.used),
                false => current.stop.notify_one(),
            }
        }
        Busy { prefetch: Arc::clone(self) }
    }

    /// Queues images that may be requested soon, the most likely first.
    pub(crate) fn want(&self, open: &Arc<Open>, pictures: impl Iterator<Item = Picture>) {
        let mut state = self.state();
        for (at, picture) in pictures.take(self.most).enumerate() {
            let request = PrefetchRequest { open: Arc::downgrade(open), picture };
            let is_it = |other: &PrefetchRequest| {
                other.picture == request.picture && Weak::ptr_eq(&other.open, &request.open)
            };
            state.wanted.retain(|other| !is_it(other));
            let at = at.min(state.wanted.len());
            state.wanted.insert(at, request);
        }
        state.wanted.truncate(WANTED);
        drop(state);
        self.changed.notify_one();
    }

    /// Makes queued images while there is time. Never returns.
    pub(crate) async fn run(self: Arc<Self>, images: Arc<Images>) {
        loop {
            let next = self.state().next(Instant::now());
            match next {
                NextStep::Make(request) => self.make(&images, request).await,
                NextStep::At(time) => tokio::time::sleep_until(time.into()).await,
                NextStep::Nothing => self.changed.notified().await,
            }
        }
    }

    async fn make(&self, images: &Arc<Images>, request: PrefetchRequest) {
        let Some(open) = request.open.upgrade().filter(|open| !images.has(open, &request.picture))
        else {
            return;
        };
        let stop = Arc::new(Notify::new());
        {
            let mut state = self.state();
            // A client may have made a request meanwhile.
            if state.busy > 0 {
                state.wanted.push_front(request);
                return;
            }
            let picture = request.picture.clone();
            state.current =
                Some(Current { opening: open.number, picture, stop: Arc::clone(&stop) });
        }
        let made = tokio::select! {
            biased;
            () = stop.notified() => None,
            made = images.get(&open, request.picture) => Some(made),
        };
        self.state().current = None;
        match made {
            None => add(&self.counts.given_up),
            Some(Ok(_)) => add(&self.counts.made),
            // The error has been logged.
            Some(Err(_)) => {}
        }
    }
}
