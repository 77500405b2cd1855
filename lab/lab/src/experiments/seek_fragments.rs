//! `seek-fragments`: the savings when messages arrive in pieces, a question that the paper of 2019
//! leaves open.

use anyhow::Result;
use serde_json::Value;

use super::published_seek;
use super::result_names::{AWAITED, BULK, POOL, SEEK};
use super::search_keys::{alone, with_point};
use super::seek::BASELINES;
use crate::claim::Evidence;
use crate::experiment::{Context, Experiment};
use crate::experiment_file::ExperimentFile;
use crate::outcome::{Findings, Outcome, Recorded, ResultFile, SummaryValue};
use crate::plot::{Axis, Figure, Scale};
use crate::search::plan::MESSAGES;
use crate::search::reduction::{self, Reduction, extremes};
use crate::search::{self, CPU, Carrier, Effort, SearchCase, SearchMethod, SearchMode, SearchPlan};
use crate::text;

pub(super) struct SeekFragments;

const MODES: [SearchMode; 4] = [
    SearchMode::new(POOL, SearchMethod::Pool, Carrier::Tcp),
    SearchMode::new(AWAITED, SearchMethod::Awaited, Carrier::Tcp),
    SearchMode::new(BULK, SearchMethod::Bulk, Carrier::Tcp),
    SearchMode::new(SEEK, SearchMethod::Seek, Carrier::Tcp),
];

/// N.
const SKIP: u64 = 8;

/// Maximum number of pieces of a connection. A receiver that sleeps for bytes that have not all
/// arrived stops the sender: that takes a tenth of a millisecond for each. The second is for quick
/// runs.
const PIECES: u64 = 50_000;
const QUICK_PIECES: u64 = 10_000;

/// Bytes that arrive in the time of a piece.
const PIECE_TIME: u64 = 20_000;

/// Messages of a connection with at most this many pieces: as many as in the paper, or whole
/// groups, at least two of them.
fn messages(size: u64, piece: u64, most_pieces: u64) -> u64 {
    let group = SKIP + 1;
    let most = most_pieces / size.div_ceil(piece);
    (most / group * group).clamp(2 * group, MESSAGES)
}

const SIZES: [u64; 3] = [4 << 10, 64 << 10, 256 << 10];

impl Experiment for SeekFragments {
    experiment_file!("seek-fragments");

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        (words == ["pieces matter"]).then(|| published_seek::pieces_matter(result))
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 10);
        let effort = Effort::of(context, 1);
        let pieces: &[u64] =
            context.pick(&[256, 64 << 10], &[64, 256, 1 << 10, 1460, 4 << 10, 16 << 10, 64 << 10]);
        let sizes: &[u64] = context.pick(&SIZES[..2], &SIZES);
        let case = |size: u64, piece: u64| {
            let messages = messages(size, piece, context.pick(QUICK_PIECES, PIECES));
            let plan =
                SearchPlan { piece: Some(piece), messages, ..SearchPlan::search(size, SKIP) };
            // A stopped sender takes much longer for small pieces than their bytes do.
            let weight = size + size / piece * PIECE_TIME;
            let repetitions =
                effort.repetitions(SearchPlan { messages, ..SearchPlan::search(weight, SKIP) });
            SearchCase { plan, modes: MODES.to_vec(), x: piece as f64, repetitions }
        };
        let cases: Vec<SearchCase> = sizes
            .iter()
            .flat_map(|&size| pieces.iter().map(move |&piece| case(size, piece)))
            .collect();
        let samples = search::measure(context, &cases, rounds)?;

        let mut parameters = context.parameters(rounds);
        parameters.extend(search::parameters(&samples));
        parameters.insert("sizes".to_owned(), sizes.into());
        parameters.insert("pieces".to_owned(), pieces.into());
        parameters.insert("messages skipped".to_owned(), SKIP.into());
        let work = |case: &SearchCase| {
            let numbers = vec![Value::from(case.repetitions), Value::from(case.plan.messages)];
            (case.plan.describe(), Value::from(numbers))
        };
        parameters.insert(
            "connections per value, messages of each".to_owned(),
            cases.iter().map(work).collect(),
        );
        Ok(Outcome { parameters, samples, baseline: POOL, violation: None })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        let (sizes, pieces) = (recorded.numbers("sizes"), recorded.numbers("pieces"));
        let (sizes, pieces) = (&sizes[..], &pieces[..]);
        let case = |size: u64, piece: u64| {
            let plan = SearchPlan { piece: Some(piece), ..SearchPlan::search(size, SKIP) };
            SearchCase { plan, modes: MODES.to_vec(), x: piece as f64, repetitions: 1 }
        };
        let cases: Vec<SearchCase> = sizes
            .iter()
            .flat_map(|&size| pieces.iter().map(move |&piece| case(size, piece)))
            .collect();
        let reductions = reduction::reductions(recorded.samples, &cases, &BASELINES, &[CPU]);
        let rows = recorded.samples.rows(POOL);
        let mut figures: Vec<Figure> =
            BASELINES.into_iter().map(|baseline| figure(&reductions, baseline, sizes)).collect();
        figures.extend(sizes.iter().map(|&size| {
            let of_size: Vec<_> = rows
                .iter()
                .filter(|row| {
                    cases.iter().any(|c| c.plan.size == size && c.name(Carrier::Tcp) == row.case)
                })
                .cloned()
                .collect();
            let title = format!("Receiver CPU, messages of {}", text::size(size));
            super::sweep::curves(
                &format!("cpu-{size}.svg"),
                &title,
                axis(),
                Scale::Linear,
                CPU,
                &of_size,
                &[POOL, AWAITED, BULK, SEEK],
            )
        }));
        Findings {
            summary: summary(self.file(), &reductions, sizes, pieces),
            tables: vec![reduction::table(&reductions)],
            figures,
        }
    }
}

fn axis() -> Axis {
    Axis { label: "bytes that the sender writes at once".to_owned(), scale: Scale::Log10 }
}

/// Savings of seeks over the size of pieces, one curve for each message size.
fn figure(reductions: &[Reduction], baseline: &str, sizes: &[u64]) -> Figure {
    let curve = |&size: &u64| {
        let points =
            seeks(reductions, baseline).filter(|reduction| reduction.plan.size == size).collect();
        (format!("messages of {}", text::size(size)), points)
    };
    let curves = sizes.iter().map(curve).collect();
    let title = format!("seek over TCP, against {baseline}, N = {SKIP}");
    reduction::figure(
        format!("seek-{baseline}.svg").replace(", ", "-"),
        title,
        axis(),
        baseline,
        curves,
    )
}

fn seeks<'a>(
    reductions: &'a [Reduction],
    baseline: &str,
) -> impl Iterator<Item = &'a Reduction> + Clone {
    reductions
        .iter()
        .filter(move |reduction| reduction.mode.name == SEEK && reduction.baseline == baseline)
}

fn summary(
    file: &'static ExperimentFile,
    reductions: &[Reduction],
    sizes: &[u64],
    pieces: &[u64],
) -> Vec<SummaryValue> {
    let worst = |baseline| extremes(seeks(reductions, baseline)).map(|(_, worst)| worst);
    let at = |piece: Option<&u64>| {
        let (size, piece) = (sizes.iter().find(|&&size| size == 64 << 10)?, piece?);
        let wanted = |plan: SearchPlan| plan.size == *size && plan.piece == Some(*piece);
        seeks(reductions, POOL).find(|reduction| wanted(reduction.plan))
    };
    [
        with_point(file, "worst_reduction_percent", worst(POOL)),
        with_point(file, "worst_vs_bulk_percent", worst(BULK)),
        alone(file, "reduction_percent_64KiB_smallest_pieces", at(pieces.first())),
        alone(file, "reduction_percent_64KiB_whole", at(pieces.last())),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_make_fewer_messages() {
        assert_eq!(messages(4 << 10, 64 << 10, PIECES), MESSAGES);
        assert_eq!(messages(64 << 10, 64, PIECES), 45);
        assert_eq!(messages(256 << 10, 64, PIECES), 18);
        assert_eq!(messages(64 << 10, 256, QUICK_PIECES), 36);
    }
}
