//! Reads, changes and restores the settings of network interfaces that matter for messages:
//! offloads, coalescing and ring sizes.
//!
//! ```text
//! session     begin: lock, save; apply; end: put back          restore
//!   store       the state before, in a file
//!     saved_state   that state, and the changed keys
//!     private_directory  a directory whose files are closed to others
//!   change    carries out a plan and reports the result of each key
//!     request_order   the requests, in an order that drivers accept
//!     plan    what to change, in which order, and what cannot be changed
//!       dependencies which features need which
//!       profile      named sets of settings
//!       setting      KEY=VALUE
//! interface   everything about an interface, with descriptions
//! kernel      ethtool netlink, rtnetlink
//! ```
//!
//! ```no_run
//! use seekwire_nic::{Kernel, Plan, Profile, Session, Store, Terms};
//!
//! let mut kernel = Kernel::open()?;
//! let store = Store::default();
//! let mut session = Session::begin(&mut kernel, &store, "eth1", Terms { hold: true, default_route: false })?;
//! for profile in [Profile::Baseline, Profile::Offload] {
//!     let now = session.now()?;
//!     let report = session.apply(&Plan::new(&now, &profile.settings(&now))?)?;
//!     assert!(report.is_complete());
//!     // Measure.
//! }
//! session.end()?;
//! # Ok::<(), seekwire_nic::Error>(())
//! ```
//!
//! It changes only the given interface, and nothing that survives a restart of the host. It does
//! not set addresses, routes, the MTU or the number of queues.

#![forbid(unsafe_code)]

mod change;
mod dependencies;
mod descriptions;
mod error;
mod interface;
mod kernel;
mod plan;
mod private_directory;
mod profile;
mod request_order;
mod saved_state;
mod session;
mod setting;
mod store;

pub use change::{ChangeResult, KeyOutcome, Report};
pub use error::Error;
pub use interface::{Feature, Interface, Parameter, Queues};
pub use kernel::{Kernel, Read};
pub use plan::{Fate, Item, Plan};
pub use profile::Profile;
pub use saved_state::Saved;
pub use session::{Session, Terms, left_behind, restore};
pub use setting::{Group, Key, ParseError, Setting, SideEffect, Value};
pub use store::Store;
