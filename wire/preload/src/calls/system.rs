//! syscall(2): system calls that a program makes by number, such as libuv's close, are passed to
//! the functions for their names.
//!
//! Calls that cannot concern a tracked socket are made unchanged, by a jump, so that even those
//! that return twice, or need an unchanged stack, work as they do without this library.

use std::ffi::{c_int, c_long};

use libc::{sigset_t, timespec};
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::is_placed;

use super::new_descriptors::fresh_pair;
use super::{
    descriptor, epoll, exec, file, filter, open, option, poll, receive, select, send, uring, vfork,
};
use crate::ffi::{fail, uncancelled};
use crate::syscall::{NEXT, next};
use crate::timeout::Timeout;
use crate::track::fresh;
use crate::{fork, pointers, start, table};

/// One bit per number: set if [`dispatch`] handles it.
static OURS: [u64; 8] = {
    let mut bits = [0; 8];
    let mut at = 0;
    while at < NUMBERS.len() {
        let number = NUMBERS[at] as usize;
        bits[number / 64] |= 1 << (number % 64);
        at += 1;
    }
    bits
};

/// syscall(2). Variadic in C: its arguments are integers or pointers, which on x86-64 and aarch64
/// are passed like those of a function with seven parameters.
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "C-unwind" fn syscall() -> c_long {
    std::arch::naked_asm!(
        "cmp rdi, 512",
        "jae 2f",
        "lea rax, [rip + {ours}]",
        "bt qword ptr [rax], rdi",
        "jc 3f",
        "2:",
        "jmp qword ptr [rip + {next}]",
        "3:",
        "jmp {dispatch}",
        ours = sym OURS,
        next = sym NEXT,
        dispatch = sym dispatch,
    )
}

/// The same for aarch64; see above.
///
/// # Safety
///
/// As the manual page says.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub(crate) unsafe extern "C-unwind" fn syscall() -> c_long {
    std::arch::naked_asm!(
        "cmp x0, #512",
        "b.hs 2f",
        "adrp x16, {ours}",
        "add x16, x16, :lo12:{ours}",
        "lsr x17, x0, #6",
        "ldr x16, [x16, x17, lsl #3]",
        "lsr x16, x16, x0",
        "tbnz x16, #0, 3f",
        "2:",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "br x16",
        "3:",
        "b {dispatch}",
        ours = sym OURS,
        next = sym NEXT,
        dispatch = sym dispatch,
    )
}

/// Defines [`dispatch`], and the numbers for which it is asked: `number if condition => call`.
macro_rules! dispatch {
    (
        ($number:ident, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident, $kernel:ident)
        $($(#[$meta:meta])* $name:ident if $condition:expr => $call:expr;)*
    ) => {
        const NUMBERS: &[c_long] = &[$($(#[$meta])* libc::$name),*];

        /// Handles one of the calls that may concern the library.
        ///
        /// # Safety
        ///
        /// As the manual page of the call says.
        // For some numbers the kernel's call is enough.
        #[allow(unused_unsafe)]
        unsafe extern "C-unwind" fn dispatch(
            $number: c_long,
            $a: usize,
            $b: usize,
            $c: usize,
            $d: usize,
            $e: usize,
            $f: usize,
        ) -> c_long {
            // SAFETY: the caller's own arguments.
            let $kernel = || unsafe { next($number, [$a, $b, $c, $d, $e, $f]) };
            match $number {
                $($(#[$meta])* libc::$name if $condition => {
                    // The function of this name may be a cancellation point, but syscall() is not.
                    // SAFETY: the caller's own arguments, which the kernel takes as that function
                    // does.
                    uncancelled(|| unsafe { $call as c_long })
                })*
                _ => $kernel(),
            }
        }
    };
}

/// True if the library takes part in the file behind a number.
fn is_tracked(fd: usize) -> bool {
    table::is_entered(fd as c_int)
}

/// True if the memory at an address is accessible to a function of libc that reads it, or the
/// address is null.
fn can_be_read<T>(place: usize) -> bool {
    place == 0 || pointers::can_read(place as *const T, 1)
}

/// True if the library takes part in any file.
fn any() -> bool {
    table::numbers().end > 0
}

dispatch! {
    (number, a, b, c, d, e, f, kernel)

    // Calls that create or close numbers of tracked sockets.
    SYS_socket if true => open::socket(a as _, b as _, c as _);
    SYS_accept if true => open::accept(a as _, b as _, c as _);
    SYS_accept4 if true => open::accept4(a as _, b as _, c as _, d as _);
    SYS_close if is_tracked(a) || is_placed(Fd::new(a as c_int)) => open::close(a as _);
    SYS_close_range if any() => open::close_range(a as _, b as _, c as _);
    SYS_dup if any() => descriptor::dup(a as _);
    #[cfg(target_arch = "x86_64")]
    SYS_dup2 if any() => descriptor::dup2(a as _, b as _);
    SYS_dup3 if any() => descriptor::dup3(a as _, b as _, c as _);
    SYS_fcntl if any() => descriptor::fcntl(a as _, b as _, c);
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_create if start::is_tracking() => epoll::epoll_create(a as _);
    SYS_epoll_create1 if start::is_tracking() => epoll::epoll_create1(a as _);
    SYS_unshare if any() => descriptor::unshare(a as _);
    SYS_execve if true => exec::execve(a as _, b as _, c as _);
    SYS_execveat if true => exec::execveat(a as _, b as _, c as _, d as _, e as _);
    SYS_exit_group if true => start::_exit(a as _);

    // Calls that make a process which has them as well.
    #[cfg(target_arch = "x86_64")]
    SYS_fork if start::is_tracking() => fork::without_handlers(kernel);
    SYS_clone if start::is_tracking() && vfork::is_fork(a, b) => fork::without_handlers(kernel);
    // SAFETY: the caller's own argument.
    SYS_clone3 if start::is_tracking() && unsafe { vfork::is_fork_by_3(a as _) } => fork::without_handlers(kernel);

    // Calls that use them.
    SYS_connect if is_tracked(a) => open::connect(a as _, b as _, c as _);
    SYS_listen if is_tracked(a) => open::listen(a as _, b as _);
    SYS_shutdown if is_tracked(a) => open::shutdown(a as _, b as _);
    SYS_setsockopt if is_tracked(a) => option::setsockopt(a as _, b as _, c as _, d as _, e as _);
    SYS_getsockopt if is_tracked(a) => option::getsockopt(a as _, b as _, c as _, d as _, e as _);
    SYS_ioctl if is_tracked(a) => descriptor::ioctl(a as _, b as _, c);
    SYS_read if is_tracked(a) => receive::read(a as _, b as _, c);
    SYS_readv if is_tracked(a) => receive::readv(a as _, b as _, c as _);
    // The offset comes in two halves; on 64-bit processors the first has all of it.
    SYS_preadv2 if is_tracked(a) => receive::preadv2(a as _, b as _, c as _, d as _, f as _);
    SYS_recvfrom if is_tracked(a) => receive::recvfrom(a as _, b as _, c, d as _, e as _, f as _);
    SYS_recvmsg if any() => receive::recvmsg(a as _, b as _, c as _);
    SYS_recvmmsg if any() => receive::recvmmsg(a as _, b as _, c as _, d as _, e as _);
    SYS_write if is_tracked(a) => send::write(a as _, b as _, c);
    SYS_writev if is_tracked(a) => send::writev(a as _, b as _, c as _);
    SYS_pwritev2 if is_tracked(a) => send::pwritev2(a as _, b as _, c as _, d as _, f as _);
    SYS_sendto if is_tracked(a) => send::sendto(a as _, b as _, c, d as _, e as _, f as _);
    SYS_sendmsg if any() => send::sendmsg(a as _, b as _, c as _);
    SYS_sendmmsg if any() => send::sendmmsg(a as _, b as _, c as _, d as _);
    SYS_sendfile if is_tracked(a) || is_tracked(b) => file::sendfile(a as _, b as _, c as _, d);
    SYS_splice if is_tracked(a) || is_tracked(c) => file::splice(a as _, b as _, c as _, d as _, e, f as _);
    #[cfg(target_arch = "x86_64")]
    SYS_poll if any() => poll::poll(a as _, b as _, c as _);
    SYS_ppoll if any() && can_be_read::<timespec>(c) && is_size_of_mask(d, e) => timed(c, || poll::ppoll(a as _, b as _, c as _, d as _));
    #[cfg(target_arch = "x86_64")]
    SYS_select if any() && can_be_read::<libc::timeval>(e) => select::select(a as _, b as _, c as _, d as _, e as _);
    SYS_pselect6 if any() && can_be_read::<timespec>(e) && is_mask_of_size(f) => timed(e, || select::pselect(a as _, b as _, c as _, d as _, e as *const timespec, mask_with_size(f)[0] as *const sigset_t));
    SYS_epoll_ctl if is_tracked(c) => epoll::epoll_ctl(a as _, b as _, c as _, d as _);
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_wait if is_tracked(a) => epoll::epoll_wait(a as _, b as _, c as _, d as _);
    SYS_epoll_pwait if is_tracked(a) && is_size_of_mask(e, f) => epoll::epoll_pwait(a as _, b as _, c as _, d as _, e as _);
    SYS_epoll_pwait2 if is_tracked(a) && is_size_of_mask(e, f) => epoll::epoll_pwait2(a as _, b as _, c as _, d as _, e as _);

    SYS_io_submit if any() => submit(b, c as _, kernel);

    // Calls that keep the library from making system calls.
    SYS_prctl if filter::confines(a as _, b as _) => filter::prctl(a as _, b as _, c as _, d as _, e as _);
    SYS_seccomp if true => filter::seccomp(a, c, kernel);

    // Calls that create other numbers.
    #[cfg(target_arch = "x86_64")]
    SYS_open if any() => fresh(kernel() as c_int);
    #[cfg(target_arch = "x86_64")]
    SYS_creat if any() => fresh(kernel() as c_int);
    SYS_openat if any() => fresh(kernel() as c_int);
    SYS_openat2 if any() => fresh(kernel() as c_int);
    SYS_open_by_handle_at if any() => fresh(kernel() as c_int);
    SYS_open_tree if any() => fresh(kernel() as c_int);
    SYS_fsopen if any() => fresh(kernel() as c_int);
    SYS_fsmount if any() => fresh(kernel() as c_int);
    SYS_fspick if any() => fresh(kernel() as c_int);
    #[cfg(target_arch = "x86_64")]
    SYS_pipe if any() => fresh_pair(kernel() as c_int, a as _);
    SYS_pipe2 if any() => fresh_pair(kernel() as c_int, a as _);
    SYS_socketpair if any() => fresh_pair(kernel() as c_int, d as _);
    #[cfg(target_arch = "x86_64")]
    SYS_eventfd if any() => fresh(kernel() as c_int);
    SYS_eventfd2 if any() => fresh(kernel() as c_int);
    #[cfg(target_arch = "x86_64")]
    SYS_signalfd if any() => fresh(kernel() as c_int);
    SYS_signalfd4 if any() => fresh(kernel() as c_int);
    SYS_timerfd_create if any() => fresh(kernel() as c_int);
    SYS_memfd_create if any() => fresh(kernel() as c_int);
    SYS_memfd_secret if any() => fresh(kernel() as c_int);
    #[cfg(target_arch = "x86_64")]
    SYS_inotify_init if any() => fresh(kernel() as c_int);
    SYS_inotify_init1 if any() => fresh(kernel() as c_int);
    SYS_fanotify_init if any() => fresh(kernel() as c_int);
    SYS_perf_event_open if any() => fresh(kernel() as c_int);
    SYS_pidfd_open if any() => fresh(kernel() as c_int);
    SYS_pidfd_getfd if any() => descriptor::pidfd_getfd(a as _, b as _, c as _);
    SYS_userfaultfd if any() => fresh(kernel() as c_int);
    SYS_mq_open if any() => fresh(kernel() as c_int);
    SYS_landlock_create_ruleset if any() => fresh(kernel() as c_int);
    SYS_io_uring_setup if start::is_tracking() => uring::setup(a as _, b as _, next);
    SYS_io_uring_enter if is_tracked(a) => uring::enter([a, b, c, d, e, f], next);
    SYS_io_uring_register if is_tracked(a) => uring::register([a, b, c, d, e, f], next);
}

/// io_submit: from now on the kernel moves the bytes of the sockets in these requests.
///
/// # Safety
///
/// As for io_submit.
unsafe fn submit(
    count: usize,
    requests: *const *const Iocb,
    kernel: impl Fn() -> c_long,
) -> c_long {
    let count = if pointers::can_read(requests, count) { count } else { 0 };
    for at in 0..count {
        // SAFETY: this many pointers can be read.
        let request = unsafe { requests.add(at).read_unaligned() };
        if pointers::can_read(request, 1) {
            // SAFETY: it can be read.
            let fd = unsafe { (&raw const (*request).fd).read_unaligned() };
            if let Err(error) = descriptor::hand_to_libc(fd) {
                return fail::<c_int>(error).into();
            }
        }
    }
    kernel()
}

/// The beginning of struct iocb in linux/aio_abi.h, up to its descriptor.
#[repr(C)]
struct Iocb {
    data: u64,
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: c_int,
}

/// True if the kernel accepts a mask of that size, or there is no mask.
fn is_size_of_mask(mask: usize, size: usize) -> bool {
    mask == 0 || size == size_of::<u64>()
}

/// pselect6 takes the mask indirectly, as a structure with its address and its size.
///
/// # Safety
///
/// `place` can be read, or is null.
unsafe fn mask_with_size(place: usize) -> [usize; 2] {
    let place = place as *const [usize; 2];
    // SAFETY: as the caller promises.
    if place.is_null() { [0; 2] } else { unsafe { place.read_unaligned() } }
}

/// True if there is no mask, or one with the size that the kernel accepts.
fn is_mask_of_size(place: usize) -> bool {
    can_be_read::<[usize; 2]>(place) && {
        // SAFETY: it can be read, or is null.
        let [mask, size] = unsafe { mask_with_size(place) };
        is_size_of_mask(mask, size)
    }
}

/// Makes a call, and leaves the remaining time in its timeout, as the kernel does. The functions of
/// the C library hide that from their callers.
///
/// # Safety
///
/// `place` can be read, or is null.
unsafe fn timed(place: usize, call: impl FnOnce() -> c_int) -> c_int {
    let place = place as *mut timespec;
    if place.is_null() {
        return call();
    }
    // SAFETY: as the caller promises.
    let limit = unsafe { place.read_unaligned() };
    let limit = Timeout::from_parts(limit.tv_sec, limit.tv_nsec);
    let Some(mut left) = limit.filter(|limit| !limit.is_none()) else { return call() };
    left.left();
    let result = call();
    if let Some(left) = left.left().filter(|_| pointers::can_write(place, 1)) {
        // SAFETY: it can be written to.
        unsafe { place.write_unaligned(crate::timeout::timespec(left)) };
    }
    result
}
