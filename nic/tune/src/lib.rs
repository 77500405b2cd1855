//! Finds the best settings of a network interface for messages. It measures against a peer on
//! another host that runs a server of `seekwire-gauge`.
//!
//! ```text
//! search       applies settings, measures them, and reports the result
//!   candidate  the settings to try: the original ones, the profiles, neighbours of the best
//!   race       which candidate is next, which one is out, when the race is decided
//!   alpha_spending  when candidates are compared, and the probability of error of each comparison
//!   interval   the ratio of two candidates and its confidence interval
//!   goal       the measurements, and when a result is better
//! persistent   how to make settings last
//!   link_file    the file of systemd that configures the interface
//! ```
//!
//! It optimizes only the settings of this end, for one peer, at the load that the host has during
//! the measurements.

#![forbid(unsafe_code)]

mod alpha_spending;
mod candidate;
mod error;
mod goal;
mod interval;
mod link_file;
mod persistent;
mod race;
mod search;
#[cfg(test)]
mod simulation;

pub use error::Error;
pub use goal::{Figures, Goal};
pub use interval::Interval;
pub use link_file::LinkFile;
pub use persistent::Lasting;
pub use search::{
    CandidateReport, CandidateResult, Progress, SearchOptions, SearchResult, candidates, search,
};
