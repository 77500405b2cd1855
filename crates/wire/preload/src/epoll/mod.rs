//! Epoll sets that hold connections which are attached or seeking, or were found with a rest.
//!
//! The application's epoll fd stays a real one, and everything the library does not know is in it
//! as usual. When a connection attaches, or seeks, or a rest comes into a set, its registration is changed to carry a
//! [tag](tag) instead of the application's data, and the connection's doorbell is added with
//! another tag. What comes back from the kernel is translated.
//!
//! Each such connection in a set is a [`Watch`](watch::Watch), in one of two states. A *hot* one is looked at in
//! user space by every wait, and the peer does not ring for it. An *armed* one is not looked at:
//! the peer rings its doorbell, which makes it hot again. So a wait costs as much as there are
//! active connections, and a busy program makes hardly any system call.
//!
//! Invariant, kept under the lock of the set: while a thread sleeps on the set in the kernel, or
//! something else could (the set is itself watched), no watch is hot. Therefore nobody sleeps
//! through what happens on a connection.
//!
//! Lock order: registrations of a socket, then state of a set.
//!
//! All this begins with the first wait on a set that the library [sees](seen).
//!
//! A set and its watches lie below the table of descriptors and know no more of it than a reference
//! to a socket; who needs the table lies above.
//!
//! ```text
//!   control        epoll_ctl            wait      epoll_wait            left    both, of a set that
//!   registrations  what sets are told   answer    the kernel's words    shared  several processes use
//!                  of a socket          turns     who is reported
//!   set            one set              owner     to which process      sharing     notes for others
//!   state, watch   its connections      ask, listed   the kernel        tag, events
//!                                         typed   with the table's sockets
//!                                         reminder   ends sleeps that nobody else does
//!                                         untaken    what is to be looked after
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
