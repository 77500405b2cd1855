#![forbid(unsafe_code)]
//! Experiments.
mod csv;
pub mod launch;
pub mod library;
pub mod machine;
pub mod progress;
pub mod record;
pub mod schedule;
pub mod stats;
