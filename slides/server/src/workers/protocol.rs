//! The protocol between the server and one worker: a pipeline of two processes.
//!
//! ```text
//! server (rank 0)                          worker (rank 1)
//! jobs ── task, number, bytes ───────────> take ──> farm of the worker
//! answers <── result, number, bytes ────── give <──┘
//! ```
//!
//! The pipeline is the same however many threads the worker has, so each worker can have a job of
//! its own: losing one does not affect the others, and workers can come at any time.

use std::time::Duration;

use bytes::Bytes;
use seekwire_flow::{Factory, Graph, GraphError, Ports, StreamOptions};

/// Both ends must have the same version: the contents of blocks are not a stable format.
pub(crate) const SEED: &[u8] = concat!("seekwire slides ", env!("CARGO_PKG_VERSION")).as_bytes();

/// How long either end may be silent before the link is closed. A silent worker is given no more
/// work well before that.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// Interval of a worker's heartbeats.
pub(crate) const BEAT: Duration = Duration::from_millis(200);

/// Maximum bytes in each of the two streams: the largest block, and small ones beside it.
const LIMIT: usize = MOST + (1 << 20);

/// Bytes of the largest block sent to a worker or back.
pub(crate) const MOST: usize = 16 << 20;

/// Maximum threads of a worker.
pub(crate) const MOST_THREADS: u32 = 1024;

/// The kinds of work for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Converts a stored tile to pixels.
    Decompress,
    /// Converts pixels of a region to an encoded image.
    Finish,
}

/// The message of a block, which follows its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// To the worker: a job.
    Job(Task, u64),
    /// To the worker: the maximum number of workers has been reached. Nothing else follows.
    Full(u32),
    /// From the worker: the result of a job, or its failure if `false`.
    Answer(bool, u64),
    /// The worker's first message: its number of threads; the bytes are the name of its host.
    Hello(u32),
    /// A heartbeat.
    Beat,
}

/// Bytes appended to each block: the kind of message, and a number.
pub(crate) const SUFFIX: usize = 1 + 8;

impl Word {
    /// Appends the message to bytes, without a copy if they have room for [`SUFFIX`] more.
    pub(crate) fn behind(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let (kind, number) = match *self {
            Self::Job(Task::Decompress, number) => (0, number),
            Self::Job(Task::Finish, number) => (1, number),
            Self::Answer(false, number) => (2, number),
            Self::Answer(true, number) => (3, number),
            Self::Hello(threads) => (4, threads.into()),
            Self::Beat => (5, 0),
            Self::Full(workers) => (6, workers.into()),
        };
        bytes.push(kind);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes
    }

    /// Splits a block into message and bytes; `None` if it is invalid.
    pub(crate) fn of(mut block: Bytes) -> Option<(Self, Bytes)> {
        let at = block.len().checked_sub(SUFFIX)?;
        let number = u64::from_le_bytes(block[at + 1..].try_into().ok()?);
        let word = match block[at] {
            0 => Self::Job(Task::Decompress, number),
            1 => Self::Job(Task::Finish, number),
            2 => Self::Answer(false, number),
            3 => Self::Answer(true, number),
            4 => Self::Hello(number.try_into().ok()?),
            5 if number == 0 && at == 0 => Self::Beat,
            6 if at == 0 => Self::Full(number.try_into().ok()?),
            _ => return None,
        };
        block.truncate(at);
        Some((word, block))
    }
}

/// The pipeline of `jobs`, `take`, `give` and `answers`; the filters of the other end do not run
/// here.
pub(crate) fn graph([jobs, take, give, answers]: [Factory; 4]) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    graph.filter_by("jobs", 1, Ports::source(), jobs)?;
    graph.filter_by("take", 1, Ports::sink(), take)?;
    graph.filter_by("give", 1, Ports::source(), give)?;
    graph.filter_by("answers", 1, Ports::sink(), answers)?;
    graph.place("take", &[1])?;
    graph.place("give", &[1])?;
    let options = StreamOptions { limit: LIMIT, ..StreamOptions::default() };
    graph.connect("jobs", "take", options.clone())?;
    graph.connect("give", "answers", options)?;
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_other_blocks_say_nothing() {
        for word in [
            Word::Job(Task::Decompress, 7),
            Word::Job(Task::Finish, u64::MAX),
            Word::Answer(true, 1),
            Word::Answer(false, 0),
            Word::Hello(16),
        ] {
            let block = Bytes::from(word.behind(vec![1, 2]));
            assert_eq!(block.len(), 2 + SUFFIX);
            assert_eq!(Word::of(block), Some((word, Bytes::from_static(&[1, 2]))));
        }
        for word in [Word::Beat, Word::Full(256)] {
            let block = Bytes::from(word.behind(vec![]));
            assert_eq!(Word::of(block), Some((word, Bytes::new())));
        }
        let strange: [&[u8]; 6] = [
            &[],
            &[3; 8],
            &[7, 0, 0, 0, 0, 0, 0, 0, 0],
            &[4; 9],
            &[6; 9],
            &[1, 6, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        for strange in strange {
            assert_eq!(Word::of(Bytes::copy_from_slice(strange)), None, "{strange:?}");
        }
    }
}
