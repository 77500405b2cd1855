//! Threads: the id of this one, whether others are alive, and sleeping on a word in shared memory.

#[cfg(not(loom))]
use std::cell::Cell;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

/// An id of this thread among those of the model, which are one thread to the kernel.
#[cfg(loom)]
pub(crate) fn id() -> ThreadId {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    ThreadId::in_namespace(hasher.finish() as u32 >> 2 | 1, 0)
}

#[cfg(not(loom))]
thread_local! {
    static ID: Cell<ThreadId> = const { Cell::new(ThreadId(0)) };
}

/// The kernel's id of a thread, and in the upper half the low bits of the number of the PID
/// namespace in which it counts; 0 if that is unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ThreadId(pub(crate) u64);

impl ThreadId {
    const NAMESPACE: u32 = 32;

    fn in_namespace(id: u32, namespace: u64) -> Self {
        Self(u64::from(id) | namespace << Self::NAMESPACE)
    }

    /// Whether the id means nothing here, or another thread.
    pub(crate) fn is_stranger(self) -> bool {
        let here = Self::in_namespace(0, namespace()).0 >> Self::NAMESPACE;
        let there = self.0 >> Self::NAMESPACE;
        here != 0 && there != 0 && here != there
    }

    /// Whether a thread of this namespace with this id exists and can still run.
    pub(crate) fn is_alive(self) -> bool {
        let id = self.0 as u32;
        // It may stay a zombie for ever, since its parent may be waiting for the lock that it held.
        exists(id) && !stat(id).is_some_and(|stat| stat.is_dead)
    }
}

/// The id of this thread, cached.
#[cfg(not(loom))]
#[inline]
pub(crate) fn id() -> ThreadId {
    ID.with(|id| match id.get() {
        ThreadId(0) => first_id(id),
        id => id,
    })
}

/// This thread belongs to a child that no handler of pthread_atfork(3) has seen.
#[cfg(not(loom))]
pub fn forget_id() {
    forget_namespace();
    ID.set(ThreadId(0));
}

#[cfg(not(loom))]
#[cold]
fn first_id(id: &Cell<ThreadId>) -> ThreadId {
    extern "C" fn forget() {
        forget_namespace();
        // A thread that is being torn down has no cached id any more, and needs none.
        let _ = ID.try_with(|id| id.set(ThreadId(0)));
    }
    // Not a Once: a child forked while another thread is inside would wait for it for ever.
    // Registering twice does no harm.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.load(Ordering::Acquire) {
        // SAFETY: `forget` is a function of this library, which is never unloaded while it has
        // threads in it, and does nothing that is forbidden in a child after fork.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
        REGISTERED.store(true, Ordering::Release);
    }
    let new = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    id.set(ThreadId::in_namespace(new, namespace()));
    id.get()
}

/// Whether the process has always had only this thread, according to the C library (2.32 and
/// newer).
#[cfg(not(loom))]
#[must_use]
pub fn is_only_one() -> bool {
    static KNOWN: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::dangling_mut());
    let mut place = KNOWN.load(Ordering::Relaxed);
    if place == std::ptr::dangling_mut() {
        // SAFETY: the name is terminated by 0.
        place =
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) }.cast();
        KNOWN.store(place, Ordering::Relaxed);
    }
    // SAFETY: null, or a variable of the C library, which is never unloaded, and writes to it only
    // while there is one thread, or when this thread itself ends that.
    !place.is_null() && unsafe { place.read_volatile() } != 0
}

/// Whether a process with this id exists and can still run; false for a process of another pid
/// namespace. One that has just become a zombie may count as alive for a millisecond.
#[must_use]
pub fn process_is_alive(pid: u32) -> bool {
    /// Each process that was no zombie, and the time. A fork, exec or exit asks about the same few
    /// processes for each of many connections, and /proc takes microseconds to answer.
    static SEEN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
    if !exists(pid) {
        return false;
    }
    let time = clock_gettime(ClockId::Monotonic);
    let milliseconds = (time.tv_sec << 10 | time.tv_nsec >> 20) as u32;
    let now = u64::from(pid) << 32 | u64::from(milliseconds);
    let seen = &SEEN[pid as usize % SEEN.len()];
    if seen.load(Ordering::Relaxed) == now {
        return true;
    }
    let is_alive = match stat(pid) {
        // A process whose first thread has ended goes on, but that thread looks dead.
        Some(stat) => !stat.is_dead || stat.threads > 1,
        // Without /proc, where nothing counts as a zombie, or if it has gone since.
        None => exists(pid),
    };
    if is_alive {
        seen.store(now, Ordering::Relaxed);
    }
    is_alive
}

/// Whether a process or thread with this id exists, even as a zombie; false for one of another pid
/// namespace.
#[must_use]
pub fn exists(id: u32) -> bool {
    let pid = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Whether a process is dead, or exiting and past the point of running its own code: it may be
/// closing its descriptors now. False for a process of another pid namespace.
#[must_use]
pub fn process_is_ending(pid: u32) -> bool {
    // linux/sched.h
    const PF_EXITING: u32 = 4;
    if !exists(pid) {
        return true;
    }
    match stat(pid) {
        Some(stat) if stat.is_dead => stat.threads <= 1,
        Some(stat) => stat.flags & PF_EXITING != 0,
        // Without /proc, or if it has gone since.
        None => !exists(pid),
    }
}

/// The fields of a thread in proc_pid_stat(5).
struct Stat {
    is_dead: bool,
    flags: u32,
    /// Number of threads of its process.
    threads: u32,
}

fn stat(id: u32) -> Option<Stat> {
    let stat = super::file::open(format!("/proc/{id}/stat").as_ref(), OFlags::RDONLY, 0).ok()?;
    let mut text = [0; 512];
    let n = rustix::io::read(&stat, &mut text).ok()?;
    // The name is in parentheses and may hold any character; the state follows it, six fields later
    // the flags, and 11 after that the number of threads.
    let name_end = text[..n].iter().rposition(|byte| *byte == b')')?;
    let mut fields = text[name_end + 1..n].split(|byte| *byte == b' ').skip(1);
    let is_dead = matches!(fields.next()?, b"Z" | b"X");
    let mut number = |skipped| std::str::from_utf8(fields.nth(skipped)?).ok()?.parse().ok();
    Some(Stat { is_dead, flags: number(5)?, threads: number(10)? })
}

/// The id of this process.
#[must_use]
pub fn process_id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

/// The result of [`namespace`], and a bit that says that there is one.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);
const KNOWN: u64 = 1 << 63;

/// The inode of this process's PID namespace; 0 without /proc.
pub(crate) fn namespace() -> u64 {
    if cfg!(miri) {
        return 0;
    }
    match NAMESPACE.load(Ordering::Relaxed) {
        0 => {
            let space = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |space| space.st_ino);
            NAMESPACE.store(space | KNOWN, Ordering::Relaxed);
            space
        }
        known => known & !KNOWN,
    }
}

/// To be called in the child of a fork, which may be in another PID namespace.
pub fn forget_namespace() {
    NAMESPACE.store(0, Ordering::Relaxed);
}

/// A pause between two looks of a spinning loop.
#[inline]
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Sleeps for a while; a signal cuts it short.
pub fn nap(time: Duration) {
    std::thread::sleep(time);
}

/// Raises SIGPIPE in this thread, as a send in the kernel does.
pub fn raise_broken_pipe() {
    let mut info = [0u8; size_of::<libc::siginfo_t>()];
    // sigaction(2): si_signo, si_errno, si_code, and on 64-bit machines after a gap si_pid and
    // si_uid.
    let fields = [
        libc::SIGPIPE,
        0,
        libc::SI_USER,
        0,
        process_id() as i32,
        rustix::process::getuid().as_raw() as i32,
    ];
    for (place, field) in info.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_ne_bytes());
    }
    let (process, thread) = (process_id(), rustix::thread::gettid().as_raw_nonzero().get());
    let place = info.as_ptr().expose_provenance();
    let arguments = [process as usize, thread as usize, libc::SIGPIPE as usize, place, 0, 0];
    // SAFETY: the kernel reads a whole siginfo_t. A process may send itself any signal.
    let _ = unsafe { super::call::call(libc::SYS_rt_tgsigqueueinfo, arguments) };
}

/// The processor on which this thread runs now.
#[inline]
#[must_use]
pub fn processor() -> u64 {
    rustix::thread::sched_getcpu() as u64
}
