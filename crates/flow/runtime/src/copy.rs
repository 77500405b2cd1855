//! One copy of a filter: a thread that takes blocks, calls the filter, and sends what comes out.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::block::Block;
use crate::filter::{Factory, Filter, FilterError, Step};
use crate::merge;
use crate::meter::{Meter, Phase};
use crate::output::{Ended, Filling, Outlet, Outputs};
use crate::report::Failure;
use crate::stream::{Stream, Taken};
use crate::unit::{Open, Rank, UnitId, Units};
use crate::wakeup::Wakeup;

/// What all copies of a running pipeline share.
pub(crate) struct Shared {
    pub(crate) units: Units,
    pub(crate) streams: Vec<Arc<Stream>>,
    /// The units that each copy of each source has not begun.
    pub(crate) feeds: Vec<Arc<Feed>>,
    pub(crate) is_stopped: AtomicBool,
}

impl Shared {
    /// The unit ends now, if it is under way: everybody forgets it.
    pub(crate) fn end_early(&self, unit: UnitId, failure: Failure) {
        let Some(open) = self.units.find(unit) else { return };
        if self.units.end_early(unit, failure) {
            self.streams.iter().for_each(|stream| stream.forget(&open));
            self.feeds.iter().for_each(|feed| feed.wake());
        }
    }
}

/// Units for one copy of a source.
#[derive(Default)]
pub(crate) struct Feed(Mutex<Fed>);

#[derive(Default)]
struct Fed {
    units: BTreeMap<Rank, Arc<Open>>,
    /// The copy's, when it has found none.
    idle: Option<Arc<Wakeup>>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Fed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, unit: Arc<Open>) {
        self.lock().units.insert(unit.rank, unit);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(wakeup) = self.lock().idle.take() {
            wakeup.ring();
        }
    }

    /// The units that are new; if there are none, the caller is woken when there are.
    fn take(&self, own: &Arc<Wakeup>) -> Vec<Arc<Open>> {
        let mut fed = self.lock();
        if fed.units.is_empty() {
            fed.idle = Some(Arc::clone(own));
        }
        std::mem::take(&mut fed.units).into_values().collect()
    }
}

pub(crate) struct Copy {
    pub(crate) filter: Arc<str>,
    pub(crate) index: usize,
    pub(crate) factory: Factory,
    pub(crate) inputs: Vec<(usize, Arc<Stream>)>,
    pub(crate) outlets: Vec<Vec<Outlet>>,
    /// Of a source.
    pub(crate) feed: Option<Arc<Feed>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) shared: Arc<Shared>,
}

/// The filter's value for one unit of work.
struct Instance {
    unit: Arc<Open>,
    filter: Box<dyn Filter>,
    filling: Filling,
    /// Input streams that have ended.
    ended: usize,
}

/// What the filter is asked for.
enum Call {
    Init,
    Process(Block, usize),
    Generate,
    Finalize,
}

impl Copy {
    pub(crate) fn run(self) {
        let mut instances: HashMap<UnitId, Instance> = HashMap::new();
        let mut ended_early = 0;
        while !self.shared.is_stopped.load(Ordering::SeqCst) {
            let now = self.shared.units.ended_early.load(Ordering::SeqCst);
            if std::mem::replace(&mut ended_early, now) != now {
                instances.retain(|_, instance| !instance.unit.is_closed());
            }
            let did = match &self.feed {
                Some(feed) => self.generate(feed, &mut instances),
                None => self.consume(&mut instances),
            };
            if !did {
                self.meter.enter(Phase::Starved);
                self.wakeup.wait();
            }
        }
    }

    /// One step of the most urgent unit of a source; false: there is none.
    fn generate(&self, feed: &Feed, instances: &mut HashMap<UnitId, Instance>) -> bool {
        let new = feed.take(&self.wakeup);
        for unit in &new {
            self.instance(unit, instances);
        }
        let ranks = instances.values().map(|instance| instance.unit.rank);
        // Where some were new and have failed, nobody wakes this thread for others yet.
        let Some(unit) = ranks.min().map(|rank| rank.unit) else { return !new.is_empty() };
        let Some(instance) = instances.get_mut(&unit) else { return true };
        match self.call(instance, Call::Generate) {
            Some(Step::More) => {}
            Some(Step::Done) => self.finalize(unit, instances),
            None => _ = instances.remove(&unit),
        }
        true
    }

    /// What comes next on an input; false: nothing is there.
    fn consume(&self, instances: &mut HashMap<UnitId, Instance>) -> bool {
        let mut did = false;
        for (port, stream) in &self.inputs {
            match stream.take(self.index, &self.wakeup) {
                Some(Taken::Block(block)) => self.process(block, *port, stream, instances),
                Some(Taken::End(unit)) => self.end(unit, instances),
                None => continue,
            }
            did = true;
        }
        did
    }

    fn process(
        &self,
        block: Block,
        port: usize,
        stream: &Stream,
        instances: &mut HashMap<UnitId, Instance>,
    ) {
        let began = Instant::now();
        let unit = block.unit();
        let instance = match instances.entry(unit) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let begun = self.shared.units.find(unit).and_then(|open| self.begin(&open));
                begun.map(|instance| place.insert(instance))
            }
        };
        if let Some(instance) = instance {
            self.meter.processed(block.len());
            if self.call(instance, Call::Process(block, port)).is_none() {
                instances.remove(&unit);
            }
        }
        stream.done(self.index, began.elapsed());
    }

    /// An input stream has no more of this unit.
    fn end(&self, unit: UnitId, instances: &mut HashMap<UnitId, Instance>) {
        let Some(open) = self.shared.units.find(unit) else { return };
        let Some(instance) = self.instance(&open, instances) else { return };
        instance.ended += 1;
        if instance.ended == self.inputs.len() {
            self.finalize(unit, instances);
        }
    }

    fn finalize(&self, unit: UnitId, instances: &mut HashMap<UnitId, Instance>) {
        let Some(mut instance) = instances.remove(&unit) else { return };
        if self.call(&mut instance, Call::Finalize).is_some() {
            drop(instance);
            self.shared.units.copy_is_done(unit);
        }
    }

    /// The value for that unit; a new one if there is none. `None`: it failed at once.
    fn instance<'i>(
        &self,
        unit: &Arc<Open>,
        instances: &'i mut HashMap<UnitId, Instance>,
    ) -> Option<&'i mut Instance> {
        match instances.entry(unit.rank.unit) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => Some(place.insert(self.begin(unit)?)),
        }
    }

    /// A new value for that unit. `None`: it failed at once.
    fn begin(&self, unit: &Arc<Open>) -> Option<Instance> {
        self.meter.enter(Phase::Busy);
        let made = catch_unwind(AssertUnwindSafe(|| (self.factory)()));
        let filter = match made {
            Ok(filter) => filter,
            Err(panic) => {
                self.fail(unit.rank.unit, None, &panic_text(&*panic));
                return None;
            }
        };
        let filling = Filling::new(&self.outlets);
        let mut instance = Instance { unit: Arc::clone(unit), filter, filling, ended: 0 };
        self.call(&mut instance, Call::Init)?;
        Some(instance)
    }

    /// `None`: the unit has ended.
    fn call(&self, instance: &mut Instance, call: Call) -> Option<Step> {
        let unit = &instance.unit;
        if unit.is_closed() {
            return None;
        }
        let block = match &call {
            Call::Process(block, _) => Some(block.sequence()),
            _ => None,
        };
        // What comes out before the first block, or after the last one, comes last.
        let group = block.unwrap_or_else(|| merge::last_of(self.index));
        let is_end = matches!(call, Call::Finalize);
        let mut out = Outputs {
            outlets: &self.outlets,
            filling: &mut instance.filling,
            unit,
            group,
            meter: &self.meter,
            wakeup: &self.wakeup,
        };
        let filter = &mut instance.filter;
        self.meter.enter(Phase::Busy);
        let outcome = catch_unwind(AssertUnwindSafe(|| match call {
            Call::Init => filter.init(&unit.argument, &mut out).map(|()| Step::More),
            Call::Process(block, port) => {
                filter.process(block, port, &mut out).map(|()| Step::More)
            }
            Call::Generate => filter.generate(&mut out),
            Call::Finalize => filter.finalize(&mut out).map(|()| Step::Done),
        }));
        let error: FilterError = match outcome {
            Ok(Ok(step)) => {
                if block.is_some() || is_end {
                    out.flush(is_end);
                }
                if block.is_some() {
                    out.end_group();
                }
                if is_end {
                    out.end();
                }
                return Some(step);
            }
            Ok(Err(error)) => error,
            Err(panic) => panic_text(&*panic).into(),
        };
        let id = unit.rank.unit;
        if !error.is::<Ended>() {
            self.fail(id, block, &error.to_string());
        }
        None
    }

    fn fail(&self, unit: UnitId, block: Option<u64>, error: &str) {
        let failure = Failure::Filter {
            unit,
            filter: Arc::clone(&self.filter),
            copy: self.index,
            block,
            error: error.into(),
        };
        self.shared.end_early(unit, failure);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "no message".to_owned()))
}
