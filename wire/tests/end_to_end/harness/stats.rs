//! The counters that the library writes when a program ends (SEEKWIRE_STATS).

use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use serde::Deserialize;

/// The counters of one process, or the sum of several.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Stats {
    pub(crate) connections: Connections,
    pub(crate) bytes: Bytes,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Connections {
    pub(crate) tracked: u64,
    pub(crate) attached: u64,
    pub(crate) fell_back: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Bytes {
    pub(crate) tx_tcp: u64,
    pub(crate) tx_ring: u64,
    pub(crate) rx_tcp: u64,
    pub(crate) rx_ring: u64,
}

impl Stats {
    /// The sum of the files in `directory`.
    pub(crate) fn sum(directory: &Path) -> Self {
        let mut sum = Self::default();
        for entry in fs::read_dir(directory).expect("the directory of counters") {
            let path = entry.expect("a file of counters").path();
            let text = fs::read_to_string(&path).expect("a file of counters");
            let one: Self = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}: {text:?}", path.display()));
            sum += &one;
        }
        sum
    }

    pub(crate) fn ring(&self) -> u64 {
        self.bytes.tx_ring + self.bytes.rx_ring
    }

    pub(crate) fn tcp(&self) -> u64 {
        self.bytes.tx_tcp + self.bytes.rx_tcp
    }
}

impl AddAssign<&Self> for Stats {
    fn add_assign(&mut self, other: &Self) {
        self.connections.tracked += other.connections.tracked;
        self.connections.attached += other.connections.attached;
        self.connections.fell_back += other.connections.fell_back;
        self.bytes.tx_tcp += other.bytes.tx_tcp;
        self.bytes.tx_ring += other.bytes.tx_ring;
        self.bytes.rx_tcp += other.bytes.rx_tcp;
        self.bytes.rx_ring += other.bytes.rx_ring;
    }
}
