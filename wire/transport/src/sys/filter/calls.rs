//! The system calls that the library makes.

/// A call of the library, and those of its arguments on which a filter may decide: the first three,
/// if they are known.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) number: libc::c_long,
    pub(super) first: [Option<u64>; 3],
}

/// The flags with which the library makes a file.
const CREATED: u64 = (libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC) as u64;

/// Any argument.
const ANY: [Option<u64>; 3] = [None; 3];

macro_rules! call {
    ($number:ident, $first:expr) => {
        call!(stringify!($number), $number, $first)
    };
    ($name:expr, $number:ident, $first:expr) => {
        Call { name: $name, number: libc::$number, first: $first }
    };
}

/// Each call of the library in the program's own processes.
pub(super) const CALLS: &[Call] = {
    const fn family(number: i32) -> [Option<u64>; 3] {
        [Some(number as u64), None, None]
    }
    const fn command(number: i32) -> [Option<u64>; 3] {
        [None, Some(number as u64), None]
    }
    &[
        #[cfg(target_arch = "x86_64")]
        call!(SYS_open, [None, Some(CREATED), None]),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_mkdir, ANY),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_unlink, ANY),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_readlink, ANY),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_rename, ANY),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_epoll_wait, ANY),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_poll, ANY),
        #[cfg(not(target_arch = "x86_64"))]
        call!(SYS_getcpu, ANY),
        call!(SYS_openat, [None, None, Some(CREATED)]),
        #[cfg(not(target_arch = "x86_64"))]
        call!(SYS_mkdirat, ANY),
        #[cfg(not(target_arch = "x86_64"))]
        call!(SYS_unlinkat, ANY),
        #[cfg(not(target_arch = "x86_64"))]
        call!(SYS_renameat, ANY),
        call!(SYS_readlinkat, ANY),
        call!(SYS_getdents64, ANY),
        call!(SYS_statx, ANY),
        call!(SYS_newfstatat, ANY),
        call!(SYS_fstat, ANY),
        call!(SYS_fstatfs, ANY),
        call!(SYS_ftruncate, ANY),
        call!(SYS_fallocate, ANY),
        call!(SYS_lseek, ANY),
        call!(SYS_read, ANY),
        call!(SYS_write, ANY),
        call!(SYS_pread64, ANY),
        call!(SYS_preadv2, ANY),
        call!(SYS_close, ANY),
        call!("fcntl(F_DUPFD_CLOEXEC)", SYS_fcntl, command(libc::F_DUPFD_CLOEXEC)),
        call!("fcntl(F_GETFD)", SYS_fcntl, command(libc::F_GETFD)),
        call!("fcntl(F_GETFL)", SYS_fcntl, command(libc::F_GETFL)),
        call!("fcntl(F_ADD_SEALS)", SYS_fcntl, command(libc::F_ADD_SEALS)),
        call!("fcntl(F_GET_SEALS)", SYS_fcntl, command(libc::F_GET_SEALS)),
        call!("ioctl(FIONREAD)", SYS_ioctl, command(libc::FIONREAD as i32)),
        call!("ioctl(SIOCATMARK)", SYS_ioctl, command(0x8905)),
        call!("ioctl(TIOCOUTQ)", SYS_ioctl, command(libc::TIOCOUTQ as i32)),
        call!(SYS_pipe2, ANY),
        call!(SYS_splice, ANY),
        call!("socket(AF_UNIX)", SYS_socket, family(libc::AF_UNIX)),
        call!(
            "socket(AF_NETLINK)",
            SYS_socket,
            [Some(libc::AF_NETLINK as u64), None, Some(libc::NETLINK_SOCK_DIAG as u64)]
        ),
        call!("socketpair(AF_UNIX)", SYS_socketpair, family(libc::AF_UNIX)),
        call!(SYS_bind, ANY),
        call!(SYS_connect, ANY),
        call!(SYS_shutdown, ANY),
        call!(SYS_getsockname, ANY),
        call!(SYS_getpeername, ANY),
        call!(SYS_getsockopt, ANY),
        call!(SYS_setsockopt, ANY),
        call!(SYS_sendto, ANY),
        call!(SYS_recvfrom, ANY),
        call!(SYS_sendmsg, ANY),
        call!(SYS_recvmsg, ANY),
        call!(SYS_memfd_create, ANY),
        call!(SYS_eventfd2, ANY),
        call!(SYS_epoll_create1, ANY),
        call!(SYS_epoll_ctl, ANY),
        call!(SYS_epoll_pwait, ANY),
        call!(SYS_ppoll, ANY),
        call!(SYS_pselect6, ANY),
        // Of any kind: read-only mappings and writable ones, but none that is executed.
        call!(SYS_mmap, [None, None, Some(libc::PROT_READ as u64)]),
        call!(SYS_mmap, [None, None, Some((libc::PROT_READ | libc::PROT_WRITE) as u64)]),
        call!(SYS_munmap, ANY),
        call!(SYS_madvise, ANY),
        call!(SYS_membarrier, ANY),
        call!(SYS_futex, ANY),
        call!(SYS_sched_yield, ANY),
        call!(SYS_sched_getaffinity, ANY),
        call!(SYS_clock_gettime, ANY),
        call!(SYS_clock_nanosleep, ANY),
        call!(SYS_nanosleep, ANY),
        call!(SYS_getrandom, ANY),
        call!(SYS_getpid, ANY),
        call!(SYS_gettid, ANY),
        call!(SYS_getuid, ANY),
        call!(SYS_geteuid, ANY),
        call!(SYS_uname, ANY),
        call!(SYS_prlimit64, ANY),
        call!(SYS_kill, [None, Some(0), None]),
        call!(SYS_tgkill, ANY),
        call!(SYS_rt_tgsigqueueinfo, ANY),
        call!(SYS_rt_sigaction, ANY),
        call!(SYS_rt_sigprocmask, ANY),
        call!(SYS_rt_sigpending, ANY),
        call!(SYS_rt_sigtimedwait, ANY),
        call!(SYS_exit_group, ANY),
    ]
};

/// Those that only spill files and relays need.
pub(super) const CALLS_OF_HAND_OVERS: &[Call] = &[
    #[cfg(target_arch = "x86_64")]
    call!(SYS_access, ANY),
    call!(SYS_faccessat, ANY),
    call!(SYS_pwrite64, ANY),
    call!(SYS_fgetxattr, ANY),
    call!(SYS_getgid, ANY),
    call!(SYS_getegid, ANY),
    call!("fcntl(F_SETFD)", SYS_fcntl, [None, Some(libc::F_SETFD as u64), None]),
    call!("fcntl(F_SETFL)", SYS_fcntl, [None, Some(libc::F_SETFL as u64), None]),
    call!(SYS_dup3, ANY),
    call!(SYS_listen, ANY),
    call!(SYS_accept4, ANY),
    call!(SYS_setsid, ANY),
    call!(SYS_prctl, [Some(libc::PR_SET_NAME as u64), None, None]),
    call!(SYS_close_range, ANY),
    call!(SYS_wait4, ANY),
];

/// Those that only links between machines need.
pub(super) const CALLS_OF_LINKS: &[Call] = &[
    call!("socket(AF_INET)", SYS_socket, [Some(libc::AF_INET as u64), None, None]),
    call!("socket(AF_INET6)", SYS_socket, [Some(libc::AF_INET6 as u64), None, None]),
    call!(SYS_flock, ANY),
    call!("fcntl(F_OFD_SETLK)", SYS_fcntl, [None, Some(libc::F_OFD_SETLK as u64), None]),
    call!(SYS_fchmod, ANY),
    call!(SYS_fchown, ANY),
    call!(SYS_getgroups, ANY),
];
