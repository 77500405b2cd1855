//! Circumstances under which differences are known: a failure's kind begins with them, so that
//! `expected` can name them.

use crate::program::{Call, CloseWay, FdSlot, OptionValue, Step, TestProgram};
use crate::streams::MUCH;
use crate::trace::{Divergence, Event, Fate, Trace, blocks};

/// The circumstance that the kind of a failure begins with; empty if none is known.
pub(crate) fn of(program: &TestProgram, plain: &Trace, failure: &Divergence) -> &'static str {
    let unseen = |step: &Step| matches!(step.call, Call::Close { way: CloseWay::Inline, .. });
    let step = failure.step;
    if program.steps.iter().any(unseen) {
        "closed unseen: "
    } else if was_handed_over_unread(plain, step) {
        "handed over with bytes unread: "
    } else if is_sought_and_shared(plain, step) {
        "sought by one of several processes: "
    } else if (failure.kind.ends_with("became EAGAIN") || failure.kind.ends_with("became blocked"))
        && is_sought_beside_peek(plain, step)
    {
        "sought beside a peek that slept: "
    } else if failure.kind == "EpollWait: 0 became n" && is_edge_of_several(plain, step) {
        "edges for several processes: "
    } else if begins_again_without_number(plain, step) {
        "restarted after its number was closed: "
    } else if ((failure.kind.contains(" ended by ") && !failure.kind.ends_with("became EINTR"))
        || failure.kind.starts_with("model: "))
        && (0..plain.events.len().min(step)).any(|step| begins_again_without_number(plain, step))
    {
        "after one was restarted whose number was closed: "
    } else if is_kept_from_low_water(plain, failure) {
        "beside one asleep for SO_RCVLOWAT bytes: "
    } else if failure.kind.ends_with(" ended by Shutdown: 0 became blocked")
        && sleeps_for_nothing(plain, step)
    {
        "asleep for no bytes: "
    } else if is_raced_peek(plain, failure) {
        "somebody received what was peeked: "
    } else if (failure.kind.contains(": EPIPE became ")
        || failure.kind == "Shutdown: ENOTCONN became 0")
        && was_killed(plain, step)
    {
        "after a kill: "
    } else if failure.kind.starts_with("EpollControl: 0 became") && is_set_from_before(plain, step)
    {
        "sought, and a set from before exec: "
    } else if failure.kind.starts_with("Poll") && was_closed_while_polled(plain, step) {
        "closed while it was polled: "
    } else if !failure.kind.ends_with("became blocked") && is_held_back(plain, failure) {
        "held back: "
    } else if failure.kind.ends_with("blocked became n") && was_to_want_more(plain, step) {
        "asleep beside SO_RCVLOWAT: "
    } else if failure.kind.contains("EAGAIN became") && has_shared_negative_limit(program) {
        "negative time limit of somebody else: "
    } else if failure.kind.ends_with("became EINTR") && has_handlers_of_both_kinds(program) {
        "handlers of both kinds: "
    } else if was_shut_behind_much(plain, step) {
        "shut with more on its way than fits: "
    } else {
        ""
    }
}

/// Whether, up to a step, a connection was given to another program while bytes were on their way:
/// the peer, which would have to send them again, makes no call in lockstep.
fn was_handed_over_unread(plain: &Trace, step: usize) -> bool {
    let mut executed = false;
    plain.events.iter().take(step.saturating_add(1)).any(|event| {
        executed |= matches!(event.step.call, Call::Exec { .. });
        // Also to a set that is the kernel's alone in the new program.
        let gives = match event.step.call {
            Call::Exec { .. } | Call::Pass { .. } => true,
            Call::EpollControl { operation: libc::EPOLL_CTL_ADD, .. } => executed,
            _ => false,
        };
        gives
            && event.fate != Fate::Skipped
            && event.before.iter().any(|counters| counters.in_flight() > 0)
    })
}

/// Whether, up to a step, bytes were sought, successfully or not, and sockets had been shared by
/// several processes before or were later.
fn is_sought_and_shared(plain: &Trace, step: usize) -> bool {
    let any = |wanted: fn(&Call, i64) -> bool| {
        plain.events.iter().take(step.saturating_add(1)).any(|event| match &event.fate {
            Fate::Done(answer) => wanted(&event.step.call, answer.value),
            _ => false,
        })
    };
    any(|call, _| matches!(call, Call::Seek { .. }))
        && any(|call, value| matches!(call, Call::Fork { .. } | Call::Pass { .. }) && value > 0)
}

/// Whether a process has sought, and a step concerns an epoll set that it had before its exec.
fn is_set_from_before(plain: &Trace, step: usize) -> bool {
    let Some(Call::EpollControl { epoll, .. }) =
        plain.events.get(step).map(|event| &event.step.call)
    else {
        return false;
    };
    let process = plain.events[step].step.by.process;
    let own: Vec<_> =
        plain.events[..step].iter().filter(|event| event.step.by.process == process).collect();
    let last = |wanted: &dyn Fn(&Call) -> bool| {
        own.iter().rposition(|event| wanted(&event.step.call) && event.fate != Fate::Skipped)
    };
    let exec = last(&|call| matches!(call, Call::Exec { there: true }));
    let made = last(&|call| matches!(call, Call::EpollCreate { slot } if slot == epoll));
    exec.is_some() && made <= exec && last(&|call| matches!(call, Call::Seek { .. })) > exec
}

/// Whether, in a step, a signal interrupts a call whose number was closed or replaced meanwhile:
/// the kernel restarts the call on what the number stands for now.
fn begins_again_without_number(plain: &Trace, step: usize) -> bool {
    let Some(Call::Signal { to, .. }) = plain.events.get(step).map(|event| &event.step.call) else {
        return false;
    };
    let before = &plain.events[..step];
    let is_last = |event: &Event| {
        let is_own = !matches!(
            event.step.call,
            Call::Signal { .. } | Call::Kill { .. } | Call::Stop { .. } | Call::Continue { .. }
        );
        event.step.by == *to && is_own && event.fate != Fate::Skipped
    };
    let Some(begin) = before.iter().rposition(is_last) else { return false };
    let Some(slot) = before[begin].step.call.moves_by() else { return false };
    let number = |at: usize, slot| number_in(&before[..at], to.process, slot);
    // Another slot may have kept the same number.
    let is_same = |at, other| other == slot || number(at, other) == number(begin, slot);
    (begin..step).any(|at| {
        before[at].step.by.process == to.process
            && match before[at].step.call {
                Call::Close { slot: closed, .. } => is_same(at, closed),
                Call::Dup { to, .. } => is_same(at + 1, to),
                _ => false,
            }
    })
}

/// The number that a process has put into a slot last, if any.
fn number_in(events: &[Event], process: usize, wanted: FdSlot) -> Option<i64> {
    events.iter().rev().filter(|event| event.step.by.process == process).find_map(|event| {
        let put = match event.step.call {
            Call::Socket { slot, .. } | Call::Accept { slot, .. } | Call::Take { slot } => slot,
            Call::Dup { to, .. } => to,
            _ => return None,
        };
        match &event.fate {
            Fate::Done(answer) if put == wanted => Some(answer.value),
            _ => None,
        }
    })
}

/// Whether a step is a wait for edges on a set on which several processes have waited.
fn is_edge_of_several(plain: &Trace, step: usize) -> bool {
    let Some(Call::EpollWait { epoll: set, .. }) =
        plain.events.get(step).map(|event| &event.step.call)
    else {
        return false;
    };
    let events = &plain.events[..=step];
    let process = events[step].step.by.process;
    let is_edge = |event: &Event| {
        matches!(&event.step.call, Call::EpollControl { epoll, events, .. }
            if epoll == set && events & libc::EPOLLET as u32 != 0)
    };
    let waits = |event: &Event| {
        event.step.by.process != process
            && matches!(&event.step.call, Call::EpollWait { epoll, .. } if epoll == set)
    };
    let forks = |event: &Event| matches!(event.step.call, Call::Fork { .. });
    events.iter().any(is_edge) && events.iter().any(waits) && events.iter().any(forks)
}

/// Whether, up to a step, a number on which another thread's poll slept was closed or replaced.
fn was_closed_while_polled(plain: &Trace, step: usize) -> bool {
    let events = &plain.events[..plain.events.len().min(step.saturating_add(1))];
    events.iter().enumerate().any(|(at, event)| {
        let closed = match event.step.call {
            Call::Close { slot, .. } => slot,
            Call::Dup { to, .. } => to,
            _ => return false,
        };
        events[..at].iter().any(|earlier| match &earlier.step.call {
            Call::Poll { entries, .. } => {
                earlier.step.by.process == event.step.by.process
                    && blocks(&earlier.fate)
                    && entries.iter().any(|(slot, _)| *slot == closed)
            }
            _ => false,
        })
    })
}

/// Whether a receive in a step runs beside one that sleeps, where SO_RCVLOWAT was set.
fn is_kept_from_low_water(plain: &Trace, failure: &Divergence) -> bool {
    let events = &plain.events[..plain.events.len().min(failure.step)];
    let sets = |event: &Event| {
        matches!(
            event.step.call,
            Call::SetOption { level: libc::SOL_SOCKET, name: libc::SO_RCVLOWAT, .. }
        )
    };
    failure.kind.starts_with("Receive")
        && [": n became blocked", ": n became EAGAIN"].iter().any(|end| failure.kind.ends_with(end))
        && events.iter().any(sets)
        && events
            .iter()
            .any(|event| matches!(event.step.call, Call::Receive { .. }) && blocks(&event.fate))
}

/// Whether, up to a step, a receive of no bytes has slept.
fn sleeps_for_nothing(plain: &Trace, step: usize) -> bool {
    plain.events.iter().take(step).any(|event| {
        matches!(event.step.call, Call::Receive { length: 0, .. }) && blocks(&event.fate)
    })
}

/// Whether, up to a step, bytes were sought while a peek that had seen some slept, waiting for
/// more: the first seek waits until such a call has returned, and later receives wait as well.
fn is_sought_beside_peek(plain: &Trace, step: usize) -> bool {
    let events = &plain.events[..plain.events.len().min(step.saturating_add(1))];
    let peeks = |event: &(usize, &Event)| {
        event.1.step.call.flags() & PEEK_ALL == PEEK_ALL && blocks(&event.1.fate)
    };
    events.iter().enumerate().filter(peeks).any(|(begin, peek)| {
        events[begin..].iter().take_while(|event| !event.ended.contains_key(&(begin * 2))).any(
            |event| {
                matches!(event.step.call, Call::Seek { .. })
                    && event.fate != Fate::Skipped
                    && event.step.by.process == peek.step.by.process
            },
        )
    })
}

/// Whether a peek that waits for all its bytes ends in a step, after another call has received.
fn is_raced_peek(plain: &Trace, failure: &Divergence) -> bool {
    let events = &plain.events[..plain.events.len().min(failure.step.saturating_add(1))];
    let peeks =
        |event: &Event| event.step.call.flags() & PEEK_ALL == PEEK_ALL && blocks(&event.fate);
    let receives = |event: &Event| match event.step.call {
        Call::Receive { .. } | Call::Seek { .. } => event.step.call.flags() & libc::MSG_PEEK == 0,
        Call::SpliceFrom { .. } | Call::Drain { .. } => true,
        _ => false,
    };
    failure.kind.starts_with("Receive(")
        && failure.kind.contains(" ended by ")
        && !failure.kind.ends_with("blocked became EINTR")
        && events.iter().position(peeks).is_some_and(|begin| events[begin..].iter().any(receives))
}

const PEEK_ALL: i32 = libc::MSG_PEEK | libc::MSG_WAITALL;

/// Whether a process was killed before a step.
fn was_killed(plain: &Trace, step: usize) -> bool {
    plain.events.iter().take(step).any(|event| matches!(event.step.call, Call::Kill { .. }))
}

/// Whether the bytes last sent in a direction before a step, or sent in it for a sleeper, were sent
/// with MSG_MORE or under a cork: TCP waits for more, for a while.
fn is_held_back(plain: &Trace, failure: &Divergence) -> bool {
    let wakes = failure.kind.contains(" ended by Send");
    let before = &plain.events[..plain.events.len().min(failure.step.saturating_add(wakes.into()))];
    let direction = |event: &Event| match &event.fate {
        Fate::Done(answer) => plain.streams.direction(answer),
        _ => None,
    };
    // A cork counts until it is removed; the bytes it held back are sent then.
    let mut corked = Vec::new();
    let mut held = Vec::new();
    let mut was_held = false;
    for event in before {
        let Some(direction) = direction(event) else { continue };
        match event.step.call {
            Call::SetOption {
                level: libc::IPPROTO_TCP, name: libc::TCP_CORK, ref value, ..
            } => {
                corked.retain(|other| *other != direction);
                match value {
                    OptionValue::Int(0) => held.retain(|other| *other != direction),
                    _ => corked.push(direction),
                }
            }
            Call::Send { .. }
            | Call::SendMany { .. }
            | Call::Sendfile { .. }
            | Call::SpliceTo { .. } => {
                held.retain(|other| *other != direction);
                let is_more = event.step.call.flags() & libc::MSG_MORE != 0;
                if is_more || corked.contains(&direction) {
                    held.push(direction);
                    was_held = true;
                }
            }
            _ => {}
        }
    }
    // A reset has discarded them, whatever was sent since.
    if failure.kind.ends_with("ECONNRESET became n") { was_held } else { !held.is_empty() }
}

/// Whether, up to a step, an end was shut down for reading while more was on its way to it than it
/// may have had room for. The rest, and the end of the stream, then arrive when TCP finds that
/// there is room.
fn was_shut_behind_much(plain: &Trace, step: usize) -> bool {
    let events = &plain.events[..plain.events.len().min(step.saturating_add(1))];
    events.iter().enumerate().any(|(at, event)| match (&event.step.call, &event.fate) {
        (Call::Shutdown { how: libc::SHUT_RD | libc::SHUT_RDWR, .. }, Fate::Done(answer)) => {
            let Some(direction) = plain.streams.direction(answer) else { return false };
            let counters = |event: &Event| event.before.get(direction ^ 1).copied();
            let unread = |event: &&Event| counters(event).is_some_and(|it| it.in_flight() > 0);
            let since = events[..=at].iter().rev().take_while(unread);
            since.filter_map(counters).any(|counters| counters.weight() >= MUCH)
        }
        _ => false,
    })
}

/// Whether, up to a step, SO_RCVLOWAT was set, before or while a receive slept that wants less: the
/// kernel wakes no thread until that many bytes are there.
fn was_to_want_more(plain: &Trace, step: usize) -> bool {
    let events = &plain.events[..plain.events.len().min(step.saturating_add(1))];
    let any = |wanted: fn(&Event) -> bool| events.iter().any(wanted);
    any(|event| {
        matches!(
            event.step.call,
            Call::SetOption { level: libc::SOL_SOCKET, name: libc::SO_RCVLOWAT, .. }
        )
    }) && any(|event| {
        matches!(event.step.call, Call::Receive { .. } | Call::SpliceFrom { .. })
            && blocks(&event.fate)
    })
}

/// Whether a negative time limit was set, and a process that did not set it may have the socket:
/// the kernel does not distinguish such a limit from none.
fn has_shared_negative_limit(program: &TestProgram) -> bool {
    let any = |wanted: fn(&Call) -> bool| program.steps.iter().any(|step| wanted(&step.call));
    any(|call| {
        matches!(call, Call::SetOption { value: OptionValue::Time { seconds: ..0, .. }, .. })
    }) && any(|call| matches!(call, Call::Fork { .. } | Call::Pass { .. }))
}

/// Whether a process has handlers both with SA_RESTART and without it.
fn has_handlers_of_both_kinds(program: &TestProgram) -> bool {
    let any = |with: bool| {
        program
            .steps
            .iter()
            .any(|step| matches!(step.call, Call::Signal { restart, .. } if restart == with))
    };
    any(true) && any(false)
}
