//! The interposed functions, one file per family.
//!
//! All have the same shape: look the fd up; if the library takes part in it, its object answers,
//! otherwise libc does. [`interpose!`](interpose) generates that shape. The functions can be unwound, because
//! pthread_cancel unwinds calls that sleep in libc. Panics of the library's own are caught before,
//! by [`crate::ffi::guarded`].

mod alias;
mod control;
mod descriptor;
mod epoll;
mod exec;
mod file;
mod filter;
mod flags;
mod interpose;
mod liburing;
mod new_descriptors;
mod open;
mod option;
mod options;
mod poll;
mod print;
mod receive;
mod rpc;
mod select;
mod send;
mod signal;
mod stdio;
mod system;
mod uring;
mod vfork;

pub(crate) use open::socket;
