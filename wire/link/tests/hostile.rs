//! The other machine writes anything anywhere in the region: nothing panics, no place is outside
//! its half, and only room is lost.

use crate::common::hostile::{Store, WORDS, play, store};
use crate::common::{Bed, MIB, PAGE, tuple};
use proptest::prelude::*;
use seekwire_link::Side;
use seekwire_protocol::Role;

/// Numbers that are valid, or almost.
fn values() -> impl Strategy<Value = u64> {
    let page = (0..=(MIB / 4096)).prop_map(|page| page * 4096);
    prop_oneof![
        any::<u64>(),
        0..6u64,
        page.clone(),
        page.prop_map(|at| at + 8),
        Just(u64::MAX),
        Just(!4095),
        any::<u32>().prop_map(|reason| u64::from(reason) << 32 | 4),
    ]
}

/// Prefers words of the header and the first entries.
fn stores() -> impl Strategy<Value = Vec<Store>> {
    // The words of the agents begin with word 32.
    let word = prop_oneof![0..WORDS, 0..8usize, 32..80usize, PAGE / 8..PAGE / 8 + 128];
    let store = (any::<bool>(), word, values());
    let store =
        store.prop_map(|(is_second, word, value)| Store { is_second, word: word as u16, value });
    proptest::collection::vec(store, 0..80)
}

proptest! {
    #[test]
    fn whatever_the_other_machine_writes_costs_room_alone(
        before in stores(),
        meanwhile in stores(),
        after in stores(),
    ) {
        let bed = Bed::new(MIB);
        play(&bed, &[before, meanwhile, after]);

        // Lost room comes back when both machines attach again: no entry names its places any more.
        let [one, _two] = bed.both();
        let end = one.enter(&tuple(1), Role::Connected, 0).unwrap();
        prop_assert!(end.place(one.layout().places(Side::First).len()).is_some());
    }

    #[test]
    fn what_only_the_other_half_says_leaves_the_directory_of_this_one(stores in stores()) {
        let bed = Bed::new(MIB);
        let [one, _two] = bed.both();
        let stores: Vec<Store> =
            stores.into_iter().map(|found| Store { is_second: true, ..found }).collect();
        store(&one, &stores);
        let entries = one.layout().entries();
        let ends: Vec<_> = (0..entries as u16)
            .map_while(|port| one.enter(&tuple(port), Role::Connected, 0).ok())
            .collect();
        // A machine may claim to be detached; it can do no more than that.
        let says_so = one.peer().is_some_and(|peer| peer.is_detached);
        prop_assert_eq!(ends.len(), if says_so { 0 } else { entries });
    }
}
