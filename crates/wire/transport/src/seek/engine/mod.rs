//! The engine: what was taken out of a stream (the holes), what waits in library memory, and by
//! which way bytes are taken. It is the same for every source of bytes.
//!
//! ```text
//!   position   head                front                     arrived
//!              |... library memory ...|....... source .........|
//! ```
//!
//! What lies before the front was received from the source: into the caller's memory, into library
//! memory, or it was taken and thrown away. What lies behind it is looked at where it is.

mod copy;
mod drain;
mod in_order;
mod out_of_order;
mod reach;
mod state;

pub use reach::Reach;
pub use state::{Attempt, Engine};
