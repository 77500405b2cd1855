//! Streams at their owners: units of work, the order of their blocks, and which copy gets which.

pub(crate) mod elsewhere;
pub(crate) mod feed;
pub(crate) mod inbox;
pub(crate) mod local_pipeline;
pub(crate) mod merge;
pub(crate) mod observer;
pub(crate) mod owned;
pub(crate) mod range_set;
pub(crate) mod remote_copy;
pub(crate) mod replays;
pub(crate) mod report;
pub(crate) mod sizing;
pub(crate) mod unit;
pub(crate) mod unit_queue;
pub(crate) mod work;
