//! The party to notify when a block is dropped.

use std::fmt;
use std::sync::Arc;

use crate::memory::ledger::Ledger;
use crate::policy::priority::UnitId;

/// A process whose copies send to a stream here.
pub(crate) trait Sender: Send + Sync {
    /// This much of its room is free again.
    fn freed(&self, bytes: usize);
}

/// The process that deals the blocks of a stream to copies here.
pub(crate) trait Owner: Send + Sync {
    /// The memory of a block for that copy is free.
    fn dropped(&self, copy: u16, unit: UnitId, sequence: u64, is_begun: bool);
}

/// The party to notify when a block is dropped.
pub(crate) enum Receipt {
    /// The process that has sent it gets its room back, which the ledger accounts for.
    Room { sender: Arc<dyn Sender>, bytes: usize, ledger: &'static Ledger },
    /// The owner that has dealt it to this copy learns that its memory is free.
    Memory { owner: Arc<dyn Owner>, copy: u16, unit: UnitId, sequence: u64, is_begun: bool },
}

impl Drop for Receipt {
    fn drop(&mut self) {
        match self {
            Self::Room { sender, bytes, ledger } => {
                ledger.give(*bytes);
                sender.freed(*bytes);
            }
            Self::Memory { owner, copy, unit, sequence, is_begun } => {
                owner.dropped(*copy, *unit, *sequence, *is_begun);
            }
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt")
    }
}
