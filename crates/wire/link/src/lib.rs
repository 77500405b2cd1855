#![forbid(unsafe_code)]
//! A link between two machines: memory that both map (a *region*), and who is at its other end.
//!
//! ```text
//!   map         the file that says which links there are, and which addresses lie behind them
//!   provider    where a region comes from: memory that is held, a file, an ivshmem device, or Xen
//!     memory    sealed memory of this host
//!     xen       pages that one domain grants to another: who holds them, and who maps them
//!   holder      a process that holds memory, and hands it to programs
//!   attach      a machine begins to use a link
//!   link        what a program does with a link that its machine is attached to
//!     entry       one connection's line in the directory of a half, and what the peer's says
//!     status      what `seekwire vm` shows, and how a machine goes back to TCP
//!     agent       what the agents of the two machines say to each other in the region
//!   peers       the file in which an agent keeps the addresses that it has found behind a link
//!   layout      what lies where in a region
//!   half        the header and the directory of one machine, word by word
//!   state       the file in which a machine keeps what its allocation depends on
//!     table       who has which entry and which pages
//!     pages       which pages are free
//!   text        small files, read within limits
//! ```
//!
//! A *machine* is a virtual machine, a host, or, where the region is a file, anything that has a
//! directory of its own for the state. Each *side* of a link has half of the region: a header, a
//! directory of *entries*, one for each connection, and *places*, the pages that one end's memory
//! has. Both machines can write all of it. So nothing in a region is believed: each word is read
//! once, and checked. What a machine's own allocation depends on is in a file of that machine.
//!
//! An entry is *leased*: its process has an open file description of its own with a lock on one
//! byte of that file. Forks share the description, and the kernel ends the lock with the last of
//! them, whatever ended that. Words alone never say that an entry is in use. A place is in use as
//! long as its entry is leased or an entry of the other machine names it: there, somebody may still
//! read it, also when the process of this end is gone, or this machine has booted anew.
//!
//! Locks on bytes of the state file:
//!
//! | byte          | held by                                                                   |
//! |---------------|---------------------------------------------------------------------------|
//! | i             | who has entry i                                                           |
//! | 4096          | who chooses an entry or a place, for microseconds                         |
//! | 4097          | each process that has the region mapped, shared; who attaches, exclusive  |
//! | 4098          | the agent of the link                                                     |
//!
//! They do not depend on the number of entries, so that a state file of another region can be
//! asked, too. Who attaches holds, besides, a lock on the file `.lock` of that directory, which is
//! root's.
//!
//! Whoever may open the region or the state file is trusted by all who use that link on this
//! machine with what goes over it. On the other machine, the same holds for the region. Should one
//! of them cut the file short, connections are reset, and the link counts as detached.

mod agent;
mod attach;
mod entry;
mod error;
mod half;
mod holder;
mod layout;
mod link;
pub mod map;
mod memory;
mod pages;
mod peers;
pub mod provider;
mod state;
mod status;
mod table;
mod text;
mod xen;

pub use agent::{Answer, MOST, PORTS, Published, is_usable};
pub use attach::{Access, Attached};
pub use entry::{Counts, Entry, Other, State, Word};
pub use error::{EnterError, LinkError};
pub use half::PeerHeader;
pub use holder::{Held, HolderError};
pub use layout::{Layout, LengthError};
pub use link::Link;
pub use map::{Definition, Map, MapError, Provider, Side};
pub use peers::Peers;
pub use provider::{Memory, ProviderError};
pub use status::{Half, Listed, Room, Unread, Usage};
pub use xen::{XenError, try_channels};
