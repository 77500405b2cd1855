//! The queue pair: two rings of descriptors in shared memory, one per direction, after the virtual
//! interface architecture.
//!
//! ```text
//!   this end's memory (we write)                 the peer's memory (we read)
//!   +----------------------------+               +----------------------------+
//!   | descriptors, segments      | --- data ---> |                            |
//!   | consumed, returned         |               | descriptors, segments      |
//!   |                            | <-- data ---  | consumed, returned         |
//!   +----------------------------+               +----------------------------+
//! ```
//!
//! Sending: [`Tx`] writes a record (small payload inline, larger in a segment: the most recently
//! freed one, so that many quiet connections share the caches; the longest free one within a long
//! run of sends), clears the header of the descriptor after it, and publishes by writing the
//! record's header last. Receiving: [`Rx`] looks at the one header at its position; nothing else
//! has to change hands for a small message. What was consumed goes back by position (descriptors)
//! and by number (segments, in any order).
//!
//! Sleeping: a waiter arms (a new number in its arm word), fences, looks again, and sleeps on its
//! doorbell; the other end, having published, fences, and rings only for an arm number that it has
//! not rung for (SYNC POINT "data" and "space"). Nobody writes into the other's memory.
//!
//! Trust: every word of the peer's is loaded once and range-checked; [`Violation`] is what a caller
//! answers with a reset.

mod arming;
mod control;
mod enough;
mod hold;
mod holders;
mod intact;
mod kept;
mod looks;
mod pair;
mod recall;
mod recount;
mod room;
mod rx;
#[cfg(not(loom))]
mod seek;
mod tx;
mod wish;

pub use holders::{add_holder, enter_process};
pub use pair::{Memory, QueuePair, Start, Violation, format, peer_geometry, shown_geometry};
pub use recall::Answer;
pub use rx::{HeadBytes, Rx};
#[cfg(not(loom))]
pub use seek::Part;
pub use tx::{Full, Tx};
