//! The link between the hosts: its name in titles and notes, and the facts about it that a result
//! keeps for its judges.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::network::hosts::RemoteHost;
use crate::outcome::{Recorded, ResultFile};

/// Rate of the link between the thesis' hosts, and of ours where it is made, in bits per second.
pub(super) const RATE: u64 = 1_000_000_000;

/// The parameter that holds the speed of the link of the streams in Mb/s, or a note that it is
/// unknown.
const SPEED: &str = "speed of the link of the streams (Mb/s)";

/// The parameter that holds the name of the link.
const NAME: &str = "link of the streams";

/// The parameter that holds the rate of a link that was made for the streams.
const BUCKET: &str = "link of the streams (b/s), by a token bucket (tbf) at the sender";

/// The link of streams to a strong receiver.
#[derive(Clone, Debug)]
pub(super) struct Link {
    name: String,
    mbps: Option<u64>,
    /// Made for these streams: all the rest has no limit.
    is_made: bool,
}

impl Link {
    /// A token bucket behind the sender's interface.
    pub(super) fn made() -> Self {
        let mbps = RATE / 1_000_000;
        Self { name: format!("a link of {}", speed(mbps)), mbps: Some(mbps), is_made: true }
    }

    /// The link to another host, whose speed the interface reports.
    pub(super) fn to(peer: &RemoteHost) -> Self {
        let mbps = peer.speed_mbps.map(u64::from).filter(|mbps| *mbps > 0);
        let name = match mbps {
            Some(mbps) => format!("a link of {}", speed(mbps)),
            None => format!("the link to {}", peer.name),
        };
        Self { name, mbps, is_made: false }
    }

    /// As in "over a link of 1 Gb/s".
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it carries only these streams.
    pub(super) fn is_made(&self) -> bool {
        self.is_made
    }

    /// The limit of all other tests, in words.
    pub(super) fn elsewhere(&self) -> String {
        if self.is_made { "no link limits it".to_owned() } else { self.name.clone() }
    }

    /// Keeps the parameters that [`Link::noted`] and [`gigabit`] read.
    pub(super) fn note(&self, parameters: &mut BTreeMap<String, Value>) {
        let value = self.mbps.map_or_else(|| "the interface does not know".into(), Value::from);
        parameters.insert(SPEED.to_owned(), value);
        parameters.insert(NAME.to_owned(), self.name.clone().into());
        if self.is_made {
            parameters.insert(BUCKET.to_owned(), RATE.into());
        }
    }

    /// The link that [`Link::note`] has kept.
    pub(super) fn noted(recorded: Recorded<'_>) -> Self {
        if recorded.number(BUCKET).is_some() {
            return Self::made();
        }
        let mbps = recorded.number(SPEED);
        let name = recorded.parameters.get(NAME).and_then(Value::as_str);
        let name = name.map_or_else(|| "the link to another host".to_owned(), str::to_owned);
        Self { name, mbps, is_made: false }
    }
}

/// Fails unless the streams of `result` went through a link like the thesis'.
pub(super) fn gigabit(result: &ResultFile) -> Result<(), String> {
    let why = match result.parameters.get(SPEED).and_then(Value::as_u64) {
        Some(mbps) if mbps * 1_000_000 == RATE => return Ok(()),
        Some(mbps) => format!("the link had {}", speed(mbps)),
        None => "it is not known how fast the link was".to_owned(),
    };
    Err(format!("this is about 1 Gb/s, and {why}"))
}

/// 1000 is `1 Gb/s`.
fn speed(mbps: u64) -> String {
    if mbps < 1000 { format!("{mbps} Mb/s") } else { format!("{} Gb/s", mbps as f64 / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Samples;

    fn peer(speed_mbps: Option<u32>) -> Link {
        let peer = RemoteHost {
            name: "192.0.2.1".to_owned(),
            address: "192.0.2.1:7117".parse().unwrap(),
            weak: None,
            interface: "eth1".to_owned(),
            speed_mbps,
        };
        Link::to(&peer)
    }

    #[test]
    fn links_are_named_by_what_they_are() {
        let names = [
            Link::made(),
            peer(Some(25_000)),
            peer(Some(2500)),
            peer(Some(100)),
            peer(None),
            peer(Some(0)),
        ];
        assert_eq!(
            names.map(|link| link.name),
            [
                "a link of 1 Gb/s",
                "a link of 25 Gb/s",
                "a link of 2.5 Gb/s",
                "a link of 100 Mb/s",
                "the link to 192.0.2.1",
                "the link to 192.0.2.1",
            ]
        );
        for link in [Link::made(), peer(Some(2500)), peer(None)] {
            let mut parameters = BTreeMap::new();
            link.note(&mut parameters);
            let samples = Samples::default();
            let noted = Link::noted(Recorded { parameters: &parameters, samples: &samples });
            assert_eq!(format!("{noted:?}"), format!("{link:?}"));
        }
        assert_eq!(Link::made().elsewhere(), "no link limits it");
        assert_eq!(peer(Some(1000)).elsewhere(), "a link of 1 Gb/s");
    }
}
