#![forbid(unsafe_code)]
//! A link between two machines: memory that both map (a *region*), and the identity of the other
//! end.
//!
//! ```text
//!   map         the file that lists the links, and the addresses at their other ends
//!     address   addresses that other machines can have
//!   provider    where a region comes from: held memory, a file, an ivshmem device, or Xen
//!     memory    sealed memory of this host
//!     xen       pages that one domain grants to another: holding and mapping them
//!   holder      a process that holds memory, and hands it to programs
//!   access      who may use the files of a machine's links
//!   attach      attaching a machine to a link
//!   link        the operations of a program on an attached link
//!     region      the region of an open link, with this machine's state
//!     entry       a connection's entry in the directory of a half, and the view of the peer's
//!     status      the view of `seekwire vm`, and the way back to TCP
//!     agent       how the agents of the two machines communicate through the region
//!   peers       the file in which an agent keeps the addresses that it has verified for a link
//!   layout      the layout of a region
//!   half        the header and the directory of one machine, word by word
//!   state       the file in which a machine keeps the data that its allocation depends on
//!     allocation  allocation of entries and pages
//!     pages       finding free pages
//!   text        small files, read within limits
//! ```
//!
//! A *machine* is a virtual machine, a host, or, if the region is a file, any process environment
//! with its own state directory. Each *side* of a link has half of the region: a header, a
//! directory of *entries*, one for each connection, and *places*, the pages that hold one end's
//! memory. Both machines can write all of it. So nothing in a region is trusted: each word is read
//! once, and checked. A machine's own allocation depends only on a file of that machine.
//!
//! An entry is *leased*: its process has an open file description of its own with a lock on one
//! byte of that file. Forked children share the description, and the kernel releases the lock with
//! the last of them, however they end. Words alone never prove that an entry is in use. A place is
//! in use while its entry is leased or an entry of the other machine names it: processes there may
//! still read it, even if the process of this end is gone, or this machine has rebooted.
//!
//! Locks on bytes of the state file:
//!
//! | byte          | held by                                                                   |
//! |---------------|---------------------------------------------------------------------------|
//! | i             | the holder of entry i                                                     |
//! | 4096          | the process that chooses an entry or a place, for microseconds            |
//! | 4097          | each process that has the region mapped, shared; exclusive for attaching  |
//! | 4098          | the agent of the link                                                     |
//!
//! The bytes do not depend on the number of entries, so that the state file of another region can
//! also be checked. Attaching also takes a lock on the file `.lock` of that directory, which
//! belongs to root.
//!
//! All users of a link on one machine trust each other with its contents: those who may open the
//! region or the state file. On the other machine, the same holds for the region. If one of them
//! truncates the file, connections are reset, and the link counts as detached.

mod access;
mod address;
mod agent;
mod allocation;
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
mod region;
mod state;
mod status;
mod text;
mod xen;

pub use access::Access;
pub use address::is_usable;
pub use agent::{Answer, MOST, PORTS, Published};
pub use attach::Attached;
pub use entry::{LinkEntry, Other};
pub use error::{EnterError, LinkError};
pub use half::{EntryState, PeerHeader, TcpCounts, Word};
pub use holder::{HeldMemory, HolderError};
pub use layout::{Layout, LengthError};
pub use link::Link;
pub use map::{Definition, Map, MapError, Provider, Side};
pub use peers::Peers;
pub use provider::{Memory, ProviderError};
pub use status::{Half, HalfUsage, Listed, Room, Unread};
pub use xen::{XenError, try_channels};
