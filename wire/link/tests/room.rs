//! Allocation of entries and pages, and when they become free again.

use std::collections::BTreeSet;
use std::sync::Barrier;

use crate::common::{Bed, MIB, PAGE, enter, tuple};
use seekwire_link::{Attached, EnterError, Half, Link, LinkEntry, Side};
use seekwire_protocol::Role;
use seekwire_transport::sys::ofd_lock::{self, LockMode};

/// All pages of a half.
fn all(link: &Link) -> usize {
    link.layout().places(link.side()).len()
}

/// A connected end of each side, each with a place of `bytes` bytes.
fn connected(one: &Link, two: &Link, port: u16, bytes: usize) -> [LinkEntry; 2] {
    let from = one.enter(&tuple(port), Role::Connected, 0).unwrap();
    let to = two.enter(&tuple(port).mirrored(), Role::Accepted, 1).unwrap();
    from.place(bytes).unwrap();
    to.place(bytes).unwrap();
    assert!(from.names(&one.find(&tuple(port).mirrored(), Role::Accepted).unwrap()));
    assert!(to.names(&two.find(&tuple(port), Role::Connected).unwrap()));
    [from, to]
}

#[test]
fn a_full_directory_is_told_and_recovers() {
    let bed = Bed::new(MIB);
    let [one, _two] = bed.both();
    let mut ends: Vec<_> =
        (0..16).map(|port| one.enter(&tuple(port), Role::Connected, 0).unwrap()).collect();
    let error = one.enter(&tuple(16), Role::Connected, 0).unwrap_err();
    assert!(matches!(error, EnterError::Full), "{error}");
    assert!(error.to_string().contains("a larger region has more of them"));
    // One that was closed, and one whose process ended without clearing it.
    ends.remove(3).clear();
    let closed = one.enter(&tuple(16), Role::Connected, 0).unwrap();
    assert_eq!(closed.index(), 3);
    drop(ends.remove(5));
    assert_eq!(one.enter(&tuple(17), Role::Connected, 0).unwrap().index(), 6);
}

#[test]
fn pages_that_are_gone_are_told_and_recover() {
    let bed = Bed::new(MIB);
    let [one, _two] = bed.both();
    let first = one.enter(&tuple(1), Role::Connected, 0).unwrap();
    let second = one.enter(&tuple(2), Role::Connected, 0).unwrap();
    let third = one.enter(&tuple(3), Role::Connected, 0).unwrap();
    assert_eq!(first.place(all(&one) + 1), None);
    assert!(first.place(all(&one) - PAGE).is_some());
    assert_eq!(second.place(2 * PAGE), None);
    assert!(third.place(PAGE).is_some());
    assert_eq!(one.usage().bytes_used, one.usage().bytes);
    // Without clearing the entry.
    drop(first);
    assert_eq!(second.place(2 * PAGE), Some(one.layout().places(Side::First).start));
}

#[test]
fn a_place_that_the_other_side_names_is_not_given_out() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let half = all(&one) / 2 / PAGE * PAGE;
    let [from, to] = connected(&one, &two, 9, half + PAGE);
    let next = one.enter(&tuple(10), Role::Connected, 0).unwrap();
    // As if its process had ended, or had closed the connection.
    from.clear();
    drop(from);
    assert_eq!(one.usage().entries_used, 1);
    assert_eq!(next.place(half), None, "the other side still reads it");
    assert_eq!(one.usage().bytes_used, half + PAGE);
    assert!(next.place(PAGE).is_some(), "the rest is free");
    to.clear();
    assert!(one.enter(&tuple(11), Role::Connected, 0).unwrap().place(half).is_some());
}

#[test]
fn the_other_side_clears_what_its_dead_have_named_when_room_is_wanted() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let [from, to] = connected(&one, &two, 9, all(&one));
    from.clear();
    // Its process ended without clearing it, so its entry still names the place.
    drop(to);
    let next = one.enter(&tuple(10), Role::Connected, 0).unwrap();
    assert_eq!(next.place(PAGE), None);
    assert_eq!(two.entries(Half::Own).len(), 1);
    assert_eq!(two.find(&tuple(77), Role::Connected), None);
    assert_eq!(two.entries(Half::Own).len(), 0, "whoever looks clears up");
    assert!(next.place(PAGE).is_some());
}

#[test]
fn a_connection_with_the_same_addresses_takes_the_place_of_a_dead_one() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let dead = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    let nonce = dead.nonce();
    drop(dead);
    assert_eq!(two.find(&tuple(9), Role::Connected).unwrap().nonce, nonce);
    let lives = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    assert_eq!(two.entries(Half::Peer).len(), 1);
    assert_eq!(two.find(&tuple(9), Role::Connected).unwrap().nonce, lives.nonce());
}

#[test]
fn of_two_ends_with_the_same_addresses_the_later_one_is_found() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    // The first one's lease is still held: a child has it, or the socket was closed unseen.
    let mut ends: Vec<_> =
        (0..3).map(|_| one.enter(&tuple(9), Role::Connected, 0).unwrap()).collect();
    let found = |two: &Link| two.find(&tuple(9), Role::Connected).unwrap().nonce;
    assert_eq!(found(&two), ends[2].nonce());
    // Even if it has a place before theirs.
    ends.remove(0).clear();
    let latest = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    assert_eq!((latest.index(), found(&two)), (0, latest.nonce()));
}

#[test]
fn a_place_that_is_given_back_is_free_and_another_one_can_be_had() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let [from, to] = connected(&one, &two, 9, all(&one));
    let next = one.enter(&tuple(10), Role::Connected, 0).unwrap();
    assert_eq!(from.placed(), Some(all(&one)));
    from.give_back();
    assert_eq!(from.placed(), None);
    assert_eq!(next.place(PAGE), None, "the other side still reads it");
    to.give_back();
    assert_eq!((one.usage().bytes_used, two.usage().bytes_used), (0, 0));
    assert!(next.place(PAGE).is_some() && from.place(2 * PAGE).is_some());
    // The entries still exist.
    assert!(from.look(&one.find(&tuple(9).mirrored(), Role::Accepted).unwrap()).is_some());
}

#[test]
fn places_outlive_the_machine_that_they_belong_to() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let half = all(&one) / 2 / PAGE * PAGE;
    let [from, to] = connected(&one, &two, 9, half + PAGE);
    let before = two.peer().unwrap();
    let old = two.find(&tuple(9), Role::Connected).unwrap();
    // The first machine reboots: its processes and its state are gone.
    drop((from, one));
    std::fs::remove_dir_all(bed.state(Side::First)).unwrap();
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);
    let one = bed.open(Side::First).unwrap();
    assert_ne!(two.peer().unwrap().token, before.token);
    assert_eq!(to.look(&old), None);
    assert_eq!(two.find(&tuple(9), Role::Connected), None);

    let next = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    assert_eq!(next.place(half), None, "the second machine still has it mapped");
    assert_eq!(two.find(&tuple(9), Role::Connected).unwrap().nonce, next.nonce());
    to.clear();
    assert!(next.place(half).is_some());
}

#[test]
fn threads_that_ask_for_the_place_of_one_entry_get_the_same() {
    let bed = Bed::new(MIB);
    let [one, _two] = bed.both();
    for port in 0..30 {
        let end = enter(&one, &tuple(port), Role::Connected);
        let all_at_once = Barrier::new(3);
        let ask = || {
            all_at_once.wait();
            // `None` while another process is choosing.
            std::iter::repeat_with(|| end.place(PAGE)).find_map(|at| at).unwrap()
        };
        let places = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(ask));
            BTreeSet::from(threads.map(|thread| thread.join().unwrap()))
        });
        assert_eq!(places.len(), 1);
        assert_eq!(one.usage().bytes_used, PAGE);
        end.clear();
    }
}

#[test]
fn who_is_stopped_while_it_chooses_hangs_nobody() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let end = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    let path = bed.state(Side::First).join("test.link");
    let stopped = std::fs::File::options().read(true).write(true).open(path).unwrap();
    // The lock byte documented in lib.rs.
    assert!(ofd_lock::try_lock(&stopped, 4096, LockMode::Exclusive).unwrap());
    let entered = one.enter(&tuple(10), Role::Connected, 0);
    assert!(matches!(entered.unwrap_err(), EnterError::Busy));
    assert_eq!(end.place(PAGE), None);
    assert!(two.find(&tuple(9), Role::Connected).is_some());
    drop(stopped);
    assert!(end.place(PAGE).is_some());
    assert!(one.enter(&tuple(10), Role::Connected, 0).is_ok());
}

#[test]
fn what_the_dead_have_left_is_cleared_now_and_then() {
    let bed = Bed::new(MIB);
    let [one, _two] = bed.both();
    drop(one.enter(&tuple(1), Role::Connected, 0).unwrap());
    for port in 2..64 {
        one.enter(&tuple(port), Role::Connected, 0).unwrap().clear();
        assert_eq!(one.entries(Half::Own).len(), 1);
    }
    let _last = one.enter(&tuple(64), Role::Connected, 0).unwrap();
    let left = one.entries(Half::Own);
    assert_eq!(left.iter().map(|entry| entry.tuple.local.port()).collect::<Vec<_>>(), [64]);
}

#[test]
fn threads_that_enter_at_once_share_nothing() {
    const THREADS: u16 = 4;
    const EACH: u16 = 30;
    let bed = Bed::new(16 * MIB);
    let [one, _two] = bed.both();
    let all_at_once = Barrier::new(THREADS.into());
    let ends: Vec<(usize, usize, LinkEntry)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (one, all_at_once) = (one.clone(), &all_at_once);
                scope.spawn(move || {
                    let ports = thread * EACH..(thread + 1) * EACH;
                    let with_place = ports.map(|port| {
                        all_at_once.wait();
                        let end = enter(&one, &tuple(port), Role::Connected);
                        // `None` while others are choosing.
                        let at = loop {
                            if let Some(at) = end.place(3 * PAGE) {
                                break at;
                            }
                        };
                        (end.index(), at, end)
                    });
                    with_place.collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let count = usize::from(THREADS * EACH);
    let indices: BTreeSet<_> = ends.iter().map(|(index, ..)| *index).collect();
    assert_eq!(indices.len(), count);
    let places: BTreeSet<_> = ends.iter().map(|(_, at, _)| *at).collect();
    assert_eq!(places.len(), count);
    assert!(places.iter().zip(places.iter().skip(1)).all(|(at, next)| next - at >= 3 * PAGE));
    assert_eq!(one.usage().bytes_used, count * 3 * PAGE);
}
