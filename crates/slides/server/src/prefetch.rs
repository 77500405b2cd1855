//! Images that are made before anybody asks for them: the neighbours of what was asked for last.
//!
//! No request waits for this. One image at a time is made, by threads of which another one is left,
//! and only while no image is being made for a client, and was not for a while. When a client asks
//! for another one meanwhile, this one is given up; when it asks for this one, it gets it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::opened::Open;
use crate::render::{Images, Picture};

/// That many are wanted at most; the newest are made first, the oldest forgotten.
const WANTED: usize = 64;
/// Clients have asked for nothing for so long. Requests of a viewer that pans follow each other
/// faster.
const QUIET: Duration = Duration::from_millis(50);

/// What happened, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) made: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) used: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Who wants what, and whether there is time for it.
pub(crate) struct Prefetch {
    /// Neighbours of each tile.
    most: usize,
    state: Mutex<State>,
    /// That something in the state is another.
    changed: Notify,
    counts: Counts,
}

struct State {
    /// Images that clients wait for.
    busy: usize,
    /// When the last one was there.
    ended: Instant,
    /// The newest first.
    wanted: VecDeque<Wish>,
    current: Option<Current>,
}

/// An image that may be asked for soon. It keeps no slide open.
struct Wish {
    open: Weak<Open>,
    picture: Picture,
}

struct Current {
    opening: u64,
    picture: Picture,
    /// That it is to be given up.
    stop: Arc<Notify>,
}

/// What can be done now.
enum Next {
    Make(Wish),
    /// Nothing before that.
    At(Instant),
    Nothing,
}

impl State {
    fn next(&mut self, now: Instant) -> Next {
        if self.busy > 0 || self.wanted.is_empty() {
            return Next::Nothing;
        }
        let quiet = self.ended + QUIET;
        if now < quiet {
            return Next::At(quiet);
        }
        self.wanted.pop_front().map_or(Next::Nothing, Next::Make)
    }
}

/// That a client waits for an image, as long as it is there.
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
    /// Of `most` neighbours of each tile, none if that is 0.
    pub(crate) fn new(most: usize) -> Self {
        let state =
            State { busy: 0, ended: Instant::now(), wanted: VecDeque::new(), current: None };
        let (state, changed) = (Mutex::new(state), Notify::new());
        Self { most, state, changed, counts: Counts::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many neighbours of a tile are wanted.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A client asks for an image. From now on nothing is begun here; what is under way is given up,
    /// unless it is this.
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

    /// These may be asked for soon, the first ones sooner.
    pub(crate) fn want(&self, open: &Arc<Open>, pictures: impl Iterator<Item = Picture>) {
        let mut state = self.state();
        for (at, picture) in pictures.take(self.most).enumerate() {
            let wish = Wish { open: Arc::downgrade(open), picture };
            let is_it = |other: &Wish| {
                other.picture == wish.picture && Weak::ptr_eq(&other.open, &wish.open)
            };
            state.wanted.retain(|other| !is_it(other));
            let at = at.min(state.wanted.len());
            state.wanted.insert(at, wish);
        }
        state.wanted.truncate(WANTED);
        drop(state);
        self.changed.notify_one();
    }

    /// Makes what is wanted while there is time, for ever.
    pub(crate) async fn run(self: Arc<Self>, images: Arc<Images>) {
        loop {
            let next = self.state().next(Instant::now());
            match next {
                Next::Make(wish) => self.make(&images, wish).await,
                Next::At(time) => tokio::time::sleep_until(time.into()).await,
                Next::Nothing => self.changed.notified().await,
            }
        }
    }

    async fn make(&self, images: &Arc<Images>, wish: Wish) {
        let Some(open) = wish.open.upgrade().filter(|open| !images.has(open, &wish.picture)) else {
            return;
        };
        let stop = Arc::new(Notify::new());
        {
            let mut state = self.state();
            // Somebody may have come since.
            if state.busy > 0 {
                state.wanted.push_front(wish);
                return;
            }
            let picture = wish.picture.clone();
            state.current =
                Some(Current { opening: open.number, picture, stop: Arc::clone(&stop) });
        }
        let made = tokio::select! {
            biased;
            () = stop.notified() => None,
            made = images.get(&open, wish.picture) => Some(made),
        };
        self.state().current = None;
        match made {
            None => add(&self.counts.given_up),
            Some(Ok(_)) => add(&self.counts.made),
            // It has been told in the log.
            Some(Err(_)) => {}
        }
    }
}
