//! The guarantee for updates, and whether it is met.
//!
//! As in V. Melnyk et al. (2024), a viewer's pan is a *partial* update, which needs few of the
//! stored tiles, and a new view is a *complete* one. A latency is guaranteed for partial updates,
//! and a rate for complete ones. An update is one request and its answer: reading, decompressing,
//! scaling and encoding. So each request counts with its own time and its own kind, even if its
//! image, or a tile of it, is already being made for another request: a pan that needs a tile of a
//! view in progress is a partial update, whose time includes that wait. A rate counts work:
//! an image for several clients is made once, and an image found on disk does not count, nor does
//! the time of reading it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use seekwire_flow::Guarantee;
use seekwire_values::{Time, TimeUnit};

/// Updates that need more stored tiles are complete ones: a viewer's tile, scaled to half, needs
/// four.
const PARTIAL: usize = 4;

/// Number of updates that determine the current state.
const RECENT: usize = 32;

/// Reads `latency=50ms` and `updates=10/s`.
pub(crate) fn parse(text: &str) -> Result<Guarantee, String> {
    let wrong = || "latency=50ms, latency=0.2s or updates=10/s".to_owned();
    if let Some(time) = text.strip_prefix("latency=") {
        let limits = Duration::from_micros(1)..=Duration::from_secs(1_000_000);
        let time = Time::parse(time, TimeUnit::Second).map(Time::get);
        let time = time.filter(|time| limits.contains(time));
        return time.map(Guarantee::Latency).ok_or_else(wrong);
    }
    let rate = text.strip_prefix("updates=").and_then(|rate| rate.strip_suffix("/s"));
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let rate = rate.filter(is_number).and_then(|rate| rate.parse().ok());
    let rate = rate.filter(|rate| *rate > 0.0 && *rate <= 1e6);
    rate.map(Guarantee::Rate).ok_or_else(wrong)
}

/// The text that [`parse`] reads.
pub(crate) fn text(guarantee: Guarantee) -> String {
    match guarantee {
        Guarantee::Latency(time) => format!("latency={}ms", time.as_secs_f64() * 1e3),
        Guarantee::Rate(rate) => format!("updates={rate}/s"),
    }
}

/// True if an update that needs so many tiles is a complete one.
pub(crate) fn is_complete(tiles: usize) -> bool {
    tiles > PARTIAL
}

/// Times of updates of one kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) updates: u64,
    /// Number of updates that met the guarantee.
    pub(crate) kept: u64,
    pub(crate) worst: Duration,
    recent: VecDeque<Duration>,
}

impl Measured {
    fn add(&mut self, time: Duration, allowed: Duration) {
        self.updates += 1;
        self.kept += u64::from(time <= allowed);
        self.worst = self.worst.max(time);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(time);
    }

    /// The mean of the most recent ones.
    pub(crate) fn recent(&self) -> Option<Duration> {
        let count = u32::try_from(self.recent.len()).ok().filter(|count| *count > 0)?;
        Some(self.recent.iter().sum::<Duration>() / count)
    }
}

#[derive(Debug, Default)]
struct State {
    partial: Measured,
    /// Times from the start of complete updates to their end.
    complete: Measured,
    /// Times from the end of one complete update to the end of the next.
    between: Measured,
    making: usize,
    /// When the last complete update was made, or when the first of those in progress began.
    since: Option<Instant>,
}

/// Counts the updates that meet a guarantee.
#[derive(Debug)]
pub(crate) struct Promise {
    guarantee: Guarantee,
    state: Mutex<State>,
}

/// How well a guarantee is met.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    pub(crate) guarantee: Guarantee,
    /// The longest time that meets it.
    pub(crate) allowed: Duration,
    /// `None` if no update that it covers has been requested yet.
    pub(crate) holds: Option<bool>,
    /// Times from the start of an update to its end.
    pub(crate) partial: Measured,
    pub(crate) complete: Measured,
    /// Times between the ends of complete updates, while there were any to make.
    pub(crate) between: Measured,
}

impl Promise {
    pub(crate) fn new(guarantee: Guarantee) -> Self {
        Self { guarantee, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowed(&self) -> Duration {
        match self.guarantee {
            Guarantee::Latency(time) => time,
            Guarantee::Rate(rate) => {
                Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX)
            }
        }
    }

    /// A client requests an update.
    pub(crate) fn begin(self: &Arc<Self>) -> Timed {
        self.begin_at(Instant::now())
    }

    fn begin_at(self: &Arc<Self>, now: Instant) -> Timed {
        Timed { promise: Arc::clone(self), began: now }
    }

    /// Work on the image of a complete update begins, for any number of clients.
    pub(crate) fn making(self: &Arc<Self>) -> Making {
        self.making_at(Instant::now())
    }

    fn making_at(self: &Arc<Self>, now: Instant) -> Making {
        let mut state = self.state();
        if state.making == 0 {
            state.since = Some(now);
        }
        state.making += 1;
        Making { promise: Arc::clone(self) }
    }

    fn end(&self, is_complete: bool, began: Instant, now: Instant) {
        let (took, allowed) = (now.saturating_duration_since(began), self.allowed());
        let mut state = self.state();
        let measured = if is_complete { &mut state.complete } else { &mut state.partial };
        measured.add(took, allowed);
    }

    pub(crate) fn kept(&self) -> Kept {
        let (state, allowed) = (self.state(), self.allowed());
        let measured = match self.guarantee {
            Guarantee::Latency(_) => &state.partial,
            Guarantee::Rate(_) => &state.between,
        };
        Kept {
            guarantee: self.guarantee,
            allowed,
            holds: measured.recent().map(|recent| recent <= allowed),
            partial: state.partial.clone(),
            complete: state.complete.clone(),
            between: state.between.clone(),
        }
    }
}

/// An update under way. It does not count if dropped before it is done.
pub(crate) struct Timed {
    promise: Arc<Promise>,
    began: Instant,
}

impl Timed {
    /// The client has the image, which was an update of this kind.
    pub(crate) fn done(&self, is_complete: bool) {
        self.done_at(is_complete, Instant::now());
    }

    fn done_at(&self, is_complete: bool, now: Instant) {
        self.promise.end(is_complete, self.began, now);
    }
}

/// A complete update in progress. It does not count if dropped before it is made.
pub(crate) struct Making {
    promise: Arc<Promise>,
}

impl Making {
    /// The image has been made.
    pub(crate) fn made(self) {
        self.made_at(Instant::now());
    }

    fn made_at(self, now: Instant) {
        let allowed = self.promise.allowed();
        let mut state = self.promise.state();
        let since = state.since.replace(now).unwrap_or(now);
        state.between.add(now.saturating_duration_since(since), allowed);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut state = self.promise.state();
        state.making = state.making.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarantees_are_read() {
        assert_eq!(parse("latency=50ms"), Ok(Guarantee::Latency(Duration::from_millis(50))));
        assert_eq!(parse("latency=0.2s"), Ok(Guarantee::Latency(Duration::from_millis(200))));
        assert_eq!(parse("latency=250us"), Ok(Guarantee::Latency(Duration::from_micros(250))));
        assert_eq!(parse("updates=10/s"), Ok(Guarantee::Rate(10.0)));
        for guarantee in ["latency=50ms", "updates=2.5/s"] {
            assert_eq!(text(parse(guarantee).unwrap()), guarantee);
        }
        for wrong in
            ["", "latency=", "latency=0ms", "latency=-1s", "updates=10", "updates=inf/s", "50ms"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_latency_is_that_of_partial_updates() {
        let promise = Arc::new(Promise::new(Guarantee::Latency(Duration::from_millis(50))));
        assert_eq!(promise.kept().holds, None);
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        for (is_complete, took) in [(false, 40), (false, 60), (true, 900), (false, 20)] {
            promise.begin_at(start).done_at(is_complete, after(took));
        }
        drop(promise.begin_at(start));
        let kept = promise.kept();
        assert_eq!((kept.partial.updates, kept.partial.kept, kept.holds), (3, 2, Some(true)));
        assert_eq!(kept.complete.worst, Duration::from_millis(900));
    }

    #[test]
    fn a_rate_is_that_of_complete_updates_while_there_are_any() {
        let promise = Arc::new(Promise::new(Guarantee::Rate(10.0)));
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        promise.begin_at(start).done_at(false, after(5000));
        assert_eq!(promise.kept().holds, None);
        let both = [promise.begin_at(start), promise.begin_at(start)];
        let [first, second] = [(); 2].map(|()| promise.making_at(start));
        // A third client waits for the image of the first.
        let joined = promise.begin_at(after(30));
        first.made_at(after(80));
        both[0].done_at(true, after(80));
        joined.done_at(true, after(80));
        second.made_at(after(160));
        both[1].done_at(true, after(160));
        let last = promise.begin_at(after(9000));
        promise.making_at(after(9000)).made_at(after(9240));
        last.done_at(true, after(9240));
        let kept = promise.kept();
        assert_eq!((kept.complete.updates, kept.complete.worst), (4, Duration::from_millis(240)));
        assert_eq!((kept.between.updates, kept.between.kept), (3, 2));
        assert_eq!(kept.between.worst, Duration::from_millis(240));
        assert_eq!(kept.holds, Some(false));
    }

    #[test]
    fn what_is_read_from_disk_is_no_time_in_which_complete_updates_are_made() {
        let promise = Arc::new(Promise::new(Guarantee::Rate(10.0)));
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        promise.making_at(start).made_at(after(50));
        // Clients continually wait for images on disk; one image is missing, and is made.
        let update = promise.begin_at(after(60));
        let missing = promise.begin_at(after(100));
        // An update whose clients disconnect before it is made.
        drop(promise.making_at(after(5000)));
        promise.making_at(after(9000)).made_at(after(9060));
        missing.done_at(true, after(9060));
        drop(update);
        let kept = promise.kept();
        assert_eq!((kept.between.updates, kept.between.kept), (2, 2));
        assert_eq!(kept.between.worst, Duration::from_millis(60));
        assert_eq!((kept.complete.updates, kept.holds), (1, Some(true)));
    }
}
