#![forbid(unsafe_code)]
//! TCP streams that move through shared memory when both ends are on one host.
//!
//! ```text
//!   stream, listener   the API of this crate: Read, Write, borrow and reserve in place
//!   mailbox            messages over a stream, received in any order
//!   seek_stream        receiving out of the middle of an ordinary TCP stream
//!   connection         one TCP socket: which carrier moves the bytes now, and how it got there
//!     plain              the kernel's socket alone; counts, and notices when an upgrade is due
//!     negotiate          offer and answer
//!     attached           the data path once there is shared memory
//!   permission         whether this process may leave TCP at all
//!   rendezvous         where processes send each other offers
//!   registry           who holds which connection, for peers and for `seekwire status`
//!   config             what the environment says
//! ```
//!
//! A [`Stream`] is a real, connected kernel TCP socket. When the other end is another Seekwire stream,
//! or any program under `seekwire run`, on the same host and of the same user, the bytes leave TCP after
//! the first few calls and travel through shared memory; against any other peer it stays plain TCP, to
//! the byte. Nothing here starts a thread: each end takes part in the upgrade inside its own calls.
//!
//! ```no_run
//! use std::io::{Read, Write};
//!
//! let mut stream = seekwire::Stream::connect("127.0.0.1:7000")?;
//! stream.write_all(b"ping")?;
//! let mut answer = [0; 4];
//! stream.read_exact(&mut answer)?;
//! println!("sent by {}", stream.status()?.tx);
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod config;
pub mod connection;
pub mod fork;
mod listener;
pub mod mailbox;
pub mod permission;
mod proof;
pub mod registry;
mod rendezvous;
pub mod seek;
mod seek_stream;
mod stream;
mod stream_seek;
pub mod tuning;

pub use config::Config;
pub use connection::{
    Connection, Holding, Interest, Patience, Piece, Plain, Readiness, RecvFlags, SendFlags, Status, Totals,
    Until,
};
pub use listener::{Incoming, Listener};
pub use mailbox::Mailbox;
pub use protocol::span::Span;
pub use protocol::{Carrier, Reason, Role};
pub use seek::{At, Extent, SeekFlags, SeekSocket};
pub use seek_stream::SeekStream;
pub use stream::{Borrowed, Reservation, Stream};
pub use stream_seek::{LentBytes, SeekLoan};
pub use transport::Errno;
pub use transport::sys::Fd;

/// Takes this process off the registry and closes its rendezvous: for the end of a program. What the
/// operating system does not clean up by itself when a process is killed, others sweep.
pub fn leave() {
    rendezvous::leave();
}
