//! libseekwire.so and libseekwire.a: the socket calls of an unmodified program, and the C API.
//!
//! ```text
//!   application (LD_PRELOAD)              application (-lseekwire)
//!        |  libc call                          |
//!   calls      one file per family        api      include/seekwire.h
//!        |  look the fd up; delegate          seek       the part of it that receives out of order
//!   way        by libc or by us        poll      waiting on a list of fds
//!   track      what enters and leaves the table
//!        |
//!   table      fd number -> object, protected by hazard pointers
//!        |
//!   socket     one tracked socket      epoll     one epoll set
//!        |     registration            its place in a set
//!        |
//!   endpoint   Connection: which carrier moves this direction's bytes now
//!
//!   real       the functions of libc behind ours          ffi      panics and errno
//!   loaded     those of objects that are opened locally
//!   start      start and end                              lock     a lock that fork can hold
//!   process    this one, or a child of it                 hold     what a handler leaves to be done
//!   hand_over  back to TCP, for another holder            signals  EINTR or start again
//!   passed     fds that another program is about to get   memory   of the library's own
//!   found      what an earlier program has left of them
//!   relay      processes that bring it what lies on the ring
//!   uring      an io_uring that the program uses          unseen   those that are not understood
//!   cancel     pthread_cancel of a thread that sleeps for the ring
//!   pointers   what the application passes may lead nowhere
//!   filter     what the process may not do any more          unwinder   which copy of it is used
//! ```
//!
//! The fd of the application is always the real socket, so whatever is not handled here simply
//! reaches the kernel; where that would pass by bytes on the ring, the connection goes back to TCP
//! first. System calls by number through libc's `syscall` are led to the functions of their names;
//! those that a program makes by instructions of its own are not seen.
//!
//! The library has a name for the loader (build.rs), and exports what tests/tables/exports lists.
//! Symbols carry no version, because rustc gives the linker a script of its own with every `cdylib`:
//! GNU ld refuses a second one with names of versions beside it, and LLD takes it but leaves
//! symbols as the first one has them.

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
