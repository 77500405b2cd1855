//! The thread that looks after copies that may be late, for a stream with copies in other processes
//! (stragglers).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::memory::wakeup::Wakeup;
use crate::panics::caught;
use crate::remote::link::Link;
use crate::remote::message::Message;
use crate::stream::end_tracker::EndedForCopy;
use crate::stream::local_pipeline::LocalPipeline;
use crate::stream::merge;
use crate::stream::owned::Stream;
use crate::stream::report::Failure;

/// A stream from the filter that is looked after.
pub(crate) enum Downstream {
    Here(Arc<Stream>),
    /// Its number, and the link to its owner.
    Elsewhere(u16, Arc<Link>),
}

/// Looks after a stream whose owner is here.
pub(crate) struct StragglerMonitor {
    pub(crate) stream: Arc<Stream>,
    /// The filter whose copies may be late.
    pub(crate) filter: Arc<str>,
    /// The streams that its copies send to.
    pub(crate) next: Vec<Downstream>,
    pub(crate) shared: Arc<LocalPipeline>,
}

impl StragglerMonitor {
    /// Runs until the pipeline stops, which rings it.
    pub(crate) fn run(self, own: &Wakeup) {
        let Err(error) = caught(|| self.look_after(own)) else { return };
        // Perhaps freeing the memory of a block failed. Without this thread nothing would end
        // units.
        let error: Arc<str> =
            format!("its late blocks are not handled any more: the thread {error}").into();
        self.shared.break_for(|unit| Failure::Filter {
            unit,
            filter: Arc::clone(&self.filter),
            copy: 0,
            host: self.shared.host(),
            block: None,
            origin: None,
            error: Arc::clone(&error),
        });
    }

    fn look_after(&self, own: &Wakeup) {
        while !self.shared.is_stopped.load(Ordering::SeqCst) {
            let (ended, next) = self.stream.look();
            ended.iter().for_each(|one| self.end(one));
            match next {
                Some(at) => own.wait_for(at.saturating_duration_since(Instant::now())),
                None => own.wait(),
            }
        }
    }

    /// Acts as if that copy were done with the unit.
    fn end(&self, EndedForCopy { copy, process, unit }: &EndedForCopy) {
        let Some(open) = self.shared.units.find(*unit) else { return };
        let (unit, group) = (*unit, merge::last_of(*copy));
        for next in &self.next {
            match next {
                Downstream::Here(stream) => {
                    stream.begin_last(&open, *copy);
                    stream.end(&open, *copy, group);
                }
                // After the output of that unit that copies here have sent there.
                Downstream::Elsewhere(stream, link) => {
                    let from = (*stream, *copy as u16);
                    link.send_of(open.rank, Message::Last { from, unit });
                    link.send_of(open.rank, Message::SentAll { from, unit, group });
                }
            }
        }
        match (process, &self.shared.others) {
            (Some(process), Some(others)) => others.copy_has_ended(unit, *process),
            _ => self.shared.copy_is_done(unit),
        }
    }
}
