//! libseekwire.so and libseekwire.a: the socket calls of an unmodified program, and the C API.
//!
//! ```text
//!   application (LD_PRELOAD)              application (-lseekwire)
//!        |  libc call                          |
//!   calls      one file per family        api      wire/include/seekwire.h
//!        |  look the fd up; delegate          seek       the part that receives out of order
//!   call_path  by libc or by us        poll      waiting on a list of fds    waiter   on several ends
//!   track      entering and leaving the table
//!        |
//!   table      fd number -> object, protected by hazard pointers
//!        |
//!   socket     one tracked socket      epoll     one epoll set
//!        |     registration            its place in a set
//!        |
//!   endpoint   Connection: selects the carrier of each direction
//!
//!   real       the functions of libc behind ours          ffi      panics and errno
//!   loaded     functions of objects that are opened locally
//!   start      start and end                              tracking whether sockets are tracked
//!   replacement  a socket that becomes its relay          lock     a lock that fork can hold
//!   process    this one, or a child of it                 deferred work that a handler postpones
//!   fallback   back to TCP, for another holder            signals  EINTR or start again
//!   handover   for a program that begins                  allocator  the library's own memory
//!   passed_sockets  in messages
//!   found_spill  bytes that an earlier program has left
//!   relay      processes that bring it the bytes on the ring
//!   uring      an io_uring that the program uses          unknown_rings  that cannot be followed
//!   cancel     pthread_cancel of a thread that sleeps for the ring
//!   pointers   checks pointers of the application
//!   filter     system call filters                       unwinder   selects its copy
//! ```
//!
//! The fd of the application is always the real socket, so a call that is not handled here simply
//! reaches the kernel. If that would bypass bytes on the ring, the connection goes back to TCP
//! first. System calls by number through libc's `syscall` lead to the functions of their names. The
//! library does not see system calls that a program makes with its own instructions.
//!
//! The library has a name for the loader (build.rs), and exports the names in tests/tables/exports.
//! Symbols carry no version, because rustc gives the linker a script of its own with every
//! `cdylib`: GNU ld refuses a second one with version names beside it, and LLD accepts it but keeps
//! the symbols of the first.

mod allocator;
mod api;
mod buffers;
mod call_path;
mod calls;
mod cancel;
mod deferred;
mod deferred_close;
mod epoll;
mod fallback;
mod fd_numbers;
mod ffi;
mod filter;
mod fork;
mod found_spill;
mod handover;
mod hazard;
mod loaded;
mod loader;
mod loan;
mod lock;
mod log;
mod look;
mod passed_sockets;
mod pointers;
mod poll;
mod process;
mod real;
mod registration;
mod relay;
mod replacement;
mod seek;
mod signals;
mod socket;
mod socket_options;
mod spawn_actions;
mod start;
mod stats;
mod stdio_streams;
mod syscall;
mod table;
mod timeout;
mod track;
mod tracking;
mod unknown_rings;
mod unload;
mod unwinder;
mod uring;
mod waiter;
