//! Decides whether TCP allows what an accelerated run shows. The plain run is the control. Where
//! the kernel is free, in how much a call moves and in the consequences, this file defines what
//! else is allowed.

use std::collections::{BTreeMap, BTreeSet};

use crate::circumstances;
use crate::program::{Call, CallResult, ReceiveWay, SendWay, TestProgram};
use crate::streams::ByteCounters;
use crate::trace::{Divergence, Event, Fate, Trace, blocks, errno, show_event};

/// In flight, a send may be taken in part or not at all; below this, the kernel's smallest buffers
/// take everything.
const ROOM: u64 = 16 << 10;

/// How often a kind of call was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) compared: u64,
    /// Of these: asleep at the end of the step, or failed.
    pub(crate) blocked: u64,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.blocked += other.blocked;
        self.failed += other.failed;
    }

    fn of(fate: &Fate) -> Self {
        let failed = matches!(fate, Fate::Done(answer) if answer.value == -1);
        Self { compared: 1, blocked: blocks(fate).into(), failed: failed.into() }
    }
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) failure: Option<Divergence>,
    /// Some calls could not be compared one by one.
    pub(crate) loose: bool,
    /// Those that could.
    pub(crate) calls: BTreeMap<String, Tally>,
}

pub(crate) fn compare(program: &TestProgram, plain: &Trace, accelerated: &Trace) -> Comparison {
    let mut calls = BTreeMap::new();
    let (failure, loose) = compare_runs(program, plain, accelerated, &mut calls);
    // Wrong bytes come first, whatever else differs and is expected.
    let failure = wrong_bytes(plain, accelerated).or(failure);
    let circumstances = failure.as_ref().map(|failure| circumstances::of(program, plain, failure));
    let prefix = circumstances.unwrap_or_default();
    let failure =
        failure.map(|failure| Divergence { kind: format!("{prefix}{}", failure.kind), ..failure });
    Comparison { failure, loose, calls }
}

fn compare_runs(
    program: &TestProgram,
    plain: &Trace,
    accelerated: &Trace,
    calls: &mut BTreeMap<String, Tally>,
) -> (Option<Divergence>, bool) {
    let mut diverged = false;
    let mut ends = Ends::default();
    for (at, (control, tried)) in plain.events.iter().zip(&accelerated.events).enumerate() {
        let fail = |kind: String| Divergence {
            kind,
            step: at,
            text: format!(
                "step {at}: {:?}\n  plain:       {}\n  accelerated: {}",
                control.step,
                show_event(control),
                show_event(tried)
            ),
        };
        // These never happen, whatever a program does.
        if let Some(what) = impossible(tried).filter(|_| impossible(control).is_none()) {
            return (Some(fail(format!("{}: {what}", control.step.call.name()))), diverged);
        }
        if impossible(control).is_some() {
            // The plain run shows it as well: the machine was too slow for this program.
            diverged = true;
            continue;
        }
        if control.step.beside.is_some() {
            // Two concurrent calls wake unspecified threads, for unspecified reasons.
            diverged |= !same(&control.fate, &tried.fate)
                || control.beside != tried.beside
                || control.ended.len() != tried.ended.len()
                || control
                    .ended
                    .iter()
                    .zip(&tried.ended)
                    .any(|(a, b)| a.0 != b.0 || !same(a.1, b.1));
            continue;
        }
        if !diverged && control.fate != Fate::Skipped {
            for name in control.step.call.kinds() {
                calls.entry(name).or_default().add(Tally::of(&tried.fate));
            }
        }
        let balanced = control.before == tried.before;
        let mut freedom = Freedom::of(&control.step.call, control, tried);
        ends.killed(plain, at);
        freedom.dead = ends.dead(plain, at);
        freedom.connected = direction(plain, at).is_some();
        freedom.crowded |= is_being_filled(plain, at) || is_being_filled(accelerated, at);
        let is_excused = ends.excuses(plain, at, tried);
        ends.note_reported_end(accelerated, at);
        if is_excused {
            continue;
        }
        match judge(&control.step.call, &control.fate, &tried.fate, freedom) {
            Verdict::Same => {}
            Verdict::Allowed => diverged |= blocks(&control.fate) != blocks(&tried.fate),
            Verdict::Different(_) if diverged => {}
            Verdict::Different(how) => {
                return (Some(fail(format!("{}: {how}", control.step.call.name()))), diverged);
            }
        }
        ends.learn(plain, accelerated, at);
        if diverged {
            continue;
        }
        if let Some((allowed, how)) = ended(plain, control, tried, balanced, &ends) {
            if !allowed {
                return (Some(fail(how)), diverged);
            }
            diverged = true;
        }
    }
    (lost_bytes(program, plain, accelerated), diverged)
}

fn of_streams(kind: &str, text: String) -> Divergence {
    Divergence { kind: kind.to_owned(), step: usize::MAX, text }
}

/// Bytes that were received but not sent that way.
fn wrong_bytes(plain: &Trace, accelerated: &Trace) -> Option<Divergence> {
    let text = accelerated.streams.wrong().into_iter().next()?;
    let is_models = !plain.streams.wrong().is_empty();
    let kind = if is_models { "model: wrong bytes" } else { "stream: wrong bytes" };
    Some(of_streams(kind, text))
}

/// Bytes that were sent and did not arrive, whatever the calls returned.
fn lost_bytes(program: &TestProgram, plain: &Trace, accelerated: &Trace) -> Option<Divergence> {
    let killed = program.steps.iter().any(|step| matches!(step.call, Call::Kill { .. }));
    let (control, tried) = (plain.streams.lost(), accelerated.streams.lost());
    let lost = tried
        .iter()
        .enumerate()
        .find(|(at, lost)| **lost > 0 && control.get(*at).is_none_or(|lost| *lost == 0));
    match lost {
        Some((at, lost)) if !killed => Some(of_streams(
            "stream: lost bytes",
            format!("direction {at}: {lost} bytes were sent and never came"),
        )),
        _ => None,
    }
}

fn impossible(event: &Event) -> Option<&'static str> {
    // A thread that is asleep when its process exits does not return.
    let exits = matches!(event.step.call, Call::Exit);
    let ended = event.ended.values().filter(|fate| !exits || **fate != Fate::Died);
    let fates = [Some(&event.fate), event.beside.as_ref()].into_iter().flatten().chain(ended);
    fates
        .filter_map(|fate| match fate {
            Fate::Spins => Some("spins"),
            Fate::Died => Some("died"),
            Fate::Done(CallResult { changed_errno: Some(_), .. }) => {
                Some("succeeded and changed errno")
            }
            _ => None,
        })
        .next()
}

/// Differences that the state before a step allows.
#[derive(Clone, Copy, Debug)]
struct Freedom {
    /// Both runs have moved the same bytes so far.
    balanced: bool,
    /// Bytes are under way: TCP may hold them back for a moment (Nagle, delayed acknowledgements).
    under_way: bool,
    /// The connection was reset, or bytes were sent after the peer's end: any further report of
    /// that end depends on when it is noticed.
    dead: bool,
    /// Somewhere so many bytes are in flight that buffers may be full.
    crowded: bool,
    /// The call was made on an end of a connection.
    connected: bool,
}

impl Freedom {
    fn of(call: &Call, control: &Event, tried: &Event) -> Self {
        let crowded =
            |counters: &[ByteCounters]| counters.iter().any(|counters| counters.weight() >= ROOM);
        Self {
            balanced: control.before == tried.before,
            dead: false,
            connected: true,
            under_way: control.before.iter().any(|counters| counters.in_flight() > 0),
            crowded: sends_much(call) || crowded(&control.before) || crowded(&tried.before),
        }
    }
}

/// Whether a call may fill buffers.
fn sends_much(call: &Call) -> bool {
    let bytes = match call {
        Call::Send { length, .. }
        | Call::Sendfile { length, .. }
        | Call::SpliceTo { length, .. } => *length,
        Call::SendMany { length, count, .. } => length * count,
        _ => 0,
    };
    bytes as u64 >= ROOM
}

/// Whether a call that [sends much](sends_much) was asleep when a step began: how much it has sent
/// by then is unknown.
fn is_being_filled(trace: &Trace, at: usize) -> bool {
    let is_asleep = |(sender, event): (usize, &Event)| {
        event.fate == Fate::Blocked
            && sends_much(&event.step.call)
            && !trace.events[sender..at].iter().any(|later| later.ended.contains_key(&sender))
    };
    trace.events[..at].iter().enumerate().any(is_asleep)
}

/// Errors that report the end of a connection, apart from the end of the stream.
const END: [i32; 2] = [libc::EPIPE, libc::ECONNRESET];

/// Maximum number of sends after the peer's end that may succeed: as many as can be on their way
/// before its answer arrives.
const EXCUSED: u64 = 16;

/// Connections that have ended, as far as the calls show.
#[derive(Debug, Default)]
struct Ends {
    /// By connection: sends that were excused.
    dead: BTreeMap<usize, u64>,
    /// Directions whose sender has learned of the end, in the accelerated run.
    notified: BTreeSet<usize>,
}

impl Ends {
    /// Whether a step may concern a connection that has ended.
    fn dead(&self, plain: &Trace, at: usize) -> bool {
        match plain.events[at].step.call {
            Call::Poll { .. } | Call::EpollWait { .. } => !self.dead.is_empty(),
            _ => direction(plain, at)
                .is_some_and(|direction| self.dead.contains_key(&(direction / 2))),
        }
    }

    /// When a process is killed, its kernel does not know of bytes that it had not received from
    /// the ring, and closes the connection in order where TCP alone resets it; bytes that arrive
    /// after its end are also on the ring.
    fn killed(&mut self, plain: &Trace, at: usize) {
        let Call::Kill { process } = plain.events[at].step.call else { return };
        for (earlier, event) in plain.events[..at].iter().enumerate() {
            if event.step.by.process == process {
                if let Some(direction) = direction(plain, earlier) {
                    self.dead.entry(direction / 2).or_default();
                }
            }
        }
    }

    fn learn(&mut self, plain: &Trace, accelerated: &Trace, at: usize) {
        for trace in [plain, accelerated] {
            if let (Some(direction), Fate::Done(answer)) =
                (direction(trace, at), &trace.events[at].fate)
            {
                if answer.value == -1
                    && (answer.errno == libc::ECONNRESET
                        || (answer.errno == libc::EPIPE && !trace.streams.is_shut(direction, at)))
                {
                    self.dead.entry(direction / 2).or_default();
                }
            }
        }
    }

    /// Whether a send may succeed though the peer is gone: the sender may not know that yet.
    fn excuses(&mut self, plain: &Trace, at: usize, tried: &Event) -> bool {
        let Some(direction) =
            direction(plain, at).filter(|direction| !plain.streams.is_shut(*direction, at))
        else {
            return false;
        };
        let (Fate::Done(control), Fate::Done(tried)) = (&plain.events[at].fate, &tried.fate) else {
            return false;
        };
        let reports_end = |answer: &CallResult| END.contains(&answer.errno);
        let sends = match &plain.events[at].step.call {
            Call::SendMany { length, .. } => {
                u64::try_from(tried.value).unwrap_or(0) / (*length as u64).max(1)
            }
            // The kernel looks at the bytes when it sends them.
            Call::Send { way: SendWay::BadAddress, .. } => u64::from(tried.errno == libc::EFAULT),
            Call::Send { .. } | Call::Sendfile { .. } | Call::SpliceTo { .. } => {
                u64::from(tried.value > 0)
            }
            _ => return false,
        };
        if !reports_end(control) {
            return false;
        }
        let count = self.dead.entry(direction / 2).or_default();
        *count += sends;
        ((sends > 0 && !self.notified.contains(&direction)) || reports_end(tried))
            && *count <= EXCUSED
    }

    /// Notes that the sender knows of the end of a connection, once a call has reported it.
    fn note_reported_end(&mut self, accelerated: &Trace, at: usize) {
        if let (Some(direction), Fate::Done(answer)) =
            (direction(accelerated, at), &accelerated.events[at].fate)
        {
            if answer.value == -1 && (END.contains(&answer.errno) || answer.errno == libc::ENOTCONN)
            {
                self.notified.insert(direction);
            }
        }
    }
}

/// The direction in which the socket of a step sends.
fn direction(trace: &Trace, at: usize) -> Option<usize> {
    match &trace.events[at].fate {
        Fate::Done(answer) => trace.streams.direction(answer),
        _ => None,
    }
}

enum Verdict {
    Same,
    Allowed,
    Different(String),
}

fn judge(call: &Call, control: &Fate, tried: &Fate, freedom: Freedom) -> Verdict {
    if same(control, tried) {
        return Verdict::Same;
    }
    let reports_end = |fate: &Fate| match fate {
        Fate::Done(answer) => {
            answer.value == 0 || END.contains(&answer.errno) || answer.errno == libc::ENOTCONN
        }
        _ => false,
    };
    let of_its_end =
        !matches!(call, Call::Poll { .. } | Call::EpollWait { .. } | Call::EpollControl { .. });
    if (freedom.dead || freedom.crowded) && of_its_end && reports_end(control) && reports_end(tried)
    {
        return Verdict::Allowed;
    }
    // recvmmsg reports the error before the bytes.
    let reports_late = |fate: &Fate| matches!(fate, Fate::Done(answer) if answer.value == -1 && END.contains(&answer.errno));
    if freedom.dead
        && matches!(call, Call::Receive { way: ReceiveWay::Recvmmsg, .. })
        && reports_late(control)
        && !fails(tried)
    {
        return Verdict::Allowed;
    }
    // Of many sends in a row, those succeed that are made before the answer of a vanished peer
    // arrives.
    let cut = |fate: &Fate| matches!(fate, Fate::Done(answer) if answer.value > 0 && END.contains(&answer.errno));
    let moved = |fate: &Fate| matches!(fate, Fate::Done(answer) if answer.value > 0);
    if matches!(call, Call::SendMany { .. })
        && (cut(control) || cut(tried))
        && moved(control)
        && moved(tried)
    {
        return Verdict::Allowed;
    }
    let waits = |fate: &Fate| match fate {
        Fate::Done(answer) => (answer.value, answer.errno) == (-1, libc::EAGAIN),
        fate => matches!(fate, Fate::Blocked),
    };
    let allowed = match call {
        Call::Send { .. }
        | Call::SendMany { .. }
        | Call::Sendfile { .. }
        | Call::SpliceTo { .. } => {
            // Bytes that exceed the other end's buffers are not refused yet at that point.
            freedom.crowded && !fails(control) && (!fails(tried) || reports_end(tried))
        }
        Call::Receive { .. } | Call::SpliceFrom { .. } => {
            let part =
                call.flags() & (libc::MSG_WAITALL | libc::MSG_OOB) == 0 && is_part(control, tried);
            (!freedom.balanced && !fails(control) && (!fails(tried) || reports_end(tried)))
                || part
                // A reset discards bytes that were not sent yet.
                || (freedom.crowded && reports_end(control) && !fails(tried))
                || (freedom.under_way && is_sooner(control, tried))
        }
        // seek_recv(3) reports a socket without a connection.
        Call::Seek { .. } => {
            !freedom.balanced
                || !freedom.connected
                || (reports_end(control) && reports_end(tried))
                // It takes all or nothing of the bytes that have arrived, and a reset discards
                // bytes that were not sent yet.
                || (freedom.crowded && (freedom.dead && reports_end(tried) || waits(control) || waits(tried)))
                || (freedom.under_way && is_sooner(control, tried))
        }
        Call::Drain { .. } => {
            end(control) == end(tried)
                && (!freedom.balanced
                    || (freedom.crowded && is_alike(control, tried))
                    || (freedom.under_way && is_sooner(control, tried)))
        }
        Call::Poll { .. } | Call::EpollWait { .. } | Call::Ioctl { .. } => {
            !freedom.balanced
                || freedom.dead
                || freedom.crowded
                || (freedom.under_way && is_sooner(control, tried))
        }
        _ => false,
    };
    if allowed { Verdict::Allowed } else { Verdict::Different(difference(control, tried)) }
}

/// Neither bytes, nor a reason to try again, nor asleep.
fn fails(fate: &Fate) -> bool {
    match fate {
        Fate::Done(answer) => {
            answer.value == -1 && ![libc::EAGAIN, libc::EINTR].contains(&answer.errno)
        }
        Fate::Blocked => false,
        _ => true,
    }
}

fn end(fate: &Fate) -> Option<(i64, i32)> {
    match fate {
        Fate::Done(answer) => Some((answer.value, answer.errno)),
        _ => None,
    }
}

/// The accelerated run received the beginning of what the plain one did.
fn is_part(control: &Fate, tried: &Fate) -> bool {
    match (control, tried) {
        (Fate::Done(control), Fate::Done(tried)) => {
            0 < tried.value
                && tried.value < control.value
                && control.bytes.starts_with(&tried.bytes)
        }
        _ => false,
    }
}

/// One run received the beginning of what the other did: a thread that sent while the call received
/// was slower.
fn is_alike(control: &Fate, tried: &Fate) -> bool {
    match (control, tried) {
        (Fate::Done(control), Fate::Done(tried)) => {
            control.bytes.starts_with(&tried.bytes) || tried.bytes.starts_with(&control.bytes)
        }
        _ => false,
    }
}

/// The accelerated run has what the plain one has, and something still under way there.
fn is_sooner(control: &Fate, tried: &Fate) -> bool {
    let nothing = CallResult::default();
    let control = match control {
        Fate::Blocked => &nothing,
        Fate::Done(answer) => answer,
        _ => return false,
    };
    let Fate::Done(tried) = tried else { return false };
    let sooner = |(name, bits): &(String, i64)| {
        tried.seen.iter().any(|(other, more)| other == name && more & bits == *bits)
    };
    let nothing_yet = control.value >= 0 || control.errno == libc::EAGAIN;
    nothing_yet
        && (tried.value >= 0 || tried.value == control.value)
        && tried.bytes.starts_with(&control.bytes)
        && (!tried.bytes.is_empty() || control.seen.iter().all(sooner))
}

/// Calls that ended in this step in one run, and differently or not at all in the other: whether
/// that is allowed, and how they differ.
fn ended(
    plain: &Trace,
    control: &Event,
    tried: &Event,
    balanced: bool,
    ends: &Ends,
) -> Option<(bool, String)> {
    let steps = |ended: &BTreeMap<usize, Fate>| ended.keys().copied().collect::<Vec<_>>();
    let mut all = steps(&control.ended);
    all.extend(steps(&tried.ended));
    for step in all {
        let earlier = &plain.events[step / 2];
        let call =
            if step % 2 == 0 { &earlier.step.call } else { &earlier.step.beside.as_ref()?.1 };
        let get = |event: &Event| event.ended.get(&step).cloned().unwrap_or(Fate::Blocked);
        let (first, second) = (get(control), get(tried));
        let dead = [&first, &second].into_iter().any(|fate| match fate {
            Fate::Done(answer) => plain
                .streams
                .direction(answer)
                .is_some_and(|direction| ends.dead.contains_key(&(direction / 2))),
            _ => false,
        });
        let dead = dead
            || (matches!(call, Call::Poll { .. } | Call::EpollWait { .. })
                && !ends.dead.is_empty());
        let freedom = Freedom { balanced, dead, ..Freedom::of(call, control, tried) };
        // Woken by the first of several sends, a receive takes as many as have come when it looks.
        let in_pieces = matches!(control.step.call, Call::SendMany { .. })
            && matches!(call, Call::Receive { .. } | Call::SpliceFrom { .. })
            && is_alike(&first, &second);
        match judge(call, &first, &second, freedom) {
            Verdict::Same => {}
            Verdict::Different(_) if in_pieces => return Some((true, String::new())),
            Verdict::Allowed => return Some((true, String::new())),
            Verdict::Different(how) => {
                // Several calls wait for the same: which of them gets what is unspecified.
                let rivals = |event: &Event| event.ended.len();
                let allowed =
                    rivals(control) > 0 && rivals(tried) > 0 && rivals(control) + rivals(tried) > 2
                        || (rivals(control) == rivals(tried)
                            && control.ended.keys().ne(tried.ended.keys()));
                return Some((
                    allowed,
                    format!("{} ended by {}: {how}", call.name(), control.step.call.name()),
                ));
            }
        }
    }
    None
}

/// Whether a program sees the same.
fn same(control: &Fate, tried: &Fate) -> bool {
    match (control, tried) {
        (Fate::Done(control), Fate::Done(tried)) => {
            let visible = |answer: &CallResult| CallResult {
                connection: None,
                moved: false,
                replaced: Vec::new(),
                ..answer.clone()
            };
            visible(control) == visible(tried)
        }
        _ => control == tried,
    }
}

/// How they differ, without the numbers that vary from program to program.
fn difference(control: &Fate, tried: &Fate) -> String {
    let class = |fate: &Fate| match fate {
        Fate::Done(answer) => match answer.value {
            -1 => errno(answer.errno),
            0 => "0".to_owned(),
            _ => "n".to_owned(),
        },
        other => format!("{other:?}").to_lowercase(),
    };
    let (first, second) = (class(control), class(tried));
    if first != second {
        return format!("{first} became {second}");
    }
    let (Fate::Done(control), Fate::Done(tried)) = (control, tried) else {
        return "other".to_owned();
    };
    if control.value != tried.value {
        format!("{first} became another number")
    } else if control.bytes != tried.bytes {
        "other bytes".to_owned()
    } else if control.signals != tried.signals {
        "other signals".to_owned()
    } else {
        "other state".to_owned()
    }
}
