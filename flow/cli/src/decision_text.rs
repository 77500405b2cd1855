//! Decisions and guarantees of a pipeline, in words.

use std::time::Duration;

use seekwire_flow::{Guarantee, GuaranteeReport, SizeDecision, SizeReason};
use seekwire_program::table;

/// With three digits: `1.23 us`, `45.6 ms`, `7.89 s`.
pub(crate) fn time(of: Duration) -> String {
    let units = [(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")];
    let fits = |(unit, _): &(u128, &str)| of.as_nanos() < 1000 * unit;
    let (unit, name) = units.into_iter().find(fits).unwrap_or((1_000_000_000, "s"));
    let value = of.as_nanos() as f64 / unit as f64;
    let decimals = match value {
        _ if name == "ns" || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {name}")
}

/// A block size that a stream has chosen, with the measurements that led to it.
pub(crate) fn decision(stream: &str, decision: &SizeDecision) -> String {
    let SizeDecision { blocks, from, to, sending, alpha, beta, service, kilobyte, .. } = decision;
    let rate = |(size, rate): &(usize, u64)| format!("; {size} B: {}/s", table::bytes(*rate));
    let tried: String = decision.tried.iter().map(rate).collect();
    let why = match decision.reason {
        SizeReason::Pipelining => "at this size a link takes no longer than the copies after it",
        SizeReason::Overhead => "at this size the fixed cost of a block is small",
        SizeReason::Unit => "larger ones would be too few for all copies",
        SizeReason::Latency => "a larger one would keep urgent blocks waiting for too long",
        SizeReason::Rate => "that is enough for the units per second that are guaranteed",
        SizeReason::Least => "no smaller one is allowed",
        SizeReason::Most => "no larger one is allowed, or known to be faster",
        SizeReason::Measured => "bytes passed fastest with these",
        _ => "for a reason that this program does not know",
    };
    let [sending, service, kilobyte] = [sending, service, kilobyte].map(|of| time(*of));
    let link = match (alpha, beta) {
        (Some(alpha), Some(beta)) => {
            format!("; alpha {}, beta {}/s", time(*alpha), table::bytes(*beta))
        }
        _ => String::new(),
    };
    format!(
        "{stream}: blocks of {} B after {blocks} of {} B: {why} (block {service}, 1000 bytes \
         {kilobyte}, sending {sending}{link}{tried})",
        to, from
    )
}

/// The guarantee in words.
pub(crate) fn promise(guarantee: Guarantee) -> String {
    match guarantee {
        Guarantee::Latency(allowed) => format!("each unit is done within {}", time(allowed)),
        Guarantee::Rate(rate) => format!("{rate} units are done in a second"),
    }
}

/// Whether the guarantee is kept.
pub(crate) fn guarantee(report: &GuaranteeReport) -> String {
    let GuaranteeReport { units, kept, worst, recent, .. } = report;
    let now = if report.holds() { "holds" } else { "does NOT hold" };
    let times = match report.guarantee {
        Guarantee::Latency(_) => {
            format!("the last took {} on average, the slowest {}", time(*recent), time(*worst))
        }
        Guarantee::Rate(_) => {
            let [recent, least] = [recent, worst].map(|time| 1.0 / time.as_secs_f64().max(1e-9));
            format!("lately {recent:.2} per second, at least {least:.2}")
        }
    };
    let promise = promise(report.guarantee);
    format!("The guarantee that {promise} {now}: it was kept with {kept} of {units}; {times}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0, 999, 1_000, 1_234, 45_600, 789_000_000, 7_890_000_000, 5_000_000_000_000];
        let texts = times.map(|nanoseconds| time(Duration::from_nanos(nanoseconds)));
        assert_eq!(
            texts,
            ["0 ns", "999 ns", "1.00 us", "1.23 us", "45.6 us", "789 ms", "7.89 s", "5000 s"]
        );
    }

    #[test]
    fn a_guarantee_says_how_it_was_kept() {
        let [worst, recent] = [200, 50].map(Duration::from_millis);
        let report = |guarantee| GuaranteeReport { guarantee, units: 9, kept: 8, worst, recent };
        let latency = guarantee(&report(Guarantee::Latency(Duration::from_millis(60))));
        assert_eq!(
            latency,
            "The guarantee that each unit is done within 60.0 ms holds: it was kept with 8 of 9; the \
             last took 50.0 ms on average, the slowest 200 ms."
        );
        let rate = guarantee(&report(Guarantee::Rate(25.5)));
        assert_eq!(
            rate,
            "The guarantee that 25.5 units are done in a second does NOT hold: it was kept with 8 of \
             9; lately 20.00 per second, at least 5.00."
        );
    }
}
