//! Numbers of the goals that no row of a result of `flow-peers` has.

use super::auto;
use super::cases::{
    FLOW, FLOW_RING, FLOW_TCP, GOAL_SIZE, PEAK, RATE, SLOW, ZEROMQ_IPC, ZEROMQ_TCP, case,
};
use crate::claim::{Estimate, Evidence};
use crate::outcome::{At, ResultFile};

fn rate(result: &ResultFile, variant: &str) -> Evidence {
    Estimate::median(result, At { case: &case(GOAL_SIZE), variant, metric: RATE.name })
}

/// Over the faster one of the two.
fn remote(result: &ResultFile) -> Evidence {
    let (tcp, ipc) = (rate(result, ZEROMQ_TCP)?, rate(result, ZEROMQ_IPC)?);
    let faster = if tcp.value > ipc.value { ZEROMQ_TCP } else { ZEROMQ_IPC };
    let case = case(GOAL_SIZE);
    let of = |variant| At { case: &case, variant, metric: RATE.name };
    Estimate::ratio_of_medians(result, of(FLOW_RING), of(faster))
}

/// Of the three, the one that holds most.
fn peak(result: &ResultFile) -> Evidence {
    let of = |variant| Estimate::median(result, At { case: SLOW, variant, metric: PEAK.name });
    let mut most = of(FLOW)?;
    for variant in [FLOW_RING, FLOW_TCP] {
        let other = of(variant)?;
        if other.value > most.value {
            most = other;
        }
    }
    Ok(most)
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
