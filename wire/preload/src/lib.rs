//! libseekwire.so and libseekwire.a: the socket calls of an unmodified program, and the C API.
//!
//! ```text
//!   application (LD_PRELOAD)              application (-lseekwire)
//!        |  libc call                          |
//!   calls      one file per family        api      wire/include/seekwire.h
//!        |  look the fd up; delegate          seek       the part that receives out of order
//!   way        by libc or by us        poll      waiting on a list of fds
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
//!   start      start and end                              lock     a lock that fork can hold
//!   process    this one, or a child of it                 hold     work that a handler postpones
//!   hand_over  back to TCP, for another holder            signals  EINTR or start again
//!   passed     fds that another program is about to get   memory   of the library's own
//!   found      bytes that an earlier program has left
//!   relay      processes that bring it the bytes on the ring
//!   uring      an io_uring that the program uses          unseen   rings that cannot be followed
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

mod api;
mod buffers;
mod calls;
mod cancel;
mod departure;
mod epoll;
mod ffi;
mod filter;
mod fork;
mod found;
mod hand_over;
mod hazard;
mod hold;
mod loaded;
mod loader;
mod loan;
mod lock;
mod log;
mod look;
mod memory;
mod numbers;
mod passed;
mod pointers;
mod poll;
mod postponed;
mod process;
mod real;
mod registration;
mod relay;
mod seek;
mod signals;
mod socket;
mod spawned;
mod start;
mod stats;
mod streams;
mod syscall;
mod table;
mod timeout;
mod track;
mod unseen;
mod unwinder;
mod uring;
mod way;
