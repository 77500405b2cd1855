//! `ring-size`: bandwidth and latency against the geometry of the ring.

use std::time::Duration;

use anyhow::Result;
use transport::layout::Geometry;

use super::{TCP, curves, program_variant};
use crate::bench::{BANDWIDTH, LATENCY, Operation, Socket, Test};
use crate::experiment::{Context, Experiment};
use crate::outcome::{Key, Outcome};
use crate::plot::{Axis, Scale};
use crate::record::{Metric, Row};
use crate::schedule::{Group, alternate};
use crate::text;

pub(super) struct RingSize;

/// Messages are large enough to need the pool, and small enough to fit into the smallest one twice.
const MESSAGE: u64 = 64 << 10;

impl Experiment for RingSize {
    fn name(&self) -> &'static str {
        "ring-size"
    }

    fn about(&self) -> &'static str {
        "Bandwidth and round-trip time of 64 KiB messages between two processes of an unmodified, accelerated program, \
         for segments of several sizes in pools of several sizes. The defaults are chosen from this. Plain TCP runs \
         along for comparison; it has no pool."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        Some("figures 4 to 6 of the YASMIN paper (intra-node sockets over shared memory)")
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(3, 7);
        let time = Duration::from_millis(context.pick(40, 100));
        let segments: &[u64] = context.pick(&[16 << 10, 64 << 10], &[4 << 10, 16 << 10, 64 << 10, 256 << 10]);
        let pools: &[u64] = context.pick(
            &[256 << 10, 1 << 20, 4 << 20],
            &[128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20],
        );
        let test = |operation| Test { operation, size: MESSAGE, time };
        let tests = vec![test(Operation::Pingpong), test(Operation::Bandwidth)];

        let geometries: Vec<(u64, u64)> = segments
            .iter()
            .flat_map(|&segment| pools.iter().map(move |&pool| (segment, pool)))
            .filter(|&(segment, pool)| is_possible(segment, pool))
            .collect();
        let mut variants =
            vec![program_variant(context, TCP, Socket::Tcp, false, tests.clone(), |pair| pair)];
        variants.extend(geometries.iter().map(|&(segment, pool)| {
            program_variant(context, geometry(segment, pool), Socket::Tcp, true, tests.clone(), |pair| {
                pair.env("SEEKWIRE_SEGMENT_SIZE", segment).env("SEEKWIRE_SEGMENTS", pool / segment)
            })
        }));
        let mut groups = [Group::new("64 KiB", variants)];
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let rows = samples.rows(TCP);
        let by_segment: Vec<String> = segments.iter().map(|&segment| series(segment)).collect();
        let names: Vec<&str> = by_segment.iter().map(String::as_str).collect();
        let regrouped = regroup(&rows, &geometries);
        let pool_size = || Axis { label: "pool size (bytes)".to_owned(), scale: Scale::Sizes };
        let figure =
            |file, title, metric| curves(file, title, pool_size(), Scale::Linear, metric, &regrouped, &names);
        let figures = vec![
            figure("bandwidth.svg", "Bandwidth of 64 KiB messages", BANDWIDTH),
            figure("latency.svg", "Round trip of 64 KiB messages, median", LATENCY),
        ];

        let mut parameters = context.parameters(rounds);
        parameters.insert("milliseconds per test".to_owned(), (time.as_millis() as u64).into());
        parameters.insert("message size".to_owned(), MESSAGE.into());
        parameters.insert("segment sizes".to_owned(), segments.into());
        let default = Geometry::default();
        parameters.insert("default segment size".to_owned(), default.segment_size().into());
        parameters.insert("default segments".to_owned(), default.segments().into());
        parameters.insert("pool sizes".to_owned(), pools.into());
        Ok(Outcome {
            parameters,
            summary: summary(&rows, &geometries),
            figures,
            samples,
            baseline: TCP,
            violation: None,
        })
    }
}

/// What the library refuses it would replace by its defaults, and the label would lie.
fn is_possible(segment: u64, pool: u64) -> bool {
    let [segment_size, segments] = [segment, pool / segment].map(u32::try_from);
    let cells = Geometry::default().cells() as u32;
    matches!((segment_size, segments), (Ok(size), Ok(count)) if Geometry::new(cells, size, count).is_ok())
}

fn geometry(segment: u64, pool: u64) -> String {
    format!("{} in {}", text::size(segment), text::size(pool))
}

fn series(segment: u64) -> String {
    format!("segments of {}", text::size(segment))
}

/// The rows as curves: one for each segment size, over the pool size.
fn regroup(rows: &[Row], geometries: &[(u64, u64)]) -> Vec<Row> {
    let find = |variant: &str| geometries.iter().find(|&&(segment, pool)| geometry(segment, pool) == variant);
    rows.iter()
        .filter_map(|row| {
            let &(segment, pool) = find(&row.variant)?;
            Some(Row { x: Some(pool as f64), variant: series(segment), ..row.clone() })
        })
        .collect()
}

fn summary(rows: &[Row], geometries: &[(u64, u64)]) -> Vec<Key> {
    let median = |segment, pool, metric: Metric| {
        let variant = geometry(segment, pool);
        let row = rows.iter().find(|row| row.variant == variant && row.metric == metric.name)?;
        Some(row.spread?.median)
    };
    let best = geometries
        .iter()
        .filter_map(|&(segment, pool)| Some((segment, pool, median(segment, pool, BANDWIDTH)?)))
        .max_by(|a, b| a.2.total_cmp(&b.2));
    let keys = [
        (
            "best_segment_size",
            "segment size with the highest bandwidth, bytes",
            best.map(|best| best.0 as f64),
        ),
        ("best_pool_size", "its pool size, bytes", best.map(|best| best.1 as f64)),
        ("best_bandwidth_gbps", "its bandwidth, GB/s", best.map(|best| best.2)),
    ];
    keys.into_iter().filter_map(|(name, meaning, value)| Key::measured(name, meaning, value)).collect()
}
