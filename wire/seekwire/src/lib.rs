#![forbid(unsafe_code)]
//! TCP streams that move through shared memory when both ends are on one host.
//!
//! ```text
//!   stream, listener   Read, Write, borrow and reserve in place
//!   stream_seek        receiving out of the middle of a stream
//!   seek_stream        the same on an ordinary TCP stream
//!   mailbox            messages over a stream, received in any order
//!   os                 requests to the kernel around streams
//!   tokio              streams for tasks, with the cargo feature of that name
//! ```
//!
//! A [`Stream`] is a real, connected TCP socket of the kernel. The other end may be another
//! Seekwire stream or any program under `seekwire run`. If it is on the same host and of the same
//! user, the bytes leave TCP after the first few calls and travel through shared memory. With any
//! other peer, the stream stays on plain TCP, to the byte. The library starts no threads: each end
//! takes part in the upgrade inside its own calls.
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
//!
//! # Errors
//! Streams fail like std's, with an [`std::io::Error`] of the kernel. Seeks fail with a
//! [`SeekError`], which says what to do. A [`Mailbox`] has errors of its own. If a peer writes
//! something into shared memory that no honest end writes, the connection is reset:
//! [`ConnectionReset`](std::io::ErrorKind::ConnectionReset).
//!
//! # Threads
//! [`Stream`] and [`SeekStream`] are [`Send`] and [`Sync`], and read, write and seek by reference.
//! So threads can share one. They take turns in each direction.
//!
//! # Cargo features
//! - `tokio`: the module [`tokio`](https://docs.rs/seekwire/latest/seekwire/tokio), streams for tasks.
//!   Off by default.

mod error;
mod listener;
pub mod mailbox;
pub mod os;
pub mod seek;
mod seek_stream;
mod socket_options;
mod stream;
mod stream_seek;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use error::SeekError;
pub use listener::{Incoming, Listener};
pub use mailbox::Mailbox;
pub use seek::{At, Extent, SeekOptions, SeekSocket};
pub use seek_stream::SeekStream;
pub use seekwire_endpoint::{Status, Totals};
pub use seekwire_protocol::span::Span;
pub use seekwire_protocol::{Carrier, Reason, Role};
pub use seekwire_transport::Errno;
pub use stream::{Loan, Reservation, Stream};
pub use stream_seek::{LoanBytes, SeekLoan};
