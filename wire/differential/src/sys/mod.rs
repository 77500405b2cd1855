//! The calls that are compared: made through the C library's names, so that a preloaded library
//! intercepts them, and, where a program would bypass it, by direct system calls.

pub(crate) mod message;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod readiness;
pub(crate) mod signal;

use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::mem::{size_of, zeroed};

use raw::loopback;

pub(crate) use raw::SyscallResult;

use crate::program::{CallEntry, CloseWay, DupWay, NonblockingWay, OptionValue};

/// No error has this number.
const UNTOUCHED: i32 = 4095;

thread_local! {
    static CHANGED: Cell<Option<i32>> = const { Cell::new(None) };
}

/// Makes a call of the C library's, and notes if it changed `errno` although it succeeded.
pub(crate) fn outcome(call: impl FnOnce() -> i64) -> SyscallResult {
    set_errno(UNTOUCHED);
    let value = call();
    let errno = errno();
    if value == -1 {
        return (value, errno);
    }
    if errno != UNTOUCHED {
        CHANGED.set(Some(errno));
    }
    (value, 0)
}

/// The `errno` that a successful call of this thread left behind, since the last query.
pub(crate) fn changed_errno() -> Option<i32> {
    CHANGED.take()
}

fn errno() -> i32 {
    // SAFETY: the address is valid for as long as the thread lives.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: i32) {
    // SAFETY: as above; no other thread uses it.
    unsafe { *libc::__errno_location() = value }
}

const ADDRESS: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;

pub(crate) fn socket(flags: i32) -> SyscallResult {
    // SAFETY: no memory is passed.
    outcome(|| unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0) }.into())
}

/// A listening socket, and its port.
pub(crate) fn listen() -> (SyscallResult, u16) {
    let made = socket(0);
    let fd = made.0 as c_int;
    let address = loopback(0);
    // SAFETY: the address lives as long as the calls, and its length is given.
    let done = outcome(|| unsafe {
        match libc::bind(fd, (&raw const address).cast(), ADDRESS) {
            0 => libc::listen(fd, 64).into(),
            failed => failed.into(),
        }
    });
    if done.0 == 0 { (made, raw::name(fd, false).unwrap_or(0)) } else { (done, 0) }
}

pub(crate) fn connect(fd: i32, port: u16) -> SyscallResult {
    let address = loopback(port);
    // SAFETY: the address lives as long as the call, and its length is given.
    outcome(|| unsafe { libc::connect(fd, (&raw const address).cast(), ADDRESS) }.into())
}

pub(crate) fn accept(fd: i32, flags: i32) -> SyscallResult {
    let mut address = loopback(0);
    let mut length = ADDRESS;
    outcome(|| {
        // SAFETY: the address lives as long as the call, and its length is given.
        unsafe { libc::accept4(fd, (&raw mut address).cast(), &raw mut length, flags) }.into()
    })
}

/// The port of one end as the program sees it.
pub(crate) fn name(fd: i32, remote: bool) -> (SyscallResult, u16) {
    let mut address = loopback(0);
    let mut length = ADDRESS;
    let place = (&raw mut address).cast();
    // SAFETY: the address lives as long as the call, and its length is given.
    let done = outcome(|| unsafe {
        if remote {
            libc::getpeername(fd, place, &raw mut length).into()
        } else {
            libc::getsockname(fd, place, &raw mut length).into()
        }
    });
    (done, u16::from_be(address.sin_port))
}

pub(crate) fn close(fd: i32, way: CloseWay) -> SyscallResult {
    let number = i64::from(fd);
    match way {
        // SAFETY: closing a number that is not open fails; the program owns all that are.
        CloseWay::Libc => outcome(|| unsafe { libc::close(fd) }.into()),
        // SAFETY: as above.
        CloseWay::Syscall => outcome(|| unsafe { libc::syscall(libc::SYS_close, number) }),
        CloseWay::Inline => raw::call(libc::SYS_close, [number, 0, 0, 0, 0, 0]),
        CloseWay::Range => match u32::try_from(fd) {
            // SAFETY: as above; the range is one number.
            Ok(number) => outcome(|| unsafe { libc::close_range(number, number, 0) }.into()),
            Err(_) => (-1, libc::EBADF),
        },
    }
}

pub(crate) fn shutdown(fd: i32, how: i32, way: CallEntry) -> SyscallResult {
    match way {
        // SAFETY: no memory is passed.
        CallEntry::Libc => outcome(|| unsafe { libc::shutdown(fd, how) }.into()),
        CallEntry::Syscall => {
            // SAFETY: no memory is passed.
            outcome(|| unsafe { libc::syscall(libc::SYS_shutdown, i64::from(fd), i64::from(how)) })
        }
        CallEntry::Inline => raw::call(libc::SYS_shutdown, [fd.into(), how.into(), 0, 0, 0, 0]),
    }
}

pub(crate) fn dup(fd: i32, onto: i32, way: DupWay) -> SyscallResult {
    // SAFETY: descriptors are the program's to copy and to replace; no memory is passed.
    outcome(|| unsafe {
        match way {
            DupWay::Dup => libc::dup(fd).into(),
            DupWay::Dup2 => libc::dup2(fd, onto).into(),
            DupWay::Dup3 => libc::dup3(fd, onto, libc::O_CLOEXEC).into(),
            DupWay::Fcntl => libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).into(),
            DupWay::Syscall => libc::syscall(libc::SYS_dup, i64::from(fd)),
        }
    })
}

pub(crate) fn open(path: &str) -> SyscallResult {
    let path = CString::new(path).unwrap_or_default();
    outcome(|| {
        // SAFETY: the path ends in a zero and lives as long as the call.
        unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, 0o600) }
            .into()
    })
}

/// Both ends of a pipe that does not block.
pub(crate) fn pipe() -> (SyscallResult, [i32; 2]) {
    let mut ends = [-1; 2];
    // SAFETY: there is room for two descriptors.
    (outcome(|| unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) }.into()), ends)
}

/// One that is readable.
pub(crate) fn eventfd() -> SyscallResult {
    // SAFETY: no memory is passed.
    outcome(|| unsafe { libc::eventfd(1, libc::EFD_NONBLOCK) }.into())
}

pub(crate) fn memfd() -> SyscallResult {
    // SAFETY: the name ends in a zero.
    outcome(|| unsafe { libc::memfd_create(c"program".as_ptr(), 0) }.into())
}

/// The same file under a number that no slot has had. Otherwise a call on a slot that was closed
/// could mean this file.
pub(crate) fn aside(fd: i32) -> i32 {
    const ABOVE: i32 = 500;
    // SAFETY: no memory is passed.
    let (moved, _) = outcome(|| unsafe { libc::fcntl(fd, libc::F_DUPFD, ABOVE) }.into());
    close(fd, CloseWay::Libc);
    moved as i32
}

/// Kind of the file and, of a regular one, its size.
pub(crate) fn fstat(fd: i32) -> (SyscallResult, i64, i64) {
    // SAFETY: stat is integers only, for which zero is valid.
    let mut status: libc::stat = unsafe { zeroed() };
    // SAFETY: there is room for the answer.
    let value = outcome(|| unsafe { libc::fstat(fd, &raw mut status) }.into());
    let kind = status.st_mode & libc::S_IFMT;
    (value, kind.into(), if kind == libc::S_IFREG { status.st_size } else { 0 })
}

pub(crate) fn rewind(fd: i32) -> SyscallResult {
    // SAFETY: no memory is passed.
    outcome(|| unsafe { libc::lseek(fd, 0, libc::SEEK_SET) })
}

pub(crate) fn ioctl(fd: i32, request: u64) -> (SyscallResult, i32) {
    let mut value: c_int = -1;
    // SAFETY: the requests that programs have write one int.
    (outcome(|| unsafe { libc::ioctl(fd, request, &raw mut value) }.into()), value)
}

pub(crate) fn set_nonblocking(fd: i32, on: bool, way: NonblockingWay) -> SyscallResult {
    match way {
        NonblockingWay::Fcntl => {
            // SAFETY: no memory is passed.
            let (flags, errno) = outcome(|| unsafe { libc::fcntl(fd, libc::F_GETFL) }.into());
            if flags == -1 {
                return (flags, errno);
            }
            let flags = flags as i32;
            let flags = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
            // SAFETY: no memory is passed.
            outcome(|| unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }.into())
        }
        NonblockingWay::Ioctl => {
            let mut value = c_int::from(on);
            // SAFETY: FIONBIO reads one int.
            outcome(|| unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut value) }.into())
        }
    }
}

pub(crate) fn set_option(fd: i32, level: i32, name: i32, value: OptionValue) -> SyscallResult {
    fn set<T>(fd: i32, level: i32, name: i32, value: &T) -> SyscallResult {
        let length = size_of::<T>() as libc::socklen_t;
        outcome(|| {
            // SAFETY: the value lives as long as the call, and its length is given.
            unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), length) }.into()
        })
    }
    match value {
        OptionValue::Int(value) => set(fd, level, name, &value),
        OptionValue::Pair(first, second) => set(fd, level, name, &[first, second]),
        OptionValue::Time { seconds, microseconds } => {
            set(fd, level, name, &libc::timeval { tv_sec: seconds, tv_usec: microseconds })
        }
    }
}

/// The first bytes of an option's value, and the length that the kernel reports.
pub(crate) fn option(fd: i32, level: i32, name: i32) -> (SyscallResult, [u8; 16], u32) {
    let mut value = [0_u8; 16];
    let mut length = value.len() as libc::socklen_t;
    let done = outcome(|| {
        // SAFETY: the length of the room is given.
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut length) }
            .into()
    });
    (done, value, length)
}

pub(crate) fn sendfile(to: i32, from: i32, count: usize) -> SyscallResult {
    let mut offset = 0;
    // SAFETY: the offset lives as long as the call.
    outcome(|| unsafe { libc::sendfile(to, from, &raw mut offset, count) } as i64)
}

pub(crate) fn splice(from: i32, to: i32, count: usize, flags: u32) -> SyscallResult {
    // SAFETY: there are no offsets; no other memory is passed.
    outcome(|| unsafe {
        libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), count, flags)
    } as i64)
}

/// The library's `seek_recv`, where there is one.
pub(crate) fn seek(fd: i32, room: &mut [u8], flags: i32) -> Option<SyscallResult> {
    type Seek = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int, usize) -> isize;
    // SAFETY: the name ends in a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"seek_recv".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: wire/include/seekwire.h declares it so.
    let seek: Seek = unsafe { std::mem::transmute(found) };
    // SAFETY: the length of the room is given.
    Some(outcome(|| unsafe { seek(fd, room.as_mut_ptr().cast(), room.len(), flags, 0) } as i64))
}
