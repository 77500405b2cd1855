#![forbid(unsafe_code)]
//! The seekwire command.
fn main() {}
