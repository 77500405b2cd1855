//! Rendezvous of the two ends of a connection over a region.

use std::sync::atomic::Ordering;

use crate::common::{Bed, MIB, PAGE, enter, tuple};
use seekwire_link::{EntryState, Half, Side, TcpCounts, Word};
use seekwire_protocol::{FourTuple, Reason, Role};

/// Bytes per entry, which begins with its state.
const ENTRY: usize = 256;
const REFUSED: u64 = 4;

#[test]
fn two_ends_find_each_other_and_agree() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let view = tuple(9);
    let connecting = one.enter(&view, Role::Connected, 0).unwrap();
    assert_eq!(one.find(&view.mirrored(), Role::Accepted), None, "nobody is there yet");

    let accepting = two.enter(&view.mirrored(), Role::Accepted, 4711).unwrap();
    let seen = two.find(&view, Role::Connected).unwrap();
    assert_eq!((seen.nonce, seen.state), (connecting.nonce(), EntryState::Here));
    assert_eq!((seen.place, seen.talks_to), (None, 0));
    assert_eq!(Some(seen.token), two.peer().map(|peer| peer.token));
    assert!(!connecting.is_signalled());
    accepting.signal(&seen);
    assert!(connecting.is_signalled());
    connecting.take_signal();
    assert!(!connecting.is_signalled());

    let other = one.find(&view.mirrored(), Role::Accepted).unwrap();
    assert_eq!((other.nonce, other.port), (accepting.nonce(), 4711));
    let at = connecting.place(5 * PAGE - 1).unwrap();
    assert!(at % PAGE == 0 && one.layout().places(Side::First).contains(&at));
    assert_eq!(connecting.place(5 * PAGE), Some(at), "it has one place");
    assert_eq!(connecting.place(6 * PAGE), None);
    let counts = TcpCounts { sent: 1, received: 2, acknowledged: 3 };
    connecting.say(Word::Offered(counts));
    connecting.signal(&other);
    assert!(accepting.is_signalled());

    let offered = accepting.look(&seen).unwrap();
    assert_eq!((offered.state, offered.counts), (EntryState::Offered, counts));
    assert_eq!(offered.place, Some((at, 5 * PAGE)));
    let theirs = accepting.place(PAGE).unwrap();
    assert!(accepting.names(&offered));
    accepting.say(Word::Granted(TcpCounts::default()));

    let granted = connecting.look(&other).unwrap();
    assert_eq!((granted.state, granted.place), (EntryState::Granted, Some((theirs, PAGE))));
    assert_eq!(granted.talks_to, connecting.nonce());
    assert!(connecting.names(&granted));

    let [listed] = one.entries(Half::Own)[..] else { panic!() };
    assert_eq!(listed.tuple, FourTuple { namespace: 0, ..view });
    assert_eq!((listed.place, listed.names), (Some((at, 5 * PAGE)), Some((theirs, PAGE))));
    assert_eq!((listed.role, listed.state), (Role::Connected, EntryState::Offered));
    assert_eq!((listed.pid, listed.is_leased), (Some(std::process::id()), Some(true)));
    let [of_peer] = one.entries(Half::Peer)[..] else { panic!() };
    assert_eq!((of_peer.names, of_peer.pid), (Some((at, 5 * PAGE)), None));
    let usage = one.usage();
    assert_eq!((usage.entries_used, usage.bytes_used), (1, 5 * PAGE));
    assert_eq!(usage.pids, [std::process::id()]);

    accepting.clear();
    assert_eq!(connecting.look(&granted), None);
    assert!(!connecting.names(&granted), "nothing is to be mapped any more");
    assert_eq!(one.find(&view.mirrored(), Role::Accepted), None);
    assert_eq!(one.entries(Half::Own)[0].names, None);
}

#[test]
fn an_end_that_refuses_says_why() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let end = one.enter(&tuple(9), Role::Accepted, 1).unwrap();
    end.say(Word::Refused(Reason::Filtered));
    let found = two.find(&tuple(9), Role::Accepted).unwrap();
    assert_eq!(found.state, EntryState::Refused(Reason::Filtered));
    // Of a version that has more reasons, or none.
    for code in [0, 255, 256, u64::from(u32::MAX)] {
        one.region().word(PAGE + end.index() * ENTRY).store(code << 32 | REFUSED, Ordering::SeqCst);
        let found = two.find(&tuple(9), Role::Accepted).unwrap();
        assert_eq!(found.state, EntryState::Refused(Reason::PeerRefused), "{code}");
    }
}

#[test]
fn only_the_same_connection_and_the_other_role_are_found() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let _end = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    assert!(two.find(&tuple(9), Role::Connected).is_some());
    let elsewhere = FourTuple { namespace: 1, ..tuple(9) };
    assert!(two.find(&elsewhere, Role::Connected).is_some(), "namespaces are of one machine each");
    assert_eq!(two.find(&tuple(9), Role::Accepted), None);
    assert_eq!(two.find(&tuple(10), Role::Connected), None);
    assert_eq!(two.find(&tuple(9).mirrored(), Role::Connected), None);
    assert_eq!(one.find(&tuple(9), Role::Connected), None, "an end does not find itself");
}

#[test]
fn an_entry_of_another_connection_in_the_same_place_is_not_taken_for_the_old_one() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let first = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    let seen = two.find(&tuple(9), Role::Connected).unwrap();
    first.clear();
    drop(first);
    let second = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    let looking = two.enter(&tuple(9).mirrored(), Role::Accepted, 0).unwrap();
    assert_eq!(second.index(), seen.index);
    assert_eq!(looking.look(&seen), None);
    let found = two.find(&tuple(9), Role::Connected).unwrap();
    assert_eq!(found.nonce, second.nonce());
    assert_ne!(found.nonce, seen.nonce);
}

#[test]
fn an_entry_of_an_earlier_attachment_is_not_found() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let _end = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    assert!(two.find(&tuple(9), Role::Connected).is_some());
    // The third word of the header is the token.
    one.region().word(16).fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(two.find(&tuple(9), Role::Connected), None);
}

#[test]
fn nobody_is_found_before_the_other_machine_has_attached() {
    let bed = Bed::new(MIB);
    bed.attach(Side::First).unwrap();
    let one = bed.open(Side::First).unwrap();
    assert_eq!(one.peer(), None);
    assert_eq!(one.find(&tuple(9), Role::Connected), None);
    assert!(!one.is_detached());
    bed.attach(Side::Second).unwrap();
    assert!(one.peer().is_some_and(|peer| !peer.is_detached));
}

#[test]
fn a_side_that_both_machines_take_has_nobody_at_its_other_end() {
    let bed = Bed::new(MIB);
    bed.attach(Side::First).unwrap();
    let elsewhere = bed.path().join("elsewhere");
    seekwire_link::Link::attach(&bed.definition(Side::First), &elsewhere, crate::common::ACCESS)
        .unwrap();
    let also = seekwire_link::Link::open(&bed.definition(Side::First), &elsewhere).unwrap();
    assert_eq!(also.peer(), None);
    assert!(bed.open(Side::First).is_err(), "its header is gone");
}

#[test]
fn a_thousand_connections_are_there_at_once() {
    let (soft, hard) = seekwire_transport::sys::limit::descriptor_limit();
    seekwire_transport::sys::limit::set_descriptor_limit(hard.min(soft.max(4096))).unwrap();
    let bed = Bed::new(256 * MIB);
    let [one, two] = bed.both();
    let mut ends: Vec<_> =
        (0..1000).map(|port| enter(&one, &tuple(port), Role::Connected)).collect();
    let mut places: Vec<usize> = ends.iter_mut().map(|end| end.place(PAGE).unwrap()).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 1000);
    for (port, end) in (0..1000).zip(&ends) {
        assert_eq!(two.find(&tuple(port), Role::Connected).unwrap().nonce, end.nonce());
    }
    assert_eq!(one.usage().entries_used, 1000);
    for end in ends.drain(..) {
        end.clear();
    }
    assert_eq!(one.usage().entries_used, 0);
    assert_eq!(two.find(&tuple(1), Role::Connected), None);
}
