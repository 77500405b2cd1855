//! The agent's messages, one line each: findings go to standard output, problems to standard error.
//!
//! Nobody has to read them. Each stream has a thread of its own, so that a stream that is full or
//! closed blocks no other thread. Each link has a budget of lines, since the other machine could
//! cause any number of messages.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use seekwire_program::table;

/// Maximum number of lines of a link at once: more than it has addresses.
const BURST: u32 = 128;
/// How long it takes for another line to become available.
const EACH: Duration = Duration::from_secs(10);
/// Maximum number of lines that wait for a stream.
const WAITING: usize = 256;
/// How long the agent waits for them when it ends.
const LAST: Duration = Duration::from_secs(1);

struct Log {
    out: Stream,
    errors: Stream,
    /// By the name of the link; the agent itself has an empty one.
    budgets: Mutex<BTreeMap<String, Budget>>,
}

static LOG: Log =
    Log { out: Stream::new(), errors: Stream::new(), budgets: Mutex::new(BTreeMap::new()) };

/// Locks, also after a thread has panicked: the guarded value is complete at any time.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the threads that write.
///
/// # Errors
///
/// No thread can be started.
pub(super) fn begin() -> Result<()> {
    let start = |write: fn()| thread::Builder::new().spawn(write).context("cannot start a thread");
    start(|| LOG.out.write_to(io::stdout()))?;
    start(|| LOG.errors.write_to(io::stderr()))?;
    Ok(())
}

/// Prints a finding about a link, or about the agent itself, to standard output.
pub(super) fn say(link: Option<&str>, line: Arguments<'_>) {
    if LOG.may_say(link, &LOG.out) {
        LOG.out.push(format!("{}{}", prefix(link), table::printable(&line.to_string())));
    }
}

/// Prints a problem to standard error.
pub(super) fn complain(link: Option<&str>, line: Arguments<'_>) {
    if LOG.may_say(link, &LOG.errors) {
        LOG.errors.push(format!("seekwire: {}", table::lines(&line.to_string())));
    }
}

/// Reports how many lines were left out, for links that have had no line since.
pub(super) fn catch_up() {
    let now = Instant::now();
    for (name, budget) in lock(&LOG.budgets).iter_mut() {
        // The next line then comes in order.
        if budget.left_out > 0 && budget.left_at(now) > 1 && budget.take(now) {
            tell_left_out(name, budget, &LOG.out);
        }
    }
}

/// Waits until all lines are written, at most [`LAST`].
pub(super) fn end() {
    let until = Instant::now() + LAST;
    LOG.out.wait_until_written(until);
    LOG.errors.wait_until_written(until);
}

fn prefix(link: Option<&str>) -> String {
    link.map(|name| format!("{name}: ")).unwrap_or_default()
}

impl Log {
    /// If earlier lines were left out, their number is reported with this one.
    fn may_say(&self, link: Option<&str>, stream: &Stream) -> bool {
        let now = Instant::now();
        let name = link.unwrap_or_default();
        let mut budgets = lock(&self.budgets);
        let budget = budgets.entry(name.to_owned()).or_insert_with(|| Budget::new(now));
        let may_say = budget.take(now);
        if may_say {
            tell_left_out(name, budget, stream);
        }
        may_say
    }
}

fn tell_left_out(link: &str, budget: &mut Budget, stream: &Stream) {
    let count = std::mem::take(&mut budget.left_out);
    if count > 0 {
        let link = Some(link).filter(|name| !name.is_empty());
        stream.push(format!("{}too many lines: {count} were left out", prefix(link)));
    }
}

/// The number of lines that a link may print.
#[derive(Debug)]
struct Budget {
    left: u32,
    /// The time since when it has waited for another line.
    since: Instant,
    left_out: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now, left_out: 0 }
    }

    /// The number of lines available now.
    fn left_at(&mut self, now: Instant) -> u32 {
        while self.left < BURST && now.saturating_duration_since(self.since) >= EACH {
            self.left += 1;
            self.since += EACH;
        }
        if self.left == BURST {
            self.since = now;
        }
        self.left
    }

    /// Takes a line from the budget, or counts it as left out. Returns whether it may be printed.
    fn take(&mut self, now: Instant) -> bool {
        let has_one = self.left_at(now) > 0;
        self.left = self.left.saturating_sub(1);
        self.left_out += u64::from(!has_one);
        has_one
    }
}

/// A stream to which lines are written.
struct Stream {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    lines: VecDeque<String>,
    /// Lines dropped since the queue was full; until their number is reported, all further lines
    /// are dropped as well.
    left_out: u64,
    is_writing: bool,
}

impl Stream {
    const fn new() -> Self {
        let waiting = Waiting { lines: VecDeque::new(), left_out: 0, is_writing: false };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn push(&self, line: String) {
        let mut waiting = lock(&self.waiting);
        if waiting.left_out > 0 || waiting.lines.len() == WAITING {
            waiting.left_out += 1;
        } else {
            waiting.lines.push_back(line);
            self.changed.notify_all();
        }
    }

    /// Writes lines as they come. Failures are ignored: no other channel is left.
    fn write_to(&self, mut stream: impl Write + AsFd) {
        loop {
            let line = self.next();
            let _ = write_whole(&mut stream, format!("{line}\n").as_bytes());
        }
    }

    fn next(&self) -> String {
        let mut waiting = lock(&self.waiting);
        waiting.is_writing = false;
        self.changed.notify_all();
        let is_idle = |waiting: &mut Waiting| waiting.lines.is_empty() && waiting.left_out == 0;
        let woken = self.changed.wait_while(waiting, is_idle);
        waiting = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        waiting.is_writing = true;
        waiting.lines.pop_front().unwrap_or_else(|| {
            let count = std::mem::take(&mut waiting.left_out);
            format!("this was not read in time: {count} lines were left out")
        })
    }

    fn wait_until_written(&self, until: Instant) {
        let waiting = lock(&self.waiting);
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        let left = until.saturating_duration_since(Instant::now());
        let _ = self.changed.wait_timeout_while(waiting, left, is_busy);
    }
}

/// Also works for a non-blocking stream: a process that shares it may have made it one.
fn write_whole(stream: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written =
            if bytes.is_empty() { stream.flush().map(|()| 0) } else { stream.write(bytes) };
        match written {
            Ok(0) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&stream.as_fd(), PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_stream_that_does_not_wait_is_waited_for() {
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        let line = vec![b'x'; 4 << 20];
        let expected = line.len();
        let writes = thread::spawn(move || write_whole(&mut writer, &line).unwrap());
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writes.join().unwrap();
        assert_eq!(read.len(), expected);
    }

    #[test]
    fn who_has_much_to_say_of_a_link_is_heard_for_a_while_and_counted_then() {
        let begin = Instant::now();
        let mut budget = Budget::new(begin);
        let printed = (0..1000).filter(|_| budget.take(begin)).count();
        assert_eq!((printed, budget.left_out), (BURST as usize, 1000 - u64::from(BURST)));
        assert!(budget.take(begin + EACH) && !budget.take(begin + EACH));
        let later = begin + 3 * EACH;
        assert_eq!((budget.left_at(later), budget.take(later)), (2, true));
        assert!(budget.take(later) && !budget.take(later));
        // It saves up no more than its initial budget.
        let much_later = begin + 10 * BURST * EACH;
        assert_eq!((0..1000).filter(|_| budget.take(much_later)).count(), BURST as usize);
    }

    #[test]
    fn how_many_lines_were_left_out_is_said_with_the_next_one() {
        let (mut budget, stream) = (Budget::new(Instant::now()), Stream::new());
        budget.left_out = 3;
        tell_left_out("a", &mut budget, &stream);
        tell_left_out("a", &mut budget, &stream);
        stream.push("a: attached".to_owned());
        let printed = [stream.next(), stream.next()];
        assert_eq!(printed, ["a: too many lines: 3 were left out", "a: attached"]);
    }

    #[test]
    fn what_nobody_reads_is_counted_and_keeps_nobody_waiting() {
        let stream = Stream::new();
        for number in 0..WAITING + 7 {
            stream.push(number.to_string());
        }
        let read: Vec<String> = (0..WAITING).map(|_| stream.next()).collect();
        assert_eq!((read[0].as_str(), read[WAITING - 1].as_str()), ("0", "255"));
        stream.push("too late".to_owned());
        assert!(stream.next().contains("8 lines were left out"));
        stream.push("heard".to_owned());
        assert_eq!(stream.next(), "heard");
    }
}
