//! The counters that the library writes when a program ends (SEEKWIRE_STATS).

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The counters of one process, or the sum of several. A process that was killed has written none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) connections: Connections,
    pub(crate) bytes: Bytes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) tracked: u64,
    pub(crate) attached: u64,
    pub(crate) fell_back: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bytes {
    pub(crate) tx_tcp: u64,
    pub(crate) tx_ring: u64,
    pub(crate) rx_tcp: u64,
    pub(crate) rx_ring: u64,
}

impl Counters {
    /// The sum of the files in `directory`. A file that a killed process has not finished writing
    /// counts as none.
    pub(crate) fn sum(directory: &Path) -> std::io::Result<Self> {
        let mut sum = Self::default();
        for entry in fs::read_dir(directory)? {
            let text = fs::read_to_string(entry?.path())?;
            if let Ok(one) = serde_json::from_str::<Self>(&text) {
                sum.add(&one);
            }
        }
        Ok(sum)
    }

    /// Bytes that went through the ring, as counted by the receivers or by the senders: one of the
    /// ends may have been killed.
    pub(crate) fn ring(&self) -> u64 {
        self.bytes.tx_ring.max(self.bytes.rx_ring)
    }

    fn add(&mut self, other: &Self) {
        self.connections.tracked += other.connections.tracked;
        self.connections.attached += other.connections.attached;
        self.connections.fell_back += other.connections.fell_back;
        self.bytes.tx_tcp += other.bytes.tx_tcp;
        self.bytes.tx_ring += other.bytes.tx_ring;
        self.bytes.rx_tcp += other.bytes.rx_tcp;
        self.bytes.rx_ring += other.bytes.rx_ring;
    }
}
