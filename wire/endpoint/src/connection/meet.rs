//! How the two ends of a connection between two machines come to share memory: over a link.
//!
//! ```text
//!   connecting process                          accepting process
//!     enters its end in its half                  enters its end in its half, with a port
//!     finds the mirrored 4-tuple
//!     begins a line to that port  ---------->     (takes it in at its next call)
//!       says the nonces of both entries, and a secret
//!     Offered (place, byte counts)
//!       signals the entry         ---------->   compares, maps
//!     compares, maps              <----------   Granted (place, byte counts, the secret)
//!                                                 signals the entry
//! ```
//!
//! The end that comes second signals the first. No content of the other half is trusted. The line
//! proves that the address at the other end of the connection leads to the machine at the other end
//! of the region: the accepting end has to know what was sent on the line, and the connecting end
//! what stands in the region. So networks with the same addresses are not mixed up, and a wrong
//! address in the map file leads nowhere. The counts of bytes also have to match, as on one host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use seekwire_link::{Counts, EnterError, Link as Shared, Other, State, Word};
use seekwire_protocol::{FourTuple, Reason, Role};
use seekwire_transport::layout::Geometry;
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::ring::Ring;
use seekwire_transport::sys::doorbell::Doorbell;
use seekwire_transport::sys::event_channel::EventChannel;
use seekwire_transport::sys::fd::Placed;
use seekwire_transport::sys::{host, line, socket, thread};

use super::link::{Far, Link};
use super::negotiation::Negotiation;
use super::sizes::{ladder, sizes};
use super::state::Connection;
use crate::across::{self, Arrived};
use crate::config::Config;
use crate::control_group::Held;
use crate::{permission, scarcity};

/// The progress of this end of a meeting.
#[derive(Debug)]
pub(super) struct Meeting {
    far: Arc<Far>,
    pid: u32,
    step: Step,
    /// Number of looks for a line that is on its way, for which no notification exists.
    waits: u32,
    /// Lines begun so far.
    lines: u32,
    /// The reason that this end has shown for waiting for the other one, or for its refusal.
    explained: Option<Reason>,
}

/// Maximum number of lines begun for a connection. A firewall that blocks one blocks all.
const MOST_LINES: u32 = 8;

#[derive(Debug, Default)]
enum Step {
    /// Looks for the other end's entry, or waits until it exists.
    #[default]
    Looking,
    /// The line is being connected.
    Calling { other: Other, line: Placed },
    /// The next step is the other end's.
    Offered { other: Other, line: Placed, side: Side, secret: u128 },
    /// This end has answered the entry with this nonce, for good: offered, or granted.
    Answered(u128),
}

/// This end's memory in a region.
#[derive(Debug)]
struct Side {
    own: seekwire_transport::mem::Own,
    geometry: Geometry,
    held: Held,
}

impl Connection {
    /// The next step of a meeting over a link to the machine at the other end.
    pub(super) fn meet(
        &self,
        negotiation: &mut Negotiation,
        tuple: &FourTuple,
        shared: Arc<Shared>,
    ) -> Result<(), Reason> {
        if let Some(granted) = negotiation.granted.take() {
            return self.link_if_alone(negotiation, granted);
        }
        let mut meeting = match negotiation.meeting.take() {
            Some(meeting) if Arc::ptr_eq(&meeting.far.link, &shared) => meeting,
            _ => self.enter_link(tuple, shared)?,
        };
        if meeting.pid != thread::process_id() {
            // A child does not negotiate in its parent's name.
            return Err(Reason::Shared);
        }
        meeting.far.entry.take_signal();
        let met = match self.role {
            Role::Connected => self.call(&mut meeting, tuple),
            Role::Accepted => self.answer_call(&mut meeting, tuple),
        };
        let far = Arc::clone(&meeting.far);
        match met {
            Ok(Some(link)) => {
                across::forget(far.entry.nonce());
                self.link_if_alone(negotiation, Box::new(link))
            }
            Ok(None) => {
                negotiation.meeting = Some(meeting);
                Ok(())
            }
            Err(reason) if self.is_in_vain(&meeting, reason) => {
                let explained = meeting.explained.filter(|_| reason == Reason::PeerRefused);
                let was_granted = matches!(meeting.step, Step::Answered(_));
                // The mapping of its place is dropped first.
                drop(meeting);
                across::forget(far.entry.nonce());
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
                meeting.explained = None;
                negotiation.meeting = Some(meeting);
                Err(reason)
            }
        }
    }

    /// Whether a later attempt would fail in the same way, since the accepting end has answered for
    /// good. False at the accepting end itself: the other end may begin anew.
    fn is_in_vain(&self, meeting: &Meeting, reason: Reason) -> bool {
        let is_final = match reason {
            // The other end has joined, which it does only once.
            _ if matches!(meeting.step, Step::Answered(_)) => true,
            Reason::PeerRefused | Reason::Unproven | Reason::PeerViolation => true,
            Reason::NoLine => meeting.lines >= MOST_LINES,
            _ => false,
        };
        is_final && self.role == Role::Connected
    }

    fn enter_link(&self, tuple: &FourTuple, link: Arc<Shared>) -> Result<Meeting, Reason> {
        if !permission::is_given() {
            return Err(Reason::Bypassed);
        }
        if self.far.get().is_some() {
            // The link was attached anew since this end has entered it, so nobody reads the signals
            // of its entry any more.
            return Err(Reason::NoLink);
        }
        let port = match self.role {
            Role::Accepted => across::port_at(SocketAddr::from(tuple.local).ip(), tuple.namespace)?,
            Role::Connected => 0,
        };
        let entry = link.enter(tuple, self.role, port).map_err(|error| {
            tracing::info!("{tuple}: stays on TCP: {error}");
            reason_of(&error)
        })?;
        across::expect(entry.nonce());
        if let Some(slot) = self.slot() {
            slot.show_link(link.name());
        }
        let far = Arc::clone(self.far.get_or_init(|| Arc::new(Far::new(link, entry))));
        Ok(Meeting {
            far,
            pid: thread::process_id(),
            step: Step::Looking,
            waits: 0,
            lines: 0,
            explained: None,
        })
    }

    // ---- the connecting end -------------------------------------------------------------------

    fn call(&self, meeting: &mut Meeting, tuple: &FourTuple) -> Result<Option<Link>, Reason> {
        let far = Arc::clone(&meeting.far);
        match std::mem::take(&mut meeting.step) {
            Step::Looking => {
                let other = newest(&far, tuple)?;
                if meeting.lines >= MOST_LINES {
                    return Err(Reason::NoLine);
                }
                if other.port < line::LEAST_PORT {
                    tracing::warn!("{tuple}: no line goes to port {}", other.port);
                    return Err(Reason::PeerViolation);
                }
                let (from, to) = (SocketAddr::from(tuple.local), SocketAddr::from(tuple.peer));
                let to = SocketAddr::new(to.ip(), other.port);
                let line = across::begin(from.ip(), to, tuple.namespace)
                    .inspect_err(|reason| cannot(&far, &other, *reason))?;
                meeting.lines += 1;
                meeting.step = Step::Calling { other, line };
            }
            Step::Calling { other, line } => {
                let has_arrived = line::has_arrived(&line)
                    .map_err(|error| across::no_line(&error))
                    .inspect_err(|reason| cannot(&far, &other, *reason));
                if has_arrived? {
                    if newest(&far, tuple)?.nonce != other.nonce {
                        drop(line);
                        return self.call(meeting, tuple);
                    }
                    let secret = u128::from(host::random()) << 64 | u128::from(host::random());
                    let side = self
                        .offer_place(&far, &other, &line, secret)
                        .inspect_err(|reason| cannot(&far, &other, *reason));
                    // If this end lacks a resource, it may try again later.
                    meeting.lines -=
                        u32::from(side.as_ref().is_err_and(|it| *it != Reason::NoLine));
                    let side = side?;
                    meeting.step = Step::Offered { other, line, side, secret };
                    self.gate.look_again_after(u32::MAX);
                    return Ok(None);
                }
                meeting.step = Step::Calling { other, line };
            }
            Step::Offered { other, line, side, secret } => {
                let to_this_end = |now: &Other| now.talks_to == far.entry.nonce();
                let now = far.entry.look(&other).filter(to_this_end);
                match now.map(|now| (now.state, now)) {
                    Some((State::Granted, now)) if now.proof != secret => {
                        tracing::warn!("{tuple}: the line does not lead to the other machine");
                        return Err(Reason::Unproven);
                    }
                    Some((State::Granted, now)) => {
                        self.compare(&now.counts)?;
                        // As at the other end.
                        if !far.entry.names(&now) {
                            return Err(Reason::NoPeer);
                        }
                        meeting.step = Step::Answered(now.nonce);
                        let link = self.join(&far, side, &now, line)?;
                        // If this fails, closing the line tells the other end that this one could
                        // not join.
                        far.entry.say(Word::Granted(self.counts()?));
                        return Ok(Some(link));
                    }
                    Some((State::Refused(reason), _)) => {
                        tracing::debug!("{tuple}: refused: {reason}");
                        meeting.explained = (reason == Reason::LinkFull).then_some(reason);
                        return Err(Reason::PeerRefused);
                    }
                    _ => {}
                }
                if newest(&far, tuple)?.nonce != other.nonce {
                    drop((side, line));
                    return self.call(meeting, tuple);
                }
                meeting.step = Step::Offered { other, line, side, secret };
                self.gate.look_again_after(u32::MAX);
                return Ok(None);
            }
            Step::Answered(_) => return Err(Reason::PeerRefused),
        }
        // No notification exists for the line.
        self.gate.look_again_after(1 << meeting.waits.min(10));
        meeting.waits += 1;
        Ok(None)
    }

    fn offer_place(
        &self,
        far: &Far,
        other: &Other,
        line: &Placed,
        secret: u128,
    ) -> Result<Side, Reason> {
        self.may_join()?;
        let side = Side::new(far)?;
        let hello = across::hello(other.nonce, far.entry.nonce(), secret);
        line::say(line, &hello).map_err(|error| across::no_line(&error))?;
        if !far.entry.names(other) {
            return Err(Reason::NoPeer);
        }
        far.entry.say(Word::Offered(self.counts()?));
        far.entry.signal(other);
        Ok(side)
    }

    // ---- the accepting end --------------------------------------------------------------------

    fn answer_call(
        &self,
        meeting: &mut Meeting,
        tuple: &FourTuple,
    ) -> Result<Option<Link>, Reason> {
        let far = Arc::clone(&meeting.far);
        let Some(other) = far.link.find(&tuple.mirrored(), Role::Connected) else {
            return self.wait_for_call(meeting, Some(Reason::NoPeer));
        };
        if let State::Refused(reason) = other.state {
            // It may offer again when it has the missing resource.
            let is_full = reason == Reason::LinkFull;
            let why = if is_full { reason } else { Reason::PeerRefused };
            return self.wait_for_call(meeting, Some(why));
        }
        if other.state != State::Offered || other.talks_to != far.entry.nonce() {
            // It was there first, and does not know of this end.
            far.entry.signal(&other);
            return self.wait_for_call(meeting, None);
        }
        if matches!(meeting.step, Step::Answered(nonce) if nonce == other.nonce) {
            return Err(Reason::PeerRefused);
        }
        let arrived = across::line_for(far.entry.nonce());
        let Ok(Some(Arrived { line, from, nonce, secret })) = arrived else {
            // The line is on its way, or silent, or cannot be accepted.
            self.explain(meeting, arrived.err());
            self.gate.look_again_after(1 << meeting.waits.min(16));
            meeting.waits += 1;
            return Ok(None);
        };
        meeting.step = Step::Answered(other.nonce);
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
        let linked = granted
            .and_then(|side| self.join(&far, side, &other, line))
            .and_then(|link| Ok((link, self.counts()?)));
        far.entry.prove(secret);
        match &linked {
            Ok((_, counts)) => far.entry.say(Word::Granted(*counts)),
            Err(reason) => {
                far.entry.give_back();
                far.entry.say(Word::Refused(*reason));
            }
        }
        far.entry.signal(&other);
        linked.map(|(link, _)| Some(link))
    }

    fn grant_place(&self, far: &Far, other: &Other) -> Result<Side, Reason> {
        self.may_join()?;
        self.compare(&other.counts)?;
        Side::new(far)
    }

    /// The connecting end has not offered anything yet. Shows the reason, if it is known.
    fn wait_for_call(
        &self,
        meeting: &mut Meeting,
        why: Option<Reason>,
    ) -> Result<Option<Link>, Reason> {
        self.gate.look_again_after(u32::MAX);
        self.explain(meeting, why);
        Ok(None)
    }

    /// Shows why this end waits for the other one, if that is known, instead of an earlier reason.
    fn explain(&self, meeting: &mut Meeting, why: Option<Reason>) {
        let now = self.reason();
        let is_waiting = [Reason::BelowThreshold, Reason::NoPeer].map(Some).contains(&now);
        let is_said = now.is_some() && now == meeting.explained;
        if why.is_none() || !(is_waiting || is_said) {
            return;
        }
        self.set_reason(why);
        meeting.explained = why;
        if why != Some(Reason::NoPeer) {
            // It begins anew when that changes.
            self.looked_since.store(0, Ordering::Relaxed);
        }
    }

    // ---- both ---------------------------------------------------------------------------------

    /// The bytes that this end has moved by TCP, as its kernel counts them.
    fn counts(&self) -> Result<Counts, Reason> {
        let counts = || {
            let sent = *socket::kernel_counts(self.fd())?.sent.end();
            let received = socket::received(self.fd())?;
            Ok(Counts { sent, received, acknowledged: socket::acknowledged(self.fd())? })
        };
        counts().map_err(|error: seekwire_transport::Errno| {
            tracing::debug!("fd {}: the kernel does not count: {error}", self.fd().raw());
            Reason::Over
        })
    }

    /// Whether the other end's recent counts match this end's present ones. A difference of one is
    /// allowed: the beginning and the end of a stream count as bytes.
    fn compare(&self, other: &Counts) -> Result<(), Reason> {
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
        side: Side,
        other: &Other,
        line: Placed,
    ) -> Result<Link, Reason> {
        let refuse = |what: &str| {
            tracing::warn!("fd {}: the other machine {what}", self.fd().raw());
            Reason::PeerViolation
        };
        let (at, len) = other.place.ok_or_else(|| refuse("shows no memory"))?;
        let memory = far.link.region().peer(at, len);
        let memory = memory.ok_or_else(|| refuse("shows memory outside the region"))?;
        let geometry = queue::shown_geometry(&memory, len)
            .map_err(|error| refuse(&format!("shows memory that cannot be used: {error}")))?;
        if let (Some(slot), Ok((own, peer))) = (self.slot(), socket::names(line.fd())) {
            slot.show_line((own.port(), peer.port()));
        }
        let channel = || self.channel(far, other);
        let (doorbell, peer_doorbell) = Doorbell::across(line, channel).map_err(|error| {
            tracing::warn!("no doorbell: {error}");
            scarcity::reason_of(&error).unwrap_or(Reason::FdLimit)
        })?;
        let queue = QueuePair::new(side.own, side.geometry, memory, geometry);
        let ring = Ring { queue, doorbell, peer_doorbell };
        let away = socket::shortest_round_trip(self.fd()).unwrap_or(0);
        Ok(Link::across(ring, side.held, Arc::clone(far), other, away))
    }

    /// The event channel that carries rings instead of the line, between domains of Xen's. The
    /// accepting end offers its port before its word; the connecting end takes the other end, and
    /// also shows the port ([`Link::confirm_channel`](super::link::Link::confirm_channel)).
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

impl Side {
    fn new(far: &Far) -> Result<Self, Reason> {
        if !permission::is_given() {
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
