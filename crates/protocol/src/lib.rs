#![forbid(unsafe_code)]
//! Pure state machines and wire formats.
