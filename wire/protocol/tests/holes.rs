//! Holes against the simplest model there is: one flag for each byte.

use proptest::prelude::*;
use seekwire_protocol::holes::{HoleError, Holes, MAX_HOLES};
use seekwire_protocol::span::Span;

const LEN: usize = 200;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Take { offset: u8, len: u8 },
    Receive(u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (any::<u8>(), 0u8..20).prop_map(|(offset, len)| Operation::Take { offset: offset % 120, len }),
        1 => (1u8..30).prop_map(Operation::Receive),
    ]
}

/// One flag per byte: taken or received.
struct Model([bool; LEN]);

impl Model {
    fn head(&self) -> usize {
        self.0.iter().position(|gone| !gone).unwrap_or(LEN)
    }

    fn live_spans(&self) -> Vec<(u64, u64)> {
        let mut spans = Vec::new();
        let mut start = None;
        for at in 0..=LEN {
            match (start, at < LEN && !self.0[at]) {
                (None, true) => start = Some(at),
                (Some(from), false) => {
                    spans.push((from as u64, at as u64));
                    start = None;
                }
                _ => {}
            }
        }
        spans
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn holes_agree_with_a_flag_per_byte(operations in prop::collection::vec(operation(), 1..60)) {
        let mut model = Model([false; LEN]);
        let mut holes = Holes::new(0);
        for operation in operations {
            let head = model.head();
            prop_assert_eq!(holes.head(), head as u64);
            match operation {
                Operation::Take { offset, len } => {
                    let (start, end) = (head + usize::from(offset), head + usize::from(offset) + usize::from(len));
                    if end > LEN {
                        continue;
                    }
                    let free = model.0[start..end].iter().all(|gone| !gone);
                    let located = holes.locate(offset.into(), len.into());
                    if !free {
                        prop_assert_eq!(located, Err(HoleError::Taken));
                        continue;
                    }
                    holes.take(located.unwrap()).unwrap();
                    model.0[start..end].fill(true);
                }
                Operation::Receive(most) => {
                    let live = holes.first_live(most.into());
                    let stop = (live.end as usize).min(LEN);
                    let n = stop.saturating_sub(head);
                    prop_assert!(model.0[head..head + n].iter().all(|gone| !gone));
                    prop_assert!(n == usize::from(most) || stop == LEN || model.0[stop]);
                    holes.received(n as u64);
                    model.0[head..head + n].fill(true);
                }
            }
            let live: Vec<(u64, u64)> = holes.live(LEN as u64).map(|span| (span.start, span.end)).collect();
            prop_assert_eq!(&live, &model.live_spans());
            let bytes: u64 = live.iter().map(|(start, end)| end - start).sum();
            prop_assert_eq!(holes.live_bytes(LEN as u64), bytes);
            let again = Holes::from_parts(holes.head(), holes.spans().iter().copied());
            prop_assert_eq!(again.as_ref(), Some(&holes));
        }
    }
}

#[test]
fn the_number_of_holes_is_bounded_and_receiving_makes_room() {
    let mut holes = Holes::new(0);
    let one = |n: u64| Span::new(10 + 2 * n, 1).unwrap();
    for n in 0..MAX_HOLES as u64 {
        holes.take(one(n)).unwrap();
    }
    let more = one(MAX_HOLES as u64);
    assert_eq!(holes.take(more), Err(HoleError::TooMany));
    // A span that joins a hole adds none.
    holes.take(Span::new(11, 1).unwrap()).unwrap();
    holes.take(more).unwrap();
    assert_eq!(holes.spans().len(), MAX_HOLES);
    holes.received(10);
    assert_eq!(holes.head(), 13);
    holes.take(one(MAX_HOLES as u64 + 1)).unwrap();
}

#[test]
fn positions_do_not_wrap() {
    let holes = Holes::new(5);
    assert_eq!(holes.locate(u64::MAX, 1), Err(HoleError::OutOfRange));
    assert_eq!(holes.locate(10, u64::MAX), Err(HoleError::OutOfRange));
    assert_eq!(holes.locate(0, 0), Ok(Span { start: 5, end: 5 }));
}

#[test]
fn what_no_stream_can_have_is_not_read_back() {
    let span = |start, end| Span { start, end };
    assert!(Holes::from_parts(10, [span(10, 12)]).is_none(), "a hole at the head");
    assert!(Holes::from_parts(10, [span(12, 12)]).is_none(), "an empty hole");
    assert!(Holes::from_parts(10, [span(12, 14), span(14, 15)]).is_none(), "two holes that touch");
    assert!(Holes::from_parts(10, [span(20, 22), span(15, 16)]).is_none(), "out of order");
    assert!(
        Holes::from_parts(0, (0..2000).map(|n| span(2 * n + 1, 2 * n + 2))).is_none(),
        "too many"
    );
}
