//! Finds the best settings of a network interface for messages. It measures against a peer on
//! another host that runs a server of `seekwire-gauge`.
//!
//! ```text
//! search       sets, measures, and says what came of it
//!   candidate  what is tried: as found, the profiles, neighbours of the best
//!   race       who is measured next, who is out, when it is decided
//!   looks      when it is looked at who is better, and what chance of error that may spend
//!   interval   how much better one is than another, and how sure that is
//!   goal       what is measured, and when it is better
//! lasting      what makes settings last
//!   link_file    the file of systemd that names the interface
//! ```
//!
//! It decides about the settings of this end only, for one peer, at the load that the host has
//! while it measures.

#![forbid(unsafe_code)]

mod candidate;
mod error;
mod goal;
mod interval;
mod lasting;
mod link_file;
mod looks;
mod race;
mod search;
#[cfg(test)]
mod simulation;

pub use error::Error;
pub use goal::{Figures, Goal};
pub use interval::Interval;
pub use lasting::Lasting;
pub use link_file::LinkFile;
pub use search::{End, Options, Outcome, Progress, Tried, candidates, search};
