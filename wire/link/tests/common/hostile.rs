//! A machine that writes anything anywhere in the region while the other one does all that programs
//! do. Used by a property test and by a fuzz target.

use std::sync::atomic::Ordering;

use seekwire_link::{
    Answer, Half, Link, LinkEntry, MOST, Other, PORTS, Published, Side, TcpCounts, Word, is_usable,
};
use seekwire_protocol::{Reason, Role};

use super::{Bed, PAGE, tuple};

/// Headers and directories of a region of 1 MiB: two pages at the beginning of each half.
pub(crate) const WORDS: usize = 2 * PAGE / 8;
const HALF: usize = 1 << 19;

/// One store, with its numbers taken modulo the valid range.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) struct Store {
    pub(crate) is_second: bool,
    pub(crate) word: u16,
    pub(crate) value: u64,
}

pub(crate) fn store(link: &Link, stores: &[Store]) {
    for Store { is_second, word, value } in stores {
        let half = if *is_second { HALF } else { 0 };
        let word = usize::from(*word) % WORDS;
        link.region().word(half + word * 8).store(*value, Ordering::SeqCst);
    }
}

/// Does all that a program does, and checks the invariants.
fn use_all(link: &Link, ends: &mut [LinkEntry], known: &Other) -> Vec<Other> {
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
        end.say(Word::Offered(TcpCounts::default()));
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

/// Does all that an agent does with the other agent's words.
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

/// Checks that the places of this side are inside its half and do not overlap.
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

/// Makes rounds of stores, and uses the link after each. Both machines are detached afterwards.
pub(crate) fn play(bed: &Bed, rounds: &[Vec<Store>]) {
    let [one, two] = bed.both();
    let _theirs = two.enter(&tuple(1).mirrored(), Role::Accepted, 1).unwrap();
    let known = one.find(&tuple(1).mirrored(), Role::Accepted).unwrap();
    let mut ends = vec![one.enter(&tuple(1), Role::Connected, 0).unwrap()];
    let mut places = Vec::new();
    for (round, stores) in rounds.iter().enumerate() {
        store(&one, stores);
        use_all(&one, &mut ends, &known);
        let pages = round + 1;
        for end in &mut ends {
            places.extend(end.place(pages * PAGE).map(|at| (at, pages * PAGE)));
        }
        places.sort_unstable();
        places.dedup();
        check_places(&one, &mut places);
        // If this machine's header was overwritten, the link is not used any more.
        if let Ok(end) = one.enter(&tuple(2 + round as u16), Role::Connected, 0) {
            ends.push(end);
        }
    }
    one.take_back();
    two.take_back();
}
