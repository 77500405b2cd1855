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
//! record's header last. Receiving: [`Rx`] reads the one header at its position; for a small
//! message, no other cache line has to move. Consumed descriptors go back by position, and segments
//! by number, in any order.
//!
//! Sleeping: a waiter arms (a new number in its arm word), fences, looks again, and sleeps on its
//! doorbell; the other end, having published, fences, and rings only for an arm number for which it
//! has not rung (SYNC POINT "data" and "space"). Neither end writes into the other's memory.
//!
//! Trust: every word of the peer is loaded once and range-checked; a caller answers a [`Violation`]
//! with a reset.

mod arming;
mod control;
mod hold;
mod holders;
mod inspect;
mod integrity;
mod kept_copy;
mod low_water;
mod pair;
mod recall;
mod recount;
mod request;
mod room;
mod rx;
#[cfg(not(loom))]
mod seek;
mod tx;

pub use holders::{add_holder, enter_process, is_other_process, process_word, remove_process};
pub use pair::{QueueMemory, QueuePair, Start, Violation, format, peer_geometry, shown_geometry};
pub use recall::RecallOutcome;
pub use rx::{HeadBytes, Rx};
#[cfg(not(loom))]
pub use seek::SegmentPart;
pub use tx::{PublishError, Tx};
