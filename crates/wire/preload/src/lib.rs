//! libseekwire.so and libseekwire.a: the socket calls of an unmodified program, and the C API.
//!
//! ```text
//!   application (LD_PRELOAD)              application (-lseekwire)
//!        |  libc call                          |
//!   calls      one file per family        api      include/seekwire.h
//!        |  look the fd up; delegate          seek       the part of it that receives out of order
//!   table      fd number -> object, protected by hazard pointers
//!        |
//!   socket     one tracked socket      epoll     one epoll set
//!        |                             poll      waiting on a list of fds
//!   endpoint   Connection: which carrier moves this direction's bytes now
//!
//!   real       the functions of libc behind ours          ffi      panics and errno
//!   loaded     those of objects that are opened locally
//!   process    start, fork, end                           lock     a lock that fork can hold
//!   passed     fds that another program is about to get   signals  EINTR or start again
//!   uring      what the program submits to io_uring          memory   of the library's own
//!   cancel     pthread_cancel of a thread that sleeps for the ring
//!   pointers   what the application passes may lead nowhere
//! ```
//!
//! The fd of the application is always the real socket, so whatever is not handled here simply
//! reaches the kernel; where that would pass by bytes on the ring, the connection goes back to TCP
//! first. System calls by number through libc's `syscall` are led to the functions of their names;
//! those that a program makes by instructions of its own are not seen.
//!
//! Symbols carry no version: the linker does not take a map of versions beside the list of exports
//! that rustc gives it.

mod api;
mod buffers;
mod calls;
mod cancel;
mod epoll;
mod ffi;
mod fork;
mod hazard;
mod loaded;
mod lock;
mod log;
mod memory;
mod passed;
mod pointers;
mod poll;
mod postponed;
mod process;
mod real;
mod seek;
mod signals;
mod socket;
mod stats;
mod streams;
mod table;
mod timeout;
mod uring;
