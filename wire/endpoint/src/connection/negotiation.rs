//! The state of a connection on its way to shared memory, and this end's memory until then.

use std::os::fd::{AsFd, BorrowedFd};

use seekwire_protocol::offer::SlotRef;
use seekwire_protocol::{FourTuple, Reason};
use seekwire_transport::layout::Geometry;
use seekwire_transport::mem::{AttachError, Own, Peer};
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::ring::Ring;
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::thread;
use seekwire_transport::sys::unix::{Channel, Sender};

use super::link::Link;
use super::meet::Meeting;
use crate::config::Config;
use crate::control_group::Held;
use crate::{permission, scarcity};

/// The progress of an upgrade.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    pub(super) tuple: Option<FourTuple>,
    pub(super) looks: u32,
    pub(super) pending: Option<Pending>,
    /// The negotiation with an end on another machine.
    pub(super) meeting: Option<Meeting>,
    /// Both ends have agreed on this link, but this process has forked meanwhile, and the child
    /// receives from the kernel alone. Until this end reports that it is ready, the other one sends
    /// by TCP.
    pub(super) granted: Option<Box<Link>>,
    /// This end has accepted the connection, and has looked for an offer before in vain.
    pub(super) waited: bool,
    /// No further attempt will be made.
    pub(super) over: bool,
}

/// A negotiation in which the next step is the other end's.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) channel: Channel,
    /// The other end's slot.
    pub(super) peer: SlotRef,
    pub(super) said: Said,
}

/// This end's last message.
#[derive(Debug)]
pub(super) enum Said {
    Offer,
    /// To this process, which has shown that it holds the other end.
    Granted(Side, Sender),
}

/// This end's memory, before it is joined with the peer's.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) own: Own,
    pub(super) descriptor: Placed,
    pub(super) geometry: Geometry,
    pub(super) doorbell: Doorbell,
    pub(super) held: Held,
}

impl Side {
    pub(super) fn new() -> Result<Self, Reason> {
        if !permission::is_given() {
            return Err(Reason::Bypassed);
        }
        let geometry = Config::get().geometry;
        // The copy kept for a retransmission is hardly ever touched.
        let held = Held::take((geometry.segments() * geometry.segment_size()) as u64);
        let held = held.map_err(|full| {
            tracing::warn!("no shared memory: {full}");
            Reason::Memory
        })?;
        let base = geometry.segment_at(0);
        let memory =
            Own::create(geometry.bytes(), base, geometry.segment_size(), geometry.segments());
        let (own, descriptor) = memory.map_err(|error| {
            tracing::warn!("no shared memory: {error}; {}", scarcity::advice(Reason::Memory));
            scarcity::reason_of(&error).unwrap_or(Reason::Memory)
        })?;
        queue::format(&own, geometry);
        queue::add_holder(&own, thread::process_id());
        let doorbell = Doorbell::new().map_err(|error| {
            let reason = scarcity::reason_of(&error).unwrap_or(Reason::FdLimit);
            tracing::warn!("no doorbell: {error}; {}", scarcity::advice(reason));
            reason
        })?;
        Ok(Self { own, descriptor, geometry, doorbell, held })
    }

    /// The descriptors that the peer needs from this end.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.descriptor.as_fd(), self.doorbell.as_fd()]
    }

    /// Joins this end with what the peer sent.
    pub(super) fn join(
        self,
        memory: &Placed,
        doorbell: Placed,
        peer: Sender,
    ) -> Result<Link, Reason> {
        let refuse = |error: &dyn std::fmt::Display| {
            tracing::warn!("process {} offered what cannot be used: {error}", peer.pid);
            Reason::PeerViolation
        };
        let memory = Peer::attach(memory.as_fd(), Geometry::MAX_BYTES).map_err(|error| {
            // This process may have no address space left for valid memory.
            let scarcity = match &error {
                AttachError::Io(error) => scarcity::reason_of(error),
                _ => None,
            };
            let Some(reason) = scarcity else { return refuse(&error) };
            tracing::warn!("{error}; {}", scarcity::advice(reason));
            reason
        })?;
        let geometry = queue::peer_geometry(&memory, memory.len()).map_err(|e| refuse(&e))?;
        let peer_doorbell = Doorbell::from_peer(doorbell).map_err(|e| refuse(&e))?;
        let queue = QueuePair::new(self.own, self.geometry, memory, geometry);
        let ring = Ring { queue, doorbell: self.doorbell, peer_doorbell };
        Ok(Link::new(ring, self.held, peer.pid))
    }
}

/// The descriptors of a message, if none is missing.
pub(super) fn all<const N: usize>(descriptors: Vec<Placed>) -> Result<[Placed; N], Reason> {
    descriptors.try_into().map_err(|_| {
        tracing::warn!(
            "no room for what the other end sent; raise the limit on open files (ulimit -n)"
        );
        Reason::FdLimit
    })
}
