//! The functions of libc that the library's functions replace.
//!
//! Each is looked up once, at its first call, with `dlsym(RTLD_NEXT)`: that works before main and
//! inside constructors of other libraries, and functions that a program does not call cost it
//! nothing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_ushort, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    DIR, FILE, aiocb, epoll_event, fd_set, iovec, mmsghdr, mode_t, msghdr, nfds_t, off_t, pid_t,
    pollfd, posix_spawn_file_actions_t, posix_spawnattr_t, sa_family_t, sigaction as Action,
    sigevent, sighandler_t, sigset_t, size_t, sockaddr, sockaddr_in, socklen_t, ssize_t, termios,
    timespec, timeval, winsize,
};
use seekwire_transport::Errno;

use crate::{ffi, loaded};

/// A function of the libraries after this one in the search order.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// The version of the oldest functions of the C library.
const FIRST_VERSION: &CStr =
    if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: they take a handle and static C strings. Storing the result twice is harmless.
        let address = ffi::keeping_errno(|| unsafe {
            let address = libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr());
            if !address.is_null() {
                return address;
            }
            // Functions that libc keeps for old programs are found only with their version.
            libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), FIRST_VERSION.as_ptr())
        });
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Makes a later copy of this library leave everything to this one.
pub(crate) fn let_next_copy_stand_back() {
    static NEXT: Next = Next::new(c"seekwire_stand_back");
    let address = NEXT.get();
    if !address.is_null() {
        // SAFETY: the function of that name takes and returns nothing, in every version of this
        // library.
        unsafe {
            let function: unsafe extern "C" fn() = std::mem::transmute(address);
            function();
        }
    }
}

macro_rules! real {
    (fn $($functions:tt)*) => {
        real! { |_name| std::ptr::null_mut(), ffi::fail(Errno::NOSYS); fn $($functions)* }
    };
    // With an expression to look elsewhere, evaluated each time, and a result if that finds nothing
    // either.
    (|$other:ident| $elsewhere:expr, $none:expr; $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => {$(
        /// The next definition of this function. Returns ENOSYS if there is none.
        ///
        /// # Safety
        ///
        /// As for the C function of that name.
        #[inline]
        // The names are libc's.
        #[allow(non_snake_case)]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("not a C string"),
            };
            static NEXT: Next = Next::new(NAME);
            let mut address = NEXT.get();
            if address.is_null() {
                let $other = NAME;
                address = $elsewhere;
            }
            if address.is_null() {
                return $none;
            }
            // SAFETY: the symbol of this name in its library has this signature, which its manual
            // page gives. "C-unwind", because pthread_cancel unwinds out of it.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($ty),*) -> $ret = std::mem::transmute(address);
                function($($arg),*)
            }
        }
    )*};
}

/// The address of syscall, for code that passes its arguments on unchanged.
pub(crate) fn address_of_syscall() -> *mut c_void {
    static NEXT: Next = Next::new(c"syscall");
    NEXT.get()
}

/// The address of vfork, for code that jumps there.
pub(crate) fn address_of_vfork() -> *mut c_void {
    static NEXT: Next = Next::new(c"vfork");
    NEXT.get()
}

/// The address of dprintf, for code that passes its arguments on unchanged.
pub(crate) fn address_of_dprintf() -> *mut c_void {
    static NEXT: Next = Next::new(c"dprintf");
    NEXT.get()
}

/// The address of dprintf in programs built with _FORTIFY_SOURCE.
pub(crate) fn address_of_dprintf_chk() -> *mut c_void {
    static NEXT: Next = Next::new(c"__dprintf_chk");
    NEXT.get()
}

real! {
    fn _Fork() -> libc::pid_t;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;

    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    ) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int;
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(
        fd: c_int,
        buf: *mut c_void,
        len: size_t,
        size: size_t,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    ) -> ssize_t;

    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    fn sendto(
        fd: c_int,
        buf: *const c_void,
        len: size_t,
        flags: c_int,
        address: *const sockaddr,
        address_len: socklen_t,
    ) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn sendfile(out: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    fn sendfile64(out: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    fn splice(
        from: c_int,
        from_offset: *mut i64,
        to: c_int,
        to_offset: *mut i64,
        len: size_t,
        flags: c_uint,
    ) -> ssize_t;

    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t) -> c_int;
    fn __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
        size: size_t,
    ) -> c_int;
    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int;
    fn pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;

    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(
        epfd: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
        mask: *const sigset_t,
    ) -> c_int;
    fn epoll_pwait2(
        epfd: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;

    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn aio_read(request: *mut aiocb) -> c_int;
    fn aio_read64(request: *mut aiocb) -> c_int;
    fn aio_write(request: *mut aiocb) -> c_int;
    fn aio_write64(request: *mut aiocb) -> c_int;
    fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
    fn lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;

    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    fn _IO_file_attach(file: *mut FILE, fd: c_int) -> *mut FILE;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;

    fn backtrace_symbols_fd(frames: *const *mut c_void, count: c_int, fd: c_int) -> ();
    fn __backtrace_symbols_fd(frames: *const *mut c_void, count: c_int, fd: c_int) -> ();

    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execveat(
        dir: c_int,
        path: *const c_char,
        argv: *const *const c_char,
        envp: *const *const c_char,
        flags: c_int,
    ) -> c_int;
    fn posix_spawn(
        pid: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int;
    fn posix_spawnp(
        pid: *mut pid_t,
        file: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn wordexp(words: *const c_char, into: *mut c_void, flags: c_int) -> c_int;
    fn pidfd_spawn(
        pidfd: *mut c_int,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int;
    fn pidfd_spawnp(
        pidfd: *mut c_int,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int;
    fn posix_spawn_file_actions_init(actions: *mut posix_spawn_file_actions_t) -> c_int;
    fn posix_spawn_file_actions_destroy(actions: *mut posix_spawn_file_actions_t) -> c_int;
    fn posix_spawn_file_actions_adddup2(
        actions: *mut posix_spawn_file_actions_t,
        from: c_int,
        to: c_int,
    ) -> c_int;
    fn posix_spawn_file_actions_addopen(
        actions: *mut posix_spawn_file_actions_t,
        fd: c_int,
        path: *const c_char,
        flags: c_int,
        mode: mode_t,
    ) -> c_int;

    fn clnttcp_create(
        address: *mut sockaddr_in,
        program: c_ulong,
        version: c_ulong,
        socket: *mut c_int,
        send_size: c_uint,
        receive_size: c_uint,
    ) -> *mut c_void;
    fn svcfd_create(fd: c_int, send_size: c_uint, receive_size: c_uint) -> *mut c_void;
    fn xprt_register(transport: *mut c_void) -> ();
    fn rcmd(
        host: *mut *mut c_char,
        port: c_ushort,
        local: *const c_char,
        remote: *const c_char,
        command: *const c_char,
        errors: *mut c_int,
    ) -> c_int;
    fn rcmd_af(
        host: *mut *mut c_char,
        port: c_ushort,
        local: *const c_char,
        remote: *const c_char,
        command: *const c_char,
        errors: *mut c_int,
        family: sa_family_t,
    ) -> c_int;
    fn rexec(
        host: *mut *mut c_char,
        port: c_int,
        user: *const c_char,
        password: *const c_char,
        command: *const c_char,
        errors: *mut c_int,
    ) -> c_int;
    fn rexec_af(
        host: *mut *mut c_char,
        port: c_int,
        user: *const c_char,
        password: *const c_char,
        command: *const c_char,
        errors: *mut c_int,
        family: sa_family_t,
    ) -> c_int;
    fn rresvport(port: *mut c_int) -> c_int;
    fn rresvport_af(port: *mut c_int, family: sa_family_t) -> c_int;
    fn daemon(stay: c_int, keep: c_int) -> c_int;
    fn login_tty(fd: c_int) -> c_int;

    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel() -> c_int;

    fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn __open(path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn __open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int;
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int;
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int;
    fn open_tree(dir: c_int, path: *const c_char, flags: c_uint) -> c_int;
    fn fsopen(name: *const c_char, flags: c_uint) -> c_int;
    fn fsmount(context: c_int, flags: c_uint, attributes: c_uint) -> c_int;
    fn fspick(dir: c_int, path: *const c_char, flags: c_uint) -> c_int;
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fn eventfd(count: c_uint, flags: c_int) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
    fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sigignore(signal: c_int) -> c_int;
    fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int;
    fn inotify_init() -> c_int;
    fn inotify_init1(flags: c_int) -> c_int;
    fn fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int;
    fn pidfd_open(pid: pid_t, flags: c_uint) -> c_int;
    fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int;
    fn mkstemp(template: *mut c_char) -> c_int;
    fn mkstemp64(template: *mut c_char) -> c_int;
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int;
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int;
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fn mq_open(name: *const c_char, flags: c_int, mode: mode_t, attributes: *mut c_void) -> c_int;
    fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int;
    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn posix_openpt(flags: c_int) -> c_int;
    fn getpt() -> c_int;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE;
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn _IO_popen(command: *const c_char, kind: *const c_char) -> *mut FILE;
    fn _IO_proc_open(file: *mut FILE, command: *const c_char, kind: *const c_char) -> *mut FILE;
    fn fclose(file: *mut FILE) -> c_int;
    fn _IO_fclose(file: *mut FILE) -> c_int;
    fn pclose(file: *mut FILE) -> c_int;
    fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE;
    fn tmpfile() -> *mut FILE;
    fn tmpfile64() -> *mut FILE;
    fn pipe(fds: *mut c_int) -> c_int;
    fn __pipe(fds: *mut c_int) -> c_int;
    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int;
    fn opendir(path: *const c_char) -> *mut DIR;
    fn openpty(controller: *mut c_int, terminal: *mut c_int, name: *mut c_char, settings: *const termios, size: *const winsize) -> c_int;
    fn forkpty(controller: *mut c_int, name: *mut c_char, settings: *const termios, size: *const winsize) -> pid_t;
}

// Functions of liburing, which a program may have only in objects that it opens with RTLD_LOCAL,
// and more than once. Addresses found there are not kept, because such an object may be closed.
// These functions return the number of an error.
real! {
    |name| loaded::function(name), -libc::ENOSYS;
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int;
    fn io_uring_queue_init_try_nosqarr(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int;
    fn io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, params: *mut c_void, memory: *mut c_void, size: size_t) -> c_int;
    fn io_uring_setup(entries: c_uint, params: *mut c_void) -> c_int;
}
