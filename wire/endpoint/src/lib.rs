#![forbid(unsafe_code)]
//! One TCP socket of this process and its way to shared memory: the machine under the `seekwire`
//! crate, under libseekwire.so and under the command.
//!
//! ```text
//!   connection      one TCP socket: which carrier moves the bytes now, and how it got there
//!     plain         the kernel's socket alone; counts, and notices when an upgrade is due
//!     negotiate     offer and answer; negotiate_link: the same over a link to another machine
//!     data_path     the ring, once there is shared memory
//!     seek          receiving out of the middle, on both carriers
//!   eligibility     whether this process may leave TCP at all
//!   rendezvous      where processes send each other offers
//!   machine_links   links to other machines, and their wake channels
//!   proof           that an offer comes from the process that holds the other end
//!   registry        the holders of connections, for peers and for `seekwire status`
//!   fork            the code that no fork may interrupt
//!   held_file       the files on which calls sleep
//!   scarcity        resources that have run out
//!   control_group   the memory that control groups leave
//!   seek_threshold  the cost of this machine's copies and system calls
//!   config          the settings in the environment
//! ```
//!
//! Nothing here starts a thread: each end takes part in the upgrade inside its own calls.

pub mod config;
pub mod connection;
mod control_group;
pub mod eligibility;
pub mod fork;
mod held_file;
pub mod machine_links;
mod proof;
pub mod registry;
mod rendezvous;
mod scarcity;
pub mod seek_threshold;

pub use config::Config;
pub use connection::{
    Armed, Connection, HandedOver, HeadLoan, Holding, Interest, LoanPiece, Plain, RangeLoan,
    Readiness, RecvFlags, Reserved, SendFlags, Settings, Status, Totals, Until,
};
pub use seekwire_protocol::readiness::{self, Sends};
pub use seekwire_protocol::{Carrier, Reason, Role};
pub use seekwire_transport::seek::{At, SeekOptions};

/// Takes this process off the registry and closes its rendezvous: for the end of a program. For a
/// killed process, other processes clean up what the operating system does not.
pub fn leave() {
    machine_links::leave();
    rendezvous::leave(|| {
        if let Ok(registry) = registry::Registry::of_process() {
            registry.leave();
        }
    });
}
