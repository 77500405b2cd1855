//! How processes share a link when they run at the same time, and when they are killed.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{Bed, MIB, OTHER, PAGE, Process, enter, tuple};
use seekwire_link::{Half, Link, Side};
use seekwire_protocol::Role;

const EACH: u16 = 50;
const PAGES: usize = 2;

/// The first side's link in a test that runs in another process; `None` in this one.
fn in_other_process() -> Option<Link> {
    let path = std::env::var_os(OTHER)?;
    Some(Bed::at(Path::new(&path)).open(Side::First).unwrap())
}

#[test]
fn other_with_many() {
    let Some(link) = in_other_process() else { return };
    let ends: Vec<_> = (0..EACH)
        .map(|port| {
            let end = enter(&link, &tuple(port), Role::Connected);
            let at = loop {
                if let Some(at) = end.place(PAGES * PAGE) {
                    break at;
                }
            };
            println!("\nhas {} {at}", end.index());
            end
        })
        .collect();
    common::wait();
    drop(ends);
}

#[test]
fn other_with_all() {
    let Some(link) = in_other_process() else { return };
    let places = link.layout().places(Side::First).len();
    let ends: Vec<_> = (0..link.layout().entries() as u16)
        .map(|port| link.enter(&tuple(port), Role::Connected, 0).unwrap())
        .collect();
    assert!(ends[0].place(places).is_some());
    common::wait();
    drop(ends);
}

#[test]
fn processes_that_enter_at_once_share_nothing() {
    const PROCESSES: usize = 3;
    let bed = Bed::new(32 * MIB);
    let [one, two] = bed.both();
    // Starts all processes before it waits for one.
    let begun: Vec<_> = (0..PROCESSES).map(|_| Process::begin(&bed, "other_with_many")).collect();
    let processes: Vec<_> = begun.into_iter().map(Process::ready).collect();
    let has = |process: &Process| {
        let numbers = process.lines.iter().filter_map(|line| line.strip_prefix("has "));
        let numbers = numbers.map(|line| {
            let (index, at) = line.split_once(' ').unwrap();
            (index.parse::<usize>().unwrap(), at.parse::<usize>().unwrap())
        });
        numbers.collect::<Vec<_>>()
    };
    let all: Vec<_> = processes.iter().flat_map(has).collect();
    let count = PROCESSES * usize::from(EACH);
    assert_eq!(all.len(), count);
    assert_eq!(all.iter().map(|(index, _)| index).collect::<BTreeSet<_>>().len(), count);
    let places: BTreeSet<_> = all.iter().map(|(_, at)| at).collect();
    assert_eq!(places.len(), count);
    assert!(places.iter().zip(places.iter().skip(1)).all(|(at, next)| *next - *at >= PAGES * PAGE));
    assert_eq!(two.entries(Half::Peer).len(), count);
    let mut pids: Vec<u32> = processes.iter().map(Process::id).collect();
    pids.sort_unstable();
    assert_eq!(one.usage().pids, pids);
    assert!(one.usage().is_open_elsewhere);
    processes.into_iter().for_each(Process::end);
    assert!(one.usage().pids.is_empty() && !one.usage().is_open_elsewhere);
}

#[test]
fn what_a_killed_process_had_is_free_again() {
    let bed = Bed::new(MIB);
    let [one, _two] = bed.both();
    let other = Process::ready(Process::begin(&bed, "other_with_all"));
    assert!(one.enter(&tuple(99), Role::Connected, 0).is_err(), "it has all");
    assert_eq!(one.usage().pids, [other.id()]);
    let bytes = one.usage().bytes;
    other.kill();
    assert!(one.entries(Half::Own).iter().all(|entry| entry.is_leased == Some(false)));
    let ends: Vec<_> = (0..one.layout().entries() as u16)
        .map(|port| one.enter(&tuple(1000 + port), Role::Connected, 0).unwrap())
        .collect();
    assert!(ends[7].place(bytes).is_some());
    assert_eq!(one.usage().pids, [std::process::id()]);
}
