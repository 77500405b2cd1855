//! The program `seekwire-flow` as its users see it, and programs that speak the filter protocol.

#[path = "../../launch/tests/cluster/mod.rs"]
mod cluster;
mod harness;

mod clusters;
mod command;
mod directories;
mod expressions;
mod framed;
mod guarantees;
mod images;
mod monitor;
mod planning;
mod processes;
mod rejects;
mod stdio;
