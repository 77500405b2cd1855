//! Metrics, variants and cases of the results.

use crate::messaging::MessagePattern;
use crate::messaging::programs::{Library, MessagingTransport, MessagingVariant};
use crate::network::step::OffloadStep;
use crate::record::Metric;
use crate::text;

pub(super) const TCP: &str = "tcp://";
pub(super) const RING: &str = "tcp:// on the ring";
pub(super) const IPC: &str = "ipc://";

const fn zeromq(name: &'static str, over: MessagingTransport) -> MessagingVariant {
    MessagingVariant { name, library: Library::Zeromq, over }
}

/// On one host.
pub(super) const HERE: [MessagingVariant; 6] = [
    zeromq(TCP, MessagingTransport::Tcp),
    zeromq(RING, MessagingTransport::Ring),
    zeromq(IPC, MessagingTransport::Ipc),
    zeromq("inproc://", MessagingTransport::Inproc),
    MessagingVariant {
        name: "Mailbox, TCP",
        library: Library::Mailbox,
        over: MessagingTransport::Tcp,
    },
    MessagingVariant {
        name: "Mailbox, ring",
        library: Library::Mailbox,
        over: MessagingTransport::Ring,
    },
];

/// Between two.
pub(super) const APART: [MessagingVariant; 4] = [
    zeromq("veth, everything off", MessagingTransport::Cable(OffloadStep::Off)),
    zeromq("veth, checksums", MessagingTransport::Cable(OffloadStep::Checksums)),
    zeromq("veth, + TSO, GSO, SG", MessagingTransport::Cable(OffloadStep::Segmentation)),
    zeromq("veth, + GRO", MessagingTransport::Cable(OffloadStep::Joining)),
];

/// Half of these quantiles of round trips.
pub(super) const QUANTILES: [Metric; 2] =
    [Metric::lower("one-way latency p50", "µs"), Metric::lower("one-way latency p99", "µs")];
pub(super) const RATE: Metric = Metric::higher("message rate", "1/s");
pub(super) const THROUGHPUT: Metric = Metric::higher("throughput", "MB/s");
/// [`CPU`](crate::network::CPU) for each message.
pub(super) const EFFORT: Metric = Metric::lower("CPU time of a message", "µs");
/// CPU time of processes, user and system together and apart; 100 % is one processor. The load of
/// the whole machine, which runs both ends and their softirqs, is [`CPU`](crate::network::CPU) and
/// its parts.
pub(super) const SENDER: [Metric; 3] =
    cpu(["CPU of the sender", "CPU of the sender, user", "CPU of the sender, system"]);
pub(super) const RECEIVER: [Metric; 3] =
    cpu(["CPU of the receiver", "CPU of the receiver, user", "CPU of the receiver, system"]);
pub(super) const BOTH: [Metric; 3] =
    cpu(["CPU of both ends", "CPU of both ends, user", "CPU of both ends, system"]);

const fn cpu([both, user, system]: [&'static str; 3]) -> [Metric; 3] {
    const fn metric(name: &'static str) -> Metric {
        Metric::lower(name, "%")
    }
    [metric(both), metric(user), metric(system)]
}

pub(super) fn case(kind: MessagePattern, size: u64) -> String {
    let name = match kind {
        MessagePattern::RequestReply => "request/reply",
        MessagePattern::PushPull => "push/pull",
    };
    format!("{name}, {}", text::size(size))
}
