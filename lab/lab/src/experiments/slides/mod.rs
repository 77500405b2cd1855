//! `slides`: the server of whole slides beside others, with requests for the same tiles: how many
//! it serves in a second, how long one takes while viewers pan, how soon a slide that nobody has
//! opened shows its first tile, and what all that costs.

mod bench;
mod claims;
mod tables;
mod workers;

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::claim::Claim;
use crate::experiment::{self, Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded};
use crate::record::{Better, Metric};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::slides::cluster::{RATE as RATE_OF_LINK, SHARE, SLOWNESS};
use crate::slides::material::{self, Layout, Material};
use crate::slides::servers::{BOUNDS, Peer, slides_program};
use crate::slides::trace::STEP;
use crate::slides::view::What;
use bench::{Bench, COMING};
use workers::Workers;

pub(super) struct Slides;

/// The servers that are measured, in the order of tables.
const PEERS: [Peer; 5] =
    [Peer::Seekwire, Peer::Iipsrv, Peer::WsiStreamer, Peer::Openslide, Peer::LargeImage];

/// The servers that have addresses for it.
fn peers(what: What) -> &'static [Peer] {
    match what {
        What::Stored => &PEERS,
        What::Decoded => &[Peer::Seekwire, Peer::Iipsrv, Peer::Openslide, Peer::LargeImage],
        What::Regions => &[Peer::Seekwire, Peer::Iipsrv, Peer::LargeImage],
        What::Channels => &[Peer::Seekwire, Peer::LargeImage],
    }
}

const RATE: Metric = Metric { name: "answers", unit: "1/s", better: Better::Higher };
const MEDIAN: Metric = Metric { name: "latency p50", unit: "ms", better: Better::Lower };
const TAIL: Metric = Metric { name: "latency p99", unit: "ms", better: Better::Lower };
/// Of an open load, the requests without an answer five seconds after the last one.
const MISSING: Metric = Metric { name: "not answered", unit: "%", better: Better::Lower };
/// All processes of the server; 100 % is one processor.
const CPU: Metric = Metric { name: "CPU of the server", unit: "%", better: Better::Lower };
const EFFORT: Metric = Metric { name: "CPU time of an answer", unit: "µs", better: Better::Lower };
const SIZE: Metric = Metric { name: "size of an answer", unit: "KiB", better: Better::Lower };
/// The peak of each of its processes, added up.
const PEAK: Metric = Metric { name: "memory peak", unit: "MiB", better: Better::Lower };
/// The growth since the server was started, over what its options allow.
const HELD: Metric = Metric { name: "memory over allowed", unit: "", better: Better::Lower };
const TWICE: Metric = Metric { name: "tiles decoded twice", unit: "", better: Better::Lower };
/// CPU time of the thread that sends the requests.
const LOAD: Metric = Metric { name: "CPU of the load", unit: "%", better: Better::Lower };
const FIRST: Metric = Metric { name: "first tile", unit: "ms", better: Better::Lower };
/// Bytes of the slide's file in the page cache before it is opened.
const CACHED: Metric = Metric { name: "in the page cache", unit: "MiB", better: Better::Lower };
/// The worst of the pictures that were compared with those of vips.
const PSNR: Metric = Metric { name: "PSNR", unit: "dB", better: Better::Higher };

/// Numbers of connections, and of viewers.
const COUNTS: [u64; 3] = [1, 16, 64];
/// The number that the goals name.
const GOAL: u64 = 16;

const COLD: &str = "cold open";

/// The case of this many connections, each of which sends a request upon every answer.
fn closed(what: What, connections: u64) -> String {
    match connections {
        1 => format!("{}, 1 connection", what.name()),
        _ => format!("{}, {connections} connections", what.name()),
    }
}

fn viewers(what: What, count: u64) -> String {
    match count {
        1 => format!("{}, 1 viewer", what.name()),
        _ => format!("{}, {count} viewers", what.name()),
    }
}

fn real(what: What) -> String {
    format!("{}, real slide", what.name())
}

impl Experiment for Slides {
    fn name(&self) -> &'static str {
        "slides"
    }

    fn question(&self) -> &'static str {
        "How many tiles of slides are served in a second, and how soon, beside iipsrv, OpenSlide and others."
    }

    fn about(&self) -> &'static str {
        "Servers of whole-slide images receive requests for the same tiles of the same slides: this project's, iipsrv \
         behind lighttpd, wsi-streamer, OpenSlide's Deep Zoom and large_image under gunicorn. Stored tiles are passed \
         through where a server can do that; decoded tiles are those between two stored levels; regions are scaled; \
         tiles of five channels of 16 bits are blended in the colours that the address names. Connections without \
         pauses between requests show how many answers a server gives, and viewers that pan (an open load, whose \
         latencies count from when a tile was due) how long they take. A slide that is not in the page cache shows how \
         soon a first tile comes. Pictures are compared with those that vips makes of the slide before anything is \
         measured. One slide is real; larger ones are made of it and synthetic. Then the server has workers on hosts \
         of their own, of which each has a share of a processor, behind a link of 1 Gb/s in network namespaces; one of \
         them may be ten times slower, and work is dealt adaptively, on demand or in turn."
    }

    fn paper_reference(&self) -> Option<&'static str> {
        None
    }

    fn claims(&self) -> &'static [Claim] {
        claims::CLAIMS
    }

    fn duration(&self, quick: bool) -> Duration {
        Duration::from_secs(if quick { 45 } else { 2400 })
    }

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        // The others alone would be compared with nothing.
        let command = match options.program() {
            Ok(command) => command,
            Err(error) => return Some(error.to_string()),
        };
        let program = slides_program(&command).err().map(|error| error.to_string());
        program.or_else(|| material::missing(&command))
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        let rounds = context.rounds(1, 5);
        let command = context.peer()?;
        let layout = context.pick(Layout { across: 3, down: 2 }, Layout { across: 12, down: 9 });
        let large = context.pick(layout, Layout { across: 36, down: 27 });
        let material =
            Material::make(&command, layout, large, |what| context.progress().note(what))?;
        let workers = Workers::new(&command, &material, context.quick());
        let bench = Bench::new(&command, material, context.quick());
        let bench = &bench;
        let counts = context.pick(&[GOAL][..], &COUNTS);
        let mut groups = Vec::new();
        let group = |name: String, peers: &[Peer], run: &dyn Fn(Peer) -> bench::Work| {
            let variant = |peer: &Peer| {
                let (peer, work) = (*peer, run(*peer));
                Variant::new(peer.name(), move |trial: &mut Trial| bench.run(peer, work, trial))
            };
            Group::new(name, peers.iter().map(variant).collect())
        };
        for what in [What::Stored, What::Decoded, What::Regions, What::Channels] {
            let is_one = matches!(what, What::Regions | What::Channels);
            let counts = if is_one { &[GOAL][..] } else { counts };
            for &count in counts {
                let work = move |_| bench::Work::Closed(what, count);
                groups.push(group(closed(what, count), peers(what), &work));
            }
        }
        for &what in context.pick(&[What::Decoded][..], &[What::Stored, What::Decoded]) {
            // The others keep viewers waiting for seconds.
            let peers = context.pick(&[Peer::Seekwire, Peer::Iipsrv][..], peers(what));
            for &count in counts {
                let work = move |_| bench::Work::Viewers(what, count);
                groups.push(group(viewers(what, count), peers, &work));
            }
        }
        groups.push(group(COLD.to_owned(), &PEERS, &|_| bench::Work::Cold));
        for what in [What::Stored, What::Decoded] {
            groups.push(group(real(what), peers(what), &move |_| bench::Work::Real(what)));
        }
        groups.extend(workers.groups());
        let samples = alternate(&mut groups, rounds, context.progress())?;
        drop(groups);

        let mut parameters = context.parameters(rounds);
        let mut note = |name: &str, value: Value| parameters.insert(name.to_owned(), value);
        note("connections, viewers", counts.into());
        note("milliseconds of a closed load, at most", bench.milliseconds(false).into());
        note("milliseconds of viewers", bench.milliseconds(true).into());
        note("milliseconds before, in which viewers come", (COMING.as_millis() as u64).into());
        note("milliseconds between steps of a viewer", (STEP.as_millis() as u64).into());
        note("MiB of encoded images, decoded tiles and images being made", BOUNDS.to_vec().into());
        note("slides", bench.slides()?);
        note(
            "milliseconds of a closed load with workers, at most",
            workers.milliseconds(false).into(),
        );
        note("milliseconds of viewers with workers", workers.milliseconds(true).into());
        note("percent of a processor of a host, with workers", SHARE.into());
        note("how many times slower a slow worker is", SLOWNESS.into());
        note("bits per second between the server and all workers", RATE_OF_LINK.into());
        note("page cache", "posix_fadvise(POSIX_FADV_DONTNEED) for the slide's file".into());
        let violation = bench.violation();
        Ok(Outcome { parameters, samples, baseline: Peer::Iipsrv.name(), violation })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        tables::findings(recorded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_the_goals_are_measured_in_quick_runs_too() {
        assert!(COUNTS.contains(&GOAL));
        assert_eq!(closed(What::Stored, 1), "stored tiles, 1 connection");
        assert_eq!(viewers(What::Decoded, 64), "decoded tiles, 64 viewers");
        for what in [What::Stored, What::Decoded, What::Regions] {
            assert!(peers(what).starts_with(&[Peer::Seekwire, Peer::Iipsrv]));
        }
    }
}
