//! Servers of whole slides, and those that ask them for tiles.
//!
//! ```text
//! material   slides: a real one, and larger ones that are made of it
//! view       what is asked for: stored tiles, tiles between levels, regions
//! trace      what a viewer asks for that pans
//! servers    this project's server and its peers: how they are started, and their addresses
//! cluster    this project's server with workers, on hosts of their own
//! load       asks a server from many connections, on one thread, and measures
//! http       answers of HTTP/1.1
//! picture    pixels: whether answers show the same
//! usage      processor time and memory of servers
//! ```

pub(crate) mod cluster;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod material;
pub(crate) mod picture;
pub(crate) mod servers;
pub(crate) mod trace;
pub(crate) mod usage;
pub(crate) mod view;
