//! Message search: messages are received in another order than they arrive in, and the cost to the
//! receiver is measured (Douglas and Pai, "Seekable sockets", section 4).
//!
//! ```text
//!   plan        who sends what, and in which order it is received
//!   receiver    a sender and a receiver as processes, doing repetitions in turns with others
//!   rounds      cases times modes, for several rounds
//!   demo        one case, short, for `seekwire demo`
//!   reduction   processor time saved against a baseline, from neighbours in time
//! ```
//!
//! The processes themselves are in `peer/search` and, for a messaging library, in
//! `peer/fabricbench.c`.

pub mod demo;
pub mod fabric;
pub mod plan;
pub mod receiver;
pub mod reduction;
pub mod rounds;

pub use plan::{Account, Carrier, Mode, Plan, Receive, Send, Way};
pub use rounds::{Case, Effort, measure};

use serde_json::Value;

use crate::record::{Better, Metric, Samples};

/// User and system time of the receiver from the opening of a connection to its closing, per
/// message.
pub const CPU: Metric = Metric { name: "receiver CPU", unit: "µs/message", better: Better::Lower };
/// The same without the opening and the closing.
pub const CPU_MESSAGES: Metric =
    Metric { name: "receiver CPU, messages only", unit: "µs/message", better: Better::Lower };
/// The part of [`CPU`] that was spent in the kernel, as far as its clock ticks resolve it.
pub const CPU_SYSTEM: Metric =
    Metric { name: "receiver CPU, system", unit: "µs/message", better: Better::Lower };
/// Messages by time, from the first to the last.
pub const RATE: Metric = Metric { name: "message rate", unit: "1/s", better: Better::Higher };
/// Instructions in user space and kernel, per message.
pub const INSTRUCTIONS: Metric =
    Metric { name: "receiver instructions", unit: "1/message", better: Better::Lower };
/// System calls per message, without opening and closing.
pub const SYSTEM_CALLS: Metric =
    Metric { name: "receiver system calls", unit: "1/message", better: Better::Lower };
/// Copied bytes per byte of a message: by the kernel to this process, and in this process.
pub const COPIES: Metric = Metric { name: "copies of each byte", unit: "", better: Better::Lower };
/// SO_RCVBUF as the kernel reports it, which is twice the requested size.
pub const RECEIVE_BUFFER: Metric =
    Metric { name: "receive buffer", unit: "B", better: Better::Higher };

/// Set in a virtual machine whose clock advances by a nanosecond with each instruction: then
/// processor time is a number of instructions, and does not measure time.
pub const INSTRUCTION_CLOCK: &str = "SEEKWIRE_LAB_INSTRUCTION_CLOCK";

/// Whether processor time is a number of instructions here.
pub fn counts_instructions() -> bool {
    std::env::var_os(INSTRUCTION_CLOCK).is_some()
}

/// Parameters of every result: which features of the kernel could be used.
pub fn parameters(samples: &Samples) -> [(String, Value); 2] {
    let has = |metric| samples.0.iter().any(|sample| sample.metric == Some(metric));
    let receive_buffer = match has(RECEIVE_BUFFER) {
        true => {
            "set to hold what is skipped (metric: receive buffer); where that is missing, left to the kernel"
        }
        false => {
            "left to the kernel, because so large a one is not allowed here (net.core.rmem_max)"
        }
    };
    let instructions = match has(INSTRUCTIONS) {
        true if counts_instructions() => {
            "counted, user and kernel: executed instructions under QEMU (TCG, -icount shift=0), not time"
        }
        true => "counted, user and kernel",
        false => {
            "not counted: no such counters here (hardware, hypervisor, or perf_event_paranoid)"
        }
    };
    [
        ("receive buffer of TCP".to_owned(), receive_buffer.into()),
        ("instructions".to_owned(), instructions.into()),
    ]
}
