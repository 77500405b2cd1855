//! The other machine writes anything anywhere in the region: nothing panics, no place is outside
//! its half, and nothing is lost but room.

mod common;

use std::sync::atomic::Ordering;

use common::{Bed, MIB, PAGE, tuple};
use proptest::prelude::*;
use seekwire_link::{
    Answer, Counts, Entry, Half, Link, MOST, Other, PORTS, Published, Side, Word, is_usable,
};
use seekwire_protocol::{Reason, Role};

/// Headers and directories of a region of 1 MiB: two pages at the beginning of each half.
const WORDS: usize = 2 * PAGE / 8;
const HALF: usize = 1 << 19;

/// One store: whose half, which word, and what.
type Store = (bool, usize, u64);

/// Numbers that mean something, or nearly so.
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

/// Words of the header and the first entries more often than others.
fn stores() -> impl Strategy<Value = Vec<Store>> {
    // What agents say begins with word 32.
    let word = prop_oneof![0..WORDS, 0..8usize, 32..80usize, PAGE / 8..PAGE / 8 + 128];
    proptest::collection::vec((any::<bool>(), word, values()), 0..80)
}

fn store(link: &Link, stores: &[Store]) {
    for (is_second, word, value) in stores {
        let half = if *is_second { HALF } else { 0 };
        link.region().word(half + word * 8).store(*value, Ordering::SeqCst);
    }
}

/// Does all that a program does, and checks what must be so.
fn use_all(link: &Link, ends: &mut [Entry], known: &Other) -> Vec<Other> {
    let theirs = link.layout().places(Side::Second);
    let mut others = vec![*known];
    for role in [Role::Connected, Role::Accepted] {
        others.extend(link.find(&tuple(1).mirrored(), role));
    }
    others.push(Other { index: usize::MAX, ..*known });
    for end in ends.iter_mut() {
        for other in &others {
            if let Some((at, length)) = other.place {
                assert!(length > 0 && at >= theirs.start && at + length <= theirs.end);
                assert!(at % PAGE == 0 && length % PAGE == 0);
            }
            let _ = (end.look(other), end.names(other), end.is_signalled());
            end.signal(other);
        }
        end.take_signal();
        end.say(Word::Offered(Counts::default()));
        end.say(Word::Refused(Reason::NoPeer));
    }
    let own = link.layout().places(Side::First);
    for half in [Half::Own, Half::Peer] {
        for listed in link.entries(half) {
            let places = if half == Half::Own { &own } else { &theirs };
            assert!(listed.place.is_none_or(|(at, _)| places.contains(&at)));
        }
    }
    let usage = link.usage();
    assert!(usage.bytes_used <= usage.bytes && usage.entries_used <= usage.entries);
    let _ = (link.peer(), link.is_detached(), link.unread());
    use_agents(link);
    others
}

/// Does all that an agent does with what the other one says.
fn use_agents(link: &Link) {
    let here = "10.0.0.1".parse().unwrap();
    link.publish(&Published::new(967, [here]));
    if let Some(said) = link.published() {
        assert!(said.port == 0 || PORTS.contains(&said.port));
        assert!(said.addresses.len() <= MOST && said.addresses.is_sorted());
        assert!(said.addresses.iter().all(|address| is_usable(*address)));
    }
    link.ask(7);
    assert!(!link.is_asked(0) && !link.is_asked(7), "its own question");
    let _ = link.answered(7);
    link.answer(9, &Answer { secret: 1, here, there: here });
}

/// Places of this side are inside its half and apart from each other.
fn check_places(link: &Link, places: &mut [(usize, usize)]) {
    let own = link.layout().places(Side::First);
    places.sort_unstable();
    assert!(
        places
            .iter()
            .all(|(at, length)| at % PAGE == 0 && *at >= own.start && at + length <= own.end)
    );
    assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
}

proptest! {
    #[test]
    fn whatever_the_other_machine_writes_costs_room_alone(
        before in stores(),
        meanwhile in stores(),
        after in stores(),
    ) {
        let bed = Bed::new(MIB);
        let [one, two] = bed.both();
        let _theirs = two.enter(&tuple(1).mirrored(), Role::Accepted, 1).unwrap();
        let known = one.find(&tuple(1).mirrored(), Role::Accepted).unwrap();
        let mut ends = vec![one.enter(&tuple(1), Role::Connected, 0).unwrap()];
        let mut places = Vec::new();
        for (round, stores) in [before, meanwhile, after].iter().enumerate() {
            store(&one, stores);
            use_all(&one, &mut ends, &known);
            let pages = round + 1;
            for end in &mut ends {
                places.extend(end.place(pages * PAGE).map(|at| (at, pages * PAGE)));
            }
            places.sort_unstable();
            places.dedup();
            check_places(&one, &mut places);
            // Where this machine's header was spoiled, the link is not used any more.
            if let Ok(end) = one.enter(&tuple(2 + round as u16), Role::Connected, 0) {
                ends.push(end);
            }
        }
        one.take_back();
        drop(ends);
        drop(one);

        // All that was lost comes back when this machine attaches anew and nobody names its places.
        let zeros: Vec<Store> = (0..WORDS).map(|word| (true, word, 0)).collect();
        store(&two, &zeros);
        bed.attach(Side::First).unwrap();
        let one = bed.open(Side::First).unwrap();
        let end = one.enter(&tuple(1), Role::Connected, 0).unwrap();
        prop_assert!(end.place(one.layout().places(Side::First).len()).is_some());
    }

    #[test]
    fn what_only_the_other_half_says_leaves_the_directory_of_this_one(stores in stores()) {
        let bed = Bed::new(MIB);
        let [one, _two] = bed.both();
        let stores: Vec<Store> =
            stores.into_iter().map(|(_, word, value)| (true, word, value)).collect();
        store(&one, &stores);
        let entries = one.layout().entries();
        let ends: Vec<_> = (0..entries as u16)
            .map_while(|port| one.enter(&tuple(port), Role::Connected, 0).ok())
            .collect();
        // A machine may say that it is detached; that is all that it can do here.
        let says_so = one.peer().is_some_and(|peer| peer.is_detached);
        prop_assert_eq!(ends.len(), if says_so { 0 } else { entries });
    }
}
