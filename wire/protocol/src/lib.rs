#![forbid(unsafe_code)]
//! The protocol between the two ends of a connection, as pure state machines and formats.
//!
//! ```text
//!   names      Carrier, Role, Reason: the words every layer, log line and table uses
//!   tuple      the 4-tuple of a connection and its mirror image
//!   offer      the datagrams by which two processes agree on shared memory
//!   record     the header word of one record in a descriptor ring
//!   switch     per direction: which carrier moves the bytes, and from which byte on
//!   readiness  what is ready at an end, and news to a waiter
//!   span       positions in a stream of bytes
//!   holes      which bytes were taken out of the middle of a stream
//!   message    messages in a stream, and which receive each of them belongs to
//! ```
//!
//! Nothing here does I/O, reads a clock, or touches shared memory; tests can therefore try every
//! order of events.

pub mod holes;
pub mod message;
mod names;
pub mod offer;
pub mod readiness;
pub mod record;
pub mod span;
pub mod switch;
mod tuple;

pub use names::{Carrier, Reason, Role};
pub use tuple::{Endpoint, FourTuple};
