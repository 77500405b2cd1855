//! Orders and reports of the programs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{Latencies, Measured, Violation};
use crate::launch::Traffic;

/// How two ends exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessagePattern {
    /// One end requests, the other one replies with the same message.
    RequestReply,
    /// One end sends, the other one receives.
    PushPull,
}

/// A test of messages between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagingTest {
    /// How messages are exchanged.
    pub kind: MessagePattern,
    /// Bytes of each message, at least 1.
    pub size: usize,
    /// Duration.
    pub milliseconds: u64,
}

impl MessagingTest {
    /// Duration.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }
}

/// Requests of the connecting end of a test to the other one, besides the measured messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// To get ready for a test. The answer is the address to connect to, if that is another one.
    Begin(MessagingTest),
    /// For its measurement. The answer is a [`Measured`].
    Finish,
    /// To leave.
    Leave,
}

/// The order of the end that connects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// The address that the other end printed after `ready`.
    pub address: String,
    /// The tests to run, in this order.
    pub tests: Vec<MessagingTest>,
}

/// A report of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestReading {
    /// The test.
    pub test: MessagingTest,
    /// Measurement of the end that requests or sends.
    pub sender: Measured,
    /// Measurement of the end that replies or receives.
    pub receiver: Measured,
    /// Known to programs that use Seekwire themselves; for others the library counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

impl TestReading {
    /// The reading of the two ends of a test.
    ///
    /// # Errors
    ///
    /// [`Violation`], if messages that were sent did not arrive, or others did.
    pub fn of(
        test: MessagingTest,
        sender: Measured,
        receiver: Measured,
    ) -> Result<Self, Violation> {
        let (sent, received) = (sender.messages, receiver.messages);
        if test.kind == MessagePattern::PushPull && sent != received {
            let size = test.size;
            return Err(Violation(format!(
                "{sent} messages of {size} bytes were sent, {received} arrived"
            )));
        }
        Ok(Self { test, sender, receiver, traffic: None })
    }

    /// Round trips as the requesting end saw them, or messages as they arrived.
    #[must_use]
    pub fn measured(&self) -> &Measured {
        match self.test.kind {
            MessagePattern::RequestReply => &self.sender,
            MessagePattern::PushPull => &self.receiver,
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
    /// See [`TestReading::traffic`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

impl Modelled {
    /// A report of this rate and these latencies.
    ///
    /// # Errors
    ///
    /// If nothing was measured.
    pub fn of(rate: f64, latencies: &Latencies, traffic: Option<Traffic>) -> anyhow::Result<Self> {
        let quantile = |which| latencies.quantile(which).context("nothing was measured");
        Ok(Self { rate, p50_ns: quantile(0.5)?, p99_ns: quantile(0.99)?, traffic })
    }
}

/// Reported by a program that found something that must never occur.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Description of it.
    pub violation: String,
}

/// The models of messaging that the thesis "Network hardware for business messaging" names as the
/// uses of middleware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Clients send requests to services through a broker, which knows the services by name.
    Broker,
    /// A publisher sends on topics, and each subscriber receives those that it subscribed to.
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
    /// The address to listen on, in the library's own format.
    pub address: String,
    /// How many others connect, apart from clients.
    pub members: usize,
    /// Clients of a broker.
    #[serde(default)]
    pub clients: usize,
    /// Bytes of each message (of each block).
    pub size: usize,
    /// How long rate and latency are measured, each.
    pub milliseconds: u64,
    /// Where the receiver of files stores them.
    #[serde(default)]
    pub directory: PathBuf,
}

/// The order of a program that connects to a hub: a service, a subscriber, a sender of files, a
/// worker, and the clients of a broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The model.
    pub model: Model,
    /// The address that the hub printed after `ready`.
    pub address: String,
    /// Its number among the members, from 0.
    pub rank: usize,
    /// Number of clients that it plays; 0: it is a member.
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
    /// Duration.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }
}

impl Member {
    /// Duration.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }
}

/// Names of the services of a broker; what each does is up to [`answer`](super::answer).
pub const SERVICES: [&str; 3] = ["quote", "order", "audit"];

/// Number of topics of a publisher.
pub const TOPICS: usize = 4;

/// Whether subscriber `rank` subscribes to `topic`: each to two neighbouring ones.
#[must_use]
pub fn subscribed(rank: usize, topic: usize) -> bool {
    topic == rank % TOPICS || topic == (rank + 1) % TOPICS
}

#[cfg(test)]
mod tests {
    use super::super::contents::{answer, retrace};
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
