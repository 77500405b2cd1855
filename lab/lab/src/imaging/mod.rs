//! The image pipeline of V. Melnyk et al., "Sockets and heterogeneous clusters" (2024), and of P.
//! Balaji et al., "Impact of high performance sockets on data intensive applications" (HPDC 2003),
//! over `seekwire-flow`: repository x3 -> clip x3 -> subsample x3 -> viewer.
//!
//! ```text
//! rank 0                      ranks 1 to 3, hosts            rank 0
//! repository x3  --- dealt ---> clip x1 each --> subsample x1 each --> viewer
//! ```
//!
//! The copies of the repository are in one process, the one of the viewer: one dealer knows all
//! that is dealt. Each host is a process of its own, and runs a copy of clip and one of subsample.
//! They pass on all bytes that they receive.
//!
//! ```text
//! cost      the cost of a block at a copy, and a lower bound for all
//! cluster   the processes, on this host or in two network namespaces
//! ```

pub(crate) mod cluster;
pub(crate) mod cost;

use std::net::SocketAddr;

use seekwire_flow::{Cut, DealingPolicy, SizeBounds};
use serde::{Deserialize, Serialize};

use crate::text;
use cost::Compute;
pub(crate) use cost::{COPIES, ClipWork, SLOW_HOST};

/// Bytes of a complete update.
pub(crate) const IMAGE: u64 = 16 << 20;

/// Bytes that a repository reads at once, and bytes of a partial update.
pub(crate) const TILE: u64 = 16 << 10;

/// Bytes of the smallest block that a stream may choose.
const SMALLEST: usize = 512;

/// Size of the blocks that repositories send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BlockSize {
    /// This many bytes.
    Fixed(u64),
    /// The size that the stream finds.
    Auto,
}

impl BlockSize {
    pub(crate) const LARGE: Self = Self::Fixed(TILE);
    pub(crate) const SMALL: Self = Self::Fixed(2 << 10);

    pub(crate) fn cut(self) -> Cut {
        match self {
            Self::Fixed(bytes) => Cut::Bytes(bytes as usize),
            Self::Auto => Cut::Auto(SizeBounds { least: SMALLEST, most: TILE as usize, record: 1 }),
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Fixed(bytes) => text::size(bytes),
            Self::Auto => "auto".to_owned(),
        }
    }
}

/// The policies that are compared, in this order.
pub(crate) const POLICIES: [DealingPolicy; 3] =
    [DealingPolicy::RoundRobin, DealingPolicy::Demand, DealingPolicy::Adaptive];

/// Parameters that each process receives before they connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) rank: u32,
    /// Addresses of all, by rank.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) secret: [u8; 32],
    pub(crate) block: BlockSize,
    /// How blocks are dealt to clip.
    pub(crate) dealing: DealingPolicy,
    /// How blocks are dealt to subsample.
    pub(crate) behind: DealingPolicy,
}

/// The argument of a unit of work: an update.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Update {
    /// Its number in the run.
    pub(crate) number: u64,
    /// Where it begins in the image.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) compute: Compute,
}

/// Order to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) turn: u64,
    pub(crate) what: ClusterTask,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ClusterTask {
    /// This many complete updates, which are requested at once.
    Updates { count: u64, compute: Compute },
    /// Complete and partial updates at fixed times, whether preceding ones are done or not.
    Load(Load),
}

/// An open-loop load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Complete updates a second.
    pub(crate) complete: f64,
    /// Partial updates a second.
    pub(crate) partial: f64,
    pub(crate) seconds: f64,
    pub(crate) compute: Compute,
}

/// Answer of the coordinator to an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) turn: u64,
    pub(crate) outcome: Result<UpdateReport, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct UpdateReport {
    /// Time from when each update was due until the last copy finished it, in ns: complete updates,
    /// and partial ones.
    pub(crate) complete_ns: Vec<u64>,
    pub(crate) partial_ns: Vec<u64>,
    /// Time from when the first complete update was due until the last one was done.
    pub(crate) span_ns: u64,
    /// Work of the copies of clip on complete updates, by rank from 1.
    pub(crate) work: Vec<ClipWork>,
    /// Each time that the slow host became slow.
    pub(crate) onsets: Vec<Onset>,
    /// Pieces of shared memory of the coordinator's connections.
    pub(crate) rings: u64,
    /// A difference from the image, which must never occur.
    pub(crate) damage: Option<String>,
}

/// Times from when the slow host began its first slow block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Onset {
    /// Until that block was done.
    pub(crate) done_ns: u64,
    /// Until the coordinator had received the news.
    pub(crate) heard_ns: u64,
}
