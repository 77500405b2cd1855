#![forbid(unsafe_code)]
//! TCP streams that move through shared memory when both ends are on one host.
