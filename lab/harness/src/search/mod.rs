//! Message search: messages are received in another order than they arrive in, and the cost to the
//! receiver is measured (Douglas and Pai, "Seekable sockets", section 4).
//!
//! ```text
//!   plan        who sends what, and in which order it is received
//!   receiver    a sender and a receiver as processes, doing repetitions in turns with others
//!   rounds      cases times modes, for several rounds
//!   metrics     quantities that are measured
//!   demo        one case, short, for `seekwire demo`
//!   reduction   processor time saved against a baseline, from neighbours in time
//! ```
//!
//! The processes themselves are in `peer/search` and, for a messaging library, in
//! `peer/fabricbench.c`.

pub mod demo;
pub mod fabric;
mod metrics;
pub mod plan;
pub mod receiver;
pub mod reduction;
pub mod rounds;

pub use metrics::{
    COPIES, CPU, CPU_MESSAGES, CPU_SYSTEM, INSTRUCTION_CLOCK, INSTRUCTIONS, RATE, RECEIVE_BUFFER,
    SYSTEM_CALLS, counts_instructions, parameters,
};
pub use plan::{Account, Carrier, Receive, SearchMethod, SearchMode, SearchPlan, Send};
pub use rounds::{Effort, SearchCase, measure};
