//! `slides`: the server of whole slides beside others, with requests for the same tiles: how many
//! it serves in a second, how long one takes while viewers pan, how soon a slide that nobody has
//! opened shows its first tile, and what all that costs.

mod bench;
mod cases;
mod claims;
mod tables;
mod workers;

use anyhow::Result;
use serde_json::Value;

use crate::claim::Evidence;
use crate::experiment::{self, Context, Experiment};
use crate::outcome::{Findings, Outcome, Recorded, ResultFile};
use crate::schedule::{Group, Trial, Variant, alternate};
use crate::slides::cluster::{RATE as RATE_OF_LINK, SHARE, SLOWNESS};
use crate::slides::servers::{BOUNDS, ServerKind, slides_program};
use crate::slides::test_slides::{self, Layout, Material};
use crate::slides::trace::STEP;
use crate::slides::view::ViewKind;
use bench::{Bench, COMING};
use cases::{COLD, COUNTS, GOAL, PEERS, closed, real, viewers};
use workers::Workers;

pub(super) struct Slides;

/// The servers that have addresses for it.
fn peers(what: ViewKind) -> &'static [ServerKind] {
    match what {
        ViewKind::Stored => &PEERS,
        ViewKind::Decoded => &[
            ServerKind::Seekwire,
            ServerKind::Iipsrv,
            ServerKind::Openslide,
            ServerKind::LargeImage,
        ],
        ViewKind::Regions => &[ServerKind::Seekwire, ServerKind::Iipsrv, ServerKind::LargeImage],
        ViewKind::Channels => &[ServerKind::Seekwire, ServerKind::LargeImage],
    }
}

impl Experiment for Slides {
    experiment_file!("slides");

    fn unavailable(&self, options: &experiment::Options) -> Option<String> {
        // The others alone would be compared with nothing.
        let command = match options.program() {
            Ok(command) => command,
            Err(error) => return Some(error.to_string()),
        };
        let program = slides_program(&command).err().map(|error| error.to_string());
        program.or_else(|| test_slides::missing(&command))
    }

    fn computed(&self, words: &[&str], result: &ResultFile) -> Option<Evidence> {
        claims::computed(words, result)
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
        let group =
            |name: String, peers: &[ServerKind], run: &dyn Fn(ServerKind) -> bench::Work| {
                let variant = |peer: &ServerKind| {
                    let (peer, work) = (*peer, run(*peer));
                    Variant::new(peer.name(), move |trial: &mut Trial| bench.run(peer, work, trial))
                };
                Group::new(name, peers.iter().map(variant).collect())
            };
        for what in [ViewKind::Stored, ViewKind::Decoded, ViewKind::Regions, ViewKind::Channels] {
            let is_one = matches!(what, ViewKind::Regions | ViewKind::Channels);
            let counts = if is_one { &[GOAL][..] } else { counts };
            for &count in counts {
                let work = move |_| bench::Work::Closed(what, count);
                groups.push(group(closed(what, count), peers(what), &work));
            }
        }
        for &what in context.pick(&[ViewKind::Decoded][..], &[ViewKind::Stored, ViewKind::Decoded])
        {
            // The others keep viewers waiting for seconds.
            let peers = context.pick(&[ServerKind::Seekwire, ServerKind::Iipsrv][..], peers(what));
            for &count in counts {
                let work = move |_| bench::Work::Viewers(what, count);
                groups.push(group(viewers(what, count), peers, &work));
            }
        }
        groups.push(group(COLD.to_owned(), &PEERS, &|_| bench::Work::Cold));
        for what in [ViewKind::Stored, ViewKind::Decoded] {
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
        Ok(Outcome { parameters, samples, baseline: ServerKind::Iipsrv.name(), violation })
    }

    fn findings(&self, recorded: Recorded<'_>) -> Findings {
        tables::findings(self.file(), recorded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_the_goals_are_measured_in_quick_runs_too() {
        assert!(COUNTS.contains(&GOAL));
        assert_eq!(closed(ViewKind::Stored, 1), "stored tiles, 1 connection");
        assert_eq!(viewers(ViewKind::Decoded, 64), "decoded tiles, 64 viewers");
        for what in [ViewKind::Stored, ViewKind::Decoded, ViewKind::Regions] {
            assert!(peers(what).starts_with(&[ServerKind::Seekwire, ServerKind::Iipsrv]));
        }
    }
}
