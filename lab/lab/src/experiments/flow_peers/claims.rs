//! Numbers of the goals that no row of a result of `flow-peers` has.

use super::auto;
use super::cases::{
    FLOW, FLOW_RING, FLOW_TCP, GOAL_SIZE, PEAK, RATE, SLOW, ZEROMQ_IPC, ZEROMQ_TCP, case,
};
use crate::claim::{Estimate, Evidence};
use crate::outcome::{At, ResultFile};

/// Over the faster one of the two.
fn remote(result: &ResultFile) -> Evidence {
    let case = case(GOAL_SIZE);
    let of = |variant| At { case: &case, variant, metric: RATE.name };
    let over = |other| Estimate::ratio_of_medians(result, of(FLOW_RING), of(other));
    let all = [over(ZEROMQ_TCP)?, over(ZEROMQ_IPC)?];
    Estimate::smallest(all).ok_or_else(|| "there are no others".to_owned())
}

/// Of the three, the one that holds most.
fn peak(result: &ResultFile) -> Evidence {
    let of = |variant| Estimate::median(result, At { case: SLOW, variant, metric: PEAK.name });
    let all = [of(FLOW)?, of(FLOW_RING)?, of(FLOW_TCP)?];
    Estimate::largest(all).ok_or_else(|| "there are no streams".to_owned())
}

/// The number of a claim by its words.
pub(super) fn computed(words: &[&str], result: &ResultFile) -> Option<Evidence> {
    match words {
        ["streams between processes"] => Some(remote(result)),
        ["peak"] => Some(peak(result)),
        ["worst block size"] => Some(auto::worst(result)),
        _ => None,
    }
}
