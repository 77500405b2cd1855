//! fork(): the child finds every lock free, and every connection knows that another process may
//! hold it.
//!
//! During the fork this thread holds all locks, so no signal handler may run: one that closed a
//! socket would wait for its own thread. Nor may this thread wait for a lock while handlers cannot
//! run, because the lock's holder may be waiting for one (a garbage collector that stops all
//! threads with a signal).

use std::cell::Cell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, OnceLock};

use libc::{c_int, c_long, sigset_t};
use rustix::fd::AsFd;
use rustix::pipe::{PipeFlags, pipe_with};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::process as copies;
use seekwire_transport::sys::signal::ignored;
use seekwire_transport::sys::{Fd, limit, thread};

use crate::ffi::{guarded, keeping_errno};
use crate::lock::{Guard, Lock, RawLock};
use crate::process::{self, ProcessKind};
use crate::socket::Socket;
use crate::table::Set;
use crate::table::{self, Object};
use crate::{deferred, hazard, log, stats, unload};

/// Maximum number of connections for which a child may have bytes that another program is to
/// receive.
const MAX_SPILLS: u64 = 256;

/// Locks of the library that belong to no object.
static OTHER_LOCKS: OnceLock<[&RawLock; 2]> = OnceLock::new();

/// Call it once, with the locks that belong to no object.
pub(crate) fn start(others: [&'static RawLock; 2]) {
    let _ = OTHER_LOCKS.set(others);
    // SAFETY: three functions that live as long as the library, which is never unloaded before
    // exit.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child))
    };
}

/// A fork in progress.
struct Fork {
    /// The objects whose locks are held.
    objects: Vec<Arc<Object>>,
    /// The thread's signal mask before the fork.
    mask: Option<sigset_t>,
    arrival: Option<Arrival>,
}

/// Locked during a fork, because two threads may fork at once.
static FORK: Lock<Fork> = Lock::new(Fork::NONE);

impl Fork {
    const NONE: Self = Self { objects: Vec::new(), mask: None, arrival: None };

    fn connected(&self) -> impl Iterator<Item = &Socket> {
        self.objects
            .iter()
            .filter_map(|object| object.as_socket())
            .filter(|socket| !socket.is_listening())
    }
}

/// The locks of objects, in the order in which other code takes them.
fn locks(objects: &[Arc<Object>]) -> Vec<&RawLock> {
    let sockets = || objects.iter().filter_map(|object| object.as_socket());
    let sets = objects.iter().filter_map(|object| object.as_set());
    let registrations = sockets().map(|socket| socket.registrations().raw());
    let states = sets.map(|set| set.state_lock());
    let numbers = objects.iter().map(|object| object.numbers().raw());
    let loans = sockets().map(|socket| socket.loans().raw());
    let relayed = sockets().map(|socket| socket.relayed().raw());
    let objects = registrations.chain(states).chain(numbers).chain(loans).chain(relayed);
    objects.chain(OTHER_LOCKS.get().into_iter().flatten().copied()).collect()
}

/// Waits until no fork is in progress. A fork that begins when the library is leaving waits for the
/// end of that.
pub(crate) fn await_end() {
    FORK.raw().wait_until_free();
}

thread_local! {
    /// True if this thread holds all locks.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Makes room for the spills of connections that a child may leave to another program.
pub(crate) fn prepare_spills() {
    // Leaves descriptors to later connections.
    let most = MAX_SPILLS.min(limit::own_descriptors() / 8);
    let mut made = 0;
    for (_, object) in table::entries() {
        let attached = object.as_socket().filter(|socket| socket.connection.is_attached());
        if let Some(socket) = attached.filter(|_| made < most) {
            socket.connection.prepare_spill();
            made += 1;
        }
    }
}

extern "C" fn before_fork() {
    HOLDS.set(false);
    guarded(|| {
        let Some(mut fork) = hold_all() else { return };
        HOLDS.set(true);
        // First, because connections must not receive messages in the middle of a change of state.
        prepare_spills();
        seekwire_endpoint::fork::before_fork();
        fork.connected().for_each(|socket| socket.connection.before_fork());
        fork.objects.iter().filter_map(|object| object.as_set()).for_each(Set::before_fork);
        fork.arrival = if fork.connected().next().is_some() { Arrival::new() } else { None };
        std::mem::forget(fork);
    });
}

extern "C" fn after_fork_parent() {
    if !HOLDS.take() {
        return;
    }
    after_fork(|fork| {
        if fork.arrival.take().is_some_and(Arrival::has_failed) {
            fork.connected().for_each(|socket| socket.connection.fork_failed());
        }
        seekwire_endpoint::fork::after_fork_parent();
    });
}

extern "C" fn after_fork_child() {
    if !HOLDS.take() {
        return;
    }
    process::after_fork_child();
    hazard::after_fork_child();
    seekwire_endpoint::fork::after_fork_child();
    after_fork(|fork| {
        fork.objects.iter().filter_map(|object| object.as_socket()).for_each(|socket| {
            if !socket.is_listening() {
                socket.after_fork_child();
            }
        });
        fork.objects
            .iter()
            .filter_map(|object| object.as_set())
            .for_each(|set| set.after_fork_child());
        stats::after_fork_child();
        if let Some(arrival) = fork.arrival.take() {
            arrival.has_come();
        }
    });
}

/// Forks by a call that runs no handlers of pthread_atfork(3): `fork` returns the child's id, 0 in the
/// child, or a negative number.
pub(crate) fn without_handlers(fork: impl FnOnce() -> c_long) -> c_long {
    // A handler that has interrupted the library must not wait for its locks, and a child that was
    // made otherwise may have copies of locks that nobody releases.
    let prepares = !deferred::is_interrupted() && process::kind() == ProcessKind::Own;
    if prepares {
        keeping_errno(|| before_fork());
    }
    let child = fork();
    keeping_errno(|| {
        if child == 0 {
            thread::forget_id();
        }
        match child {
            _ if !prepares => {}
            0 => after_fork_child(),
            _ => after_fork_parent(),
        }
    });
    child
}

fn after_fork(work: impl FnOnce(&mut Fork)) {
    let mut mask = None;
    guarded(|| {
        // SAFETY: `before_fork`, which ran in this thread, left it held.
        let mut fork = unsafe { FORK.adopt() };
        mask = fork.mask.take();
        locks(&fork.objects).into_iter().for_each(RawLock::release);
        work(&mut fork);
        fork.objects.clear();
    });
    if let Some(mask) = mask {
        set_mask(&mask);
    }
}

/// The name of the processes that [`run_in_helpers`] starts.
pub(crate) const RELAY: &CStr = c"seekwire-relay";

/// Runs each of `works` in a process of the library's own, which has only the descriptors `kept`,
/// holds the connection of `socket` like a forked child, and ends with the work. Nobody has to wait
/// for the process.
///
/// # Errors
/// Those of clone(2); EIO if the library has left this process.
pub(crate) fn run_in_helpers(
    socket: &Socket,
    kept: &[Fd],
    works: &[&dyn Fn()],
) -> Result<(), Errno> {
    std::mem::forget(hold_all().ok_or(Errno::IO)?);
    seekwire_endpoint::fork::before_fork();
    works.iter().for_each(|_| socket.connection.before_fork());
    // SAFETY: this thread holds all locks of the library, whose memory knows no others. The code
    // that runs in the copy ends with exit.
    let between = unsafe { copies::copy() };
    if between == Ok(0) {
        // The child of a process that is gone has no parent here that waits for it.
        let begun = works.iter().take_while(|work| {
            // SAFETY: as above.
            let child = unsafe { copies::copy() };
            if child == Ok(0) {
                guarded(|| run_helper(socket, kept, **work));
                copies::exit(0);
            }
            child.is_ok()
        });
        copies::exit(begun.count() as i32);
    }
    seekwire_endpoint::fork::after_fork_parent();
    after_fork(|_| ());
    let begun = match between {
        Ok(between) => copies::status(between).map_or(works.len(), |begun| begun as usize),
        Err(_) => 0,
    };
    works.iter().skip(begun).for_each(|_| socket.connection.fork_failed());
    if begun < works.len() { Err(between.err().unwrap_or(Errno::AGAIN)) } else { Ok(()) }
}

fn run_helper(socket: &Socket, kept: &[Fd], work: &dyn Fn()) {
    copies::stand_alone(RELAY);
    log::stop();
    copies::close_all_but(kept);
    process::after_fork_child();
    hazard::after_fork_child();
    thread::forget_id();
    seekwire_endpoint::fork::after_fork_child();
    // SAFETY: `run_in_helpers`, which ran in this thread, left it held. Its mask does not matter
    // here.
    let mut fork = unsafe { FORK.adopt() };
    locks(&fork.objects).into_iter().for_each(RawLock::release);
    fork.objects.clear();
    drop(fork);
    socket.connection.after_fork_child();
    work();
    socket.connection.close();
}

/// Takes all locks, with signals blocked. `None` if the library has left this process.
fn hold_all() -> Option<Guard<'static, Fork>> {
    // With enough threads, one of many locks is always taken; then this waits for each of them
    // after all.
    const TRIES: u32 = 8;
    for _ in 0..TRIES {
        if unload::has_begun() {
            return None;
        }
        let mask = block_signals();
        match try_hold_all() {
            Ok(mut fork) => {
                fork.mask = Some(mask);
                return Some(fork);
            }
            Err(held) => {
                set_mask(&mask);
                held.wait_until_free();
            }
        }
    }
    let mask = block_signals();
    let mut fork = FORK.lock();
    fork.objects = table::entries()
        .filter(|(fd, object)| object.is_known_by(*fd))
        .map(|(_, object)| object.share())
        .collect();
    locks(&fork.objects).into_iter().for_each(RawLock::acquire);
    fork.mask = Some(mask);
    Some(fork)
}

/// A lock that another thread holds.
enum HeldLock {
    Fork,
    Numbers(Arc<Object>),
    /// The lock at that position among these objects' locks.
    Other(Vec<Arc<Object>>, usize),
}

impl HeldLock {
    fn wait_until_free(&self) {
        match self {
            Self::Fork => FORK.raw().wait_until_free(),
            Self::Numbers(object) => object.numbers().raw().wait_until_free(),
            Self::Other(objects, index) => locks(objects)[*index].wait_until_free(),
        }
    }
}

fn try_hold_all() -> Result<Guard<'static, Fork>, HeldLock> {
    let mut fork = FORK.try_lock().ok_or(HeldLock::Fork)?;
    fork.objects.clear();
    for (fd, object) in table::entries() {
        let Some(numbers) = object.numbers().try_lock() else {
            return Err(HeldLock::Numbers(object.share()));
        };
        if numbers.any() == Some(fd) {
            fork.objects.push(object.share());
        }
    }
    let others = locks(&fork.objects);
    if let Some(held) = others.iter().position(|lock| !lock.try_acquire()) {
        others[..held].iter().for_each(|lock| lock.release());
        return Err(HeldLock::Other(std::mem::take(&mut fork.objects), held));
    }
    Ok(fork)
}

/// Blocks all signals that may have an asynchronous handler; returns the previous mask. A handler
/// that another thread installs for an ignored signal during the fork can still run.
fn block_signals() -> sigset_t {
    /// Signals that the thread's own instructions raise: blocked, they would end the process.
    const OWN: [c_int; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGABRT,
    ];
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first call makes `all` a valid set; the last reads it, and writes the second one,
    // which cannot fail with SIG_BLOCK.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in OWN.into_iter().chain(ignored()) {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn set_mask(mask: &sigset_t) {
    // SAFETY: reads a set that the kernel has written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Tells a parent that no child was created, whichever function of libc has called fork() and
/// failed: a pipe whose other end a child would hold until it has reported that it exists.
struct Arrival {
    read: PrivateFd,
    write: PrivateFd,
}

impl Arrival {
    fn new() -> Option<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let (read, write) = (PrivateFd::new(read), PrivateFd::new(write));
        Some(Self { read: read.ok()?, write: write.ok()? })
    }

    /// Called in the parent.
    fn has_failed(self) -> bool {
        drop(self.write);
        rustix::io::read(self.read.as_fd(), &mut [0]) == Ok(0)
    }

    /// Called in the child.
    fn has_come(self) {
        // Meant for a parent at the same point; if the parent is gone, nobody has to know.
        let _ = rustix::io::write(self.write.as_fd(), &[1]);
    }
}
