//! How the two ends of a connection between two machines come to share memory: over a link.
//!
//! ```text
//!   connecting process                          accepting process
//!     enters its end in its half                  enters its end in its half, with a port
//!     finds the mirrored 4-tuple
//!     connects to that port       ---------->     (accepts it at its next call)
//!       sends the nonces of both entries, and a secret
//!     Offered (place, byte counts)
//!       signals the entry         ---------->   compares, maps
//!     compares, maps              <----------   Granted (place, byte counts, the secret)
//!                                                 signals the entry
//! ```
//!
//! The end that comes second signals the first. No content of the other half is trusted. The
//! connection to that port, the wake channel, proves that the address at the other end of the
//! program's connection leads to the machine at the other end of the region: the accepting end has
//! to know what was sent on the wake channel, and the connecting end what stands in the region. So
//! networks with the same addresses are not mixed up, and a wrong address in the map file leads
//! nowhere. The counts of bytes also have to match, as on one host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use seekwire_link::{EnterError, EntryState, Link, Other, TcpCounts, Word};
use seekwire_protocol::{FourTuple, Reason, Role};
use seekwire_transport::layout::Geometry;
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::ring::Ring;
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::event_channel::EventChannel;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::{host, socket, thread, wake_connection};

use super::data_path::{DataPath, Far};
use super::negotiation::{LinkNegotiation, Negotiation, RegionMemory, Step};
use super::ring_sizes::{ladder, sizes};
use super::state::Connection;
use crate::config::Config;
use crate::control_group::Held;
use crate::machine_links::{self, ReadyWakeChannel};
use crate::{eligibility, scarcity};

/// Maximum number of wake channels begun for a connection. A firewall that blocks one blocks all.
const MAX_ATTEMPTS: u32 = 8;

impl Connection {
    /// The next step of a negotiation over a link to the machine at the other end.
    pub(super) fn negotiate_over_link(
        &self,
        negotiation: &mut Negotiation,
        tuple: &FourTuple,
        link: Arc<Link>,
    ) -> Result<(), Reason> {
        if let Some(granted) = negotiation.granted.take() {
            return self.join_if_alone(negotiation, granted);
        }
        let mut progress = match negotiation.over_link.take() {
            Some(progress) if Arc::ptr_eq(&progress.far.link, &link) => progress,
            _ => self.enter_link(tuple, link)?,
        };
        if progress.pid != thread::process_id() {
            // A child does not negotiate in its parent's name.
            return Err(Reason::Shared);
        }
        progress.far.entry.take_signal();
        let joined = match self.role {
            Role::Connected => self.connecting_step(&mut progress, tuple),
            Role::Accepted => self.accepting_step(&mut progress, tuple),
        };
        let far = Arc::clone(&progress.far);
        match joined {
            Ok(Some(data_path)) => {
                machine_links::forget(far.entry.nonce());
                self.join_if_alone(negotiation, Box::new(data_path))
            }
            Ok(None) => {
                negotiation.over_link = Some(progress);
                Ok(())
            }
            Err(reason) if self.is_in_vain(&progress, reason) => {
                let explained = progress.explained.filter(|_| reason == Reason::PeerRefused);
                let was_granted = matches!(progress.step, Step::Answered(_));
                // The mapping of its place is dropped first.
                drop(progress);
                machine_links::forget(far.entry.nonce());
                if was_granted {
                    // The other end, which has joined, learns why this one has not.
                    far.entry.give_back();
                    far.entry.say(Word::Refused(reason));
                } else {
                    far.entry.clear();
                }
                negotiation.over = true;
                Err(explained.unwrap_or(reason))
            }
            Err(reason) => {
                // From now on this end's own reason is shown.
                progress.explained = None;
                negotiation.over_link = Some(progress);
                Err(reason)
            }
        }
    }

    /// Whether a later attempt would fail in the same way, since the accepting end has answered for
    /// good. False at the accepting end itself: the other end may begin anew.
    fn is_in_vain(&self, progress: &LinkNegotiation, reason: Reason) -> bool {
        let is_final = match reason {
            // The other end has joined, which it does only once.
            _ if matches!(progress.step, Step::Answered(_)) => true,
            Reason::PeerRefused | Reason::Unproven | Reason::PeerViolation => true,
            Reason::NoWakeChannel => progress.attempts >= MAX_ATTEMPTS,
            _ => false,
        };
        is_final && self.role == Role::Connected
    }

    fn enter_link(&self, tuple: &FourTuple, link: Arc<Link>) -> Result<LinkNegotiation, Reason> {
        if !eligibility::is_given() {
            return Err(Reason::Bypassed);
        }
        if self.far.get().is_some() {
            // The link was attached anew since this end has entered it, so nobody reads the signals
            // of its entry any more.
            return Err(Reason::NoLink);
        }
        let port = match self.role {
            Role::Accepted => {
                machine_links::port_at(SocketAddr::from(tuple.local).ip(), tuple.namespace)?
            }
            Role::Connected => 0,
        };
        let entry = link.enter(tuple, self.role, port).map_err(|error| {
            tracing::info!("{tuple}: stays on TCP: {error}");
            reason_of(&error)
        })?;
        machine_links::expect(entry.nonce());
        if let Some(slot) = self.slot() {
            slot.show_link(link.name());
        }
        let far = Arc::clone(self.far.get_or_init(|| Arc::new(Far::new(link, entry))));
        Ok(LinkNegotiation {
            far,
            pid: thread::process_id(),
            step: Step::Looking,
            waits: 0,
            attempts: 0,
            explained: None,
        })
    }

    // ---- the connecting end -------------------------------------------------------------------

    fn connecting_step(
        &self,
        progress: &mut LinkNegotiation,
        tuple: &FourTuple,
    ) -> Result<Option<DataPath>, Reason> {
        let far = Arc::clone(&progress.far);
        match std::mem::take(&mut progress.step) {
            Step::Looking => {
                let other = newest(&far, tuple)?;
                if progress.attempts >= MAX_ATTEMPTS {
                    return Err(Reason::NoWakeChannel);
                }
                if other.port < wake_connection::LEAST_PORT {
                    tracing::warn!("{tuple}: no wake channel goes to port {}", other.port);
                    return Err(Reason::PeerViolation);
                }
                let (from, to) = (SocketAddr::from(tuple.local), SocketAddr::from(tuple.peer));
                let to = SocketAddr::new(to.ip(), other.port);
                let wake_socket = machine_links::begin(from.ip(), to, tuple.namespace)
                    .inspect_err(|reason| cannot(&far, &other, *reason))?;
                progress.attempts += 1;
                progress.step = Step::Connecting { other, wake_socket };
            }
            Step::Connecting { other, wake_socket } => {
                let is_established = wake_connection::is_established(&wake_socket)
                    .map_err(|error| machine_links::no_wake_channel(&error))
                    .inspect_err(|reason| cannot(&far, &other, *reason));
                if is_established? {
                    if newest(&far, tuple)?.nonce != other.nonce {
                        drop(wake_socket);
                        return self.connecting_step(progress, tuple);
                    }
                    let secret = u128::from(host::random()) << 64 | u128::from(host::random());
                    let side = self
                        .offer_place(&far, &other, &wake_socket, secret)
                        .inspect_err(|reason| cannot(&far, &other, *reason));
                    // If this end lacks a resource, it may try again later.
                    progress.attempts -=
                        u32::from(side.as_ref().is_err_and(|it| *it != Reason::NoWakeChannel));
                    let side = side?;
                    progress.step = Step::Offered { other, wake_socket, side, secret };
                    self.gate.look_again_after(u32::MAX);
                    return Ok(None);
                }
                progress.step = Step::Connecting { other, wake_socket };
            }
            Step::Offered { other, wake_socket, side, secret } => {
                let to_this_end = |now: &Other| now.talks_to == far.entry.nonce();
                let now = far.entry.look(&other).filter(to_this_end);
                match now.map(|now| (now.state, now)) {
                    Some((EntryState::Granted, now)) if now.proof != secret => {
                        tracing::warn!(
                            "{tuple}: the wake channel does not lead to the other machine"
                        );
                        return Err(Reason::Unproven);
                    }
                    Some((EntryState::Granted, now)) => {
                        self.compare(&now.counts)?;
                        // As at the other end.
                        if !far.entry.names(&now) {
                            return Err(Reason::NoPeer);
                        }
                        progress.step = Step::Answered(now.nonce);
                        let data_path = self.join(&far, side, &now, wake_socket)?;
                        // If this fails, closing the wake channel tells the other end that this
                        // one could not join.
                        far.entry.say(Word::Granted(self.counts()?));
                        return Ok(Some(data_path));
                    }
                    Some((EntryState::Refused(reason), _)) => {
                        tracing::debug!("{tuple}: refused: {reason}");
                        progress.explained = (reason == Reason::LinkFull).then_some(reason);
                        return Err(Reason::PeerRefused);
                    }
                    _ => {}
                }
                if newest(&far, tuple)?.nonce != other.nonce {
                    drop((side, wake_socket));
                    return self.connecting_step(progress, tuple);
                }
                progress.step = Step::Offered { other, wake_socket, side, secret };
                self.gate.look_again_after(u32::MAX);
                return Ok(None);
            }
            Step::Answered(_) => return Err(Reason::PeerRefused),
        }
        // No notification exists for the wake channel.
        self.gate.look_again_after(1 << progress.waits.min(10));
        progress.waits += 1;
        Ok(None)
    }

    fn offer_place(
        &self,
        far: &Far,
        other: &Other,
        wake_socket: &PrivateFd,
        secret: u128,
    ) -> Result<RegionMemory, Reason> {
        self.may_join()?;
        let side = RegionMemory::new(far)?;
        let hello = machine_links::hello(other.nonce, far.entry.nonce(), secret);
        wake_connection::send_hello(wake_socket, &hello)
            .map_err(|error| machine_links::no_wake_channel(&error))?;
        if !far.entry.names(other) {
            return Err(Reason::NoPeer);
        }
        far.entry.say(Word::Offered(self.counts()?));
        far.entry.signal(other);
        Ok(side)
    }

    // ---- the accepting end --------------------------------------------------------------------

    fn accepting_step(
        &self,
        progress: &mut LinkNegotiation,
        tuple: &FourTuple,
    ) -> Result<Option<DataPath>, Reason> {
        let far = Arc::clone(&progress.far);
        let Some(other) = far.link.find(&tuple.mirrored(), Role::Connected) else {
            return self.wait_for_offer(progress, Some(Reason::NoPeer));
        };
        if let EntryState::Refused(reason) = other.state {
            // It may offer again when it has the missing resource.
            let is_full = reason == Reason::LinkFull;
            let why = if is_full { reason } else { Reason::PeerRefused };
            return self.wait_for_offer(progress, Some(why));
        }
        if other.state != EntryState::Offered || other.talks_to != far.entry.nonce() {
            // It was there first, and does not know of this end.
            far.entry.signal(&other);
            return self.wait_for_offer(progress, None);
        }
        if matches!(progress.step, Step::Answered(nonce) if nonce == other.nonce) {
            return Err(Reason::PeerRefused);
        }
        let arrived = machine_links::wake_channel_for(far.entry.nonce());
        let Ok(Some(ReadyWakeChannel { socket, from, nonce, secret })) = arrived else {
            // The wake channel is on its way, or silent, or cannot be accepted.
            self.explain(progress, arrived.err());
            self.gate.look_again_after(1 << progress.waits.min(16));
            progress.waits += 1;
            return Ok(None);
        };
        progress.step = Step::Answered(other.nonce);
        // Named before it is read: from then on the other machine gives its place to no other
        // connection.
        if !far.entry.names(&other) {
            return Err(Reason::NoPeer);
        }
        let is_its_own =
            nonce == other.nonce && from == SocketAddr::from(tuple.peer).ip().to_canonical();
        let granted =
            if is_its_own { self.grant_place(&far, &other) } else { Err(Reason::Unproven) };
        // Everything that can fail comes before the word, which the other end waits for.
        let joined = granted
            .and_then(|side| self.join(&far, side, &other, socket))
            .and_then(|data_path| Ok((data_path, self.counts()?)));
        far.entry.prove(secret);
        match &joined {
            Ok((_, counts)) => far.entry.say(Word::Granted(*counts)),
            Err(reason) => {
                far.entry.give_back();
                far.entry.say(Word::Refused(*reason));
            }
        }
        far.entry.signal(&other);
        joined.map(|(data_path, _)| Some(data_path))
    }

    fn grant_place(&self, far: &Far, other: &Other) -> Result<RegionMemory, Reason> {
        self.may_join()?;
        self.compare(&other.counts)?;
        RegionMemory::new(far)
    }

    /// The connecting end has not offered anything yet. Shows the reason, if it is known.
    fn wait_for_offer(
        &self,
        progress: &mut LinkNegotiation,
        why: Option<Reason>,
    ) -> Result<Option<DataPath>, Reason> {
        self.gate.look_again_after(u32::MAX);
        self.explain(progress, why);
        Ok(None)
    }

    /// Shows why this end waits for the other one, if that is known, instead of an earlier reason.
    fn explain(&self, progress: &mut LinkNegotiation, why: Option<Reason>) {
        let now = self.reason();
        let is_waiting = [Reason::BelowThreshold, Reason::NoPeer].map(Some).contains(&now);
        let is_said = now.is_some() && now == progress.explained;
        if why.is_none() || !(is_waiting || is_said) {
            return;
        }
        self.set_reason(why);
        progress.explained = why;
        if why != Some(Reason::NoPeer) {
            // It begins anew when that changes.
            self.looked_since.store(0, Ordering::Relaxed);
        }
    }

    // ---- both ---------------------------------------------------------------------------------

    /// The bytes that this end has moved by TCP, as its kernel counts them.
    fn counts(&self) -> Result<TcpCounts, Reason> {
        let counts = || {
            let sent = *socket::kernel_counts(self.fd())?.sent.end();
            let received = socket::received(self.fd())?;
            Ok(TcpCounts { sent, received, acknowledged: socket::acknowledged(self.fd())? })
        };
        counts().map_err(|error: seekwire_transport::Errno| {
            tracing::debug!("fd {}: the kernel does not count: {error}", self.fd().raw());
            Reason::Over
        })
    }

    /// Whether the other end's recent counts match this end's present ones. A difference of one is
    /// allowed: the beginning and the end of a stream count as bytes.
    fn compare(&self, other: &TcpCounts) -> Result<(), Reason> {
        let own = self.counts()?;
        if other.acknowledged <= own.received + 2 && other.received <= own.sent + 2 {
            return Ok(());
        }
        tracing::warn!(
            "fd {}: the bytes of the two ends do not fit: {own:?}, {other:?}",
            self.fd().raw()
        );
        Err(Reason::Unproven)
    }

    fn join(
        &self,
        far: &Arc<Far>,
        side: RegionMemory,
        other: &Other,
        wake_socket: PrivateFd,
    ) -> Result<DataPath, Reason> {
        let refuse = |what: &str| {
            tracing::warn!("fd {}: the other machine {what}", self.fd().raw());
            Reason::PeerViolation
        };
        let (at, len) = other.place.ok_or_else(|| refuse("shows no memory"))?;
        let memory = far.link.region().peer(at, len);
        let memory = memory.ok_or_else(|| refuse("shows memory outside the region"))?;
        let geometry = queue::shown_geometry(&memory, len)
            .map_err(|error| refuse(&format!("shows memory that cannot be used: {error}")))?;
        if let (Some(slot), Ok((own, peer))) = (self.slot(), socket::names(wake_socket.fd())) {
            slot.show_wake_ports(own.port(), peer.port());
        }
        let channel = || self.channel(far, other);
        let (doorbell, peer_doorbell) =
            Doorbell::remote_pair(wake_socket, channel).map_err(|error| {
                tracing::warn!("no doorbell: {error}");
                scarcity::reason_of(&error).unwrap_or(Reason::FdLimit)
            })?;
        let queue = QueuePair::new(side.own, side.geometry, memory, geometry);
        let ring = Ring { queue, doorbell, peer_doorbell };
        let round_trip = socket::shortest_round_trip(self.fd()).unwrap_or(0);
        Ok(DataPath::to_other_machine(ring, side.held, Arc::clone(far), other, round_trip))
    }

    /// The event channel that carries rings instead of the wake channel's connection, between
    /// domains of Xen's. The accepting end offers its port before its word; the connecting end
    /// takes the other end, and also shows the port ([`DataPath::confirm_channel`]).
    fn channel(&self, far: &Far, other: &Other) -> Option<EventChannel> {
        let domain = far.link.domain()?;
        let channel = match self.role {
            Role::Accepted => EventChannel::offer(domain),
            Role::Connected => EventChannel::accept(domain, other.channel?),
        };
        let channel = channel.map_err(|error| {
            tracing::debug!("no event channel to domain {domain}: {error}; rings go by TCP");
        });
        let channel = channel.ok();
        let shown = match self.role {
            Role::Accepted => channel.as_ref().map(EventChannel::port),
            Role::Connected => channel.as_ref().and(other.channel),
        };
        // Also if there is none: the port of an earlier attempt may belong to another channel now.
        far.entry.show_channel(shown.unwrap_or(0));
        channel
    }
}

impl RegionMemory {
    fn new(far: &Far) -> Result<Self, Reason> {
        if !eligibility::is_given() {
            return Err(Reason::Bypassed);
        }
        let wanted = Config::get().geometry;
        let sizes = match far.entry.placed() {
            // Of an earlier attempt: an entry has one place.
            Some(bytes) => {
                let is_of = |size: &Geometry| size.shown_bytes() == bytes;
                ladder(wanted).into_iter().filter(is_of).collect()
            }
            None => sizes(wanted, far.link.room()),
        };
        let place =
            |geometry: &Geometry| far.entry.place(geometry.shown_bytes()).map(|at| (*geometry, at));
        let (geometry, at) = sizes.iter().find_map(place).ok_or_else(|| {
            tracing::info!("link {}: no room for another connection", far.link.name());
            Reason::LinkFull
        })?;
        // The words are in this machine's memory. The segments are in the region, and the copy kept
        // for a retransmission is hardly ever touched.
        let held = Held::take(geometry.segment_at(0) as u64);
        let held = held.map_err(|full| {
            tracing::warn!("no shared memory: {full}");
            Reason::Memory
        })?;
        let own = far.link.region().own(at, geometry.shown_bytes(), geometry.bytes());
        let own = own.map_err(|error| {
            tracing::warn!("no shared memory: {error}; {}", scarcity::advice(Reason::Memory));
            scarcity::reason_of(&error).unwrap_or(Reason::Memory)
        })?;
        queue::format(&own, geometry);
        queue::add_holder(&own, thread::process_id());
        // A machine that detaches shows that first, and then marks the existing places.
        fence(Ordering::SeqCst);
        if far.link.is_detached() {
            return Err(Reason::NoLink);
        }
        Ok(Self { own, geometry, held })
    }
}

/// Tells the accepting end, which would otherwise report that no peer has come, why this one offers
/// nothing now.
fn cannot(far: &Far, other: &Other, reason: Reason) {
    // If the link is no longer attached, the entry may belong to another connection.
    if !matches!(reason, Reason::NoPeer | Reason::NoLink) {
        far.entry.say(Word::Refused(reason));
        far.entry.signal(other);
    }
}

/// The newest entry of the accepting end. An older one belonged to another connection between these
/// addresses, which has left.
fn newest(far: &Far, tuple: &FourTuple) -> Result<Other, Reason> {
    far.link.find(&tuple.mirrored(), Role::Accepted).ok_or(Reason::NoPeer)
}

fn reason_of(error: &EnterError) -> Reason {
    match error {
        EnterError::Busy | EnterError::Detached => Reason::NoLink,
        EnterError::Full => Reason::LinkFull,
        EnterError::Io(error) => scarcity::reason_of(error).unwrap_or(Reason::NoLink),
    }
}
