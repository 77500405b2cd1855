//! The carriers of a connection: their promises, and peers and processes that break them.
#![cfg(not(any(loom, miri)))]

mod common;

mod conformance;
mod deaths;
mod hold;
mod hostile;
mod intact;
mod proof;
mod seek;
mod seek_limits;
mod switching;
