//! Limits on the resources that workers cost the server, one of them and all together. A worker
//! that knows the secret may still be malicious, or misjudge what the server can bear.
//!
//! ```text
//! workers   MOST, each with five threads here, and the memory of its messages: a block being
//!           received, others that wait, and a message of flow, of at most 50 MiB; one that is
//!           turned away counts until its connection is closed; one at a time is turned away
//! threads   four here for each thread of a worker that is given work (--worker-threads), and as
//!           many again until the previous pipelines have completed their jobs
//! memory    blocks on their way to workers; at most a quarter of it for one worker
//! ```

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of workers.
pub(crate) const MOST: usize = 256;

/// Limits on workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    /// Maximum number of workers.
    pub(crate) workers: usize,
    /// Maximum threads of all workers together that are given work.
    pub(crate) threads: usize,
}

/// Maximum bytes of blocks on their way to workers or waiting for it.
const WORKER_MEMORY: usize = 256 << 20;

/// Distributes threads among workers that offer so many each: as evenly as possible, earlier
/// workers first, and to none more than it offers.
pub(crate) fn shared_out(most: usize, offered: &[usize]) -> Vec<usize> {
    let mut assigned = vec![0; offered.len()];
    let mut left = most;
    while left > 0 {
        let open =
            assigned.iter().zip(offered).filter(|(assigned, offered)| assigned < offered).count();
        if open == 0 {
            break;
        }
        let each = (left / open).max(1);
        for (assigned, offered) in assigned.iter_mut().zip(offered) {
            let more = each.min(offered - *assigned).min(left);
            *assigned += more;
            left -= more;
        }
    }
    assigned
}

/// One worker's share of the memory for blocks on their way.
#[derive(Debug)]
pub(crate) struct WorkerMemory {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// The memory for all workers.
pub(crate) fn memory() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(WORKER_MEMORY))
}

impl WorkerMemory {
    /// Creates the share of another worker.
    pub(crate) fn of(all: &Arc<Semaphore>) -> Self {
        Self { own: Arc::new(Semaphore::new(WORKER_MEMORY / 4)), all: Arc::clone(all) }
    }

    /// Takes memory for a block of so many bytes; `None` if there is too little. The memory counts
    /// until it is released.
    pub(crate) fn take(&self, bytes: usize) -> Option<WorkerPermit> {
        let bytes = u32::try_from(bytes).ok()?;
        let own = Arc::clone(&self.own).try_acquire_many_owned(bytes).ok()?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(bytes).ok()?;
        Some(WorkerPermit { _permits: [own, all] })
    }
}

/// Memory in use.
#[derive(Debug)]
pub(crate) struct WorkerPermit {
    _permits: [OwnedSemaphorePermit; 2],
}

impl WorkerPermit {
    /// Ties the memory to this block, for as long as any part of it is kept.
    pub(crate) fn for_block(self, block: Vec<u8>) -> Bytes {
        Bytes::from_owner(Counted { block, _taken: self })
    }
}

struct Counted {
    block: Vec<u8>,
    _taken: WorkerPermit,
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
            // Small offers are accepted in full, and the others share the rest.
            (8, &[1024, 1, 1024], &[4, 1, 3]),
            (9, &[1, 1024, 2, 1024], &[1, 3, 2, 3]),
            // The first ones get one each.
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
        let (one, other) = (WorkerMemory::of(&all), WorkerMemory::of(&all));
        let block = one.take(WORKER_MEMORY / 4).unwrap().for_block(vec![7; 3]);
        assert!(one.take(1).is_none());
        let more = other.take(1).unwrap();
        // A part of the block keeps the whole.
        let part = block.slice(1..2);
        drop((block, more));
        assert!(one.take(1).is_none());
        assert_eq!(part, [7].as_slice());
        drop(part);
        assert!(one.take(1).is_some());
        let memories: Vec<WorkerMemory> = (0..5).map(|_| WorkerMemory::of(&all)).collect();
        let permits: Vec<_> =
            memories.iter().map(|memory| memory.take(WORKER_MEMORY / 4)).collect();
        assert!(permits[..4].iter().all(Option::is_some) && permits[4].is_none());
    }
}
