//! A pipeline in several processes, on one host or on many.
//!
//! Each two processes have a link, which is a [`seekwire::Stream`]: on one host blocks go through
//! shared memory. Each stream has a home, the process that deals its blocks, and more than one if
//! nothing depends on what is dealt elsewhere: then each process that sends deals its own.
//!
//! ```text
//!   process of a producer          home of the stream                 process of a consumer
//!   outlet ── Sent, GroupEnd ────> stream ── Block, Recall, Over ───> inlet
//!          <─ Freed, Turn, Costs ─── │     ── EndedFor ─────────────>
//!          <─ GroupKept ─────────  distant: what each copy has
//!                                          <─ Started, Done, Dropped ─
//!                                          <─ Through ───────────────
//!
//! meet        the processes come together          handshake   and know each other
//! strangers   those that have proved nothing yet
//! link        a connection: queue, writer          message     what goes over it
//! reader      frames out of its bytes              pulse       when the last of them came
//! node        what this process is told, by whom   place       which process does what
//! losses      who is given up, and what goes on    told        reports for the front
//! outlet      producers whose stream is elsewhere
//! inlet       consumers whose stream is elsewhere
//! distant     at the home, a consumer elsewhere
//! replays     at the home, what is sent twice
//! later       what is told of several blocks at once
//! ```
//!
//! Memory is bounded on both sides. Producers elsewhere take room in their part of the limit before
//! they fill a buffer, and get it back when the block is dropped. A home sends a consumer only as
//! much as that was granted and has dropped since.
//!
//! Rank 0 is the front. It numbers the units, and decides who is lost: of two that have lost each
//! other one has to go, and all have to agree which. A process that runs nothing but copies of
//! idempotent filters, which others have copies of, is not missed: what its copies were not done with
//! goes to others, and what they send again is not taken again. They are done with a block when the
//! next home has all that came out of it. Any other process that is lost ends the pipeline.
//!
//! What is sent twice since a copy was late with a block (hedging, late) is told apart in the same way.
//! Where a filter is hedged, the home of what it receives ends units for its copies elsewhere: it tells
//! the homes of what they send, and the front.

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
