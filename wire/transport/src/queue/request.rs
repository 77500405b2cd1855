//! Records the position from which on a receiver wants bytes of the ring by TCP.

use seekwire_protocol::Carrier;

use crate::layout::{self, control};
use crate::mem::OwnMemory;
use crate::sync::Ordering;

/// Writes the position from which on the bytes are wanted, and then, in one store, that they are
/// and that this end wants TCP. So a peer that leaves the ring because this end wants TCP also sees
/// the recall.
pub(super) fn ask_recall(own: &impl OwnMemory) {
    let get = |offset| own.word(offset).load(Ordering::Relaxed);
    let set = |offset, value| own.store(offset, value, Ordering::Relaxed);
    let position = get(layout::RX_POSITION);
    // From now on this end sees all records, so that an empty ring has none.
    set(layout::RX_UNHELD, 1);
    set(
        layout::RECALL_TCP,
        get(layout::RX_TCP_BYTES) << 1 | get(layout::RX_CARRIER) & Carrier::Ring as u64,
    );
    set(
        layout::RECALL_FROM,
        position << 32 | layout::offset_at(get(layout::RX_OFFSET), position) as u64,
    );
    own.set_bits(layout::CONTROL, control::RECALL | control::TCP_ONLY);
}

/// Asks without waiting for an answer; see [`Rx::keep_asking`](super::Rx::keep_asking).
#[cold]
pub(super) fn ask_standing(own: &impl OwnMemory) {
    ask_recall(own);
    own.set_bits(layout::RX_CARRIER, layout::RX_STANDING);
}
