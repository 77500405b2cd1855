//! Messages over a stream, received in any order (the rules of MPI 4.1, section 3.5; the messaging
//! library that Douglas and Pai, "Seekable sockets", name as the use of seeks).
//!
//! ```text
//!   life       how a mailbox begins and ends
//!     send       one message after the other; progress on receiving while there is no room
//!     receive    receives of the calling thread
//!     posted     receives that any thread completes
//!   session    the lock: who sleeps in the stream for all
//!   state      what a mailbox consists of; terms, error: what callers hear
//!   inbox      whom the messages are for; waiting: who waits for them
//!     scanner    finds the headers
//!   reader     takes messages out of the stream
//!     parcel     a message whose header has been read
//!     view       a copy of bytes that stay in the stream
//!     spent      bytes of the stream that nobody needs any more
//! ```

mod error;
mod inbox;
mod life;
mod outbox;
mod parcel;
mod posted;
mod reader;
mod receive;
mod scanner;
mod send;
mod session;
mod spent;
mod state;
mod terms;
mod view;
mod waiting;

pub use error::{PeerMisbehaved, RecvError, SendError};
pub use life::Hangup;
pub use seekwire_protocol::message::{Selector, Ticket};
pub use state::Mailbox;
pub use terms::{Completed, Envelope, Limits};
