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

mod call;
mod call_limit;
mod close;
mod control_messages;
mod cork;
mod data_path;
mod fallback;
mod forked;
mod full_ring;
mod gate;
mod halves;
mod holders;
#[cfg(test)]
mod impostor;
mod in_place;
mod inheritance;
mod negotiate;
mod negotiate_link;
mod negotiation;
mod next_source;
mod outcome;
mod peek;
mod peer_liveness;
mod peer_progress;
mod plain;
mod readiness;
mod recv;
mod registry_reports;
mod ring_sizes;
mod seek;
mod send;
mod settings;
mod socket_fd;
mod spill;
mod spill_in_sets;
#[cfg(test)]
mod spurious_wakeups;
mod state;
mod types;
mod wait_coverage;
mod waiters;
mod waiting;

pub use call::{Asleep, Holding};
pub use fallback::{HandedOver, Until};
pub use in_place::{HeadLoan, Reserved};
pub use plain::Plain;
pub use readiness::Armed;
pub use seek::{LoanPiece, RangeLoan};
pub use settings::Settings;
pub use state::Connection;
pub use types::{Interest, Readiness, RecvFlags, SendFlags, Status, Totals};
