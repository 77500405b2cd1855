//! One copy of a filter: a thread that takes blocks, calls the filter, and sends its output.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;

use crate::block::Block;
use crate::dealing::BATCH;
use crate::filter::{Factory, Filter, FilterError, OnError, Step};
use crate::graph::OnReject;
use crate::hand::Hand;
use crate::hedging::Finished;
use crate::lanes::Taken;
use crate::merge;
use crate::meter::{Meter, Phase};
use crate::observer::{Span, Watch};
use crate::origin::Origin;
use crate::output::{Ended, Filling, Outlet, Outputs};
use crate::panics::caught;
use crate::remote;
use crate::remote::later::Later;
use crate::remote::message::LONGEST_TEXT;
use crate::report::Failure;
use crate::shared::{Feed, Input, Shared};
use crate::spent::Spending;
use crate::unit::{Open, Rank, UnitId};
use crate::wakeup::Wakeup;

/// How often a source is called before its copy checks for units that have ended.
const STEPS: usize = 32;

pub(crate) struct Copy {
    pub(crate) filter: Arc<str>,
    pub(crate) index: usize,
    pub(crate) factory: Factory,
    pub(crate) inputs: Vec<(usize, Input)>,
    pub(crate) outlets: Vec<Vec<Outlet>>,
    /// Set for a source.
    pub(crate) feed: Option<Arc<Feed>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) watch: Watch,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) is_blockwise: bool,
    pub(crate) on_error: OnError,
    pub(crate) on_reject: Option<OnReject>,
}

/// The filter's value for one unit of work.
struct Instance {
    unit: Arc<Open>,
    filter: Box<dyn Filter>,
    filling: Filling,
    /// Number of input streams that have ended.
    ended: usize,
}

/// One call of the filter.
enum Call {
    Init,
    /// The block, its port, and the number of blocks in the hand, or 0 if it is alone.
    Process(Block, usize, usize),
    Generate,
    Finalize,
}

impl Call {
    fn span(&self, unit: UnitId) -> Span {
        match self {
            Self::Init => Span::Init { unit },
            Self::Process(block, port, _) => {
                Span::Process { unit, sequence: block.sequence(), bytes: block.len(), port: *port }
            }
            Self::Generate => Span::Generate { unit },
            Self::Finalize => Span::Finalize { unit },
        }
    }
}

/// The block that the filter is processing, for errors.
#[derive(Clone, Default)]
struct Place {
    block: Option<u64>,
    origin: Option<Origin>,
}

type Instances = BTreeMap<UnitId, Instance>;

/// The units of one copy.
#[derive(Default)]
struct Work {
    instances: Instances,
    /// For a source: units that it has not begun.
    waiting: BTreeMap<Rank, Arc<Open>>,
    /// The unit of the last call.
    last: Option<UnitId>,
    /// For each input: blocks that were taken and not begun.
    hands: Vec<Hand>,
}

impl Copy {
    /// Runs until the pipeline is stopped.
    pub(crate) fn run(self) {
        let hand = |(_, input): &(usize, Input)| Hand::new(input.account().1);
        let hands = self.inputs.iter().map(hand).collect();
        let mut work = Work { hands, ..Work::default() };
        let Err(error) = caught(|| self.work(&mut work)) else { return };
        // No filter was called: perhaps freeing a block's memory failed, and there may be more such
        // blocks. So everything that the copy had is leaked, and no unit can be done without it.
        std::mem::forget(work);
        let error = format!("its copy cannot continue: it {error}");
        self.shared.break_for(|unit| self.failure(unit, Place::default(), &error));
    }

    fn work(&self, work: &mut Work) {
        let mut ended_early = 0;
        let is_stopped = || self.shared.is_stopped.load(Ordering::SeqCst);
        while !is_stopped() {
            let now = self.shared.units.ended_early.load(Ordering::SeqCst);
            if std::mem::replace(&mut ended_early, now) != now {
                self.forget(work);
            }
            let did = match &self.feed {
                Some(feed) => self.generate(feed, work),
                None => self.consume(work),
            };
            // From here on it is woken; it has checked for everything that happened before.
            let same = self.shared.units.ended_early.load(Ordering::SeqCst) == ended_early;
            if !did && same && !is_stopped() {
                self.meter.enter(Phase::Starved);
                self.watch.began(|| Span::Starved);
                match work.hands.iter().filter_map(|hand| hand.look_again).min() {
                    Some(at) => self.wakeup.wait_for(at.saturating_duration_since(Instant::now())),
                    None => self.wakeup.wait(),
                }
                self.watch.ended(std::iter::empty());
            }
        }
        for (_, instance) in std::mem::take(&mut work.instances) {
            self.let_go(instance);
        }
    }

    /// Drops the instances of units that have ended early.
    fn forget(&self, work: &mut Work) {
        work.waiting.retain(|_, unit| !unit.is_closed());
        self.forget_all(Vec::new(), &mut work.instances);
    }

    fn end_instance(&self, unit: UnitId, instances: &mut Instances) {
        if let Some(instance) = instances.remove(&unit) {
            self.let_go(instance);
        }
    }

    /// A filter may also panic when it is dropped.
    fn let_go(&self, instance: Instance) {
        let unit = instance.unit.rank.unit;
        if let Err(error) = caught(|| drop(instance)) {
            self.fail(unit, Place::default(), &error);
        }
    }

    /// Runs some steps of the most urgent unit of a source; false if there is none.
    fn generate(&self, feed: &Feed, work: &mut Work) -> bool {
        let has_none = work.instances.is_empty() && work.waiting.is_empty();
        if has_none || feed.is_fed.load(Ordering::Relaxed) {
            let new = feed.take(&self.wakeup).into_iter().map(|unit| (unit.rank, unit));
            work.waiting.extend(new);
        }
        let begun = work.instances.values().map(|instance| instance.unit.rank).min();
        if let Some(first) = work.waiting.first_entry() {
            if begun.is_none_or(|begun| *first.key() < begun) {
                let unit = first.remove();
                if let Some(instance) = self.begin(&unit) {
                    work.instances.insert(unit.rank.unit, instance);
                }
                return true;
            }
        }
        let Some(unit) = begun.map(|rank| rank.unit) else { return false };
        self.turn_to(unit, &mut work.instances, &mut work.last);
        let Some(instance) = work.instances.get_mut(&unit) else { return true };
        // While no unit is new, no other one becomes more urgent.
        for _ in 0..STEPS {
            match self.call(instance, Call::Generate) {
                Some(Step::More) if feed.is_fed.load(Ordering::Relaxed) => break,
                Some(Step::More) => {}
                Some(Step::Done) => {
                    self.finalize(unit, work);
                    break;
                }
                None => {
                    self.end_instance(unit, &mut work.instances);
                    break;
                }
            }
        }
        true
    }

    /// Handles the next item of each input; false if there is none.
    fn consume(&self, work: &mut Work) -> bool {
        let mut did = false;
        for at in 0..self.inputs.len() {
            let input = &self.inputs[at].1;
            match input.take(self.index, &self.wakeup, &mut work.hands[at]) {
                Some(Taken::Blocks) => self.process(at, work),
                Some(Taken::End(unit)) => self.end(unit, work),
                Some(Taken::EndFor(copy, unit)) => self.end_for(copy, unit),
                Some(Taken::Beaten(ended)) => self.forget_all(ended, &mut work.instances),
                None => continue,
            }
            did = true;
        }
        did
    }

    /// Processes the blocks taken from one of the inputs. If that takes longer than expected, the
    /// rest is left.
    fn process(&self, at: usize, work: &mut Work) {
        let Work { instances, last, hands, .. } = work;
        let (port, input) = &self.inputs[at];
        let hand = &mut hands[at];
        let Some(unit) = hand.rank().map(|rank| rank.unit) else { return };
        let is_batch = hand.taken() > 1;
        let later = is_batch.then(Later::begin);
        let spending = is_batch.then(|| Spending::begin(input.account().1));
        let (began, blocked) = (Instant::now(), self.meter.blocked());
        let mut processed: usize = 0;
        if let Some(instance) = self.instance(unit, instances, last) {
            let mut is_ended = false;
            while let Some(block) = hand.next() {
                self.meter.processed(block.len());
                processed += 1;
                let in_hand = if is_batch { hand.blocks.len() + 1 } else { 0 };
                is_ended = self.call(instance, Call::Process(block, *port, in_hand)).is_none();
                // Reading the clock costs as much as a short block.
                let looks = processed.is_power_of_two() || processed % 8 == 0;
                let is_time = || looks && began.elapsed() > BATCH;
                if is_ended || !hand.blocks.is_empty() && is_time() {
                    break;
                }
            }
            if is_batch {
                self.outputs(&instance.unit, &mut instance.filling, 0, &|_| {}).settle();
            }
            if is_ended {
                self.end_instance(unit, instances);
            }
        }
        let took = began.elapsed();
        hand.blocked = self.meter.blocked().saturating_sub(blocked);
        drop((spending, later));
        let Finished { is_beaten, ended } = input.done(self.index, hand, processed, took);
        if is_beaten {
            self.forget_all(ended, instances);
        }
    }

    /// Forgets these units, which ended without this copy, and those that closed without notice to
    /// it.
    fn forget_all(&self, ended: Vec<UnitId>, instances: &mut Instances) {
        let closed = instances.iter().filter(|(_, instance)| instance.unit.is_closed());
        let closed: Vec<UnitId> = closed.map(|(id, _)| *id).collect();
        for unit in ended.into_iter().chain(closed) {
            self.end_instance(unit, instances);
        }
    }

    /// Acts as if the other copy were done with a unit; that copy is not notified.
    fn end_for(&self, copy: usize, unit: UnitId) {
        let Some(open) = self.shared.units.find(unit) else { return };
        let mut filling = Filling::new(&self.outlets);
        let mut out = self.outputs(&open, &mut filling, merge::last_of(copy), &|_| {});
        out.copy = copy;
        out.begin_last();
        out.end();
        self.shared.copy_is_done(unit);
    }

    /// Notes that an input stream has no more blocks of this unit.
    fn end(&self, unit: UnitId, work: &mut Work) {
        let Work { instances, last, .. } = work;
        let Some(instance) = self.instance(unit, instances, last) else { return };
        instance.ended += 1;
        if instance.ended == self.inputs.len() {
            self.finalize(unit, work);
        }
    }

    fn finalize(&self, unit: UnitId, work: &mut Work) {
        let Some(mut instance) = work.instances.remove(&unit) else { return };
        let is_done = self.call(&mut instance, Call::Finalize).is_some();
        self.let_go(instance);
        match self.ender() {
            _ if !is_done => {}
            Some(inlet) => inlet.through(self.index, unit),
            None => self.shared.copy_is_done(unit),
        }
    }

    /// The inlet whose home announces the end of a unit, if this copy does not do so itself.
    fn ender(&self) -> Option<&remote::Inlet> {
        self.inputs.iter().find_map(|(_, input)| input.ender())
    }

    /// The instance for that unit, created if needed. `None` if it failed at once, or the unit has
    /// ended.
    fn instance<'w>(
        &self,
        unit: UnitId,
        instances: &'w mut Instances,
        last: &mut Option<UnitId>,
    ) -> Option<&'w mut Instance> {
        self.turn_to(unit, instances, last);
        match instances.entry(unit) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place) => {
                let open = self.shared.units.find(unit)?;
                Some(place.insert(self.begin(&open)?))
            }
        }
    }

    /// Sends on partly filled blocks of the previous unit: they would occupy room while this unit
    /// waits for some.
    fn turn_to(&self, unit: UnitId, instances: &mut Instances, last: &mut Option<UnitId>) {
        let Some(before) = last.replace(unit).filter(|before| *before != unit) else { return };
        if let Some(instance) = instances.get_mut(&before) {
            self.outputs(&instance.unit, &mut instance.filling, 0, &|_| {}).flush(true);
        }
    }

    fn outputs<'c>(
        &'c self,
        unit: &'c Open,
        filling: &'c mut Filling,
        group: u64,
        tell: &'c dyn Fn(&str),
    ) -> Outputs<'c> {
        Outputs {
            outlets: &self.outlets,
            filling,
            unit,
            copy: self.index,
            group,
            // With several inputs there is no order.
            input: self.inputs.first().map(|(_, input)| input),
            is_init: false,
            in_hand: 0,
            meter: &self.meter,
            watch: &self.watch,
            wakeup: &self.wakeup,
            held: None,
            tell,
            origin: None,
            is_source: false,
        }
    }

    /// Creates an instance for that unit. `None` if it failed at once.
    fn begin(&self, unit: &Arc<Open>) -> Option<Instance> {
        self.meter.enter(Phase::Busy);
        let filter = match caught(|| (self.factory)()) {
            Ok(filter) => filter,
            Err(error) => {
                self.fail(unit.rank.unit, Place::default(), &error);
                return None;
            }
        };
        let filling = Filling::new(&self.outlets);
        let mut instance = Instance { unit: Arc::clone(unit), filter, filling, ended: 0 };
        if self.call(&mut instance, Call::Init).is_none() {
            self.let_go(instance);
            return None;
        }
        Some(instance)
    }

    /// Calls the filter. `None` if the unit has ended.
    fn call(&self, instance: &mut Instance, call: Call) -> Option<Step> {
        let unit = &instance.unit;
        if unit.is_closed() {
            return None;
        }
        let place = match &call {
            Call::Process(block, ..) => {
                Place { block: Some(block.sequence()), origin: block.origin().cloned() }
            }
            _ => Place::default(),
        };
        // Output after the last block comes last.
        let group = place.block.unwrap_or_else(|| merge::last_of(self.index));
        let is_end = matches!(call, Call::Finalize);
        let tell = |why: &str| {
            if let Some(tell) = &self.on_reject {
                tell(&self.failure(unit.rank.unit, place.clone(), why));
            }
        };
        let mut out = self.outputs(unit, &mut instance.filling, group, &tell);
        let mut rejectable = None;
        if let Call::Process(block, ..) = &call {
            if self.on_error != OnError::Fail {
                rejectable = Some(block.bytes().clone());
                out.held = Some(Vec::new());
            }
        }
        if let Call::Process(.., in_hand) = &call {
            out.in_hand = *in_hand;
        }
        if self.is_blockwise {
            out.origin = place.origin.clone();
        }
        out.is_init = matches!(call, Call::Init);
        let tells_of_end = is_end && self.ender().is_none();
        if tells_of_end {
            out.begin_last();
        }
        let filter = &mut instance.filter;
        self.watch.began(|| call.span(unit.rank.unit));
        self.meter.enter(Phase::Busy);
        let outcome = caught(|| match call {
            Call::Init => filter.init(&unit.argument, &mut out).map(|()| Step::More),
            Call::Process(block, port, _) => {
                filter.process(block, port, &mut out).map(|()| Step::More)
            }
            Call::Generate => filter.generate(&mut out),
            Call::Finalize => filter.finalize(&mut out).map(|()| Step::Done),
        });
        let outcome = match (outcome, rejectable) {
            (Ok(Ok(step)), Some(_)) => Ok(out.release().map(|()| step)),
            (Ok(Err(error)), Some(bytes)) => match self.text_of(error, unit) {
                Some(why) => Ok(self.reject(&mut out, &why, bytes)),
                None => Ok(Err(Ended.into())),
            },
            (outcome, _) => outcome,
        };
        let outcome = match outcome {
            Ok(Ok(step)) => {
                if place.block.is_some() || is_end {
                    out.flush(is_end);
                }
                if place.block.is_some() {
                    out.end_group();
                }
                if tells_of_end {
                    out.end();
                }
                Ok(step)
            }
            Ok(Err(error)) => Err(self.text_of(error, unit)),
            Err(error) => Err(Some(error)),
        };
        let outputs = self.outlets.iter().flatten().map(|outlet| outlet.stream.account());
        let inputs = self.inputs.iter().map(|(_, input)| input.account());
        self.watch.ended(inputs.chain(outputs));
        let error = match outcome {
            Ok(step) => return Some(step),
            Err(error) => error?,
        };
        if self.inputs.iter().any(|(_, input)| input.is_ended_for(self.index, unit.rank.unit)) {
            // It was late, and another copy has done its work.
            return None;
        }
        self.fail(unit.rank.unit, place, &error);
        None
    }

    /// Rejects a block and drops its output, so that the unit continues.
    fn reject(&self, out: &mut Outputs<'_>, why: &str, bytes: Bytes) -> Result<Step, FilterError> {
        out.held = None;
        if let OnError::To(port) = self.on_error {
            out.send(port, bytes)?;
        }
        out.reject(why);
        Ok(Step::More)
    }

    /// The text of an error; `None` if it reports correctly that the unit has ended. Its code may
    /// panic.
    fn text_of(&self, error: FilterError, unit: &Open) -> Option<String> {
        let is_end = error.is::<Ended>() && unit.is_closed();
        let text = caught(move || (!is_end).then(|| error.to_string()));
        text.unwrap_or_else(Some)
    }

    fn fail(&self, unit: UnitId, place: Place, error: &str) {
        self.shared.end_early(unit, self.failure(unit, place, error));
    }

    fn failure(&self, unit: UnitId, Place { block, origin }: Place, error: &str) -> Failure {
        let error = match error.char_indices().nth(LONGEST_TEXT / 4) {
            Some((end, _)) => &error[..end],
            None => error,
        };
        Failure::Filter {
            unit,
            filter: Arc::clone(&self.filter),
            copy: self.index,
            host: self.shared.host(),
            block,
            origin,
            error: error.into(),
        }
    }
}
