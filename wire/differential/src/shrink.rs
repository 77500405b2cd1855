//! Makes a failing program smaller while it fails in the same way.

use crate::program::{Call, ReceiveWay, SendWay, TestProgram};

/// The smallest program found, when no simpler one fails any more.
pub(crate) fn shrink(
    program: &TestProgram,
    mut fails: impl FnMut(&TestProgram) -> bool,
) -> TestProgram {
    let mut best = program.clone();
    let mut attempt = |best: &mut TestProgram, candidate: TestProgram| {
        let better = candidate != *best && fails(&candidate);
        if better {
            *best = candidate;
        }
        better
    };
    loop {
        let before = best.clone();
        // Remove ever smaller pieces of the steps, from the end: steps after the failure go first.
        let mut piece = best.steps.len() / 2;
        while piece > 0 {
            let mut end = best.steps.len();
            while end > 0 {
                let start = end.saturating_sub(piece);
                let mut candidate = best.clone();
                candidate.steps.drain(start..end);
                attempt(&mut best, candidate);
                end = start.min(best.steps.len());
            }
            piece /= 2;
        }
        for plainer in [
            TestProgram { fall_back_after: None, ..best.clone() },
            TestProgram { small: false, ..best.clone() },
        ] {
            attempt(&mut best, plainer);
        }
        for at in 0..best.steps.len() {
            let mut alone = best.clone();
            alone.steps[at].beside = None;
            attempt(&mut best, alone);
            for call in simpler(&best.steps[at].call) {
                let mut candidate = best.clone();
                candidate.steps[at].call = call;
                attempt(&mut best, candidate);
            }
        }
        for process in &mut (0..best.processes.len()) {
            let mut candidate = best.clone();
            candidate.processes[process].threads = 1;
            attempt(&mut best, candidate);
        }
        if best == before {
            break;
        }
    }
    without_idle(best)
}

/// The same call with plainer arguments.
fn simpler(call: &Call) -> Vec<Call> {
    match call {
        Call::Send { slot, length, flags, way } => {
            let with = |length, flags, way| Call::Send { slot: *slot, length, flags, way };
            vec![
                with(1, *flags, *way),
                with(*length, 0, *way),
                with(*length, *flags, SendWay::Send),
            ]
        }
        Call::Receive { slot, length, flags, way } => {
            let with = |length, flags, way| Call::Receive { slot: *slot, length, flags, way };
            let mut plainer = vec![
                with(1, *flags, *way),
                with(100, *flags, *way),
                with(*length, *flags, ReceiveWay::Recv),
            ];
            plainer.extend(
                (0..32)
                    .map(|bit| 1 << bit)
                    .filter(|bit| flags & bit != 0)
                    .map(|bit| with(*length, flags & !bit, *way)),
            );
            plainer
        }
        Call::Poll { entries, timeout, way } => (0..entries.len())
            .filter(|_| entries.len() > 1)
            .map(|at| {
                let mut entries = entries.clone();
                entries.remove(at);
                Call::Poll { entries, timeout: *timeout, way: *way }
            })
            .collect(),
        Call::Socket { slot, .. } => vec![Call::Socket { slot: *slot, flags: 0 }],
        Call::Accept { slot, listener, .. } => {
            vec![Call::Accept { slot: *slot, listener: *listener, flags: 0 }]
        }
        _ => Vec::new(),
    }
}

/// Without the processes at the end that do nothing.
fn without_idle(mut program: TestProgram) -> TestProgram {
    while let Some(last) = program.processes.len().checked_sub(1) {
        let used = program.steps.iter().any(|step| {
            step.by.process == last
                || matches!(&step.call, Call::Fork { child } if *child == last)
                || matches!(&step.call, Call::Pass { to, .. } | Call::Connect { to, .. } if *to == last)
                || step.beside.as_ref().is_some_and(|(by, _)| by.process == last)
        });
        if used {
            break;
        }
        program.processes.pop();
    }
    program
}
