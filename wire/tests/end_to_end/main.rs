#![forbid(unsafe_code)]
//! Real programs, end to end.
//!
//! Most scenarios run in three modes: plain, to know that the scenario itself is right;
//! accelerated; and taken back, where every connection returns to TCP after some bytes on the ring,
//! so that the change happens in the middle of everything. Whether the ring was really used is read
//! from the counters that the library writes when a program ends.
//!
//! The programs that Debian does not have are in wire/tests/programs. `make test` installs, builds
//! and runs everything.

mod agents;
mod bench;
mod browser;
mod command;
mod connections;
#[path = "../../../program/shared/current.rs"]
mod current;
mod damage;
#[path = "../../../program/shared/documents.rs"]
#[expect(dead_code, reason = "only the unit tests of the programs look at commands")]
mod documents;
mod filters;
mod flow_peers;
mod grpc;
mod handover;
mod harness;
mod idle;
mod installation;
mod links;
mod links_damaged;
mod messaging;
mod netcat;
mod node;
mod own_waits;
mod performance_tools;
mod pipelines;
mod python;
mod python_suite;
mod redis;
mod report;
mod sanitizers;
mod seeking;
mod semantics;
mod servers;
mod settings;
mod stress;
mod summary;
mod units;
mod uvloop;
mod virtual_machines;
mod web;
mod whole_machine;
