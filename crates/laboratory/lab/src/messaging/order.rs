//! What the programs are told and what they report.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{Latencies, Measured, Violation};
use crate::launch::Traffic;

/// What two ends do with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One end asks, the other one replies with the same message.
    RequestReply,
    /// One end sends, the other one receives.
    PushPull,
}

/// A test of messages between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// What is done.
    pub kind: Kind,
    /// Bytes of each message, at least 1.
    pub size: usize,
    /// For how long.
    pub milliseconds: u64,
}

impl Test {
    /// For how long.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }
}

/// What the connecting end of a test asks of the other one, beside the messages that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// To get ready for a test. The answer is where to connect to, if that is somewhere else.
    Begin(Test),
    /// What it has measured. The answer is a [`Measured`].
    Finish,
    /// To leave.
    Leave,
}

/// The order of the end that connects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// What the other end printed after `ready`.
    pub address: String,
    /// What to do, in this order.
    pub tests: Vec<Test>,
}

/// A report of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The test.
    pub test: Test,
    /// What the end that asks or sends has measured.
    pub sender: Measured,
    /// The same of the end that replies or receives.
    pub receiver: Measured,
    /// Known to programs that use Seekwire themselves; for others the library counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

impl Reading {
    /// What the two ends of a test have measured.
    ///
    /// # Errors
    ///
    /// [`Violation`], if messages that were sent did not arrive, or others did.
    pub fn of(test: Test, sender: Measured, receiver: Measured) -> Result<Self, Violation> {
        let (sent, received) = (sender.messages, receiver.messages);
        if test.kind == Kind::PushPull && sent != received {
            let size = test.size;
            return Err(Violation(format!(
                "{sent} messages of {size} bytes were sent, {received} came"
            )));
        }
        Ok(Self { test, sender, receiver, traffic: None })
    }

    /// Round trips as the end that asks has seen them, or messages as they came.
    #[must_use]
    pub fn measured(&self) -> &Measured {
        match self.test.kind {
            Kind::RequestReply => &self.sender,
            Kind::PushPull => &self.receiver,
        }
    }
}

/// A report of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modelled {
    /// Requests, deliveries, files or rounds per second, or bytes per second of a file.
    pub rate: f64,
    /// Median and 99th percentile of the time that one of them takes, nanoseconds.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// See [`Reading::traffic`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

impl Modelled {
    /// At this rate, with these latencies.
    ///
    /// # Errors
    ///
    /// If nothing was measured.
    pub fn of(rate: f64, latencies: &Latencies, traffic: Option<Traffic>) -> anyhow::Result<Self> {
        let quantile = |which| latencies.quantile(which).context("nothing was measured");
        Ok(Self { rate, p50_ns: quantile(0.5)?, p99_ns: quantile(0.99)?, traffic })
    }
}

/// Reported by a program that found something that must never be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What it found.
    pub violation: String,
}

/// The models of messaging that the thesis "Network hardware for business messaging" names as the
/// uses of middleware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Clients ask services through a broker, which knows the services by name.
    Broker,
    /// A publisher sends on topics, and each subscriber gets those that it subscribed to.
    Publish,
    /// A file is sent, and its checksum verified when it has arrived.
    File,
    /// Blocks of an array are sent to workers, and their results collected.
    Scatter,
}

/// The order of the program of a model to which all others connect: the broker, the publisher, the
/// receiver of files, the root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hub {
    /// The model.
    pub model: Model,
    /// What to listen on, in the library's own words.
    pub address: String,
    /// How many others connect, apart from clients.
    pub members: usize,
    /// Clients of a broker.
    #[serde(default)]
    pub clients: usize,
    /// Bytes of each message (of each block).
    pub size: usize,
    /// For how long rate and latency are measured, each.
    pub milliseconds: u64,
    /// Where the receiver of files puts them.
    #[serde(default)]
    pub directory: PathBuf,
}

/// The order of a program that connects to a hub: a service, a subscriber, a sender of files, a
/// worker, and the clients of a broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The model.
    pub model: Model,
    /// What the hub printed after `ready`.
    pub address: String,
    /// Which one of the members it is, from 0.
    pub rank: usize,
    /// Number of clients that it is; 0: a member.
    #[serde(default)]
    pub clients: usize,
    /// As in [`Hub`].
    pub members: usize,
    /// As in [`Hub`].
    pub size: usize,
    /// As in [`Hub`].
    pub milliseconds: u64,
    /// The file to send.
    #[serde(default)]
    pub file: PathBuf,
}

impl Hub {
    /// For how long.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }
}

impl Member {
    /// For how long.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }
}

/// Names of the services of a broker; what each does is up to [`answer`].
pub const SERVICES: [&str; 3] = ["quote", "order", "audit"];

/// Bytes of a message that [`answer`] looks at, so that its work is the same for all sizes.
const WORKED_ON: usize = 8;

/// What service (worker) `which` makes of a request (block): it moves each of the first bytes by a
/// distance that is its own, so that replies of one cannot be taken for those of another.
pub fn answer(which: usize, message: &mut [u8]) {
    let distance = which as u8 + 1;
    message.iter_mut().take(WORKED_ON).for_each(|byte| *byte = byte.wrapping_add(distance));
}

/// Turns what [`answer`] has made back into what it was.
pub(super) fn retrace(which: usize, message: &mut [u8]) {
    let distance = which as u8 + 1;
    message.iter_mut().take(WORKED_ON).for_each(|byte| *byte = byte.wrapping_sub(distance));
}

/// Number of topics of a publisher.
pub const TOPICS: usize = 4;

/// Whether subscriber `rank` subscribes to `topic`: each to two neighbouring ones.
#[must_use]
pub fn subscribed(rank: usize, topic: usize) -> bool {
    topic == rank % TOPICS || topic == (rank + 1) % TOPICS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_tell_the_services_apart() {
        let replies: Vec<Vec<u8>> = (0..SERVICES.len())
            .map(|service| {
                let mut bytes = vec![255, 0, 7];
                answer(service, &mut bytes);
                bytes
            })
            .collect();
        assert_eq!(replies[0], [0, 1, 8]);
        assert!(replies[0] != replies[1] && replies[1] != replies[2]);
        for (service, mut reply) in replies.into_iter().enumerate() {
            retrace(service, &mut reply);
            assert_eq!(reply, [255, 0, 7]);
        }
    }

    #[test]
    fn every_topic_has_its_subscribers() {
        let count = |subscribers: usize, topic| {
            (0..subscribers).filter(|&rank| subscribed(rank, topic)).count()
        };
        assert_eq!([0, 1, 2, 3].map(|topic| count(4, topic)), [2; 4]);
        assert_eq!([0, 1, 2, 3].map(|topic| count(1, topic)), [1, 1, 0, 0]);
    }
}
