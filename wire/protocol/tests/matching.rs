//! Tag matching against two plain lists that are searched from the front.

use proptest::prelude::*;
use seekwire_protocol::message::{Matching, Selector, Ticket};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Post(Selector),
    Arrive(u64),
    Cancel(u8),
    Probe(Selector),
    /// Takes a message and puts it back.
    Return(Selector),
}

fn selector() -> impl Strategy<Value = Selector> {
    let mask = prop_oneof![Just(0), Just(u64::MAX), Just(1), Just(6)];
    (0u64..6, mask).prop_map(|(tag, mask)| Selector { tag, mask })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => selector().prop_map(Operation::Post),
        4 => (0u64..6).prop_map(Operation::Arrive),
        1 => any::<u8>().prop_map(Operation::Cancel),
        1 => selector().prop_map(Operation::Probe),
        1 => selector().prop_map(Operation::Return),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn matching_agrees_with_plain_lists(operations in prop::collection::vec(operation(), 1..80)) {
        let mut matching: Matching<usize, usize> = Matching::default();
        let mut posted: Vec<(Ticket, Selector, usize)> = Vec::new();
        let mut unexpected: Vec<(u64, usize)> = Vec::new();
        for (id, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Post(selector) => {
                    let first = unexpected.iter().position(|(tag, _)| selector.matches(*tag));
                    match (matching.take(selector), first) {
                        (Some(found), Some(at)) => {
                            prop_assert_eq!((found.tag, found.message), unexpected.remove(at));
                            let ticket = matching.ticket();
                            prop_assert!(!matching.waits(ticket));
                            prop_assert_eq!(matching.cancel(ticket), None);
                        }
                        (None, None) => posted.push((matching.wait(selector, id), selector, id)),
                        (found, first) => prop_assert!(false, "{found:?}, expected {first:?}"),
                    }
                }
                Operation::Arrive(tag) => {
                    let first = posted.iter().position(|(_, selector, _)| selector.matches(tag));
                    prop_assert_eq!(matching.is_expected(tag), first.is_some());
                    match (matching.claim(tag), first) {
                        (Some(claimed), Some(at)) => {
                            let (ticket, _, by) = posted.remove(at);
                            prop_assert_eq!(claimed, (ticket, by));
                            prop_assert!(!matching.waits(ticket));
                        }
                        (None, None) => {
                            let label = matching.label(tag, id);
                            matching.keep(label);
                            unexpected.push((tag, id));
                        }
                        (claimed, first) => prop_assert!(false, "{claimed:?}, expected {first:?}"),
                    }
                }
                Operation::Cancel(which) => {
                    if posted.is_empty() {
                        continue;
                    }
                    let (ticket, _, by) = posted.remove(usize::from(which) % posted.len());
                    prop_assert!(matching.waits(ticket));
                    prop_assert_eq!(matching.cancel(ticket), Some(by));
                    prop_assert_eq!(matching.cancel(ticket), None);
                }
                Operation::Probe(selector) => {
                    let first = unexpected.iter().find(|(tag, _)| selector.matches(*tag));
                    prop_assert_eq!(matching.probe(selector).map(|(tag, id)| (tag, *id)), first.copied());
                }
                Operation::Return(selector) => {
                    let first = unexpected.iter().find(|(tag, _)| selector.matches(*tag));
                    let taken = matching.take(selector);
                    prop_assert_eq!(taken.as_ref().map(|found| (found.tag, found.message)), first.copied());
                    if let Some(taken) = taken {
                        matching.keep(taken);
                    }
                }
            }
            prop_assert_eq!(matching.posted_count(), posted.len());
            prop_assert_eq!(matching.unexpected_count(), unexpected.len());
        }
        let mut left = Vec::new();
        matching.for_unexpected(|id| {
            left.push(*id);
            true
        });
        prop_assert_eq!(left, unexpected.iter().map(|(_, id)| *id).collect::<Vec<_>>());
        let left: Vec<usize> = matching.drain_posted().into_iter().map(|(_, id)| id).collect();
        prop_assert_eq!(left, posted.iter().map(|(_, _, id)| *id).collect::<Vec<_>>());
    }
}
