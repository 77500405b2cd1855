//! Transport of the bytes: the queue pair in shared memory, kernel TCP, and the system calls under
//! both.
//!
//! ```text
//!   ring      the queue pair with its doorbells: notifying the peer, and waiting
//!     queue     the queue pair: descriptors, segments, arming     (no system call)
//!   seek      receiving out of the middle of a stream
//!   spin      spinning, for a bounded time, when a processor is idle
//!   lock      one lock per direction, in shared memory, robust against death
//!   layout    the offsets in shared memory
//!   mem       the mappings: the only place that dereferences shared memory
//!   sys       every system call; raw, never through libc's socket functions
//! ```
//!
//! This crate does not know who the peer is or how it was found, and trusts nothing that the peer
//! writes. Only `mem` and `sys` contain `unsafe`.
#![deny(unsafe_code)]

pub mod buffer;
pub mod iov;
pub mod layout;
pub mod lock;
#[allow(unsafe_code)]
pub mod mem;
pub mod queue;
#[cfg(not(loom))]
pub mod ring;
#[cfg(not(loom))]
pub mod seek;
#[cfg(not(loom))]
pub mod spin;
mod sync;
#[allow(unsafe_code)]
pub mod sys;

pub use rustix::io::Errno;
