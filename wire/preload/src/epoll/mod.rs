//! Epoll sets with connections that are attached or seeking, or were found with a rest.
//!
//! The application's epoll fd remains a real one, and files that the library does not track are in
//! it as usual. When a connection attaches or seeks, or a rest enters a set, its registration is
//! changed to carry a [tag](tag) instead of the application's data, and the connection's doorbell
//! is added with another tag. Events from the kernel are translated.
//!
//! Each such connection in a set is a [`Watch`](watch::Watch), in one of two states. Every wait
//! checks *hot* watches in user space, and the peer does not ring for them. An *armed* watch is not
//! checked: the peer rings its doorbell, which makes it hot again. So the cost of a wait depends on
//! the number of active connections, and a busy program makes hardly any system calls.
//!
//! Invariant, under the lock of the set: while a thread sleeps on the set in the kernel, or
//! something else could (the set is itself watched), no watch is hot. Therefore no thread sleeps
//! through an event of a connection.
//!
//! Lock order: registrations of a socket, then state of a set.
//!
//! All this begins with the first wait on a set that the library [sees](seen).
//!
//! A set and its watches are below the descriptor table, and know only references to its sockets.
//! Modules that need the table are above them.
//!
//! ```text
//!   control        epoll_ctl          wait      epoll_wait          left      both, if several
//!   registrations  updates to a       answer    the kernel's        shared    processes use it
//!                  socket's sets      turns     order of reports
//!   set            one set            owner     its process         sharing   notes for others
//!   state, watch   its connections    ask, listed   the kernel      tag, events
//!                                     typed     with the table's sockets
//!                                     reminder  ends sleeps that nothing else ends
//!                                     untaken   connections to check now and then
//!   seen           sets that the application waits on by calls that the library sees
//! ```

mod answer;
mod ask;
mod control;
mod events;
mod left;
mod listed;
mod owner;
mod registrations;
mod reminder;
mod seen;
pub(crate) mod set;
mod shared;
mod sharing;
mod state;
mod tag;
mod turns;
mod typed;
mod untaken;
mod wait;
pub(crate) mod watch;

pub(crate) use control::{Change, control};
pub(crate) use left::control as control_left;
pub(crate) use owner::Alarm;
pub(crate) use registrations::{cover, find, forget, lay_bare, update};
pub(crate) use seen::{nest, note_wait, silence};
pub(crate) use shared::is_alone;
pub(crate) use wait::wait;
