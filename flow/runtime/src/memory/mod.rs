//! The bytes of blocks: the room that they take of a limit, and who is notified when they are dropped.

pub(crate) mod batch;
pub(crate) mod block;
pub(crate) mod compaction;
pub(crate) mod deferred_release;
pub(crate) mod ledger;
pub(crate) mod origin;
pub(crate) mod receipt;
pub(crate) mod wakeup;
