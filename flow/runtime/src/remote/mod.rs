//! A pipeline in several processes, on one host or on many.
//!
//! Each pair of processes has a link, which is a [`seekwire::Stream`]: on one host blocks go
//! through shared memory. Each stream has an owner, the process that deals its blocks. If dealing
//! needs no knowledge of other processes, there are several owners: each process that sends deals
//! its own blocks.
//!
//! ```text
//!   process of a producer          owner of the stream                 process of a consumer
//!   producer ── Sent, GroupEnd ──> stream ── Block, Recall, Over ───> consumer
//!          <─ Freed, Turn, Costs ─── │
//!          <─ GroupKept ───────── remote_copy: what each copy has
//!                                          <─ Started, Done, Dropped ─
//!
//! connect            the processes connect to each other
//!   handshake          and authenticate each other
//!   unauthenticated    those that have not yet done so
//! link               a connection: queue, writer
//!   message            the messages on it
//!   frame_reader       frames out of its bytes
//!   heartbeat          when the last byte arrived
//! node               this process among the others
//!   dispatch           the messages that it receives
//!   membership         lost processes, and what goes on
//!   stats              reports for the coordinator
//! producer           producers of a stream that another process owns
//! consumer           consumers of a stream that another process owns
//! owner_links        at the owner, the ways to both
//! deferred_messages  messages about several blocks at once
//! ```
//!
//! Memory is bounded on both sides. Producers elsewhere take room in their part of the limit before
//! they fill a buffer, and get it back when the block is dropped. An owner sends a consumer only as
//! much as it was granted and has dropped since.
//!
//! Rank 0 is the coordinator. It numbers the units, and decides who is lost: if two processes have
//! lost each other, one has to go, and all have to agree which. The pipeline can do without a
//! process that runs only copies of idempotent filters which also have copies elsewhere: others
//! take over the unfinished blocks of its copies, and repeated output is not accepted twice. Such a
//! copy has finished a block only when the next owner has all of its output. The loss of any other
//! process ends the pipeline.

pub(crate) mod connect;
mod consumer;
pub(crate) mod deferred_messages;
mod dispatch;
mod frame_reader;
mod handshake;
mod heard;
mod heartbeat;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod link;
mod link_error;
mod membership;
pub(crate) mod message;
pub(crate) mod node;
pub(crate) mod owner_links;
mod producer;
mod protocol_error;
pub(crate) mod stats;
mod unauthenticated;

pub(crate) use consumer::RemoteConsumer;
pub(crate) use producer::{RemoteProducer, StreamId};
