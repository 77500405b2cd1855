//! A connection: one TCP socket of this process, and the carriers that move its bytes.
//!
//! ```text
//!   plain ----> attaching ----> attached
//!     the kernel's socket        shared memory is there; each direction is on TCP or on the ring
//!     alone; calls are counted
//! ```
//!
//! In the plain phase the caller makes the system calls itself, inside a bracket
//! ([`Connection::enter_plain`]); when the last bracket is left after both ends agreed, the
//! connection is attached, and from then on every call goes through [`Connection::recv`] and
//! [`Connection::send`]. So no thread can be asleep in a system call that a byte on the ring would
//! not end.

mod back;
mod beside;
mod call;
mod cork;
mod covered;
mod end;
mod forked;
mod found;
mod gate;
mod halves;
mod holders;
#[cfg(test)]
mod impostor;
mod in_place;
mod limit;
mod link;
mod meet;
mod messages;
mod negotiate;
mod negotiation;
mod next;
mod number;
mod outcome;
mod peek;
mod peer;
mod plain;
mod readiness;
mod recv;
mod rest;
#[cfg(test)]
mod restless;
mod seek;
mod send;
mod settings;
mod shown;
mod sizes;
mod state;
mod taking;
mod terms;
mod waiters;
mod waiting;

pub use back::{HandedOver, Until};
pub use call::{Asleep, Holding};
pub use in_place::{HeadLoan, Reserved};
pub use plain::Plain;
pub use readiness::SetSpinner;
pub use seek::{LoanPiece, RangeLoan};
pub use settings::Settings;
pub use state::Connection;
pub use terms::{Interest, Readiness, RecvFlags, SendFlags, Status, Totals};
