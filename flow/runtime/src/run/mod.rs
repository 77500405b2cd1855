//! Pipelines: graphs, what a process builds of one, the threads of its copies, and the public
//! interface.

pub(crate) mod batched_send;
pub(crate) mod copy;
pub(crate) mod expiry;
pub(crate) mod filter;
pub(crate) mod filter_error;
pub(crate) mod graph;
pub(crate) mod graph_error;
pub(crate) mod local_streams;
pub(crate) mod meter;
pub(crate) mod output;
pub(crate) mod running;
pub(crate) mod stream_ends;
pub(crate) mod stream_options;
pub(crate) mod stream_placement;
