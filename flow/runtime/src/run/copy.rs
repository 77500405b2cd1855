//! One copy of a filter: a thread that takes blocks, calls the filter, and sends its output.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;

use crate::encoding::LONGEST_TEXT;
use crate::memory::batch::Batch;
use crate::memory::block::Block;
use crate::memory::deferred_release::DeferredRelease;
use crate::memory::origin::Origin;
use crate::memory::wakeup::Wakeup;
use crate::panics::caught;
use crate::policy::dealing::BATCH;
use crate::policy::priority::{Priority, UnitId};
use crate::remote::deferred_messages::DeferredMessages;
use crate::run::filter::{Factory, Filter, OnError, Step};
use crate::run::filter_error::{FilterError, UnitEnded};
use crate::run::graph::OnReject;
use crate::run::meter::{Meter, Phase};
use crate::run::output::{Filling, Held, Outputs};
use crate::run::stream_ends::{Input, StreamSender};
use crate::stream::feed::Feed;
use crate::stream::local_pipeline::LocalPipeline;
use crate::stream::merge;
use crate::stream::observer::{CopyObserver, Span};
use crate::stream::report::Failure;
use crate::stream::unit::Open;
use crate::stream::work::NextWork;

/// How often a source is called before its copy checks for units that have ended.
const STEPS: usize = 32;

pub(crate) struct FilterCopy {
    pub(crate) filter: Arc<str>,
    /// Number of the filter in the pipeline.
    pub(crate) filter_number: usize,
    pub(crate) index: usize,
    pub(crate) factory: Factory,
    pub(crate) inputs: Vec<(usize, Input)>,
    pub(crate) senders: Vec<Vec<StreamSender>>,
    /// Set for a source.
    pub(crate) feed: Option<Arc<Feed>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) watch: CopyObserver,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) shared: Arc<LocalPipeline>,
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
    /// The block, its port, and the number of blocks in the batch, or 0 if it is alone.
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
struct BlockLocation {
    block: Option<u64>,
    origin: Option<Origin>,
}

type Instances = BTreeMap<UnitId, Instance>;

/// The units of one copy.
#[derive(Default)]
struct Work {
    instances: Instances,
    /// For a source: units that it has not begun.
    waiting: BTreeMap<Priority, Arc<Open>>,
    /// The unit of the last call.
    last: Option<UnitId>,
    /// For each input: blocks that were taken and not begun.
    batches: Vec<Batch>,
}

impl FilterCopy {
    /// Runs until the pipeline is stopped.
    pub(crate) fn run(self) {
        let batch = |(_, input): &(usize, Input)| Batch::new(input.account().1);
        let batches = self.inputs.iter().map(batch).collect();
        let mut work = Work { batches, ..Work::default() };
        let Err(error) = caught(|| self.work(&mut work)) else { return };
        // No filter was called: perhaps freeing a block's memory failed, and there may be more such
        // blocks. So everything that the copy had is leaked, and no unit can be done without it.
        std::mem::forget(work);
        let error = format!("its copy cannot continue: it {error}");
        self.shared.break_for(|unit| self.failure(unit, BlockLocation::default(), &error));
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
                match work.batches.iter().filter_map(|batch| batch.look_again).min() {
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
        let closed = work.instances.iter().filter(|(_, instance)| instance.unit.is_closed());
        let closed: Vec<UnitId> = closed.map(|(id, _)| *id).collect();
        closed.into_iter().for_each(|unit| self.end_instance(unit, &mut work.instances));
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
            self.fail(unit, BlockLocation::default(), &error);
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
            match input.take(self.index, &self.wakeup, &mut work.batches[at]) {
                Some(NextWork::Blocks) => self.process(at, work),
                Some(NextWork::End(unit)) => self.end(unit, work),
                None => continue,
            }
            did = true;
        }
        did
    }

    /// Processes the blocks taken from one of the inputs. If that takes longer than expected, the
    /// rest is left.
    fn process(&self, at: usize, work: &mut Work) {
        let Work { instances, last, batches, .. } = work;
        let (port, input) = &self.inputs[at];
        let batch = &mut batches[at];
        let Some(unit) = batch.rank().map(|rank| rank.unit) else { return };
        let is_batch = batch.size() > 1;
        let deferred_messages = is_batch.then(DeferredMessages::begin);
        let deferred_release = is_batch.then(|| DeferredRelease::begin(input.account().1));
        let (began, blocked) = (Instant::now(), self.meter.blocked());
        let mut processed: usize = 0;
        if let Some(instance) = self.instance(unit, instances, last) {
            let mut is_ended = false;
            while let Some(block) = batch.next() {
                self.meter.processed(block.len());
                processed += 1;
                let in_batch = if is_batch { batch.blocks.len() + 1 } else { 0 };
                is_ended = self.call(instance, Call::Process(block, *port, in_batch)).is_none();
                // Reading the clock costs as much as a short block.
                let looks = processed.is_power_of_two() || processed % 8 == 0;
                let is_time = || looks && began.elapsed() > BATCH;
                if is_ended || !batch.blocks.is_empty() && is_time() {
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
        batch.blocked = self.meter.blocked().saturating_sub(blocked);
        drop((deferred_release, deferred_messages));
        input.done(self.index, batch, processed, took);
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
        if is_done {
            self.shared.copy_is_done(unit);
        }
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
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) => {
                let open = self.shared.units.find(unit)?;
                Some(entry.insert(self.begin(&open)?))
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
            senders: &self.senders,
            filling,
            unit,
            copy: self.index,
            group,
            // With several inputs there is no order.
            input: self.inputs.first().map(|(_, input)| input),
            is_init: false,
            in_batch: 0,
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
                self.fail(unit.rank.unit, BlockLocation::default(), &error);
                return None;
            }
        };
        let filling = Filling::new(&self.senders);
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
        let location = match &call {
            Call::Process(block, ..) => {
                BlockLocation { block: Some(block.sequence()), origin: block.origin().cloned() }
            }
            _ => BlockLocation::default(),
        };
        // Output after the last block comes last.
        let group = location.block.unwrap_or_else(|| merge::last_of(self.index));
        let is_end = matches!(call, Call::Finalize);
        let tell = |why: &str| {
            self.shared.copy_has_rejected(self.filter_number);
            if let Some(tell) = &self.on_reject {
                tell(&self.failure(unit.rank.unit, location.clone(), why));
            }
        };
        let mut out = self.outputs(unit, &mut instance.filling, group, &tell);
        let mut rejectable = None;
        if let Call::Process(block, ..) = &call {
            if self.on_error != OnError::Fail {
                rejectable = Some(block.bytes().clone());
                out.held = Some(Held::default());
            }
        }
        if let Call::Process(.., in_batch) = &call {
            out.in_batch = *in_batch;
        }
        if self.is_blockwise {
            out.origin = location.origin.clone();
        }
        out.is_init = matches!(call, Call::Init);
        if is_end {
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
                None => Ok(Err(UnitEnded.into())),
            },
            (outcome, _) => outcome,
        };
        let outcome = match outcome {
            Ok(Ok(step)) => {
                if location.block.is_some() || is_end {
                    out.flush(is_end);
                }
                if location.block.is_some() {
                    out.end_group();
                }
                if is_end {
                    out.end();
                }
                Ok(step)
            }
            Ok(Err(error)) => Err(self.text_of(error, unit)),
            Err(error) => Err(Some(error)),
        };
        let outputs = self.senders.iter().flatten().map(|sender| sender.stream.account());
        let inputs = self.inputs.iter().map(|(_, input)| input.account());
        self.watch.ended(inputs.chain(outputs));
        let error = match outcome {
            Ok(step) => return Some(step),
            Err(error) => error?,
        };
        self.fail(unit.rank.unit, location, &error);
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
        let is_end = error.is::<UnitEnded>() && unit.is_closed();
        let text = caught(move || (!is_end).then(|| error.to_string()));
        text.unwrap_or_else(Some)
    }

    fn fail(&self, unit: UnitId, location: BlockLocation, error: &str) {
        self.shared.end_early(unit, self.failure(unit, location, error));
    }

    fn failure(
        &self,
        unit: UnitId,
        BlockLocation { block, origin }: BlockLocation,
        error: &str,
    ) -> Failure {
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
