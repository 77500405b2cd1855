//! A process of a program: each thread makes the calls it is ordered to make.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};

use crate::program::{Call, CallResult, FdSlot, Fresh, OptionValue, SLOTS, payload};
use crate::sys::{self, SyscallResult, message, process, raw, readiness, signal};
use crate::wire::{self, CallOrder, SPEC, Spec, ThreadReport};

/// The number in a slot that was never used: no descriptor has it, though one could.
pub(crate) const NONE: i32 = wire::FLOOR - 1;

static SLOT: [AtomicI32; SLOTS] = [const { AtomicI32::new(NONE) }; SLOTS];
static PROCESS: AtomicUsize = AtomicUsize::new(0);
static FILES: AtomicU32 = AtomicU32::new(0);
static SIGNALS: AtomicU32 = AtomicU32::new(0);
static DIRECTORY: Mutex<String> = Mutex::new(String::new());
/// The socket through which calls on each slot last moved bytes.
static LAST: Mutex<[Identity; SLOTS]> = Mutex::new([None; SLOTS]);
/// The call that signal handlers make, and the results of those made.
static HANDLER: Mutex<Option<Call>> = Mutex::new(None);
static HANDLED: Mutex<Vec<(String, i64)>> = Mutex::new(Vec::new());

/// Runs the process that the environment describes.
pub(crate) fn main() -> Result<()> {
    let spec: Spec = serde_json::from_str(&std::env::var(SPEC).context("started by hand")?)?;
    PROCESS.store(spec.process, Ordering::Relaxed);
    FILES.store(spec.files, Ordering::Relaxed);
    DIRECTORY.lock().expect("nobody panics").clone_from(&spec.directory);
    for (slot, number) in SLOT.iter().zip(&spec.slots) {
        slot.store(*number, Ordering::Relaxed);
    }
    signal::install(spec.signals);
    SIGNALS.store(u32::from(spec.signals[0]) | u32::from(spec.signals[1]) << 1, Ordering::Relaxed);
    process::limit();
    for thread in 1..spec.threads {
        thread::spawn(move || serve(spec.process, thread, Vec::new()));
    }
    serve(spec.process, 0, replaced(&spec));
    Ok(())
}

/// The sockets that replaced others since an exec began: old and new.
fn replaced(spec: &Spec) -> Vec<(u64, u64)> {
    let pairs = spec.slots.iter().zip(&spec.sockets);
    let pairs = pairs.filter_map(|(number, before)| Some(((*before)?, raw::cookie(*number)?)));
    pairs.filter(|(before, now)| before != now).collect()
}

/// Makes calls until there are no more.
fn serve(process: usize, thread: usize, replaced: Vec<(u64, u64)>) {
    let [orders, answers] = wire::control(process, thread);
    let pid = std::process::id() as i32;
    let ready = ThreadReport::Ready { pid, thread: process::thread_id(), replaced };
    if !wire::write(answers, &ready, &[]) {
        process::leave();
    }
    while let Ok((order, _)) = wire::read::<CallOrder>(orders) {
        if order.call == Call::Exit {
            std::process::exit(0);
        }
        if let Call::Fork { child } = order.call {
            let (value, errno) = process::fork();
            if value == 0 {
                PROCESS.store(child, Ordering::Relaxed);
                process::limit();
                return serve(child, 0, Vec::new());
            }
            let answer = CallResult { value: value.min(1), errno, ..CallResult::default() };
            wire::write(answers, &ThreadReport::Answer(finished(answer)), &[]);
            continue;
        }
        if let Some(slot) = order.call.moves_by() {
            wire::write(answers, &ThreadReport::Begun(identity(number(slot))), &[]);
        }
        let mut answer = finished(perform(&order));
        let bytes = std::mem::take(&mut answer.bytes);
        if !wire::write(answers, &ThreadReport::Answer(answer), &bytes) {
            break;
        }
    }
    process::leave();
}

fn finished(mut answer: CallResult) -> CallResult {
    answer.signals = signal::taken();
    answer.changed_errno = sys::changed_errno();
    if let Ok(mut handled) = HANDLED.lock() {
        answer.seen.append(&mut handled);
    }
    answer
}

fn number(slot: FdSlot) -> i32 {
    SLOT[slot % SLOTS].load(Ordering::Relaxed)
}

/// Remembers a descriptor, if there is one.
fn keep(slot: FdSlot, (value, errno): SyscallResult) -> CallResult {
    if value >= 0 {
        SLOT[slot % SLOTS].store(value as i32, Ordering::Relaxed);
    }
    plain((value, errno))
}

fn plain(result: SyscallResult) -> CallResult {
    let (value, errno) = result;
    CallResult { value, errno, ..CallResult::default() }
}

fn seen<const N: usize>(done: SyscallResult, parts: [(&str, i64); N]) -> CallResult {
    CallResult { seen: parts.map(|(name, value)| (name.to_owned(), value)).to_vec(), ..plain(done) }
}

/// A socket's cookie, and its ports.
type Identity = Option<(u64, u16, u16)>;

fn identity(fd: i32) -> Identity {
    Some((raw::cookie(fd)?, raw::name(fd, false)?, raw::name(fd, true).unwrap_or(0)))
}

/// Adds to an answer which connection a number stands for.
fn about(fd: i32, answer: CallResult) -> CallResult {
    CallResult { connection: identity(fd), ..answer }
}

fn perform(order: &CallOrder) -> CallResult {
    match &order.call {
        Call::Send { .. }
        | Call::SendMany { .. }
        | Call::Sendfile { .. }
        | Call::SpliceTo { .. }
        | Call::Receive { .. }
        | Call::Drain { .. }
        | Call::SpliceFrom { .. }
        | Call::Seek { .. } => transfer(order),
        Call::Poll { .. }
        | Call::EpollCreate { .. }
        | Call::EpollControl { .. }
        | Call::EpollWait { .. } => wait_for(&order.call),
        call => manage(call, order.port),
    }
}

/// Calls that move bytes.
fn transfer(order: &CallOrder) -> CallResult {
    let slot = order.call.moves_by().expect("perform() asks for such calls only");
    let fd = number(slot);
    // Before the call: another thread may close the number meanwhile.
    let whose = identity(fd);
    let last = LAST.try_lock().map_or(None, |mut last| {
        let last = &mut last[slot % SLOTS];
        *last = whose.or(*last);
        *last
    });
    let mut answer = match &order.call {
        Call::Send { length, flags, way, .. } => {
            plain(message::send(fd, &payload(order.step, *length), *flags, *way))
        }
        Call::SendMany { length, count, flags, .. } => {
            let bytes = payload(order.step, length * count);
            let (mut sent, mut failed) = (0, 0);
            while sent < bytes.len() {
                let end = bytes.len().min(sent + length);
                match message::send(fd, &bytes[sent..end], *flags, crate::program::SendWay::Send) {
                    (-1, errno) => {
                        failed = errno;
                        break;
                    }
                    (count, _) => sent += count as usize,
                }
            }
            plain((sent as i64, failed))
        }
        Call::Sendfile { length, .. } => {
            let file = sys::aside(sys::memfd().0 as i32);
            message::send(file, &payload(order.step, *length), 0, crate::program::SendWay::Write);
            let done = sys::sendfile(fd, file, *length);
            sys::close(file, crate::program::CloseWay::Libc);
            plain(done)
        }
        Call::SpliceTo { length, .. } => through_pipe(|read, write| {
            message::send(write, &payload(order.step, *length), 0, crate::program::SendWay::Write);
            plain(sys::splice(read, fd, *length, 0))
        }),
        Call::SpliceFrom { length, flags, .. } => through_pipe(|read, write| {
            let done = sys::splice(fd, write, *length, *flags);
            let mut bytes = vec![0; usize::try_from(done.0).unwrap_or(0)];
            message::receive(read, &mut bytes, 0, crate::program::ReceiveWay::Read);
            CallResult { bytes, ..plain(done) }
        }),
        Call::Receive { length, flags, way, .. } => {
            // Bytes that the call does not write stay zero.
            let mut room = vec![0; *length];
            let (done, info) = message::receive(fd, &mut room, *flags, *way);
            room.truncate(usize::try_from(done.0).unwrap_or(0));
            CallResult {
                bytes: room,
                ..seen(
                    done,
                    [
                        ("flags", (info.flags & !libc::MSG_CMSG_CLOEXEC).into()),
                        ("unread", info.unread.map_or(-1, i64::from)),
                    ],
                )
            }
        }
        Call::Drain { .. } => drain(fd),
        Call::Seek { length, flags, .. } => {
            let mut room = vec![0; *length];
            let done = sys::seek(fd, &mut room, *flags)
                .unwrap_or_else(|| seek_on_tcp(fd, &mut room, *flags));
            room.truncate(usize::try_from(done.0).unwrap_or(0));
            CallResult { bytes: room, ..plain(done) }
        }
        _ => unreachable!("transfer() asks for these only"),
    };
    answer.moved = raw::cookie(fd) != whose.map(|(cookie, ..)| cookie);
    // A library that did not see the close may take the number for its connection for a while.
    let is_closed = || !raw::is_open(fd);
    answer.connection = whose.or_else(|| last.filter(|_| answer.value > 0 && is_closed()));
    answer
}

/// Does on plain TCP what seek_recv does at offset 0: receives all the bytes or none, or fewer at
/// the end of the stream.
fn seek_on_tcp(fd: i32, room: &mut [u8], flags: i32) -> SyscallResult {
    let receive = |room: &mut [u8], flags| {
        message::receive(fd, room, flags, crate::program::ReceiveWay::Recv).0
    };
    let there = receive(room, flags | libc::MSG_PEEK);
    if there.0 < 0 {
        // The kernel reports an error once.
        return there;
    }
    // In order: after a reset, fewer bytes are an error.
    let has_ended = || {
        let way = crate::program::PollWay::Poll;
        readiness::poll(&[(fd, libc::POLLRDHUP)], 0, way).1 == [libc::POLLRDHUP]
    };
    if flags & libc::MSG_DONTWAIT != 0 && there.0 > 0 && there.0 < room.len() as i64 && !has_ended()
    {
        return (-1, libc::EAGAIN);
    }
    receive(room, flags | libc::MSG_WAITALL)
}

fn through_pipe(work: impl FnOnce(i32, i32) -> CallResult) -> CallResult {
    let [read, write] = sys::pipe().1.map(sys::aside);
    let answer = work(read, write);
    sys::close(read, crate::program::CloseWay::Libc);
    sys::close(write, crate::program::CloseWay::Libc);
    answer
}

fn drain(fd: i32) -> CallResult {
    let mut bytes = Vec::new();
    let mut room = vec![0; 1 << 16];
    loop {
        let way = crate::program::ReceiveWay::Recv;
        let ((value, errno), _) = message::receive(fd, &mut room, libc::MSG_DONTWAIT, way);
        if value <= 0 {
            return CallResult { value, errno, bytes, ..CallResult::default() };
        }
        bytes.extend(&room[..value as usize]);
    }
}

/// poll, select, epoll.
fn wait_for(call: &Call) -> CallResult {
    match call {
        Call::Poll { entries, timeout, way } => {
            let numbers: Vec<_> =
                entries.iter().map(|(slot, events)| (number(*slot), *events)).collect();
            let (done, ready) = readiness::poll(&numbers, *timeout, *way);
            let ready =
                ready.iter().enumerate().map(|(at, bits)| (format!("{at}"), i64::from(*bits)));
            CallResult { seen: ready.collect(), ..plain(done) }
        }
        Call::EpollCreate { slot } => keep(*slot, readiness::epoll_create()),
        Call::EpollControl { epoll, operation, slot, events } => plain(readiness::epoll_control(
            number(*epoll),
            *operation,
            number(*slot),
            *events,
            *slot as u64,
        )),
        Call::EpollWait { epoll, room, timeout, times } => {
            let mut all = BTreeSet::new();
            let mut last = (0, 0);
            for _ in 0..*times {
                let (done, ready) = readiness::epoll_wait(number(*epoll), *room, *timeout);
                all.extend(
                    ready.into_iter().map(|(data, events)| (format!("{data}"), i64::from(events))),
                );
                last = done;
            }
            CallResult { seen: all.into_iter().collect(), ..plain(last) }
        }
        _ => unreachable!("perform() asks for these only"),
    }
}

/// Everything else.
fn manage(call: &Call, port: u16) -> CallResult {
    match call {
        Call::Listen { slot } => {
            let (done, port) = sys::listen();
            CallResult { connection: Some((0, port, 0)), ..keep(*slot, done) }
        }
        Call::Socket { slot, flags } => keep(*slot, sys::socket(*flags)),
        Call::Connect { slot, .. } => {
            about(number(*slot), plain(sys::connect(number(*slot), port)))
        }
        Call::Accept { slot, listener, flags } => {
            let answer = keep(*slot, sys::accept(number(*listener), *flags));
            let fd = answer.value as i32;
            about(fd, answer)
        }
        Call::Close { slot, way } => plain(sys::close(number(*slot), *way)),
        Call::Shutdown { slot, how, way } => {
            let whose = identity(number(*slot));
            CallResult { connection: whose, ..plain(sys::shutdown(number(*slot), *how, *way)) }
        }
        Call::Dup { slot, to, way } => keep(*to, sys::dup(number(*slot), number(*to), *way)),
        Call::Open { slot, what } => keep(*slot, open(*what)),
        Call::SetOption { slot, level, name, value } => {
            let done = plain(sys::set_option(number(*slot), *level, *name, *value));
            about(number(*slot), done)
        }
        Call::GetOption { slot, level, name } => {
            about(number(*slot), option(number(*slot), *level, *name))
        }
        Call::Nonblocking { slot, on, way } => {
            plain(sys::set_nonblocking(number(*slot), *on, *way))
        }
        Call::Ioctl { slot, request } => {
            let (done, value) = sys::ioctl(number(*slot), *request);
            about(number(*slot), seen(done, [("value", value.into())]))
        }
        Call::Fstat { slot } => {
            let (done, kind, size) = sys::fstat(number(*slot));
            seen(done, [("kind", kind), ("size", size)])
        }
        Call::Rewind { slot } => plain(sys::rewind(number(*slot))),
        Call::Names { slot } => {
            let fd = number(*slot);
            let ((local, port), (remote, peer)) = (sys::name(fd, false), sys::name(fd, true));
            let same = |port: u16, far: bool| i64::from(raw::name(fd, far) == Some(port));
            let (port, peer) = (same(port, false), same(peer, true));
            about(
                fd,
                seen(remote, [("local", port), ("remote", peer), ("local errno", local.1.into())]),
            )
        }
        Call::Exec { there } => exec(*there),
        Call::Pass { slot, to } => {
            let whose = identity(number(*slot));
            let passed = plain(message::pass(wire::mailbox(*to)[1], number(*slot)));
            CallResult { connection: whose, ..passed }
        }
        Call::Take { slot } => {
            let process = PROCESS.load(Ordering::Relaxed);
            let answer = keep(*slot, message::take(wire::mailbox(process)[0]));
            let fd = answer.value as i32;
            about(fd, answer)
        }
        Call::Handler { action } => {
            *HANDLER.lock().expect("nobody panics") = action.as_deref().cloned();
            signal::handle_with(handle);
            CallResult::default()
        }
        Call::Left => left(),
        other => unreachable!("{other:?} is the coordinator's, or another function's"),
    }
}

/// Runs in a signal handler.
fn handle() {
    let Ok(call) = HANDLER.try_lock() else { return };
    let Some(call) = call.clone() else { return };
    let name = call.name();
    let answer = perform(&CallOrder { step: u64::MAX, call, port: 0 });
    if let Ok(mut handled) = HANDLED.try_lock() {
        handled.push((format!("handler {name}"), answer.value));
        handled.push(("handler errno".to_owned(), answer.errno.into()));
    }
}

fn open(what: Fresh) -> SyscallResult {
    match what {
        Fresh::File => {
            let directory = DIRECTORY.lock().expect("nobody panics").clone();
            let process = PROCESS.load(Ordering::Relaxed);
            let file = FILES.fetch_add(1, Ordering::Relaxed);
            sys::open(&format!("{directory}/{process}-{file}"))
        }
        Fresh::Pipe => {
            let (done, [read, write]) = sys::pipe();
            // The writing end takes the next number and stays.
            let _ = write;
            if done.0 == 0 { (read.into(), 0) } else { done }
        }
        Fresh::Eventfd => sys::eventfd(),
        Fresh::Memfd => sys::memfd(),
    }
}

fn option(fd: i32, level: i32, name: i32) -> CallResult {
    let (done, value, length) = sys::option(fd, level, name);
    let word = |at: usize| {
        i64::from(i32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]))
    };
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        return seen(done, [("state", value[0].into())]);
    }
    seen(done, [("length", length.into()), ("value", word(0)), ("second", word(8))])
}

fn exec(there: bool) -> CallResult {
    let process = PROCESS.load(Ordering::Relaxed);
    let spec = Spec {
        process,
        threads: 1,
        directory: DIRECTORY.lock().expect("nobody panics").clone(),
        slots: (0..SLOTS).map(number).collect(),
        sockets: (0..SLOTS).map(|slot| raw::cookie(number(slot))).collect(),
        signals: [
            SIGNALS.load(Ordering::Relaxed) & 1 != 0,
            SIGNALS.load(Ordering::Relaxed) & 2 != 0,
        ],
        files: FILES.load(Ordering::Relaxed),
    };
    let text = serde_json::to_string(&spec).unwrap_or_default();
    let others = std::env::vars().filter(|(name, _)| name != SPEC);
    let environment: Vec<_> = others.chain([(SPEC.to_owned(), text)]).collect();
    let path = if there { "/proc/self/exe" } else { "/nowhere" };
    let failed = plain(process::exec(path, "actor", &environment));
    CallResult { replaced: replaced(&spec), ..failed }
}

/// The descriptors of the process that belong to the program, each with its kind.
fn left() -> CallResult {
    let mut answer = CallResult::default();
    for number in 0..wire::FLOOR {
        if let Ok(target) = std::fs::read_link(format!("/proc/self/fd/{number}")) {
            let text = target.to_string_lossy().into_owned();
            let kind = text.split([':', '(', '-']).next().unwrap_or_default();
            let kind =
                if kind.starts_with("/memfd") || !kind.starts_with('/') { kind } else { "file" };
            answer.seen.push((format!("{number} {kind}"), 0));
        }
    }
    answer
}

impl OptionValue {
    /// A switch that is on.
    pub(crate) const ON: Self = Self::Int(1);
}
