//! One end of a queue pair: its two memories, and the values in them.

use seekwire_protocol::Carrier;
use seekwire_protocol::switch::{RxSwitch, TxSwitch};

use crate::layout::{self, Geometry, GeometryError};
use crate::mem::{OwnMemory, PeerMemory};
use crate::sync::Ordering;
use crate::sys::futex::Futex;

/// The peer's memory had a value that no honest end writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the peer violated the shared-memory protocol")]
pub struct Violation;

/// Memory that a queue can run on.
pub trait QueueMemory: OwnMemory + Futex {}
impl<M: OwnMemory + Futex> QueueMemory for M {}

/// One end of a queue pair. All methods may be called by any thread, and by forks of this process.
#[derive(Debug)]
pub struct QueuePair<O, P> {
    pub(super) own: O,
    pub(super) peer: P,
    pub(super) geometry: Geometry,
    pub(super) peer_geometry: Geometry,
}

/// The state of TCP at the point where a new queue pair takes over.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Start {
    /// Bytes that this end has given to the kernel.
    pub tx_tcp_bytes: u64,
    /// Bytes that this end has taken from the kernel.
    pub rx_tcp_bytes: u64,
    /// This end has shut its sending direction down already.
    pub is_shut: bool,
}

/// Writes the header and the free stack of a new end into its zeroed memory, before it is shown to
/// a peer.
pub fn format(own: &impl OwnMemory, geometry: Geometry) {
    let words = geometry.encode();
    for (index, segment) in (0..geometry.segments()).rev().enumerate() {
        own.store(geometry.free_at(index as u64), segment as u64, Ordering::Relaxed);
    }
    own.store(layout::FREE_COUNT, geometry.segments() as u64, Ordering::Relaxed);
    own.store(layout::LAYOUT_WORD, words[1], Ordering::Relaxed);
    own.store(layout::SEGMENTS_WORD, words[2], Ordering::Relaxed);
    own.store(layout::MAGIC_WORD, words[0], Ordering::Release);
}

/// Reads the geometry that a peer announces in its memory of `mapped` bytes.
///
/// # Errors
/// [`GeometryError`] if it is impossible.
pub fn peer_geometry(peer: &impl PeerMemory, mapped: usize) -> Result<Geometry, GeometryError> {
    let geometry = announced(peer)?;
    if geometry.bytes() == mapped { Ok(geometry) } else { Err(GeometryError) }
}

/// As [`peer_geometry()`], of a peer that shows its memory in `mapped` bytes of a region.
///
/// # Errors
/// [`GeometryError`] if it is impossible.
pub fn shown_geometry(peer: &impl PeerMemory, mapped: usize) -> Result<Geometry, GeometryError> {
    let geometry = announced(peer)?;
    if geometry.shown_bytes() == mapped { Ok(geometry) } else { Err(GeometryError) }
}

pub(super) fn announced(peer: &impl PeerMemory) -> Result<Geometry, GeometryError> {
    let magic = peer.load(layout::MAGIC_WORD, Ordering::Acquire);
    let words = [
        magic,
        peer.load(layout::LAYOUT_WORD, Ordering::Relaxed),
        peer.load(layout::SEGMENTS_WORD, Ordering::Relaxed),
    ];
    Geometry::decode(words)
}

impl<O: QueueMemory, P: PeerMemory> QueuePair<O, P> {
    /// Joins this end's memory, which was [`format()`]ted, and its peer's.
    #[must_use]
    pub fn new(own: O, geometry: Geometry, peer: P, peer_geometry: Geometry) -> Self {
        Self { own, peer, geometry, peer_geometry }
    }

    /// Sets the state of TCP, once, before the queue pair is used.
    pub fn start(&self, at: Start) {
        self.set(layout::TX_TCP_BYTES, at.tx_tcp_bytes);
        self.set(layout::RX_TCP_BYTES, at.rx_tcp_bytes);
        self.set(layout::TX_SHUT, at.is_shut.into());
    }

    /// This end's own memory.
    pub fn own(&self) -> &O {
        &self.own
    }

    /// The peer's memory.
    pub fn peer(&self) -> &P {
        &self.peer
    }

    /// This end's geometry.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    pub(super) fn get(&self, offset: usize) -> u64 {
        self.own.word(offset).load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, offset: usize, value: u64) {
        self.own.store(offset, value, Ordering::Relaxed);
    }

    /// Number of bytes of the record at `position` that the receiver has taken. Stored together
    /// with its position, so that moving on is one store.
    #[inline]
    pub(super) fn offset_in(&self, position: u64) -> usize {
        layout::offset_at(self.get(layout::RX_OFFSET), position)
    }

    /// Stores a word so that a process that takes over after the death of this one finds it only
    /// together with everything that was stored before.
    #[inline]
    pub(super) fn set_in_order(&self, offset: usize, value: u64) {
        self.own.store(offset, value, Ordering::Release);
    }

    /// Shows words again: a holder that died may have stored them without showing them.
    pub(super) fn show(&self, offsets: impl IntoIterator<Item = usize>) {
        for offset in offsets {
            self.own.show(offset, |shown| shown.store(self.get(offset), Ordering::Release));
        }
    }

    pub(super) fn tx_switch(&self) -> TxSwitch {
        TxSwitch {
            carrier: Carrier::from_code(self.get(layout::TX_CARRIER)),
            tcp_bytes: self.get(layout::TX_TCP_BYTES),
            ring_since: self.get(layout::TX_RING_SINCE),
        }
    }

    pub(super) fn set_tx_switch(&self, switch: TxSwitch) {
        self.set(layout::TX_CARRIER, switch.carrier as u64);
        self.set(layout::TX_TCP_BYTES, switch.tcp_bytes);
        self.set(layout::TX_RING_SINCE, switch.ring_since);
    }

    pub(super) fn rx_switch(&self) -> RxSwitch {
        RxSwitch {
            carrier: Carrier::from_code(self.get(layout::RX_CARRIER) & !layout::RX_STANDING),
            tcp_bytes: self.get(layout::RX_TCP_BYTES),
        }
    }

    pub(super) fn set_rx_switch(&self, switch: RxSwitch) {
        self.set(layout::RX_CARRIER, switch.carrier as u64);
        self.set(layout::RX_TCP_BYTES, switch.tcp_bytes);
    }
}
