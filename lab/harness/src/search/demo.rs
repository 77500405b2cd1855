//! One case of the message search, short.

use super::plan::{Carrier, SearchMethod, SearchMode, SearchPlan};
use super::receiver::SearchPair;
use super::{CPU, rounds};
use crate::context::Context;
use crate::launch::{ACCELERATED, PLAIN};
use crate::schedule::{Group, Trial, Variant};

pub(crate) const CASE: &str = "message search 64 KiB, N = 16";

/// Connections of each run, and messages of its warm-up.
const REPETITIONS: u64 = 3;
const WARM_UP: u64 = 100;

/// The paper's baseline, and seeks.
pub fn group<'a>(context: &'a Context<'a>) -> Group<'a> {
    let variant = |name, method| {
        Variant::new(name, move |trial: &mut Trial| {
            let plan = SearchPlan::search(64 << 10, 16);
            let mut pair =
                SearchPair::start(context, SearchMode::new(name, method, Carrier::Tcp), plan)?;
            pair.turn(1, WARM_UP)?;
            let account = pair.turn(REPETITIONS, plan.messages)?;
            let readings = rounds::readings(&account).into_iter();
            readings
                .filter(|&(metric, _)| metric == CPU)
                .for_each(|(metric, value)| trial.record(CASE, None, metric, value));
            Ok(())
        })
    };
    Group::new(
        CASE,
        vec![variant(PLAIN, SearchMethod::Pool), variant(ACCELERATED, SearchMethod::Seek)],
    )
}
