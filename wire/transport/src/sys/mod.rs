//! Every system call of Seekwire, without going through libc's socket functions: those are what the
//! preload library replaces, and its own calls must not come back to it.

mod call;
pub mod diag;
pub mod doorbell;
pub mod event_channel;
pub mod fault;
pub mod fd;
pub mod file;
pub mod filter;
pub mod futex;
pub mod grants;
pub mod host;
pub mod limit;
pub mod ofd_lock;
pub mod pair;
pub mod poll;
pub mod process;
pub mod proof;
#[cfg(feature = "tokio")]
pub mod reactor;
pub mod seek;
mod select;
pub mod signal;
pub mod socket;
pub mod spill;
pub mod thread;
pub mod unix;
mod wait;
pub mod wake_connection;

pub use call::call;
pub use fd::Fd;
