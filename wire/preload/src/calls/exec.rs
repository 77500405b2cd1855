//! exec and posix_spawn: a new program knows nothing of the rings, so connections it inherits go
//! back to TCP first.
//!
//! The functions of libc that take a list of arguments instead of an array call execve inside libc,
//! where this library does not see it. Stable Rust cannot define such a function, but it can define
//! one in assembly that finds the list in memory: both calling conventions pass the first arguments
//! in registers and the others on the stack, in order, so pushing the registers makes one array of
//! all of them.

use std::ffi::{c_char, c_int, c_void};

use libc::{AT_FDCWD, mode_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use seekwire_transport::Errno;
use seekwire_transport::sys::fd::with_all_numbers;

use super::interpose::interpose;
use crate::ffi::{guarded, keeping_errno};
use crate::hazard::outside;
use crate::loader::{ExecTarget, Strings, with_environment};
use crate::track::fresh;
use crate::{handover, process, real, spawn_actions, stats, table};

/// Called before this process becomes another program with this environment.
fn before_exec(program: ExecTarget, envp: Strings) {
    keeping_errno(|| {
        guarded(|| {
            // SAFETY: callers pass the program's own arguments.
            handover::prepare_exec(|| unsafe { program.loads_library(envp) });
            // The new program would lose them.
            if process::kind() == process::ProcessKind::Own {
                handover::prepare_end();
                stats::write();
            }
        })
    });
}

/// Called when this process still runs the same program.
fn failed_exec(result: c_int) -> c_int {
    if process::kind() == process::ProcessKind::Own {
        guarded(handover::after_failed_exec);
    }
    result
}

/// Called before another program starts beside this one, with this environment.
fn before_spawn(program: ExecTarget, envp: Strings) {
    guarded(|| {
        // SAFETY: as in `before_exec`.
        handover::prepare_spawn(|| unsafe { program.loads_library(envp) });
    });
}

/// Called before the C library starts a shell beside this program.
pub(super) fn before_shell() {
    before_spawn(ExecTarget::At(AT_FDCWD, c"/bin/sh".as_ptr()), environment());
}

/// Starts a program beside this one, with these actions.
fn spawn(
    program: ExecTarget,
    actions: *const posix_spawn_file_actions_t,
    envp: Strings,
    start: impl FnOnce(Strings) -> c_int,
) -> c_int {
    let result = started(program, envp, start);
    if result == 0 && !actions.is_null() {
        guarded(|| spawn_actions::started(actions as usize));
    }
    result
}

/// Starts a program by calling `start`, with an environment that suits its loader.
fn started(program: ExecTarget, envp: Strings, start: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: callers pass the program's own arguments.
    unsafe { with_environment(program, envp, |envp| outside(|| start(envp))) }
}

unsafe extern "C" {
    static mut environ: Strings;
}

/// The environment of the calling program.
fn environment() -> Strings {
    // SAFETY: reads one pointer; the program must not change the environment at the same time, as
    // for execv itself.
    unsafe { environ }
}

interpose! {
    /// execve(2)
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = {
        before_exec(ExecTarget::At(AT_FDCWD, path), envp);
        Some(())
    } => |_done, _kernel| failed_exec(started(ExecTarget::At(AT_FDCWD, path), envp, |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::execve(path, argv, envp) }
    }));
    /// execvpe(3)
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int = {
        before_exec(ExecTarget::Named(file), envp);
        Some(())
    } => |_done, _kernel| failed_exec(started(ExecTarget::Named(file), envp, |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::execvpe(file, argv, envp) }
    }));
    /// fexecve(3)
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int = {
        before_exec(ExecTarget::Open(fd), envp);
        Some(())
    } => |_done, _kernel| failed_exec(started(ExecTarget::Open(fd), envp, |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::fexecve(fd, argv, envp) }
    }));
    /// execveat(2)
    fn execveat(
        dir: c_int,
        path: *const c_char,
        argv: *const *const c_char,
        envp: *const *const c_char,
        flags: c_int,
    ) -> c_int = {
        // SAFETY: the caller's own arguments.
        let program = unsafe { ExecTarget::of_execveat(dir, path, flags) };
        before_exec(program, envp);
        Some(program)
    } => |program, _kernel| failed_exec(started(program, envp, |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::execveat(dir, path, argv, envp, flags) }
    }));
    /// execv(3)
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int = {
        before_exec(ExecTarget::At(AT_FDCWD, path), environment());
        Some(())
    } => |_done, _kernel| failed_exec(started(ExecTarget::At(AT_FDCWD, path), environment(), |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::execve(path, argv, envp) }
    }));
    /// execvp(3)
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int = {
        before_exec(ExecTarget::Named(file), environment());
        Some(())
    } => |_done, _kernel| failed_exec(started(ExecTarget::Named(file), environment(), |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::execvpe(file, argv, envp) }
    }));
    /// posix_spawn(3)
    fn posix_spawn(
        pid: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int = {
        before_spawn(ExecTarget::At(AT_FDCWD, path), envp.cast());
        Some(())
    } => |_done, _kernel| spawn(ExecTarget::At(AT_FDCWD, path), actions, envp.cast(), |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::posix_spawn(pid, path, actions, attributes, argv, envp.cast()) }
    });
    /// posix_spawnp(3)
    fn posix_spawnp(
        pid: *mut pid_t,
        file: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int = {
        before_spawn(ExecTarget::Named(file), envp.cast());
        Some(())
    } => |_done, _kernel| spawn(ExecTarget::Named(file), actions, envp.cast(), |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::posix_spawnp(pid, file, actions, attributes, argv, envp.cast()) }
    });
    /// system(3): libc starts the shell without posix_spawn() by its name
    fn system(command: *const c_char) -> c_int = {
        if !command.is_null() {
            before_shell();
        }
        Some(())
    } => |_done, kernel| kernel();
    /// wordexp(3), which lets a shell execute the words in backquotes
    fn wordexp(words: *const c_char, into: *mut c_void, flags: c_int) -> c_int = {
        before_shell();
        Some(())
    } => |_done, kernel| kernel();
    /// pidfd_spawn(3)
    fn pidfd_spawn(
        pidfd: *mut c_int,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int = {
        before_spawn(ExecTarget::At(AT_FDCWD, path), envp.cast());
        Some(())
    } => |_done, _kernel| spawned(spawn(ExecTarget::At(AT_FDCWD, path), actions, envp.cast(), |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::pidfd_spawn(pidfd, path, actions, attributes, argv, envp.cast()) }
    }), pidfd);
    /// pidfd_spawnp(3)
    fn pidfd_spawnp(
        pidfd: *mut c_int,
        file: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const *mut c_char,
        envp: *const *mut c_char,
    ) -> c_int = {
        before_spawn(ExecTarget::Named(file), envp.cast());
        Some(())
    } => |_done, _kernel| spawned(spawn(ExecTarget::Named(file), actions, envp.cast(), |envp| {
        // SAFETY: the caller's own arguments, with an environment like theirs.
        unsafe { real::pidfd_spawnp(pidfd, file, actions, attributes, argv, envp.cast()) }
    }), pidfd);
    /// posix_spawn_file_actions_adddup2(3): the new program gets this fd under another number
    fn posix_spawn_file_actions_adddup2(
        actions: *mut posix_spawn_file_actions_t,
        from: c_int,
        to: c_int,
    ) -> c_int = (!table::is_unused()).then_some(()) => |_any, kernel| {
        let socket = guarded(|| spawn_actions::socket(actions as usize, from)).flatten();
        let end = socket.as_ref().map(|socket| spawn_actions::end_for(socket, actions as usize, to));
        let result = match end.transpose() {
            // The C library takes only numbers below the soft limit.
            // SAFETY: the caller's own arguments, but for the number.
            Ok(Some(Some(from))) => with_all_numbers(|| unsafe {
                real::posix_spawn_file_actions_adddup2(actions, from, to)
            }),
            Ok(_) => kernel(),
            // These functions return their errors.
            Err(error) => error.raw_os_error(),
        };
        if result == 0 {
            guarded(|| spawn_actions::gets(actions as usize, to, socket.as_deref()));
        }
        result
    };
    /// posix_spawn_file_actions_addopen(3): the number no longer stands for a socket
    fn posix_spawn_file_actions_addopen(
        actions: *mut posix_spawn_file_actions_t,
        fd: c_int,
        path: *const c_char,
        flags: c_int,
        mode: mode_t,
    ) -> c_int = (!table::is_unused()).then_some(()) => |_any, kernel| {
        let result = kernel();
        if result == 0 {
            guarded(|| spawn_actions::gets(actions as usize, fd, None));
        }
        result
    };
    /// posix_spawn_file_actions_init(3): forgets earlier actions at this address
    fn posix_spawn_file_actions_init(actions: *mut posix_spawn_file_actions_t) -> c_int = Some(()) => |_any, kernel| {
        guarded(|| spawn_actions::forget(actions as usize));
        kernel()
    };
    /// posix_spawn_file_actions_destroy(3): these actions will start nothing any more
    fn posix_spawn_file_actions_destroy(actions: *mut posix_spawn_file_actions_t) -> c_int = Some(()) => |_any, kernel| {
        guarded(|| spawn_actions::forget(actions as usize));
        kernel()
    };
}

/// Handles the result of pidfd_spawn, which is an error unless it is 0.
fn spawned(result: c_int, pidfd: *const c_int) -> c_int {
    match result {
        // SAFETY: libc has just written there.
        0 => drop(fresh(unsafe { *pidfd })),
        // An older C library has no such function.
        -1 => return Errno::NOSYS.raw_os_error(),
        _ => {}
    }
    result
}

/// execl(3) with its arguments in memory: the path, the list, a null pointer.
unsafe extern "C-unwind" fn execl_array(arguments: Strings) -> c_int {
    // SAFETY: the list is the caller's, and ends with a null pointer.
    unsafe { execve(*arguments, arguments.add(1), environment()) }
}

/// execlp(3), likewise.
unsafe extern "C-unwind" fn execlp_array(arguments: Strings) -> c_int {
    // SAFETY: as above.
    unsafe { execvp(*arguments, arguments.add(1)) }
}

/// execle(3), likewise: the environment follows the null pointer.
unsafe extern "C-unwind" fn execle_array(arguments: Strings) -> c_int {
    // SAFETY: as above.
    unsafe {
        let mut end = arguments.add(1);
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(*arguments, arguments.add(1), *end.add(1).cast::<Strings>())
    }
}

/// Defines a C function that takes a list of pointers, as a call of `$array` with that list as an
/// array.
macro_rules! list_of_pointers {
    ($(#[$meta:meta])* $name:ident => $array:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the manual page of the C function says.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        pub(crate) unsafe extern "C-unwind" fn $name() -> c_int {
            // The return address lies between the registers and the rest of the list, so it moves
            // below both. With six registers, it, and eight bytes more the stack is aligned as a
            // call demands.
            std::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "push rax",
                "sub rsp, 8",
                "call {array}",
                "add rsp, 8",
                "pop rdx",
                "add rsp, 48",
                "push rdx",
                "ret",
                array = sym $array,
            )
        }

        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the manual page of the C function says.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        pub(crate) unsafe extern "C-unwind" fn $name() -> c_int {
            std::arch::naked_asm!(
                "stp x6, x7, [sp, #-16]!",
                "stp x4, x5, [sp, #-16]!",
                "stp x2, x3, [sp, #-16]!",
                "stp x0, x1, [sp, #-16]!",
                "mov x0, sp",
                "stp x29, x30, [sp, #-16]!",
                "bl {array}",
                "ldp x29, x30, [sp], #16",
                "add sp, sp, #64",
                "ret",
                array = sym $array,
            )
        }
    };
}

list_of_pointers!(
    /// execl(3)
    execl => execl_array
);
list_of_pointers!(
    /// execlp(3)
    execlp => execlp_array
);
list_of_pointers!(
    /// execle(3)
    execle => execle_array
);
