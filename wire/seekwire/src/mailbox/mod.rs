//! Messages over a stream, received in any order. They are matched by the rules of MPI 4.1, section
//! 3.5. Douglas and Pai, "Seekable sockets", name such a messaging library as the use of seeks.
//!
//! ```text
//!   lifecycle  how a mailbox begins and ends
//!     send       sends one message after the other, and receives while there is no room
//!     receive    receives that belong to the calling thread
//!     posted     receives that any thread completes
//!   session    the lock: which thread sleeps in the stream for all
//!   state      the state of a mailbox; types, error: types that callers see
//!   inbox      which receive each message is for; waiting: which threads wait
//!     scanner    finds the headers
//!   reader     takes messages out of the stream
//!     incoming_message  a message whose header has been read
//!     view              a copy of bytes that are still in the stream
//!     consumed          bytes of the stream that are no longer needed
//! ```

mod consumed;
mod error;
mod inbox;
mod incoming_message;
mod lifecycle;
mod outbox;
mod posted;
mod reader;
mod receive;
mod scanner;
mod send;
mod session;
mod state;
mod types;
mod view;
mod waiting;

pub use error::{PeerMisbehaved, RecvError, SendError};
pub use lifecycle::Hangup;
pub use seekwire_protocol::message::{Selector, Ticket};
pub use state::Mailbox;
pub use types::{Completed, Envelope, Limits};
