//! The host's resources: processors, load, descriptors, users.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::ClockId;

use super::fd::PrivateFd;
use super::limit;

/// Number of processors that this process may run on.
#[must_use]
pub fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1) as usize)
}

/// The user that this process acts for.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Identifies this host and its kernel: measurements hold only here.
#[must_use]
pub fn fingerprint() -> String {
    let name = rustix::system::uname();
    let [node, release] =
        [name.nodename(), name.release()].map(|part| part.to_string_lossy().into_owned());
    format!("{node} {release} {}", processors())
}

/// Whether a dynamic loader with this file name is one of the GNU C library's: ld-linux.so.2,
/// ld-linux-x86-64.so.2, ld-linux-aarch64.so.1, ld64.so.2 and others.
#[must_use]
pub fn is_gnu_loader(name: &[u8]) -> bool {
    [&b"ld-linux"[..], b"ld64.so", b"ld.so"].iter().any(|start| name.starts_with(start))
}

/// Whether this is a directory, and no link to one, that belongs to the user and that nobody else
/// can enter.
///
/// # Errors
/// Those of lstat(2).
pub fn is_private(directory: &Path) -> io::Result<bool> {
    let about = std::fs::symlink_metadata(directory)?;
    Ok(about.is_dir() && about.uid() == user() && about.mode() & 0o077 == 0)
}

/// The content of a small text file that belongs to the user and that nobody else may write. No
/// cancellation point, unlike [`std::fs`].
#[must_use]
pub fn read_own_file(path: &Path) -> Option<String> {
    use rustix::fs::OFlags;
    const MOST: usize = 4096;
    let file = super::file::open(path, OFlags::RDONLY.union(OFlags::NONBLOCK), 0).ok()?;
    let about = rustix::fs::fstat(&file).ok()?;
    if about.st_uid != user() || about.st_mode & 0o022 != 0 {
        return None;
    }
    let mut bytes = vec![0; MOST];
    let n = rustix::io::read(&file, &mut bytes[..]).ok()?;
    bytes.truncate(n);
    String::from_utf8(bytes).ok()
}

/// An unpredictable number.
#[must_use]
pub fn random() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Before the kernel's pool is ready: the clock and the process id still make a collision
        // unlikely, which is all that correctness needs.
        _ => nanoseconds() ^ u64::from(super::thread::process_id()) << 40,
    }
}

/// How long a reading of the load is valid, in nanoseconds.
const READING: u64 = 10_000_000;

/// Whether there is a processor to spare for a thread that spins for another thread of this host:
/// no more threads are runnable than there are processors, and this process may use more than one
/// and without sleeping.
#[must_use]
pub fn has_idle_processor() -> bool {
    processors_to_wait_on() > 1
}

/// Whether a thread that spins for another machine takes a processor from nobody: as
/// [`has_idle_processor`], but the only processor of this host will do. A process that may use only
/// one of several may share it with others.
#[must_use]
pub fn has_processor_for_itself() -> bool {
    processors_to_wait_on() > 0
}

/// Whether more threads are runnable than there are processors, or that is not known. Takes a few
/// microseconds.
#[must_use]
pub fn threads_outnumber_processors() -> bool {
    runnable_threads().is_none_or(|running| running > online())
}

/// Number of processors on which a thread of this process may spin: 0 if more threads are runnable
/// than there are processors, if it has to sleep, or may use only one of several. A reading is
/// valid for about 10 ms by the coarse clock, which advances with the timer and costs no system
/// call if programs have the kernel's vdso(7).
fn processors_to_wait_on() -> usize {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    static READ: AtomicUsize = AtomicUsize::new(0);
    let now = read_clock(ClockId::MonotonicCoarse);
    let read_at = TAKEN.load(Ordering::Relaxed);
    if read_at != 0 && now.wrapping_sub(read_at) < READING {
        return READ.load(Ordering::Relaxed);
    }
    let processors = processors();
    let is_pinned = processors == 1 && online() > 1;
    let may_wait = !is_pinned && !limit::must_sleep() && !threads_outnumber_processors();
    let read = if may_wait { processors } else { 0 };
    READ.store(read, Ordering::Relaxed);
    TAKEN.store(now.max(1), Ordering::Relaxed);
    read
}

/// Number of online processors of the whole machine.
fn online() -> usize {
    static ONLINE: AtomicUsize = AtomicUsize::new(0);
    let cached = ONLINE.load(Ordering::Relaxed);
    if cached != 0 {
        return cached;
    }
    // SAFETY: sysconf has no preconditions.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let online = usize::try_from(online).unwrap_or(1).max(1);
    ONLINE.store(online, Ordering::Relaxed);
    online
}

/// The number before the slash in the fourth field of /proc/loadavg (proc(5)). Read without libc,
/// whose open() and read() are cancellation points, and from a descriptor that stays open: a new
/// one would take, for a moment, the number that the application has just closed and relies on.
fn runnable_threads() -> Option<usize> {
    use rustix::fs::{Mode, OFlags};
    static LOAD: OnceLock<Option<PrivateFd>> = OnceLock::new();
    let open = || {
        let file =
            rustix::fs::open(c"/proc/loadavg", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .ok()?;
        PrivateFd::new(file).ok()
    };
    // Opened before the cell is locked: a child that is forked meanwhile would wait for it for
    // ever.
    let file = match LOAD.get() {
        Some(file) => file.as_ref()?,
        None => {
            let _ = LOAD.set(open());
            LOAD.get()?.as_ref()?
        }
    };
    let mut text = [0; 64];
    let len = rustix::io::pread(file, &mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    text.split_ascii_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

/// A clock that does not depend on the time of day, in nanoseconds. It jumps forward or back only
/// in a process that has been moved to another time namespace (time_namespaces(7)), as a child can
/// be.
#[inline]
#[must_use]
pub fn nanoseconds() -> u64 {
    read_clock(ClockId::Monotonic)
}

/// The cost of a reading of [`nanoseconds`], in nanoseconds: tens if user space reads the
/// processor's counter, thousands in a virtual machine where it may not, and has to ask the kernel
/// or even the hypervisor. Measured once.
#[must_use]
pub fn cost_of_nanoseconds() -> u64 {
    // Nobody waits for the measuring thread, which may belong to the parent of this process, or be
    // interrupted.
    static COST: AtomicU64 = AtomicU64::new(0);
    let cached = COST.load(Ordering::Relaxed);
    if cached != 0 {
        return cached;
    }
    let readings: [u64; 4] = std::array::from_fn(|_| nanoseconds());
    let costs = readings.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let cost = costs.min().unwrap_or(0).max(1);
    COST.store(cost, Ordering::Relaxed);
    cost
}

/// A number that changes every 15 to 130 µs. Reading it takes a few nanoseconds wherever the
/// program runs, whereas [`nanoseconds`] may be a system call. It comes from the processor's
/// counter, so only the frequency of an action may depend on it.
#[inline]
#[must_use]
pub fn tick() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads a counter. A program that forbids itself that instruction no longer uses the
    // library.
    return unsafe { std::arch::x86_64::_rdtsc() } >> 17;
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let (count, hertz): (u64, u64);
        // SAFETY: reads two registers, which Linux permits.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) count, out(reg) hertz,
                options(nomem, nostack));
        }
        count >> (hertz / 30_000).max(1).ilog2()
    }
    #[cfg(miri)]
    return nanoseconds() >> 14;
}

#[inline]
fn read_clock(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Time since this reading of [`nanoseconds`]; `None` if the clock was set back meanwhile.
#[must_use]
pub fn since(reading: u64) -> Option<Duration> {
    nanoseconds().checked_sub(reading).map(Duration::from_nanos)
}
