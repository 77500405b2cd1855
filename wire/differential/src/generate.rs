//! Generates random programs. Most of what it generates is sensible: it tracks what each slot
//! holds, which threads are probably asleep, and which bytes have probably arrived.

mod calls;

use fastrand::Rng;

use crate::program::{
    Actor, Call, CallEntry, CloseWay, FdSlot, Fresh, NonblockingWay, OptionValue, ProcessSpec,
    ReceiveWay, SendWay, Step, TestProgram,
};

/// Content of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Thing {
    Nothing,
    Listener,
    /// Connection and side.
    End(usize, usize),
    Epoll,
    File,
    Closed,
}

struct Process {
    alive: bool,
    stopped: bool,
    slots: [Thing; crate::program::SLOTS],
    /// Threads that are probably asleep.
    asleep: Vec<bool>,
}

struct Generator {
    random: Rng,
    program: TestProgram,
    processes: Vec<Process>,
    /// Descriptors are also closed by system calls that no library sees.
    unseen: bool,
    /// Bytes are often held back, so that several calls differ in their time alone.
    corks: bool,
    /// The program's signals restart calls.
    restart: bool,
    /// Bytes that are probably there, by connection and receiving side.
    waiting: Vec<[usize; 2]>,
}

/// Connections of a program at most.
const CONNECTIONS: usize = 3;

pub(crate) fn generate(seed: u64) -> TestProgram {
    let mut generator = Generator {
        random: Rng::with_seed(seed),
        program: TestProgram::default(),
        processes: Vec::new(),
        unseen: false,
        corks: seed % 8 == 5,
        restart: false,
        waiting: Vec::new(),
    };
    generator.unseen = generator.chance(10);
    generator.restart = generator.random.bool();
    generator.set_up();
    let steps = generator.random.usize(10..120);
    for _ in 0..steps {
        generator.step();
    }
    generator.program
}

impl Generator {
    fn one_of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())].clone()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    fn process(&mut self, threads: usize, parent: Option<usize>) {
        self.program.processes.push(ProcessSpec { threads, parent });
        self.processes.push(Process {
            alive: parent.is_none(),
            stopped: false,
            slots: [Thing::Nothing; crate::program::SLOTS],
            asleep: vec![false; threads],
        });
    }

    /// Process 0 listens, process 1 connects; there may be one more of each end, now or by a fork.
    fn set_up(&mut self) {
        for _ in 0..2 {
            let threads = self.random.usize(1..3);
            self.process(threads, None);
        }
        for parent in 0..2 {
            if self.chance(35) {
                self.process(1, Some(parent));
            }
        }
        if self.chance(15) {
            self.process(1, None);
        }
        self.program.fall_back_after = self.chance(20).then(|| self.random.u64(1..5000));
        self.program.small = self.chance(20);
        self.push(0, Call::Listen { slot: 0 });
        self.processes[0].slots[0] = Thing::Listener;
        let connections = if self.chance(60) { 1 } else { self.random.usize(2..=CONNECTIONS) };
        for _ in 0..connections {
            self.connection();
        }
    }

    fn by(&self, process: usize, thread: usize) -> Actor {
        Actor { process, thread }
    }

    fn push(&mut self, process: usize, call: Call) {
        let by = self.by(process, 0);
        self.program.steps.push(Step { by, call, beside: None });
    }

    /// Connects, accepts, and usually turns off Nagle's algorithm.
    fn connection(&mut self) {
        let slot = self.waiting.len() + 1;
        let flags = self.one_of(&[0, 0, 0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK]);
        self.push(1, Call::Socket { slot, flags });
        self.push(1, Call::Connect { slot, to: 0 });
        let flags = self.one_of(&[0, 0, 0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK]);
        self.push(0, Call::Accept { slot, listener: 0, flags });
        let connection = self.waiting.len();
        self.processes[1].slots[slot] = Thing::End(connection, 0);
        self.processes[0].slots[slot] = Thing::End(connection, 1);
        self.waiting.push([0; 2]);
        // Otherwise plain TCP waits for acknowledgements, and so does the comparison with it.
        if self.chance(95) {
            for process in [0, 1] {
                let value = OptionValue::ON;
                self.push(
                    process,
                    Call::SetOption {
                        slot,
                        level: libc::IPPROTO_TCP,
                        name: libc::TCP_NODELAY,
                        value,
                    },
                );
            }
        }
        for _ in 0..self.one_of(&[0, 2, 3, 4, 5, 6]) {
            for (from, to) in [(1, 0), (0, 1)] {
                let length = self.random.usize(1..40);
                self.push(from, Call::Send { slot, length, flags: 0, way: SendWay::Send });
                self.push(to, Call::Receive { slot, length: 64, flags: 0, way: ReceiveWay::Recv });
            }
        }
    }

    /// A thread that is probably not asleep.
    fn actor(&mut self) -> Option<Actor> {
        let mut idle = Vec::new();
        for (at, process) in self
            .processes
            .iter()
            .enumerate()
            .filter(|(_, process)| process.alive && !process.stopped)
        {
            idle.extend(
                (0..process.asleep.len())
                    .filter(|thread| !process.asleep[*thread])
                    .map(|thread| self.by(at, thread)),
            );
        }
        if idle.is_empty() { None } else { Some(self.one_of(&idle)) }
    }

    fn slot_with(&mut self, process: usize, wanted: impl Fn(Thing) -> bool) -> Option<FdSlot> {
        let slots = &self.processes[process].slots;
        let matching: Vec<_> = (0..slots.len()).filter(|slot| wanted(slots[*slot])).collect();
        if matching.is_empty() { None } else { Some(self.one_of(&matching)) }
    }

    /// A connection, mostly.
    fn end(&mut self, process: usize) -> Option<FdSlot> {
        if self.chance(3) {
            return self
                .slot_with(process, |thing| thing != Thing::Nothing && thing != Thing::Listener);
        }
        self.slot_with(process, |thing| matches!(thing, Thing::End(..)))
            .or_else(|| self.slot_with(process, |thing| thing == Thing::Closed))
    }

    fn free(&mut self, process: usize) -> FdSlot {
        self.slot_with(process, |thing| thing == Thing::Nothing)
            .or_else(|| self.slot_with(process, |thing| thing == Thing::Closed))
            .unwrap_or(crate::program::SLOTS - 1)
    }

    fn length(&mut self) -> usize {
        match self.random.u32(..100) {
            0 => 0,
            1..60 => self.random.usize(1..100),
            60..80 => self.random.usize(100..3000),
            80..90 => self.one_of(&[1015, 1016, 1017, 4095, 4096, 4097, 8192]),
            90..97 => self.random.usize(3000..16000),
            _ => self.random.usize(16000..200_000),
        }
    }

    fn step(&mut self) {
        match self.random.u32(..1000) {
            0..40 => return self.outside(),
            40..50 => return self.race(),
            50..56 => return self.reuse(),
            _ => {}
        }
        let Some(by) = self.actor() else { return self.outside() };
        let Some(call) = self.call(by) else { return };
        self.program.steps.push(Step { by, call, beside: None });
    }

    /// Two threads of a process at the same moment: many sends, and a call that ends them.
    fn race(&mut self) {
        let able = |process: &Process| {
            process.alive && !process.stopped && process.asleep == [false, false]
        };
        let Some(process) = self.processes.iter().position(able) else { return };
        let Some(slot) = self.end(process) else { return };
        let (length, count) = (self.random.usize(1..200), self.random.usize(1..100));
        self.reckon(process, slot, length * count, 0);
        let many = Call::SendMany { slot, length, count, flags: libc::MSG_NOSIGNAL };
        let other = match self.random.u32(..4) {
            0 => Call::Receive {
                slot,
                length: 100,
                flags: libc::MSG_DONTWAIT,
                way: ReceiveWay::Recv,
            },
            1 => Call::Nonblocking { slot, on: true, way: NonblockingWay::Fcntl },
            _ => Call::Shutdown { slot, how: libc::SHUT_WR, way: CallEntry::Libc },
        };
        let (by, beside) = (self.by(process, 0), self.by(process, 1));
        self.program.steps.push(Step { by, call: many, beside: Some((beside, other)) });
    }

    /// A thread sleeps in a receive, another one ends the connection, and its number is reused for
    /// another connection.
    fn reuse(&mut self) {
        let able = |process: &Process| {
            process.alive && !process.stopped && process.asleep == [false, false]
        };
        let Some(process) = self.processes.iter().position(able).filter(|process| *process < 2)
        else {
            return;
        };
        let Some(slot) = self.end(process) else { return };
        if self.waiting.len() >= CONNECTIONS {
            return;
        }
        let (first, second) = (self.by(process, 1), self.by(process, 0));
        let step = |by, call| Step { by, call, beside: None };
        let drain = Call::Drain { slot };
        let receive = Call::Receive { slot, length: 100, flags: 0, way: ReceiveWay::Recv };
        self.program.steps.extend([step(second, drain), step(first, receive)]);
        if self.random.bool() {
            let how = self.one_of(&[libc::SHUT_WR, libc::SHUT_RD, libc::SHUT_RDWR]);
            self.program
                .steps
                .push(step(second, Call::Shutdown { slot, how, way: CallEntry::Libc }));
        }
        let way = self.close_way();
        self.program.steps.push(step(second, Call::Close { slot, way }));
        self.processes[process].slots[slot] = Thing::Closed;
        self.connection();
    }

    /// Events that happen to a thread or a process, as opposed to calls it makes.
    fn outside(&mut self) {
        let living: Vec<_> =
            (0..self.processes.len()).filter(|at| self.processes[*at].alive).collect();
        if living.is_empty() {
            return;
        }
        let process = self.one_of(&living);
        let thread = self.random.usize(..self.processes[process].asleep.len());
        let call = match self.random.u32(..100) {
            0..60 => {
                let restart = if self.chance(3) { !self.restart } else { self.restart };
                self.processes[process].asleep[thread] &= restart;
                Call::Signal { to: self.by(process, thread), restart }
            }
            60..85 => {
                self.processes[process].stopped ^= true;
                if self.processes[process].stopped {
                    Call::Stop { process }
                } else {
                    Call::Continue { process }
                }
            }
            _ if living.len() > 2 || self.chance(30) => {
                self.processes[process].alive = false;
                Call::Kill { process }
            }
            _ => return,
        };
        let by = self.by(process, 0);
        self.program.steps.push(Step { by, call, beside: None });
    }

    fn call(&mut self, by: Actor) -> Option<Call> {
        let process = by.process;
        Some(match self.random.u32(..1000) {
            0..240 => self.send(process)?,
            240..520 => self.receive(by)?,
            520..620 => self.poll(by)?,
            620..690 => self.epoll(by)?,
            690..730 => {
                let slot = self.end(process)?;
                let how =
                    self.one_of(&[libc::SHUT_WR, libc::SHUT_WR, libc::SHUT_RD, libc::SHUT_RDWR]);
                let way = self.one_of(&[
                    CallEntry::Libc,
                    CallEntry::Libc,
                    CallEntry::Libc,
                    CallEntry::Syscall,
                ]);
                Call::Shutdown { slot, how, way }
            }
            730..770 => self.close(process)?,
            770..800 => self.dup(process)?,
            800..830 => {
                let slot = self.free(process);
                self.processes[process].slots[slot] = Thing::File;
                let what = self.one_of(&[
                    Fresh::File,
                    Fresh::File,
                    Fresh::Pipe,
                    Fresh::Eventfd,
                    Fresh::Memfd,
                ]);
                Call::Open { slot, what }
            }
            830..860 => {
                let slot = self.end(process)?;
                let way = self.one_of(&[NonblockingWay::Fcntl, NonblockingWay::Ioctl]);
                Call::Nonblocking { slot, on: self.random.bool(), way }
            }
            860..910 => self.option(process)?,
            910..930 => {
                let slot = self.end(process)?;
                Call::Ioctl {
                    slot,
                    request: self.one_of(&[libc::FIONREAD, libc::FIONREAD, 0x8905]),
                }
            }
            930..940 => {
                Call::Fstat { slot: self.slot_with(process, |thing| thing != Thing::Nothing)? }
            }
            940..945 => {
                Call::Rewind { slot: self.slot_with(process, |thing| thing == Thing::File)? }
            }
            945..955 => Call::Names { slot: self.end(process)? },
            955..970 => self.fork(process)?,
            970..972 => {
                let slot = self.end(process)?;
                let send =
                    Call::Send { slot, length: 20, flags: libc::MSG_DONTWAIT, way: SendWay::Send };
                let receive = Call::Receive {
                    slot,
                    length: 20,
                    flags: libc::MSG_DONTWAIT,
                    way: ReceiveWay::Recv,
                };
                let close = Call::Close { slot, way: CloseWay::Libc };
                let action = self.one_of(&[None, Some(send), Some(receive), Some(close)]);
                Call::Handler { action: action.map(Box::new) }
            }
            972..976 => {
                let there = self.random.bool();
                if there {
                    self.empty();
                    self.processes[process].asleep = vec![false];
                }
                Call::Exec { there }
            }
            976..990 => self.pass(process)?,
            _ => self.reconnect(process)?,
        })
    }

    /// Adjusts the number of bytes that a slot's connection probably has.
    fn reckon(&mut self, process: usize, slot: FdSlot, sent: usize, received: usize) {
        if let Thing::End(connection, side) = self.processes[process].slots[slot] {
            self.waiting[connection][1 - side] += sent;
            if sent > 0 {
                // Another thread may have waited for them.
                self.processes.iter_mut().for_each(|process| {
                    process.asleep.iter_mut().for_each(|asleep| *asleep = false)
                });
            }
            let here = &mut self.waiting[connection][side];
            *here = here.saturating_sub(received);
        }
    }

    fn there(&self, process: usize, slot: FdSlot) -> usize {
        match self.processes[process].slots[slot] {
            Thing::End(connection, side) => self.waiting[connection][side],
            _ => 0,
        }
    }

    fn fork(&mut self, process: usize) -> Option<Call> {
        let child = (0..self.processes.len()).find(|at| {
            self.program.processes[*at].parent == Some(process) && !self.processes[*at].alive
        })?;
        self.processes[child].alive = true;
        self.processes[child].slots = self.processes[process].slots;
        Some(Call::Fork { child })
    }

    /// Receives, mostly, the bytes that are there: in lockstep, a peer does not resend bytes that
    /// are handed over unread.
    fn empty(&mut self) {
        if self.chance(5) {
            return;
        }
        for other in 0..self.processes.len() {
            for slot in 0..crate::program::SLOTS {
                if matches!(self.processes[other].slots[slot], Thing::End(..))
                    && self.processes[other].alive
                {
                    self.push(other, Call::Drain { slot });
                }
            }
        }
    }

    /// Hands a descriptor to another process, which takes it.
    fn pass(&mut self, process: usize) -> Option<Call> {
        let slot = self.end(process)?;
        let to = self.random.usize(..self.processes.len());
        if to == process || !self.processes[to].alive {
            return None;
        }
        self.empty();
        let there = self.free(to);
        let by = self.by(process, 0);
        self.program.steps.push(Step { by, call: Call::Pass { slot, to }, beside: None });
        let by = self.by(to, 0);
        self.program.steps.push(Step { by, call: Call::Take { slot: there }, beside: None });
        self.processes[to].slots[there] = self.processes[process].slots[slot];
        None
    }

    /// Connects again, in place of the content of the slot.
    fn reconnect(&mut self, process: usize) -> Option<Call> {
        if process > 1 || self.waiting.len() >= CONNECTIONS {
            return None;
        }
        self.connection();
        None
    }
}
