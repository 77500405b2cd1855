//! The state of a connection on its way to shared memory, and this end's memory until then.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use seekwire_link::Other;
use seekwire_protocol::offer::SlotRef;
use seekwire_protocol::{FourTuple, Reason};
use seekwire_transport::layout::Geometry;
use seekwire_transport::mem::{AttachError, Own, Peer};
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::ring::Ring;
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::unix::{Channel, Sender};
use seekwire_transport::sys::{Fd, thread};

use super::data_path::{DataPath, Far};
use crate::config::Config;
use crate::control_group::Held;
use crate::{eligibility, proof, scarcity};

/// The progress of an upgrade.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    pub(super) tuple: Option<FourTuple>,
    /// Number of looks for the peer that were in vain.
    pub(super) looks: u32,
    pub(super) pending: Option<Pending>,
    /// The negotiation with an end on another machine.
    pub(super) over_link: Option<LinkNegotiation>,
    /// Both ends have agreed on this data path, but this process has forked meanwhile, and the
    /// child receives from the kernel alone. Until this end reports that it is ready, the other one
    /// sends by TCP.
    pub(super) granted: Option<Box<DataPath>>,
    /// Why no process has registered the other end, once the kernel was asked.
    pub(super) why_absent: Option<Reason>,
    /// No further attempt will be made.
    pub(super) over: bool,
}

impl Negotiation {
    /// After this many looks in vain, the kernel is asked why: a connection has made some fifty
    /// calls by then, beside which the question costs little.
    const ASKED_AFTER: u32 = 3;

    /// Why no process has registered the other end of `socket`.
    pub(super) fn absence(&mut self, socket: Fd) -> Reason {
        let Some(tuple) = self.tuple.filter(|_| self.looks >= Self::ASKED_AFTER) else {
            return Reason::NoPeer;
        };
        *self.why_absent.get_or_insert_with(|| proof::why_absent(socket, &tuple))
    }
}

/// A negotiation in which the next step is the other end's.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) channel: Channel,
    /// The other end's slot.
    pub(super) peer: SlotRef,
    pub(super) last_message: LastMessage,
}

/// This end's last message.
#[derive(Debug)]
pub(super) enum LastMessage {
    Offer,
    /// To this process, which has shown that it holds the other end.
    Granted(LocalMemory, Sender),
}

/// This end's memory, before it is joined with the peer's.
#[derive(Debug)]
pub(super) struct LocalMemory {
    pub(super) own: Own,
    pub(super) descriptor: PrivateFd,
    pub(super) geometry: Geometry,
    pub(super) doorbell: Doorbell,
    pub(super) held: Held,
}

/// The progress of this end's negotiation over a link.
#[derive(Debug)]
pub(super) struct LinkNegotiation {
    pub(super) far: Arc<Far>,
    pub(super) pid: u32,
    pub(super) step: Step,
    /// Number of looks for a wake channel that is on its way, for which no notification exists.
    pub(super) waits: u32,
    /// Wake channels begun so far.
    pub(super) attempts: u32,
    /// The reason that this end has shown for waiting for the other one, or for its refusal.
    pub(super) explained: Option<Reason>,
}

/// Its next step.
#[derive(Debug, Default)]
pub(super) enum Step {
    /// Looks for the other end's entry, or waits until it exists.
    #[default]
    Looking,
    /// The wake channel is being connected.
    Connecting { other: Other, wake_socket: PrivateFd },
    /// The next step is the other end's.
    Offered { other: Other, wake_socket: PrivateFd, side: RegionMemory, secret: u128 },
    /// This end has answered the entry with this nonce, for good: offered, or granted.
    Answered(u128),
}

/// This end's memory in a region.
#[derive(Debug)]
pub(super) struct RegionMemory {
    pub(super) own: seekwire_transport::mem::Own,
    pub(super) geometry: Geometry,
    pub(super) held: Held,
}

impl LocalMemory {
    pub(super) fn new() -> Result<Self, Reason> {
        if !eligibility::is_given() {
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
        memory: &PrivateFd,
        doorbell: PrivateFd,
        peer: Sender,
    ) -> Result<DataPath, Reason> {
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
        Ok(DataPath::new(ring, self.held, peer.pid))
    }
}

/// The descriptors of a message, if none is missing.
pub(super) fn all<const N: usize>(descriptors: Vec<PrivateFd>) -> Result<[PrivateFd; N], Reason> {
    descriptors.try_into().map_err(|_| {
        tracing::warn!(
            "no room for what the other end sent; raise the limit on open files (ulimit -n)"
        );
        Reason::FdLimit
    })
}
