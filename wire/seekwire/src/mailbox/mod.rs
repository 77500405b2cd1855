//! Messages over a stream, received in any order. They are matched by the rules of MPI 4.1, section
//! 3.5. Douglas and Pai, "Seekable sockets", name such a messaging library as the use of seeks.
//!
//! ```text
//!   life       how a mailbox begins and ends
//!     send       sends one message after the other, and receives while there is no room
//!     receive    receives that belong to the calling thread
//!     posted     receives that any thread completes
//!   session    the lock: which thread sleeps in the stream for all
//!   state      the state of a mailbox; terms, error: types that callers see
//!   inbox      which receive each message is for; waiting: which threads wait
//!     scanner    finds the headers
//!   reader     takes messages out of the stream
//!     parcel     a message whose header has been read
//!     view       a copy of bytes that are still in the stream
//!     spent      bytes of the stream that are no longer needed
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
