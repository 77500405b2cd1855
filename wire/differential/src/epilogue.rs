//! The steps that follow every program: they read each connection to its end, list what is left,
//! and end each process while the others watch.

use std::collections::BTreeSet;

use crate::program::{Actor, Call, OptionValue, SLOTS, Step, TestProgram};

/// Any thread of the process that is not asleep.
const ANY: usize = usize::MAX;

pub(crate) fn steps(program: &TestProgram) -> Vec<Step> {
    let processes = 0..program.processes.len();
    let slots = receivers(program);
    let step = |process, call| Step { by: Actor { process, thread: ANY }, call, beside: None };
    let mut steps = Vec::new();
    for process in processes.clone() {
        if program.steps.iter().any(|step| step.call == Call::Stop { process }) {
            steps.push(step(process, Call::Continue { process }));
        }
    }
    // Otherwise it would depend on time whether bytes that are held back arrive before the drains.
    for process in processes.clone() {
        let (level, name, value) = (libc::IPPROTO_TCP, libc::TCP_CORK, OptionValue::Int(0));
        let uncork = |slot: &usize| Call::SetOption { slot: *slot, level, name, value };
        steps.extend(slots.iter().map(uncork).map(|call| step(process, call)));
    }
    let drain =
        |process: usize| slots.iter().map(move |slot| step(process, Call::Drain { slot: *slot }));
    // Bytes that one end has to retransmit arrive while the other reads.
    for process in processes.clone().chain(processes.clone()) {
        steps.extend(drain(process));
    }
    for process in processes.clone() {
        steps.push(step(process, Call::Left));
    }
    for process in processes {
        steps.push(step(process, Call::Exit));
        for other in process + 1..program.processes.len() {
            steps.extend(drain(other));
        }
    }
    steps
}

/// Slots in which a connection can be.
fn receivers(program: &TestProgram) -> BTreeSet<usize> {
    let made = |call: &Call| match call {
        Call::Socket { slot, .. } | Call::Accept { slot, .. } | Call::Take { slot } => {
            Some(*slot % SLOTS)
        }
        Call::Dup { to, .. } => Some(*to % SLOTS),
        _ => None,
    };
    program.steps.iter().filter_map(|step| made(&step.call)).collect()
}
