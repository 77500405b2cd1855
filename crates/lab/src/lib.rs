#![forbid(unsafe_code)]
//! Experiments.
