//! A pipeline in several processes, on one host or on many.
//!
//! Each pair of processes has a link, which is a [`seekwire::Stream`]: on one host blocks go
//! through shared memory. Each stream has a home, the process that deals its blocks. If dealing
//! needs no knowledge of other processes, there are several homes: each process that sends deals
//! its own blocks.
//!
//! ```text
//!   process of a producer          home of the stream                 process of a consumer
//!   outlet ── Sent, GroupEnd ────> stream ── Block, Recall, Over ───> inlet
//!          <─ Freed, Turn, Costs ─── │     ── EndedFor ─────────────>
//!          <─ GroupKept ─────────  distant: what each copy has
//!                                          <─ Started, Done, Dropped ─
//!                                          <─ Through ───────────────
//!
//! meet        the processes come together          handshake   and authenticate each other
//! strangers   those that have proved nothing yet
//! link        a connection: queue, writer          message     the messages on it
//! reader      frames out of its bytes              pulse       when the last byte arrived
//! node        handles the received messages        place       which process does what
//! losses      lost processes, and what goes on     told        reports for the front
//! outlet      producers whose stream is elsewhere
//! inlet       consumers whose stream is elsewhere
//! distant     at the home, a consumer elsewhere
//! replays     at the home, blocks that are sent twice
//! later       messages about several blocks at once
//! ```
//!
//! Memory is bounded on both sides. Producers elsewhere take room in their part of the limit before
//! they fill a buffer, and get it back when the block is dropped. A home sends a consumer only as
//! much as it was granted and has dropped since.
//!
//! Rank 0 is the front. It numbers the units, and decides who is lost: if two processes have lost
//! each other, one has to go, and all have to agree which. The pipeline can do without a process
//! that runs only copies of idempotent filters which also have copies elsewhere: others take over
//! the unfinished blocks of its copies, and repeated output is not accepted twice. Such a copy has
//! finished a block only when the next home has all of its output. The loss of any other process
//! ends the pipeline.
//!
//! Output that is sent twice because a copy was late with a block (hedging, late) is recognized in
//! the same way. If a filter is hedged, the home of its input ends units for its copies elsewhere:
//! it notifies the homes of its output, and the front.

pub(crate) mod distant;
mod handshake;
#[cfg(test)]
mod hostile_tests;
mod inlet;
pub(crate) mod later;
pub(crate) mod link;
mod losses;
pub(crate) mod meet;
pub(crate) mod message;
pub(crate) mod node;
mod outlet;
pub(crate) mod place;
mod pulse;
mod reader;
pub(crate) mod replays;
mod strangers;
pub(crate) mod told;

pub(crate) use inlet::Inlet;
pub(crate) use outlet::Outlet;
