//! The engine: the bytes that were taken out of a stream (the holes), those that wait in library
//! memory, and the method by which bytes are taken. It is the same for every source of bytes.
//!
//! ```text
//!   position   head                front                     arrived
//!              |... library memory ...|....... source .........|
//! ```
//!
//! Bytes before the front were received from the source: into the caller's memory or library
//! memory, or they were taken and discarded. Bytes after it are looked at in place.

mod copy;
mod drain;
mod in_order;
mod out_of_order;
mod reach;
mod state;

pub use reach::Reach;
pub use state::{Attempt, Engine};
