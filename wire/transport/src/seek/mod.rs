//! Receiving out of the middle of a stream (Douglas and Pai, "Seekable sockets"; Melnyk, "Direct
//! message search").
//!
//! ```text
//!      SeekTcp                a socket that knows nothing of a ring
//!         |
//!       Engine                holes, what to look at in place and what to move to library memory
//!      /        \
//!   kernel     ring           a source: in order, with a look ahead
//! ```
//!
//! | method | how bytes in the middle are taken | what becomes of their memory |
//! |-----|-----------------------------------|------------------------------|
//! | ring | copied out of their segments, or lent | the segments go back to the sender at once |
//! | module | the kernel does it (kernel/, the module `tcp_seek`) | of the kernel's, at once |
//! | peek | SO_PEEK_OFF and MSG_PEEK (Linux 6.9) | freed when the head reaches them, or before a wait |
//! | drain | received into library memory first | of the kernel's, at once |
//!
//! All but the ring are methods of the kernel's socket. Bytes that the kernel cannot hold go to
//! library memory with each of them.
//!
//! Offsets count from the first byte that was neither received nor taken, holes included.
//! `tests/seek.rs` holds every method to the same rules.

pub mod cost;
mod drained;
mod engine;
mod kernel;
mod lock;
mod request;
mod ring;
mod sleepers;
mod source;
mod tcp;
mod waits;

pub use engine::{Attempt, Engine, Reach};
pub use kernel::{KernelCursor, KernelSource, SeekMethod};
pub use lock::{SeekGuard, SeekLock};
pub use request::{At, Extent, SeekOptions, until_there};
pub use ring::{RingSource, SegmentLoan, SegmentLoans};
pub use sleepers::{Leader, Sleep, Sleepers};
pub use source::{LookAhead, Source, Take};
pub use tcp::SeekTcp;
pub use waits::{KernelSleep, KernelWaits, Woken};
