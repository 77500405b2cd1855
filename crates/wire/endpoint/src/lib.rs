#![forbid(unsafe_code)]
//! One TCP socket of this process and its way to shared memory: the machine under the `seekwire`
//! crate, under libseekwire.so and under the command.
//!
//! ```text
//!   connection   one TCP socket: which carrier moves the bytes now, and how it got there
//!     plain      the kernel's socket alone; counts, and notices when an upgrade is due
//!     negotiate  offer and answer
//!     attached   the data path once there is shared memory
//!     seek       receiving out of the middle, on both carriers
//!   permission   whether this process may leave TCP at all
//!   rendezvous   where processes send each other offers
//!   proof        that an offer comes from the process that holds the other end
//!   registry     who holds which connection, for peers and for `seekwire status`
//!   fork         what a fork must find in order
//!   held_file    the files that calls sleep on
//!   scarcity     what there is no more of
//!   control_group  the memory that control groups leave
//!   tuning       what this machine's copies and system calls cost
//!   config       what the environment says
//! ```
//!
//! Nothing here starts a thread: each end takes part in the upgrade inside its own calls.

pub mod across;
pub mod config;
pub mod connection;
mod control_group;
pub mod fork;
mod held_file;
pub mod permission;
mod proof;
pub mod registry;
mod rendezvous;
mod scarcity;
pub mod tuning;

pub use config::Config;
pub use connection::{
    Connection, HandedOver, HeadLoan, Holding, Interest, LoanPiece, Plain, RangeLoan, Readiness,
    RecvFlags, Reserved, SendFlags, SetSpinner, Settings, Status, Totals, Until,
};
pub use seekwire_protocol::{Carrier, Reason, Role};
pub use seekwire_transport::seek::{At, SeekOptions};

/// Takes this process off the registry and closes its rendezvous: for the end of a program. What
/// the operating system does not clean up by itself when a process is killed, others sweep.
pub fn leave() {
    across::leave();
    rendezvous::leave(|| {
        if let Ok(registry) = registry::Registry::of_process() {
            registry.leave();
        }
    });
}
