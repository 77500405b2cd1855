//! The messages that are sent, the order in which they are received, and the reports: the language
//! between the laboratory and its `lab-peer` processes, one JSON value per line.

use std::time::Duration;

use std::net::SocketAddr;

use seekwire_protocol::message::HEADER;
use serde::{Deserialize, Serialize};

use crate::launch::Traffic;
use crate::text;

/// The carrier of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// The kernel's TCP, over loopback.
    Tcp,
    /// A Seekwire stream whose ends have both been upgraded.
    Ring,
}

impl Carrier {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Ring => "ring",
        }
    }
}

/// How a receiver gets at a message that follows others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchMethod {
    /// Receives each preceding message into a pool, and copies it out of there when it is wanted.
    Pool,
    /// The same, but only after the wanted message has also arrived (SO_RCVLOWAT).
    Awaited,
    /// Reads arrived bytes at once into memory of the library, and copies every message out of
    /// there.
    Bulk,
    /// Takes it out of the middle of the stream; the others stay where they are.
    Seek,
    /// The same with one given mechanism for TCP: the kernel module, SO_PEEK_OFF, library memory.
    Module,
    /// With SO_PEEK_OFF on TCP.
    Peek,
    /// By draining into library memory.
    Drain,
    /// The same as `Seek`, without copying anything.
    Borrow,
    /// A tagged receive of libfabric.
    Fabric,
    /// A mailbox of messages.
    Mailbox,
    /// The same messages, but unexpected ones are copied aside.
    Aside,
}

impl SearchMethod {
    /// The only mechanism that the library may use to take bytes out of the middle of TCP.
    pub fn of_tcp(self) -> Option<seekwire::seek::SeekMethod> {
        match self {
            Self::Module => Some(seekwire::seek::SeekMethod::Module),
            Self::Peek => Some(seekwire::seek::SeekMethod::Peek),
            Self::Drain => Some(seekwire::seek::SeekMethod::Drain),
            _ => None,
        }
    }
}

/// A method on a carrier, as tables and legends name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchMode {
    /// The name of the variant.
    pub name: &'static str,
    /// How messages are received.
    pub method: SearchMethod,
    /// The carrier of the messages.
    pub carrier: Carrier,
}

impl SearchMode {
    /// A mode under a name.
    pub const fn new(name: &'static str, method: SearchMethod, carrier: Carrier) -> Self {
        Self { name, method, carrier }
    }
}

/// The messages of the sender, and the order in which they are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchPlan {
    /// Bytes of each message.
    pub size: u64,
    /// N: messages that are skipped before the wanted one, and received after it.
    pub skip: u64,
    /// The sender's write(2)s are of at most this many bytes, each sent at once; `None`: one for
    /// each message.
    pub piece: Option<u64>,
    /// `None`: the messages are nothing but bytes. Else both ends are mailboxes, and this many
    /// tags, 0, 1, .., repeat; the first [`SearchPlan::skip`] of each lap come unexpected.
    pub tags: Option<u64>,
    /// Messages of a connection.
    pub messages: u64,
}

/// Messages of a connection in the paper.
pub const MESSAGES: u64 = 1000;

impl SearchPlan {
    /// As in the paper.
    pub fn search(size: u64, skip: u64) -> Self {
        Self { size, skip, piece: None, tags: None, messages: MESSAGES }
    }

    /// Bytes that have arrived when the wanted message has.
    pub fn group_bytes(self) -> u64 {
        match self.tags {
            None => (self.skip + 1) * self.size,
            Some(tags) => tags * (self.size + HEADER as u64),
        }
    }

    /// SO_RCVBUF to request, which the kernel doubles for its own overhead: skipped messages have
    /// to fit, with some room, but a sender that runs far ahead only fills the caches with bytes
    /// that nobody wants yet. The kernel merges arriving bytes into buffers of up to 17 pieces of
    /// 32 KiB, and frees them only as a whole.
    pub fn receive_buffer(self) -> u64 {
        const LEAST: u64 = 512 << 10;
        (self.group_bytes() * 5 / 4).max(LEAST)
    }

    /// For tables: `64 KiB, N = 16`, and the pieces if there are any; or `64 KiB, 4 of 16 tags
    /// unexpected`.
    pub fn describe(self) -> String {
        if let Some(tags) = self.tags {
            return format!("{}, {} of {tags} tags unexpected", text::size(self.size), self.skip);
        }
        let pieces = self.piece.map(|piece| format!(" in pieces of {}", text::size(piece)));
        format!("{}{}, N = {}", text::size(self.size), pieces.unwrap_or_default(), self.skip)
    }
}

/// Order to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// How messages are received.
    #[serde(rename = "way")]
    pub method: SearchMethod,
    /// The carrier of the messages.
    pub carrier: Carrier,
    /// Where the sender listens.
    pub sender: SocketAddr,
    /// Sizes, numbers and order of the messages.
    pub plan: SearchPlan,
    /// The only processor it may use.
    pub processor: Option<usize>,
}

/// Order to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// The carrier of the messages.
    pub carrier: Carrier,
    /// The only processor it may use.
    pub processor: Option<usize>,
}

/// Work of a receiver in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Counts from 1.
    pub turn: u64,
    /// Connections.
    pub repetitions: u64,
    /// Messages of each.
    pub messages: u64,
}

/// A receiver's report about its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Number of the turn, from 1.
    pub turn: u64,
    /// Messages of all its connections.
    pub messages: u64,
    /// User and system time, from before a connection is opened until after it is closed.
    pub user_ns: u64,
    /// The part of it in the kernel.
    pub system_ns: u64,
    /// User and system time between the first and the last message.
    pub messages_ns: u64,
    /// Real time between the first and the last message.
    pub elapsed_ns: u64,
    /// Instructions of user space and kernel; `None` without such counters.
    #[serde(default)]
    pub instructions: Option<u64>,
    /// System calls for a thousand messages, without opening and closing; `None` where they cannot
    /// be counted.
    #[serde(default)]
    pub system_calls: Option<u64>,
    /// Bytes of messages that were copied, by the kernel and in this process; `None` where that is
    /// not known.
    #[serde(default)]
    pub copied: Option<u64>,
    /// SO_RCVBUF; `None`: left to the kernel, because so large a buffer is not allowed.
    #[serde(default)]
    pub receive_buffer: Option<u64>,
    /// Bytes by carrier, if the library counted them.
    #[serde(default)]
    pub traffic: Option<Traffic>,
}

impl Account {
    /// Adds the account of another turn.
    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.messages_ns += other.messages_ns;
        self.elapsed_ns += other.elapsed_ns;
        self.instructions = match (self.turn, self.instructions) {
            (0, _) => other.instructions,
            (_, sum) => sum.zip(other.instructions).map(|(a, b)| a + b),
        };
        self.copied = match (self.turn, self.copied) {
            (0, _) => other.copied,
            (_, sum) => sum.zip(other.copied).map(|(a, b)| a + b),
        };
        self.turn = other.turn;
        self.receive_buffer = other.receive_buffer;
        if let Some(traffic) = other.traffic {
            *self.traffic.get_or_insert_default() += traffic;
        }
    }
}

/// Generous, so that a slow machine does not look like a hang. For a turn of ten connections at 50
/// MB/s.
pub(super) fn patience(plan: SearchPlan) -> Duration {
    Duration::from_secs(30 + plan.size / 5000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_add_up_and_missing_counters_stay_missing() {
        let one = Account {
            turn: 1,
            messages: 10,
            user_ns: 5,
            instructions: Some(7),
            ..Account::default()
        };
        let mut sum = Account::default();
        sum.add(one);
        sum.add(Account { turn: 2, ..one });
        assert_eq!((sum.messages, sum.user_ns, sum.instructions), (20, 10, Some(14)));
        sum.add(Account { turn: 3, instructions: None, ..one });
        assert_eq!((sum.messages, sum.instructions), (30, None));
    }

    #[test]
    fn receive_buffers_hold_what_is_skipped() {
        let large = SearchPlan::search(1 << 20, 16);
        assert!(SearchPlan::search(10, 2).receive_buffer() >= 512 << 10);
        assert!(large.receive_buffer() >= 17 << 20);
        assert_eq!(large.describe(), "1 MiB, N = 16");
        let tagged = SearchPlan { tags: Some(20), ..large };
        assert!(tagged.receive_buffer() >= 20 << 20);
        assert_eq!(tagged.describe(), "1 MiB, 16 of 20 tags unexpected");
    }
}
