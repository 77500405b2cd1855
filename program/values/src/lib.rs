//! Values that people write on command lines, in variables and in files: all programs, and the
//! library that programs load, read each kind of value here.
//!
//! ```text
//! time     durations: 500ms, 2.5s, 10min
//! size     numbers of bytes: 65536, 64K, 64KiB
//! address  where to listen or to connect: a host, a port or both
//! log      the destination of a log, and its level
//! number   numbers with units
//! ```
//!
//! Only this crate makes a [`Time`], a [`Size`], an [`Address`] and a [`Log`] from a text, so an
//! option that has such a type is read in the same way everywhere.

#![forbid(unsafe_code)]

mod address;
mod log;
mod number;
mod size;
mod time;

pub use address::Address;
pub use log::{Log, LogError, LogTarget};
pub use size::{Size, SizeUnit};
pub use time::{Time, TimeUnit};
