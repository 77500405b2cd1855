//! Epoll sets with connections that are attached or seeking, or were found with a spill.
//!
//! The application's epoll fd remains a real one, and files that the library does not track are in
//! it as usual. When a connection attaches or seeks, or a spill enters a set, its registration is
//! changed to carry a [tag](tag) instead of the application's data, and the connection's doorbell
//! is added with another tag. Events from the kernel are translated.
//!
//! Each such connection in a set is a [`Watch`](watch::Watch). Every wait checks *hot* watches
//! ([`Place`](watch::Place)) in user space, and the peer need not ring for them. An *armed* watch is
//! not checked: the peer rings its doorbell, which makes it hot again. So the cost of a wait depends on
//! the number of active connections, and a busy program makes hardly any system calls.
//!
//! Invariant, under the lock of the set: while a thread sleeps on the set in the kernel, or
//! something else could (the set is itself watched), no watch is hot. Therefore no thread sleeps
//! through an event of a connection.
//!
//! Lock order: registrations of a socket, then state of a set.
//!
//! All this begins with the first wait on a set that the library [sees](seen_waits).
//!
//! A set and its watches are below the descriptor table, and know only references to its sockets.
//! Modules that need the table are above them.
//!
//! ```text
//!   control        epoll_ctl
//!   wait           epoll_wait
//!     answer         translates the kernel's events
//!     ready          the ready connections, and the order in which they are reported
//!     kernel_query   asks the kernel without sleeping
//!     events         events on their way to the application
//!   kernel_sets    both calls, on a set that several processes use
//!   forked_sets    sets that several processes have after a fork
//!   registrations  the sets that contain a socket, and updates to them
//!   seen_waits     sets that the application waits on by calls that the library sees
//!   set            one set
//!     owner          the process that owns it
//!     set_records    notes for other processes that have it
//!     state, watch   its connections
//!     rechecks       connections to check now and then
//!     reminder       ends sleeps that nothing else ends
//!     tag, fdinfo    the registrations that the kernel has
//!     typed          with the table's sockets
//! ```

mod answer;
mod control;
mod events;
mod fdinfo;
mod forked_sets;
mod kernel_query;
mod kernel_sets;
mod owner;
mod ready;
mod rechecks;
mod registrations;
mod reminder;
mod seen_waits;
pub(crate) mod set;
mod set_records;
mod state;
mod tag;
mod typed;
mod wait;
pub(crate) mod watch;

pub(crate) use control::{Change, control};
pub(crate) use forked_sets::is_alone;
pub(crate) use kernel_sets::control as control_left;
pub(crate) use owner::Alarm;
pub(crate) use registrations::{cover, find, forget, lay_bare, update, want_room};
pub(crate) use seen_waits::{nest, note_wait, silence};
pub(crate) use wait::wait;
