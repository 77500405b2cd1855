//! The metrics of a search, and the parameters of its results.

use serde_json::Value;

use crate::record::{Metric, Samples};

/// User and system time of the receiver from the opening of a connection to its closing, per
/// message.
pub const CPU: Metric = Metric::lower("receiver CPU", "µs/message");
/// The same without the opening and the closing.
pub const CPU_MESSAGES: Metric = Metric::lower("receiver CPU, messages only", "µs/message");
/// The part of [`CPU`] that was spent in the kernel, as far as its clock ticks resolve it.
pub const CPU_SYSTEM: Metric = Metric::lower("receiver CPU, system", "µs/message");
/// Messages by time, from the first to the last.
pub const RATE: Metric = Metric::higher("message rate", "1/s");
/// Instructions in user space and kernel, per message.
pub const INSTRUCTIONS: Metric = Metric::lower("receiver instructions", "1/message");
/// System calls per message, without opening and closing.
pub const SYSTEM_CALLS: Metric = Metric::lower("receiver system calls", "1/message");
/// Copied bytes per byte of a message: by the kernel to this process, and in this process.
pub const COPIES: Metric = Metric::lower("copies of each byte", "");
/// SO_RCVBUF as the kernel reports it, which is twice the requested size.
pub const RECEIVE_BUFFER: Metric = Metric::higher("receive buffer", "B");

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
