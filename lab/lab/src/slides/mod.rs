//! Servers of whole slides, and clients that request tiles from them.
//!
//! ```text
//! test_slides  slides: a real one, and larger ones that are made of it
//! view       the requests: stored tiles, tiles between levels, regions
//! trace      the requests of a viewer that pans
//! servers    this project's server and its peers: how they are started, and their addresses
//! cluster    this project's server with workers, on hosts of their own
//! load       requests over many connections, from one thread, and measurements
//! http       answers of HTTP/1.1
//! pixels     pixels: whether answers show the same
//! usage      processor time and memory of servers
//! ```

pub(crate) mod cluster;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod pixels;
pub(crate) mod servers;
pub(crate) mod test_slides;
pub(crate) mod trace;
pub(crate) mod usage;
pub(crate) mod view;
