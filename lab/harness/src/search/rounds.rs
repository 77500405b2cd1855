//! Cases times modes, for several rounds.
//!
//! A value is the processor time of many connections. The modes do not measure one value after the
//! other but take turns of a few connections each, so that compared connections lie as close
//! together in time as possible: on a virtual machine the speed of a processor changes from one
//! second to the next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::plan::{Account, Carrier, SearchMethod, SearchMode, SearchPlan};
use super::receiver::SearchPair;
use super::{
    COPIES, CPU, CPU_MESSAGES, CPU_SYSTEM, INSTRUCTIONS, RATE, RECEIVE_BUFFER, SYSTEM_CALLS,
    counts_instructions,
};
use crate::context::Context;
use crate::launch::interrupt;
use crate::record::{Metric, Sample, Samples};
use crate::schedule::order;
use crate::text;

/// Turns that each mode takes for a value.
const TURNS: u64 = 10;

/// Failed values after which a mode is given up in a case.
const FAILURES: usize = 2;

/// Bytes that warm up a receiver and the memory of its messages: memory that a virtual machine has
/// never touched costs more than any copy. The second is for quick runs.
const WARM_UP: u64 = 64 << 20;
const QUICK_WARM_UP: u64 = 16 << 20;

/// The messages, and the modes that are compared.
#[derive(Clone, Debug)]
pub struct SearchCase {
    /// The messages.
    pub plan: SearchPlan,
    /// The modes that receive them.
    pub modes: Vec<SearchMode>,
    /// The case as a number.
    pub x: f64,
    /// Connections behind each value.
    pub repetitions: u64,
}

impl SearchCase {
    /// The name of the case on a carrier.
    pub fn name(&self, carrier: Carrier) -> String {
        format!("{}, {}", carrier.name(), self.plan.describe())
    }

    /// Number of connections of the case that `mode` makes in a turn. In libfabric, opening takes
    /// as long as hundreds of messages; only the messages are compared.
    fn in_turn(mode: SearchMode, repetitions: u64) -> u64 {
        if mode.method == SearchMethod::Fabric { 1 } else { repetitions }
    }

    /// About how long it takes: a fixed time for each connection and each write, and 2 GB/s.
    fn estimate(&self) -> Duration {
        let writes = self.plan.piece.map_or(1, |piece| self.plan.size.div_ceil(piece));
        let message = 0.8e-6 * writes as f64 + self.plan.size as f64 / 2e9;
        let value = |mode: &SearchMode| {
            let (connection, message) = if mode.method == SearchMethod::Fabric {
                (0.1, message + 40e-6)
            } else {
                (0.2e-3, message)
            };
            let connections = match mode.method {
                SearchMethod::Fabric => 1,
                _ => self.repetitions,
            };
            0.02 + (connections + 1) as f64 * (connection + self.plan.messages as f64 * message)
        };
        Duration::from_secs_f64(self.modes.iter().map(value).sum())
    }
}

/// Number of connections behind a value.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// As in the paper, or as the user wishes.
    pub repetitions: u64,
    /// A value moves at most this many bytes, but at least one connection; `None`: no limit.
    pub most_bytes: Option<u64>,
}

impl Effort {
    /// As the user wishes; else `quick` connections of at most 64 MB in all, or the paper's 100 of
    /// at most 4 GB.
    pub fn of(context: &Context<'_>, quick: u64) -> Self {
        match context.repetitions() {
            Some(repetitions) => Self { repetitions: repetitions.max(1), most_bytes: None },
            None => Self {
                repetitions: context.pick(quick, 100),
                most_bytes: Some(context.most_bytes(64_000_000, 4_000_000_000)),
            },
        }
    }

    /// Connections behind a value.
    pub fn repetitions(self, plan: SearchPlan) -> u64 {
        let most = self.most_bytes.map_or(u64::MAX, |bytes| bytes / (plan.size * plan.messages));
        self.repetitions.min(most).max(1)
    }
}

/// Measures each mode of each case once in each round.
///
/// # Errors
///
/// Only an interruption (^C) ends the whole run; a value that cannot be measured is a sample with
/// an error.
pub fn measure(context: &Context<'_>, cases: &[SearchCase], rounds: usize) -> Result<Samples> {
    let progress = context.progress();
    let total: Duration = cases.iter().map(SearchCase::estimate).sum::<Duration>() * rounds as u32;
    progress.expect(rounds * cases.len());
    progress.note(&format!("about {} in all", text::minutes(total)));

    let mut samples = Samples::default();
    let mut failures: BTreeMap<(usize, &'static str, &'static str), usize> = BTreeMap::new();
    let (begun, mut done) = (Instant::now(), Duration::ZERO);
    for round in 1..=rounds {
        for index in order(cases.len(), round, 0) {
            let case = &cases[index];
            let left = match done.as_secs_f64() {
                0.0 => total,
                done => begun.elapsed().mul_f64((total.as_secs_f64() / done - 1.0).max(0.0)),
            };
            progress.step(&format!(
                "round {round}/{rounds}: {}; about {} left",
                case.plan.describe(),
                text::minutes(left)
            ));
            let key = |mode: SearchMode| (index, mode.carrier.name(), mode.name);
            let modes: Vec<SearchMode> = case
                .modes
                .iter()
                .copied()
                .filter(|&mode| {
                    failures.get(&key(mode)).is_none_or(|&failures| failures < FAILURES)
                })
                .collect();
            for (position, (mode, outcome)) in
                values(context, case, &modes, round)?.into_iter().enumerate()
            {
                if outcome.is_err() {
                    *failures.entry(key(mode)).or_default() += 1;
                }
                record(&mut samples, case, mode, round, position, outcome);
            }
            done += case.estimate();
        }
    }
    Ok(samples)
}

type Value = Result<Account, String>;

/// One value of each mode.
fn values(
    context: &Context<'_>,
    case: &SearchCase,
    modes: &[SearchMode],
    round: usize,
) -> Result<Vec<(SearchMode, Value)>> {
    let warm_up = (context.pick(QUICK_WARM_UP, WARM_UP) / case.plan.size)
        .clamp(case.plan.skip + 1, case.plan.messages);
    let mut pairs: Vec<Result<(SearchPair, Account)>> = Vec::new();
    for &mode in modes {
        let started = SearchPair::start(context, mode, case.plan).and_then(|mut pair| {
            let system_calls = pair.turn(1, warm_up)?.system_calls;
            Ok((pair, Account { system_calls, ..Account::default() }))
        });
        interrupt::check()?;
        pairs.push(started);
    }
    let turns = TURNS.min(case.repetitions);
    for turn in 0..turns {
        // The first turns take the remainder.
        let repetitions = case.repetitions / turns + u64::from(turn < case.repetitions % turns);
        for index in order(pairs.len(), round * TURNS as usize + turn as usize, 0) {
            if modes[index].method == SearchMethod::Fabric && turn > 0 {
                continue;
            }
            let Ok((pair, sum)) = &mut pairs[index] else { continue };
            match pair.turn(SearchCase::in_turn(modes[index], repetitions), case.plan.messages) {
                Ok(account) => sum.add(account),
                Err(error) => pairs[index] = Err(error),
            }
            interrupt::check()?;
        }
    }
    let outcome = |pair: Result<(SearchPair, Account)>| match pair {
        Ok((_, account)) => Ok(account),
        Err(error) => Err(format!("{error:#}")),
    };
    Ok(modes.iter().copied().zip(pairs.into_iter().map(outcome)).collect())
}

fn record(
    samples: &mut Samples,
    case: &SearchCase,
    mode: SearchMode,
    round: usize,
    position: usize,
    value: Value,
) {
    let sample = |metric, outcome, traffic| Sample {
        case: case.name(mode.carrier),
        x: Some(case.x),
        variant: mode.name.to_owned(),
        metric,
        round,
        position,
        outcome,
        traffic,
    };
    match value {
        Ok(account) => {
            let copies = account
                .copied
                .map(|bytes| bytes as f64 / (account.messages * case.plan.size) as f64);
            let copies = copies.map(|copies| (COPIES, copies));
            for (metric, value) in readings(&account).into_iter().chain(copies) {
                samples.0.push(sample(Some(metric), Ok(value), account.traffic));
            }
        }
        Err(error) => samples.0.push(sample(None, Err(error), None)),
    }
}

/// The readings of a value, by message.
pub fn readings(account: &Account) -> Vec<(Metric, f64)> {
    let messages = account.messages as f64;
    let microseconds = |ns: u64| ns as f64 / 1e3 / messages;
    let mut readings = vec![
        (CPU, microseconds(account.user_ns + account.system_ns)),
        (CPU_MESSAGES, microseconds(account.messages_ns)),
        (CPU_SYSTEM, microseconds(account.system_ns)),
        (RATE, messages / (account.elapsed_ns as f64 / 1e9)),
    ];
    if counts_instructions() {
        readings.clear();
    }
    readings.extend(account.system_calls.map(|calls| (SYSTEM_CALLS, calls as f64 / 1000.0)));
    readings.extend(account.instructions.map(|count| (INSTRUCTIONS, count as f64 / messages)));
    readings.extend(account.receive_buffer.map(|bytes| (RECEIVE_BUFFER, bytes as f64)));
    readings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_messages_make_fewer_connections() {
        let effort = Effort { repetitions: 100, most_bytes: Some(4_000_000_000) };
        let repetitions = |size| effort.repetitions(SearchPlan::search(size, 2));
        assert_eq!([10, 1000, 40_000].map(repetitions), [100; 3]);
        assert_eq!([64 << 10, 1 << 20, 1 << 30].map(repetitions), [61, 3, 1]);
    }
}
