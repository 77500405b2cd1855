//! Two machines in one, which share a region in a file.

mod common;
#[path = "../../transport/tests/common/mod.rs"]
mod transport;

mod agents;
mod detach;
mod hostile;
mod rendezvous;
mod rings;
mod room;
