//! A machine that writes anything anywhere into the memory that it shares with another one: the
//! other one does not panic, and no place is outside its half, or belongs to two connections.
#![no_main]

#[path = "../../link/tests/common/mod.rs"]
mod common;

use std::sync::OnceLock;

use arbitrary::{Arbitrary, Unstructured};
use common::hostile::{Store, play};
use common::{Bed, MIB};
use libfuzzer_sys::fuzz_target;

/// Both machines attach again for each input.
static BED: OnceLock<Bed> = OnceLock::new();

const ROUNDS: usize = 3;

fuzz_target!(|bytes: &[u8]| {
    // As many stores as there are bytes for; decoding a `Vec` would stop at half of its elements.
    let mut rest = Unstructured::new(bytes);
    let more =
        std::iter::from_fn(|| (!rest.is_empty()).then(|| Store::arbitrary(&mut rest).ok())?);
    let stores: Vec<Store> = more.take(300).collect();
    let each = stores.len().div_ceil(ROUNDS).max(1);
    let rounds: Vec<_> = stores.chunks(each).map(<[Store]>::to_vec).collect();
    play(BED.get_or_init(|| Bed::new(MIB)), &rounds);
});
