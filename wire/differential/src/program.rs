//! Programs as data: their processes and threads, and which calls each makes in which order.

use serde::{Deserialize, Serialize};

/// A place for a descriptor in a process. The number stays in it after it was closed.
pub(crate) type FdSlot = usize;

/// Slots of a process.
pub(crate) const SLOTS: usize = 16;

/// Processes of two ends that make calls in a fixed order.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct TestProgram {
    pub(crate) processes: Vec<ProcessSpec>,
    pub(crate) steps: Vec<Step>,
    /// `SEEKWIRE_FALLBACK_AFTER` of the accelerated run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fall_back_after: Option<u64>,
    /// Segments are few and small in the accelerated run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) small: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct ProcessSpec {
    pub(crate) threads: usize,
    /// Created by a fork; `None`: present from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<usize>,
}

/// A thread of a process.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Actor {
    pub(crate) process: usize,
    pub(crate) thread: usize,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Step {
    pub(crate) by: Actor,
    pub(crate) call: Call,
    /// A call that another thread makes at the same moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<(Actor, Call)>,
}

/// A request to a thread.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Call {
    /// socket, bind to a port of the kernel's choice, listen.
    Listen {
        slot: FdSlot,
    },
    Socket {
        slot: FdSlot,
        flags: i32,
    },
    /// To the listener of a process.
    Connect {
        slot: FdSlot,
        to: usize,
    },
    Accept {
        slot: FdSlot,
        listener: FdSlot,
        flags: i32,
    },
    Close {
        slot: FdSlot,
        way: CloseWay,
    },
    Shutdown {
        slot: FdSlot,
        how: i32,
        way: CallEntry,
    },
    Dup {
        slot: FdSlot,
        to: FdSlot,
        way: DupWay,
    },
    /// A fresh file on the lowest free number.
    Open {
        slot: FdSlot,
        what: Fresh,
    },
    Send {
        slot: FdSlot,
        length: usize,
        flags: i32,
        way: SendWay,
    },
    /// As many sends as there are, until one fails.
    SendMany {
        slot: FdSlot,
        length: usize,
        count: usize,
        flags: i32,
    },
    Receive {
        slot: FdSlot,
        length: usize,
        flags: i32,
        way: ReceiveWay,
    },
    /// Receives without waiting until nothing is left.
    Drain {
        slot: FdSlot,
    },
    /// From a file of its own.
    Sendfile {
        slot: FdSlot,
        length: usize,
    },
    /// Out of a pipe of its own.
    SpliceTo {
        slot: FdSlot,
        length: usize,
    },
    /// Into a pipe of its own.
    SpliceFrom {
        slot: FdSlot,
        length: usize,
        flags: u32,
    },
    /// `seek_recv`; in a plain run `recv`, which is the same at offset 0.
    Seek {
        slot: FdSlot,
        length: usize,
        flags: i32,
    },
    Poll {
        entries: Vec<(FdSlot, i16)>,
        timeout: i32,
        way: PollWay,
    },
    EpollCreate {
        slot: FdSlot,
    },
    EpollControl {
        epoll: FdSlot,
        operation: i32,
        slot: FdSlot,
        events: u32,
    },
    /// `times` in a row; reports everything that any of them reported.
    EpollWait {
        epoll: FdSlot,
        room: usize,
        timeout: i32,
        times: usize,
    },
    SetOption {
        slot: FdSlot,
        level: i32,
        name: i32,
        value: OptionValue,
    },
    GetOption {
        slot: FdSlot,
        level: i32,
        name: i32,
    },
    Nonblocking {
        slot: FdSlot,
        on: bool,
        way: NonblockingWay,
    },
    /// FIONREAD, SIOCOUTQ or SIOCATMARK.
    Ioctl {
        slot: FdSlot,
        request: u64,
    },
    Fstat {
        slot: FdSlot,
    },
    /// To the beginning.
    Rewind {
        slot: FdSlot,
    },
    Names {
        slot: FdSlot,
    },
    Fork {
        child: usize,
    },
    /// Executes this program, which continues, or a file that does not exist.
    Exec {
        there: bool,
    },
    Pass {
        slot: FdSlot,
        to: usize,
    },
    Take {
        slot: FdSlot,
    },
    /// Sets the call that the handler of the two signals makes, apart from counting.
    Handler {
        action: Option<Box<Call>>,
    },
    /// To a thread that may be asleep in a call.
    Signal {
        to: Actor,
        restart: bool,
    },
    Kill {
        process: usize,
    },
    Stop {
        process: usize,
    },
    Continue {
        process: usize,
    },
    /// The descriptors that the process has.
    Left,
    /// exit() of the process.
    Exit,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum CloseWay {
    Libc,
    Syscall,
    Inline,
    Range,
}

/// Through the function of the C library, or past it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum CallEntry {
    Libc,
    Syscall,
    Inline,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum DupWay {
    Dup,
    /// Onto the number that is in the slot.
    Dup2,
    Dup3,
    Fcntl,
    Syscall,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Fresh {
    File,
    Pipe,
    Eventfd,
    Memfd,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum SendWay {
    Send,
    Sendto,
    Write,
    Writev,
    Sendmsg,
    Sendmmsg,
    /// From an address that is not mapped.
    BadAddress,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum ReceiveWay {
    Recv,
    Recvfrom,
    Read,
    Readv,
    Recvmsg,
    Recvmmsg,
    BadAddress,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum PollWay {
    Poll,
    Ppoll,
    Select,
    Pselect,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum NonblockingWay {
    Fcntl,
    Ioctl,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum OptionValue {
    Int(i32),
    Pair(i32, i32),
    Time { seconds: i64, microseconds: i64 },
}

impl Call {
    /// The flags that reach the kernel: `read` and `write` have none.
    pub(crate) fn flags(&self) -> i32 {
        match self {
            Call::Receive { way: ReceiveWay::Read | ReceiveWay::Readv, .. }
            | Call::Send { way: SendWay::Write | SendWay::Writev, .. } => 0,
            Call::Receive { flags, .. }
            | Call::Send { flags, .. }
            | Call::SendMany { flags, .. }
            | Call::Seek { flags, .. } => *flags,
            _ => 0,
        }
    }

    /// The kinds under which it is counted.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let text = format!("{self:?}");
        let word = text.split([' ', '{']).next().unwrap_or_default();
        let kind = match self {
            Call::Receive { way, .. } => format!("{word}.{way:?}"),
            Call::Send { way, .. } => format!("{word}.{way:?}"),
            Call::Poll { way, .. } => format!("{word}.{way:?}"),
            Call::Close { way, .. } => format!("{word}.{way:?}"),
            Call::Shutdown { way, .. } => format!("{word}.{way:?}"),
            Call::Dup { way, .. } => format!("{word}.{way:?}"),
            Call::Open { what, .. } => format!("{word}.{what:?}"),
            Call::Signal { restart, .. } => {
                format!("{word}.{}", if *restart { "restart" } else { "interrupt" })
            }
            Call::Drain { .. } | Call::SendMany { .. } | Call::Seek { .. } => word.to_owned(),
            _ => self.name(),
        };
        vec![kind]
    }

    /// The slot of the descriptor through which it moves bytes.
    pub(crate) fn moves_by(&self) -> Option<FdSlot> {
        match self {
            Call::Receive { slot, .. }
            | Call::Drain { slot }
            | Call::Send { slot, .. }
            | Call::SendMany { slot, .. }
            | Call::SpliceFrom { slot, .. }
            | Call::SpliceTo { slot, .. }
            | Call::Sendfile { slot, .. }
            | Call::Seek { slot, .. } => Some(*slot),
            _ => None,
        }
    }

    /// The name in reports, shared by equal failures.
    pub(crate) fn name(&self) -> String {
        let text = format!("{self:?}");
        let word = text.split([' ', '{']).next().unwrap_or_default().to_owned();
        match self {
            Call::Receive { .. } | Call::Send { .. } => match self.flags() {
                0 => word,
                flags => format!("{word}({flags:#x})"),
            },
            Call::SetOption { level, name, .. } | Call::GetOption { level, name, .. } => {
                format!("{word}({level},{name})")
            }
            Call::Ioctl { request, .. } => format!("{word}({request:#x})"),
            Call::Exec { there } => format!("{word}({there})"),
            Call::Poll { way, .. } => format!("{word}.{way:?}"),
            _ => word,
        }
    }
}

/// Result of a call.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct CallResult {
    pub(crate) value: i64,
    pub(crate) errno: i32,
    /// Flags of a message, states, readiness: whatever else a program sees, each part with a name.
    #[serde(default)]
    pub(crate) seen: Vec<(String, i64)>,
    /// Handlers that ran, by signal, since the last answer: USR1, USR2, PIPE.
    #[serde(default)]
    pub(crate) signals: [u32; 3],
    /// A call that succeeded changed `errno` to this.
    #[serde(default)]
    pub(crate) changed_errno: Option<i32>,
    /// Not seen by the program, but needed to compare: the number's socket, by its kernel cookie,
    /// and its ports, local and remote.
    #[serde(default)]
    pub(crate) connection: Option<(u64, u16, u16)>,
    /// Not seen either: the number stands for something else than when the call began.
    #[serde(default)]
    pub(crate) moved: bool,
    /// Not seen either: the sockets that exec replaced although it failed, old and new.
    #[serde(default)]
    pub(crate) replaced: Vec<(u64, u64)>,
    /// Bytes that were received; they travel separately.
    #[serde(skip)]
    pub(crate) bytes: Vec<u8>,
}

/// The byte at an offset of what a step sends: no two steps send the same bytes in the same place.
pub(crate) fn payload_byte(step: u64, offset: usize) -> u8 {
    let mut word = step.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (offset as u64).wrapping_mul(0xD134_2543_DE82_EF95);
    word ^= word >> 29;
    word = word.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (word >> 56) as u8
}

/// The bytes that a step sends.
pub(crate) fn payload(step: u64, length: usize) -> Vec<u8> {
    (0..length).map(|offset| payload_byte(step, offset)).collect()
}
