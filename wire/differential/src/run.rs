//! Runs a program in lockstep: it makes a call when the one before has returned, or when that one's
//! thread is asleep in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::pipe::PipeFlags;

use crate::program::{Actor, Call, CallResult, DupWay, SLOTS, Step, TestProgram};
use crate::sys::process;
use crate::trace::{Event, Fate, Trace, show_event};
use crate::wire::{self, CallOrder, PROCESSES, SPEC, Spec, ThreadReport};

/// How a program is run.
#[derive(Clone, Debug)]
pub(crate) struct RunMode {
    /// `None`: on plain TCP.
    pub(crate) library: Option<PathBuf>,
    /// How long a thread must be asleep to count as blocked.
    pub(crate) patience: Duration,
    /// Where standard error of the program goes, and the library's log.
    pub(crate) verbose: bool,
}

struct Thread {
    orders: OwnedFd,
    answers: OwnedFd,
    id: i32,
    state: State,
    /// How often it had gone to sleep when it was last found blocked.
    switches: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Absent,
    Idle,
    /// In a step: making its call, or the call beside it.
    Busy(usize, bool),
    Gone,
}

struct Process {
    pid: i32,
    threads: Vec<Thread>,
    stopped: bool,
    port: u16,
}

pub(crate) struct Run<'a> {
    program: &'a TestProgram,
    mode: &'a RunMode,
    directory: PathBuf,
    processes: Vec<Process>,
    trace: Trace,
}

/// Longer than any call takes that is neither asleep nor stuck.
const LIMIT: Duration = Duration::from_secs(8);

/// Runs a program, then the steps that find out what is left of it.
pub(crate) fn run(program: &TestProgram, mode: &RunMode, directory: &Path) -> Result<Trace> {
    if program.processes.len() > PROCESSES {
        bail!("a program has at most {PROCESSES} processes");
    }
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory.join("stats"))?;
    let mut run = Run {
        program,
        mode,
        directory: directory.to_owned(),
        processes: Vec::new(),
        trace: Trace::default(),
    };
    let result = run.start().and_then(|()| run.go());
    run.end();
    result?;
    run.trace.ring = counted(&directory.join("stats"));
    Ok(run.trace)
}

/// A pipe with neither end inherited.
fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

impl Run<'_> {
    fn start(&mut self) -> Result<()> {
        let count = self.program.processes.len();
        // Both ends of each thread's pipes that a process or its descendants need.
        let mut ends: Vec<Vec<(OwnedFd, i32)>> = (0..count).map(|_| Vec::new()).collect();
        for (at, process) in self.program.processes.iter().enumerate() {
            let mut threads = Vec::new();
            for thread in 0..process.threads.clamp(1, 2) {
                let (orders_read, orders) = pipe()?;
                let (answers, answers_write) = pipe()?;
                let [read, write] = wire::control(at, thread);
                ends[at].extend([(orders_read, read), (answers_write, write)]);
                threads.push(Thread {
                    orders,
                    answers,
                    id: 0,
                    state: State::Absent,
                    switches: None,
                });
            }
            self.processes.push(Process { pid: 0, threads, stopped: false, port: 0 });
        }
        let boxes: Vec<_> = (0..count)
            .map(|_| std::os::unix::net::UnixDatagram::pair())
            .collect::<Result<_, _>>()?;
        for (at, (inside, _)) in boxes.iter().enumerate() {
            ends[at].push((inside.try_clone()?.into(), wire::mailbox(at)[0]));
        }
        // A descendant's ends are passed on by its ancestors.
        for at in (0..count).rev() {
            if let Some(parent) = self.program.processes[at].parent.filter(|parent| *parent < at) {
                let inherited = std::mem::take(&mut ends[at]);
                ends[parent].extend(inherited);
            }
        }
        for (at, mut passed_fds) in ends.into_iter().enumerate() {
            if self.program.processes[at].parent.is_none() {
                for (to, (_, outside)) in boxes.iter().enumerate() {
                    passed_fds.push((outside.try_clone()?.into(), wire::mailbox(to)[1]));
                }
                self.launch(at, passed_fds)?;
            }
        }
        for at in 0..count {
            if self.program.processes[at].parent.is_none() {
                self.greet(at)?;
            }
        }
        Ok(())
    }

    fn launch(&mut self, at: usize, passed_fds: Vec<(OwnedFd, i32)>) -> Result<()> {
        let spec = Spec {
            process: at,
            threads: self.processes[at].threads.len(),
            directory: self.directory.to_string_lossy().into_owned(),
            slots: vec![crate::actor::NONE; SLOTS],
            sockets: Vec::new(),
            signals: [true, false].map(|with| {
                let is_one =
                    |step: &Step| matches!(step.call, Call::Signal { restart, .. } if restart == with);
                self.program.steps.iter().any(is_one)
            }),
            files: 0,
        };
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEEKWIRE")) {
            command.env_remove(name);
        }
        command
            .arg("actor")
            .env(SPEC, serde_json::to_string(&spec)?)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if !self.mode.verbose {
            command.stderr(Stdio::null());
        }
        command.env_remove("LD_PRELOAD");
        if let Some(library) = &self.mode.library {
            command
                .env("LD_PRELOAD", library)
                .env("SEEKWIRE_DIR", self.directory.join("registry"))
                .env("SEEKWIRE_STATS", self.directory.join("stats"))
                .env("SEEKWIRE_SPIN_US", "0")
                .env("SEEKWIRE_THRESHOLD", "1");
            if self.mode.verbose {
                command.env("SEEKWIRE_LOG", "stderr:debug");
            }
            if let Some(bytes) = self.program.fall_back_after {
                command.env("SEEKWIRE_FALLBACK_AFTER", bytes.to_string());
            }
            if self.program.small {
                command.env("SEEKWIRE_SEGMENT_SIZE", "4096").env("SEEKWIRE_SEGMENTS", "8");
            }
        }
        process::give(&mut command, passed_fds);
        // Waited for with all others, by number: see process::reap.
        let child = command.spawn().context("an actor does not start")?;
        self.processes[at].pid = child.id() as i32;
        Ok(())
    }

    /// Waits for a process's threads to be there.
    fn greet(&mut self, at: usize) -> Result<()> {
        for thread in &mut self.processes[at].threads {
            let fd = thread.answers.as_raw_fd();
            let began = Instant::now();
            while !process::readable(&[fd], 100_000)[0] {
                if began.elapsed() > LIMIT {
                    bail!("process {at} does not come");
                }
            }
            let (ThreadReport::Ready { thread: id, .. }, _) = wire::read::<ThreadReport>(fd)?
            else {
                bail!("process {at} begins with an answer");
            };
            thread.id = id;
            thread.state = State::Idle;
        }
        Ok(())
    }

    fn go(&mut self) -> Result<()> {
        let steps: Vec<Step> = self
            .program
            .steps
            .iter()
            .cloned()
            .chain(crate::epilogue::steps(self.program))
            .collect();
        for (at, step) in steps.into_iter().enumerate() {
            self.trace.events.push(Event {
                before: self.trace.streams.counters(),
                step: step.clone(),
                fate: Fate::Skipped,
                beside: None,
                ended: BTreeMap::new(),
            });
            self.step(at, &step)?;
            if self.mode.verbose {
                let event = &self.trace.events[at];
                eprintln!("{at}: {:?} {:?}\n     {}", step.by, step.call, show_event(event));
            }
        }
        Ok(())
    }

    /// A thread that can make a call now; any thread of the process, if the requested one does not
    /// exist.
    fn idle(&self, by: Actor) -> Option<usize> {
        let process = self.processes.get(by.process).filter(|process| !process.stopped)?;
        let is_idle = |thread: &usize| process.threads[*thread].state == State::Idle;
        if by.thread < process.threads.len() {
            return Some(by.thread).filter(is_idle);
        }
        (0..process.threads.len()).find(is_idle)
    }

    fn step(&mut self, at: usize, step: &Step) -> Result<()> {
        match &step.call {
            Call::Signal { to, restart } => {
                let signal = if *restart { libc::SIGUSR1 } else { libc::SIGUSR2 };
                let Some(process) =
                    self.processes.get(to.process).filter(|process| !process.stopped)
                else {
                    return Ok(());
                };
                let Some(thread) = process.threads.get(to.thread) else { return Ok(()) };
                if matches!(thread.state, State::Busy(..)) {
                    process::kill_thread(process.pid, thread.id, signal);
                    self.trace.events[at].fate = Fate::Done(CallResult::default());
                }
                return self.wait_until_quiet(at);
            }
            Call::Kill { process } | Call::Stop { process } | Call::Continue { process } => {
                return self.control(at, *process, &step.call);
            }
            _ => {}
        }
        let Some(thread) = self.idle(step.by) else { return Ok(()) };
        let by = Actor { process: step.by.process, thread };
        if let Call::Fork { child } = step.call {
            let spec = self.program.processes.get(child);
            let fits = spec.is_some_and(|spec| spec.parent == Some(by.process));
            if !fits || self.processes[child].threads[0].state != State::Absent {
                return Ok(());
            }
        }
        let beside = step.beside.as_ref().and_then(|(other, call)| {
            let thread = self.idle(*other)?;
            let other = Actor { process: other.process, thread };
            (other != by).then_some((other, call))
        });
        self.order(at, by, &step.call, false)?;
        if let Some((other, call)) = beside {
            self.order(at, other, call, true)?;
            self.begun(at, other, call, true);
        }
        self.begun(at, by, &step.call, false);
        self.wait_until_quiet(at)?;
        if let (Call::Fork { child }, Fate::Done(answer)) =
            (&step.call, &self.trace.events[at].fate)
        {
            if answer.value == 1 {
                self.born(*child)?;
            }
        }
        Ok(())
    }

    fn born(&mut self, child: usize) -> Result<()> {
        let fd = self.processes[child].threads[0].answers.as_raw_fd();
        let began = Instant::now();
        while !process::readable(&[fd], 100_000)[0] {
            if began.elapsed() > LIMIT {
                // Stuck at the end of fork(): it shows in its steps, which are skipped.
                return Ok(());
            }
        }
        if let (ThreadReport::Ready { pid, thread, .. }, _) = wire::read::<ThreadReport>(fd)? {
            self.processes[child].pid = pid;
            self.processes[child].threads[0].id = thread;
            self.processes[child].threads[0].state = State::Idle;
        }
        Ok(())
    }

    fn order(&mut self, at: usize, by: Actor, call: &Call, beside: bool) -> Result<()> {
        let port = match call {
            Call::Connect { to, .. } => self.processes.get(*to).map_or(0, |process| process.port),
            _ => 0,
        };
        let step = at as u64 * 2 + u64::from(beside);
        self.trace.streams.begin(step, call);
        self.trace.calls += 1;
        if *call == (Call::Exec { there: true }) {
            self.only_thread(at, by.process);
        }
        let threads = &mut self.processes[by.process].threads;
        let answering = if *call == (Call::Exec { there: true }) { 0 } else { by.thread };
        threads[answering].id = threads[by.thread].id;
        threads[answering].state = State::Busy(at, beside);
        threads[answering].switches = None;
        wire::write(
            threads[by.thread].orders.as_raw_fd(),
            &CallOrder { step, call: call.clone(), port },
            &[],
        );
        Ok(())
    }

    /// Learns through which socket a call begins to move bytes.
    fn begun(&mut self, at: usize, by: Actor, call: &Call, beside: bool) {
        let fd = self.processes[by.process].threads[by.thread].answers.as_raw_fd();
        let began = Instant::now();
        while call.moves_by().is_some() && began.elapsed() < LIMIT {
            if process::readable(&[fd], 100_000)[0] {
                if let Ok((ThreadReport::Begun(socket), _)) = wire::read::<ThreadReport>(fd) {
                    self.trace.streams.begun(at as u64 * 2 + u64::from(beside), socket);
                }
                return;
            }
        }
    }

    /// After exec only one thread is left, which has the process's number.
    fn only_thread(&mut self, at: usize, process: usize) {
        let states: Vec<_> =
            self.processes[process].threads.iter().map(|thread| thread.state).collect();
        for state in states {
            if let State::Busy(other, beside) = state {
                self.record(at, other, beside, Fate::Replaced);
            }
        }
        for thread in &mut self.processes[process].threads {
            thread.state = State::Gone;
        }
    }

    /// Whether a thread of a process is asleep in a call that began before a number was closed or
    /// replaced.
    fn sleeps_on_closed(&self, process: usize) -> bool {
        let closes = |event: &Event| {
            event.step.by.process == process
                && matches!(
                    event.step.call,
                    Call::Close { .. } | Call::Dup { way: DupWay::Dup2 | DupWay::Dup3, .. }
                )
        };
        self.processes[process].threads.iter().any(|thread| match thread.state {
            State::Busy(step, _) => self.trace.events[step..].iter().any(closes),
            _ => false,
        })
    }

    /// Ends, stops or continues a process.
    fn control(&mut self, at: usize, which: usize, call: &Call) -> Result<()> {
        let there = self.processes.get(which).is_some_and(|process| process.pid != 0);
        // A stopped call begins again with its number, which must still be there.
        if !there || (matches!(call, Call::Stop { .. }) && self.sleeps_on_closed(which)) {
            return Ok(());
        }
        let process = &mut self.processes[which];
        let pid = process.pid;
        match call {
            Call::Kill { .. } => {
                process::kill(pid, libc::SIGKILL);
                process.pid = 0;
                process.threads.iter_mut().for_each(|thread| thread.state = State::Gone);
                wait_until(|| {
                    process::reap();
                    !Path::new(&format!("/proc/{pid}")).exists()
                });
            }
            Call::Stop { .. } => {
                process::kill(pid, libc::SIGSTOP);
                process.stopped = true;
                let threads: Vec<_> = process.threads.iter().map(|thread| thread.id).collect();
                wait_until(|| {
                    threads.iter().all(|id| {
                        *id == 0 || sample(pid, *id).is_none_or(|(state, _)| "TtZX".contains(state))
                    })
                });
            }
            _ => {
                process::kill(pid, libc::SIGCONT);
                process.stopped = false;
            }
        }
        self.trace.events[at].fate = Fate::Done(CallResult::default());
        self.wait_until_quiet(at)
    }

    /// Waits until every call that is under way has returned or is asleep.
    fn wait_until_quiet(&mut self, at: usize) -> Result<()> {
        let began = Instant::now();
        let ends = matches!(self.trace.events[at].step.call, Call::Exit | Call::Kill { .. });
        let mut asleep: BTreeMap<(usize, usize), (u64, Instant)> = BTreeMap::new();
        // A thread naps if nothing can wake it because the doorbell rings for others.
        let (mut naps, mut runs) = (0u64, 0u64);
        loop {
            let busy = self.busy();
            if busy.is_empty() {
                return Ok(());
            }
            let descriptors: Vec<_> = busy.iter().map(|(_, _, fd)| *fd).collect();
            let pause = if began.elapsed() < Duration::from_millis(1) { 300 } else { 1000 };
            let ready = process::readable(&descriptors, pause);
            let mut moved = false;
            for ((process, thread, fd), ready) in busy.iter().zip(&ready) {
                if *ready {
                    self.take(at, *process, *thread, *fd)?;
                    moved = true;
                }
            }
            if moved {
                asleep.clear();
                continue;
            }
            let mut quiet = true;
            for (process, thread, _) in busy {
                let pid = self.processes[process].pid;
                match sample(pid, self.processes[process].threads[thread].id) {
                    // The thread that called exec has become the first one.
                    None if self.processes[process].threads[thread].id != pid
                        && sample(pid, pid).is_some() =>
                    {
                        self.processes[process].threads[thread].id = pid;
                        quiet = false;
                    }
                    None => self.died(at, process),
                    Some(('S', switches)) => {
                        naps += 1;
                        let known = asleep
                            .get(&(process, thread))
                            .filter(|(before, _)| *before == switches);
                        let since = known.map_or_else(Instant::now, |(_, since)| *since);
                        asleep.insert((process, thread), (switches, since));
                        // A thread that this step did not wake has been asleep for long enough. The
                        // kernel may report the end of a process to others only once the end is
                        // complete.
                        let before =
                            self.processes[process].threads[thread].switches == Some(switches);
                        quiet &= (before && !ends) || since.elapsed() >= self.mode.patience;
                    }
                    Some((state, _)) if "ZX".contains(state) => self.died(at, process),
                    Some(_) => {
                        runs += 1;
                        asleep.remove(&(process, thread));
                        quiet = false;
                    }
                }
            }
            if quiet && !process::readable(&descriptors, 0).contains(&true) {
                for ((process, thread), (switches, _)) in asleep {
                    self.processes[process].threads[thread].switches = Some(switches);
                }
                self.blocked(at, Fate::Blocked);
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                self.blocked(at, if naps > runs { Fate::Blocked } else { Fate::Spins });
                return Ok(());
            }
        }
    }

    /// Threads that are in a call and could return.
    fn busy(&self) -> Vec<(usize, usize, i32)> {
        let mut busy = Vec::new();
        for (at, process) in
            self.processes.iter().enumerate().filter(|(_, process)| !process.stopped)
        {
            for (thread, state) in process.threads.iter().enumerate() {
                if matches!(state.state, State::Busy(..)) {
                    busy.push((at, thread, state.answers.as_raw_fd()));
                }
            }
        }
        busy
    }

    /// Marks the calls that this step has begun and not finished.
    fn blocked(&mut self, at: usize, fate: Fate) {
        for (pid, thread) in
            self.processes.iter().flat_map(|p| p.threads.iter().map(move |t| (p.pid, t)))
        {
            if self.mode.verbose && matches!(thread.state, State::Busy(step, _) if step == at) {
                let place = fs::read_to_string(format!("/proc/{pid}/task/{}/syscall", thread.id))
                    .unwrap_or_default();
                eprintln!("asleep in system call {}", place.trim_end());
            }
            match thread.state {
                State::Busy(step, false) if step == at => self.trace.events[at].fate = fate.clone(),
                State::Busy(step, true) if step == at => {
                    self.trace.events[at].beside = Some(fate.clone())
                }
                _ => {}
            }
        }
    }

    fn died(&mut self, at: usize, process: usize) {
        let busy: Vec<_> =
            self.processes[process].threads.iter().map(|thread| thread.state).collect();
        for state in busy {
            if let State::Busy(step, beside) = state {
                let is_exit = self.trace.events[step].step.call == Call::Exit;
                let fate = if is_exit { Fate::Done(CallResult::default()) } else { Fate::Died };
                self.record(at, step, beside, fate);
            }
        }
        self.processes[process].threads.iter_mut().for_each(|thread| thread.state = State::Gone);
        let pid = std::mem::take(&mut self.processes[process].pid);
        wait_until(|| {
            process::reap();
            !Path::new(&format!("/proc/{pid}")).exists()
        });
    }

    fn take(&mut self, at: usize, process: usize, thread: usize, fd: i32) -> Result<()> {
        let (report, bytes) = wire::read::<ThreadReport>(fd)?;
        let State::Busy(step, beside) = self.processes[process].threads[thread].state else {
            bail!("an unexpected answer");
        };
        let place = step as u64 * 2 + u64::from(beside);
        let answer = match report {
            ThreadReport::Begun(_) => bail!("a call begins twice"),
            ThreadReport::Answer(answer) => CallResult { bytes, ..answer },
            // It has replaced itself.
            ThreadReport::Ready { replaced, .. } => {
                CallResult { replaced, ..CallResult::default() }
            }
        };
        self.processes[process].threads[thread].state = State::Idle;
        let call = self.trace.events[step].step.clone();
        let call = if beside { call.beside.map(|(_, call)| call) } else { Some(call.call) };
        if let Some(call) = call {
            if let (Call::Listen { .. }, Some((_, port, _))) = (&call, answer.connection) {
                self.processes[process].port = port;
            }
            self.trace.streams.end(process, place, &call, &answer);
        }
        self.record(at, step, beside, Fate::Done(answer));
        Ok(())
    }

    fn record(&mut self, at: usize, step: usize, beside: bool, fate: Fate) {
        if step != at {
            self.trace.events[at].ended.insert(step * 2 + usize::from(beside), fate);
        } else if beside {
            self.trace.events[at].beside = Some(fate);
        } else {
            self.trace.events[at].fate = fate;
        }
    }

    /// Ends all processes that are still there.
    fn end(&mut self) {
        for process in self.processes.iter().filter(|process| process.pid > 0) {
            process::kill(process.pid, libc::SIGKILL);
        }
        for process in self.processes.iter().filter(|process| process.pid > 0) {
            wait_until(|| {
                process::reap();
                !Path::new(&format!("/proc/{}", process.pid)).exists()
            });
        }
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// State of a thread, and how often it has gone to sleep; `None`: it is gone.
fn sample(pid: i32, thread: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((line("State:")?.chars().next()?, line("voluntary_ctxt_switches:")?.parse().ok()?))
}

/// Bytes that processes report to have put on the ring.
fn counted(directory: &Path) -> u64 {
    let Ok(files) = fs::read_dir(directory) else { return 0 };
    let texts = files.flatten().filter_map(|file| File::open(file.path()).ok());
    texts
        .filter_map(|file| serde_json::from_reader::<_, serde_json::Value>(file).ok())
        .filter_map(|value| value["bytes"]["tx_ring"].as_u64())
        .sum()
}
