//! Messages between the coordinator and the threads of a program, over pipes and by direct system
//! calls.

use anyhow::{Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::program::{Call, CallResult};
use crate::sys::raw;

/// Descriptors of the machinery begin here; the program's are below.
pub(crate) const FLOOR: i32 = 150;

/// Reading and writing end of a thread.
pub(crate) fn control(process: usize, thread: usize) -> [i32; 2] {
    let first = FLOOR + (process as i32 * 4 + thread as i32) * 2;
    [first, first + 1]
}

/// Receiving and sending end of a process's box for descriptors.
pub(crate) fn mailbox(process: usize) -> [i32; 2] {
    let first = FLOOR + 100 + process as i32 * 2;
    [first, first + 1]
}

/// Maximum number of processes of a program.
pub(crate) const PROCESSES: usize = 8;

/// Everything a process needs to begin, or to go on after exec.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Spec {
    pub(crate) process: usize,
    pub(crate) threads: usize,
    pub(crate) directory: String,
    pub(crate) slots: Vec<i32>,
    /// The sockets that the slots held before exec.
    #[serde(default)]
    pub(crate) sockets: Vec<Option<u64>>,
    /// True for each of the two signals that has a handler: with SA_RESTART, and without.
    pub(crate) signals: [bool; 2],
    /// Files that were opened so far.
    pub(crate) files: u32,
}

/// The variable that holds the [`Spec`].
pub(crate) const SPEC: &str = "SEEKWIRE_DIFFERENTIAL";

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct CallOrder {
    /// Step of the program; the bytes it sends differ from those of other steps.
    pub(crate) step: u64,
    pub(crate) call: Call,
    /// Port of the listener that the call is about.
    pub(crate) port: u16,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum ThreadReport {
    /// A thread is ready.
    Ready {
        pid: i32,
        thread: i32,
        /// Sockets that exec has put in the place of others: before, and now.
        replaced: Vec<(u64, u64)>,
    },
    /// A call that moves bytes begins, on this socket.
    Begun(Option<(u64, u16, u16)>),
    Answer(CallResult),
}

pub(crate) fn write<T: Serialize>(fd: i32, message: &T, bytes: &[u8]) -> bool {
    let Ok(text) = serde_json::to_vec(message) else { return false };
    let mut frame = Vec::with_capacity(8 + text.len() + bytes.len());
    frame.extend((text.len() as u32).to_ne_bytes());
    frame.extend((bytes.len() as u32).to_ne_bytes());
    frame.extend(text);
    frame.extend(bytes);
    raw::write_all(fd, &frame)
}

pub(crate) fn read<T: DeserializeOwned>(fd: i32) -> Result<(T, Vec<u8>)> {
    let mut lengths = [0; 8];
    if !raw::read_all(fd, &mut lengths) {
        bail!("the other end has closed the pipe");
    }
    let length = |at: usize| {
        u32::from_ne_bytes([lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]])
            as usize
    };
    let mut text = vec![0; length(0)];
    let mut bytes = vec![0; length(4)];
    if !raw::read_all(fd, &mut text) || !raw::read_all(fd, &mut bytes) {
        bail!("the other end has closed the pipe");
    }
    Ok((serde_json::from_slice(&text)?, bytes))
}
