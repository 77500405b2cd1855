//! What workers may make the server spend, one of them and all together. Who knows the secret may
//! still mean harm, or have another idea of what a server can bear.
//!
//! ```text
//! workers   MOST, each with five threads here, and with what it says: a block that comes, others
//!           that wait, and a message of flow, of 50 MiB at most; one that is sent away counts until
//!           its connection is no more; and one at a time that is told that there are so many
//! threads   four here for each thread of a worker that is given work (--worker-threads), and as
//!           many while the pipelines before are done with what they have
//! memory    blocks on their way to workers; a quarter of it to one
//! ```

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Workers at a time.
pub(crate) const MOST: usize = 256;

/// How many there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    /// At a time.
    pub(crate) workers: usize,
    /// Of all together, those that are given work.
    pub(crate) threads: usize,
}

/// Bytes of blocks that are on their way to workers, or wait to be.
const WAY: usize = 256 << 20;

/// Shares threads out among workers that have so many each: as evenly as can be, those first that
/// have come first, and to none more than it has.
pub(crate) fn shared_out(most: usize, offered: &[usize]) -> Vec<usize> {
    let mut given = vec![0; offered.len()];
    let mut left = most;
    while left > 0 {
        let open = given.iter().zip(offered).filter(|(given, offered)| given < offered).count();
        if open == 0 {
            break;
        }
        let each = (left / open).max(1);
        for (given, offered) in given.iter_mut().zip(offered) {
            let more = each.min(offered - *given).min(left);
            *given += more;
            left -= more;
        }
    }
    given
}

/// Memory for blocks on the way to one worker, of that for all.
#[derive(Debug)]
pub(crate) struct Way {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// The memory for all workers.
pub(crate) fn memory() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(WAY))
}

impl Way {
    /// To another worker.
    pub(crate) fn of(all: &Arc<Semaphore>) -> Self {
        Self { own: Arc::new(Semaphore::new(WAY / 4)), all: Arc::clone(all) }
    }

    /// Whether a block of so many bytes can go to the worker now; if so, its memory counts until it
    /// is free.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        let bytes = u32::try_from(bytes).ok()?;
        let own = Arc::clone(&self.own).try_acquire_many_owned(bytes).ok()?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(bytes).ok()?;
        Some(Taken { _permits: [own, all] })
    }
}

/// Memory that counts.
#[derive(Debug)]
pub(crate) struct Taken {
    _permits: [OwnedSemaphorePermit; 2],
}

impl Taken {
    /// For this block, wherever it is kept.
    pub(crate) fn for_block(self, block: Vec<u8>) -> Bytes {
        Bytes::from_owner(Counted { block, _taken: self })
    }
}

struct Counted {
    block: Vec<u8>,
    _taken: Taken,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_shared_out_evenly_and_no_more_than_there_are() {
        for (most, offered, expected) in [
            (8, &[][..], &[][..]),
            (8, &[2, 3], &[2, 3]),
            (8, &[1024], &[8]),
            (8, &[1024, 1024], &[4, 4]),
            // Who has little is given all of it, and others what is left.
            (8, &[1024, 1, 1024], &[4, 1, 3]),
            (9, &[1, 1024, 2, 1024], &[1, 3, 2, 3]),
            // The first ones have one each.
            (2, &[5, 5, 5], &[1, 1, 0]),
            (0, &[5], &[0]),
        ] {
            assert_eq!(shared_out(most, offered), expected, "{most} {offered:?}");
        }
        let hostile = [1024; MOST];
        assert_eq!(shared_out(256, &hostile), [256 / MOST; MOST]);
    }

    #[test]
    fn one_worker_leaves_memory_to_others_and_gives_it_back_with_the_block() {
        let all = memory();
        let (one, other) = (Way::of(&all), Way::of(&all));
        let block = one.take(WAY / 4).unwrap().for_block(vec![7; 3]);
        assert!(one.take(1).is_none());
        let more = other.take(1).unwrap();
        // A part of it keeps the whole.
        let part = block.slice(1..2);
        drop((block, more));
        assert!(one.take(1).is_none());
        assert_eq!(part, [7].as_slice());
        drop(part);
        assert!(one.take(1).is_some());
        let ways: Vec<Way> = (0..5).map(|_| Way::of(&all)).collect();
        let taken: Vec<_> = ways.iter().map(|way| way.take(WAY / 4)).collect();
        assert!(taken[..4].iter().all(Option::is_some) && taken[4].is_none());
    }
}
