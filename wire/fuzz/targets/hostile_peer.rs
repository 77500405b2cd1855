//! A peer that writes anything anywhere in its memory: no panic, no access outside it, no endless
//! loop.
#![no_main]

#[path = "../../transport/tests/common/mod.rs"]
mod common;

use arbitrary::{Arbitrary, Unstructured};
use common::hostile::{Operation, play};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let geometries = common::geometries();
    // As many operations as there are bytes for; decoding a `Vec` would stop at half of its
    // elements.
    let mut rest = Unstructured::new(rest);
    let more =
        std::iter::from_fn(|| (!rest.is_empty()).then(|| Operation::arbitrary(&mut rest).ok())?);
    let operations: Vec<Operation> = more.take(500).collect();
    let which = usize::from(*which);
    let by_link = which / geometries.len() % 2 == 1;
    play(geometries[which % geometries.len()], by_link, &operations);
});
