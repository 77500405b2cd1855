//! A peer that writes anything anywhere in its memory: no panic, no access outside, no endless loop.
#![no_main]

#[path = "../../crates/transport/tests/common/mod.rs"]
mod common;

use common::hostile::{Operation, play};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<Operation>)| {
    let geometries = common::geometries();
    play(geometries[usize::from(input.0) % geometries.len()], &input.1);
});
