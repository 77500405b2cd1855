//! Offer and answer: how the two ends of a connection come to share memory.
//!
//! ```text
//!   connecting process                      accepting process
//!     registers its end                       registers its end
//!     finds the mirrored 4-tuple
//!     Offer (proof, channel)   ---------->   verifies that the offerer holds the other end
//!       signals the slot
//!     verifies that it does    <----------   Granted (memory, doorbell, proof), or Refused
//!       (at its next call)                     signals the slot
//!     maps the memory          ---------->   maps the memory
//!       Joined (memory, doorbell)                  (at its next call)
//!       signals the slot
//! ```
//!
//! An offer goes to the process that the registry names, which may be any process of this user. So
//! it carries no memory, only one end of the channel for all further messages: only the two
//! processes that have proved to each other that they hold the two ends read there. A false claim
//! by either of them, or a proof that a third process passes on, proves nothing, because the kernel
//! attests the sender.
//!
//! If the peer's address belongs to another machine, the two ends negotiate over the link to that
//! machine ([`super::negotiate_link`]).
//!
//! Either end uses the ring for its sends only once the other has said "ready" in shared memory,
//! that is, once no call of the other's can be asleep in the kernel without knowing of the ring.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use seekwire_protocol::offer::{DATAGRAM, Datagram, Message, SlotRef};
use seekwire_protocol::{FourTuple, Reason, Role};
use seekwire_transport::queue::Start;
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::unix::{Channel, Delivery, Sender};
use seekwire_transport::sys::{host, limit, socket};

use super::data_path::DataPath;
use super::negotiation::{LastMessage, LocalMemory, Negotiation, Pending, all};
use super::state::Connection;
use crate::config::Config;
use crate::eligibility;
use crate::fork;
use crate::machine_links;
use crate::proof;
use crate::registry::Registry;
use crate::rendezvous::{self, Received, Sent};
use crate::scarcity;

impl Connection {
    /// Takes the next step towards shared memory, if there is one. Called before a system call when
    /// [`Connection::enter_plain`] finds that it is due.
    #[cold]
    pub(super) fn negotiate(&self) {
        let _inside = fork::enter();
        // Another thread is at it.
        let Ok(mut guard) = self.negotiation.try_lock() else { return };
        if self.is_closed() {
            // This call has outlived its number, which may be another socket's by now. The closing
            // thread gives back what the connection has, under this lock.
            return;
        }
        let negotiation = guard.get_or_insert_default();
        if let Some(far) = self.far.get() {
            // The signalled entry is read below, or no longer matters.
            far.entry.take_signal();
        }
        let config = Config::get();
        if negotiation.over || !config.enabled || self.data_path.get().is_some() {
            self.gate.look_again_after(u32::MAX);
            self.decline();
            return;
        }
        if self.looked_since.load(Ordering::Relaxed) == 0 {
            self.looked_since.store(host::nanoseconds().max(1), Ordering::Relaxed);
        }
        match self.advance(negotiation) {
            Ok(()) => {
                drop(guard);
                self.try_attach();
            }
            Err(reason) => {
                if reason != Reason::NoPeer {
                    // It begins anew when that changes.
                    self.looked_since.store(0, Ordering::Relaxed);
                }
                // Ever less often: what is impossible now may be possible later, and each look
                // costs little.
                negotiation.looks = (negotiation.looks + 1).min(20);
                let reason = match reason {
                    Reason::NoPeer if !is_linked(negotiation) => negotiation.absence(self.fd()),
                    reason => reason,
                };
                tracing::debug!("fd {}: stays on TCP: {reason}", self.fd().raw());
                self.set_reason(Some(reason));
                negotiation.over |= matches!(reason, Reason::NoRegistry | Reason::PeerViolation);
                self.gate.look_again_after(config.threshold.saturating_mul(1 << negotiation.looks));
            }
        }
    }

    /// Whether an offer or an answer of this end is under way; true also if another thread has the
    /// lock.
    pub(super) fn is_negotiating(&self) -> bool {
        self.negotiation.try_lock().map_or(true, |negotiation| {
            negotiation.as_ref().is_some_and(|it| {
                it.pending.is_some() || it.granted.is_some() || it.over_link.is_some()
            })
        })
    }

    /// Refuses offers that came although no further attempt will be made: their senders wait for an
    /// answer.
    fn decline(&self) {
        let (Some(slot), Ok(registry)) = (self.slot(), Registry::of_process()) else { return };
        if !slot.is_signalled() {
            return;
        }
        slot.clear_signal();
        let reason = self.reason().unwrap_or(Reason::Disabled);
        for Received { datagram, descriptors, .. } in rendezvous::datagrams(slot.slot()) {
            if let Ok([_proof, channel]) = all(descriptors) {
                let refusal = answer(&datagram, Message::Refused(reason));
                let _ = Channel::from_peer(channel).send(&refusal.encode(), &[]);
            }
            registry.signal(datagram.reply);
        }
    }

    /// Rules an upgrade out for good, in the plain phase.
    pub(super) fn stay_plain(&self, reason: Reason) {
        let _inside = fork::enter();
        *self.negotiation() = Some(Box::new(Negotiation { over: true, ..Negotiation::default() }));
        self.set_reason(Some(reason));
        // Both ends may have agreed already, and a call of another thread is the last one inside its
        // bracket.
        if let Some(data_path) = self.data_path.get() {
            data_path.ring.queue.set_tcp_only();
            if self.is_attached() {
                self.fall_back_now(data_path, reason);
            }
        }
    }

    fn advance(&self, negotiation: &mut Negotiation) -> Result<(), Reason> {
        if limit::own_descriptors() == 0 {
            return Err(Reason::FdLimit);
        }
        let registry = Registry::of_process()?;
        let tuple = self.tuple(negotiation)?;
        let slot = self.enter_registry(registry, &tuple)?;
        if let Some(link) = machine_links::link_to(SocketAddr::from(tuple.peer).ip()) {
            if slot.is_signalled() {
                // A process that offers memory of this host does not hold the other end.
                slot.clear_signal();
                drop(rendezvous::datagrams(slot.slot()));
            }
            return self.negotiate_over_link(negotiation, &tuple, link?);
        }
        if let Some(data_path) = negotiation.granted.take() {
            return self.join_if_alone(negotiation, data_path);
        }
        if slot.is_signalled() {
            slot.clear_signal();
            self.listen(negotiation, registry, &tuple)?;
            for received in rendezvous::datagrams(slot.slot()) {
                let is_offer =
                    received.datagram.message == Message::Offer && self.role == Role::Accepted;
                if is_offer && received.datagram.tuple == tuple.mirrored() {
                    self.consider(negotiation, registry, &tuple, received)?;
                }
            }
        } else if self.role == Role::Connected && negotiation.pending.is_none() {
            self.may_join()?;
            if !self.offer(negotiation, registry, &tuple, slot.slot())? {
                // The acceptor empties its rendezvous at its next call.
                self.gate.look_again_after(1);
                return Ok(());
            }
            self.set_reason(Some(Reason::BelowThreshold));
        }
        let again = match self.role {
            Role::Accepted => self.await_offer(negotiation),
            Role::Connected => u32::MAX,
        };
        self.gate.look_again_after(again);
        Ok(())
    }

    /// The accepting end has looked for an offer. Returns the number of calls until it looks again,
    /// unless it is signalled before.
    fn await_offer(&self, negotiation: &mut Negotiation) -> u32 {
        negotiation.looks = (negotiation.looks + 1).min(20);
        let is_waiting =
            [Reason::BelowThreshold, Reason::NoPeer].map(Some).contains(&self.reason());
        if negotiation.looks > 1 && negotiation.pending.is_none() && is_waiting {
            // The connection is above the threshold, and so is the other end, which would have
            // registered by now.
            self.set_reason(Some(negotiation.absence(self.fd())));
        }
        let threshold = Config::get().threshold;
        match negotiation.looks {
            1 => threshold,
            2 => threshold.saturating_mul(4),
            _ => u32::MAX,
        }
    }

    fn tuple(&self, negotiation: &mut Negotiation) -> Result<FourTuple, Reason> {
        if let Some(tuple) = negotiation.tuple {
            return Ok(tuple);
        }
        // If the connection is still being established, it is tried again.
        let (local, peer) = self.names().map_err(|_| Reason::BelowThreshold)?;
        let namespace = socket::namespace(self.fd()).map_err(|error| {
            tracing::warn!("SO_NETNS_COOKIE: {error}; Linux 5.14 or newer is needed");
            Reason::NoRegistry
        })?;
        let tuple = FourTuple { local: local.into(), peer: peer.into(), namespace };
        negotiation.tuple = Some(tuple);
        Ok(tuple)
    }

    fn enter_registry(
        &self,
        registry: &'static Registry,
        tuple: &FourTuple,
    ) -> Result<&crate::registry::RegistrySlot, Reason> {
        if let Some(slot) = self.slot.get() {
            // A child does not negotiate in its parent's name.
            return if slot.is_ours() { Ok(slot) } else { Err(Reason::Shared) };
        }
        let nonce = registry.rendezvous()?;
        let slot = registry.enter(tuple, self.role, nonce).ok_or(Reason::NoRegistry)?;
        let slot = self.slot.get_or_init(|| slot);
        self.show_carriers();
        let (sent, received) = self.gate.bytes();
        slot.show_sent(sent, 0);
        slot.show_received(received, 0);
        self.gate.show();
        Ok(slot)
    }

    /// Sends an offer; false when the acceptor's rendezvous is full.
    fn offer(
        &self,
        negotiation: &mut Negotiation,
        registry: &Registry,
        tuple: &FourTuple,
        reply: SlotRef,
    ) -> Result<bool, Reason> {
        if !eligibility::is_given() {
            return Err(Reason::Bypassed);
        }
        let acceptor = registry.find_acceptor(&tuple.mirrored()).ok_or(Reason::NoPeer)?;
        // If the socket at the other end is another user's, the registered process is not what it
        // claims.
        proof::other_end(tuple)?;
        let proof = proof::own(self.fd())?;
        let (channel, theirs) = Channel::pair().map_err(|error| {
            tracing::warn!("no channel: {error}");
            scarcity::reason_of(&error).unwrap_or(Reason::FdLimit)
        })?;
        let datagram =
            Datagram { message: Message::Offer, target: acceptor.slot, reply, tuple: *tuple };
        let sent =
            rendezvous::send(&acceptor.rendezvous, &datagram, &[proof.as_fd(), theirs.as_fd()]);
        // Also if there was no room: the acceptor has to come and empty it.
        registry.signal(acceptor.slot);
        match sent {
            Sent::Yes => {
                negotiation.pending = Some(Pending {
                    channel,
                    peer: acceptor.slot,
                    last_message: LastMessage::Offer,
                });
                Ok(true)
            }
            Sent::Full => Ok(false),
            Sent::Nobody => Err(Reason::NoPeer),
            Sent::Failed => Err(Reason::Memory),
        }
    }

    /// Handles an offer for this connection.
    fn consider(
        &self,
        negotiation: &mut Negotiation,
        registry: &Registry,
        tuple: &FourTuple,
        received: Received,
    ) -> Result<(), Reason> {
        let Received { datagram: offer, descriptors, sender } = received;
        let offerer = offer.reply;
        let result = all(descriptors).and_then(|[proof, channel]| {
            let channel = Channel::from_peer(channel);
            let granted = self.grant(tuple, &proof, sender);
            let message = granted
                .as_ref()
                .map_or_else(|reason| Message::Refused(*reason), |_| Message::Granted);
            let datagram = answer(&offer, message).encode();
            match granted {
                Ok((side, own_proof)) => {
                    let [memory, doorbell] = side.descriptors();
                    channel
                        .send(&datagram, &[memory, doorbell, own_proof.as_fd()])
                        .map_err(|error| unsent(&error))?;
                    let last_message = LastMessage::Granted(side, sender);
                    negotiation.pending = Some(Pending { channel, peer: offerer, last_message });
                    Ok(())
                }
                Err(reason) => {
                    let _ = channel.send(&datagram, &[]);
                    Err(reason)
                }
            }
        });
        registry.signal(offerer);
        match result {
            // A stranger's offer changes nothing for the process that holds the other end.
            Err(reason @ Reason::Unproven) => {
                self.set_reason(Some(reason));
                Ok(())
            }
            result => result,
        }
    }

    /// This end's memory and its proof, for an offerer that holds the other end.
    fn grant(
        &self,
        tuple: &FourTuple,
        proof: &PrivateFd,
        offerer: Sender,
    ) -> Result<(LocalMemory, PrivateFd), Reason> {
        proof::verify(self.fd(), tuple, proof, Some(offerer))?;
        self.may_join()?;
        Ok((LocalMemory::new()?, proof::own(self.fd())?))
    }

    /// Handles the other end's answer to this end's last message.
    fn listen(
        &self,
        negotiation: &mut Negotiation,
        registry: &Registry,
        tuple: &FourTuple,
    ) -> Result<(), Reason> {
        let mut bytes = [0; DATAGRAM + 1];
        let Some(pending) = negotiation.pending.take() else { return Ok(()) };
        let delivery = match pending.channel.receive(&mut bytes) {
            Ok(Some(delivery)) => delivery,
            Ok(None) => {
                negotiation.pending = Some(pending);
                return Ok(());
            }
            Err(error) => {
                tracing::debug!("{tuple}: no answer will come: {error}");
                return Err(Reason::NoPeer);
            }
        };
        let datagram = bytes.get(..delivery.len).and_then(|bytes| Datagram::decode(bytes).ok());
        let message = datagram.filter(|it| it.tuple == tuple.mirrored()).map(|it| it.message);
        match (message, pending.last_message) {
            (Some(Message::Granted), LastMessage::Offer) => {
                let joined = self.accept(tuple, &pending.channel, pending.peer, delivery);
                // If this end cannot join, the other one need not keep its memory.
                drop(pending.channel);
                registry.signal(pending.peer);
                self.join_if_alone(negotiation, Box::new(joined?))
            }
            (Some(Message::Joined), LastMessage::Granted(side, offerer)) => {
                let [memory, doorbell] = all(delivery.descriptors)?;
                let data_path = side.join(&memory, doorbell, offerer)?;
                self.join_if_alone(negotiation, Box::new(data_path))
            }
            (Some(Message::Refused(reason)), _) => {
                tracing::debug!("{tuple}: refused: {reason}");
                Err(Reason::PeerRefused)
            }
            _ => Err(Reason::PeerRefused),
        }
    }

    /// Takes the granted memory, and sends this end's in turn.
    fn accept(
        &self,
        tuple: &FourTuple,
        channel: &Channel,
        acceptor: SlotRef,
        granted: Delivery,
    ) -> Result<DataPath, Reason> {
        let [memory, doorbell, proof] = all(granted.descriptors)?;
        let sender = proof::verify(self.fd(), tuple, &proof, granted.sender)?;
        let side = LocalMemory::new()?;
        let datagram =
            Datagram { message: Message::Joined, target: acceptor, reply: acceptor, tuple: *tuple };
        channel.send(&datagram.encode(), &side.descriptors()).map_err(|error| unsent(&error))?;
        side.join(&memory, doorbell, sender)
    }

    pub(super) fn join_if_alone(
        &self,
        negotiation: &mut Negotiation,
        data_path: Box<DataPath>,
    ) -> Result<(), Reason> {
        if !self.is_sole_holder() {
            negotiation.granted = Some(data_path);
            return Err(Reason::Shared);
        }
        self.set_data_path(*data_path);
        Ok(())
    }

    fn set_data_path(&self, data_path: DataPath) {
        if self.data_path.set(data_path).is_ok() {
            self.gate.attach();
            if let Some(slot) = self.slot() {
                rendezvous::forget(slot.slot());
            }
        }
    }

    /// Runs once the plain phase has ended, in the caller that ended it: no thread is inside a
    /// system call any more, and none uses the ring yet.
    pub(super) fn begin_attached(&self, data_path: &DataPath) {
        let queue = &data_path.ring.queue;
        let _ = data_path.identity.set(socket::identity(self.fd()));
        let (sent, received) = self.gate.bytes();
        let kernel = socket::kernel_counts(self.fd()).ok();
        // Unless told otherwise, a peer that makes no room takes the end of our TCP direction for
        // our death.
        let is_shut = kernel.as_ref().is_some_and(|kernel| kernel.shut);
        queue.start(Start { tx_tcp_bytes: sent, rx_tcp_bytes: received, is_shut });
        if self.is_receive_shut() {
            queue.set_receive_shut();
            if is_shut {
                queue.set_refuses();
            }
        }
        let reason = match kernel {
            _ if queue.wants_tcp() => self.reason().or(Some(Reason::Bypassed)),
            // Forked since both ends agreed: the other process knows nothing of the ring.
            _ if !self.is_sole_holder() => Some(Reason::Shared),
            _ if eligibility::is_forbidden() => Some(Reason::Bypassed),
            _ if self.may_be_waited_for_unseen() => Some(Reason::UnseenWait),
            Some(kernel) if kernel.over => Some(Reason::Over),
            kernel => self
                .is_bypassed(kernel.as_ref(), sent, received + self.taken_ahead())
                .then_some(Reason::Bypassed),
        };
        match reason {
            None => {
                // An answer by the ring does not carry the acknowledgement that would end the
                // kernel's holding back.
                socket::push(self.fd());
                queue.set_ready();
            }
            Some(_) => queue.set_tcp_only(),
        }
        self.set_reason(reason);
        let set_up = host::since(self.looked_since.load(Ordering::Relaxed)).unwrap_or_default();
        let nanoseconds = u64::try_from(set_up.as_nanos()).unwrap_or(u64::MAX);
        self.set_up.store(nanoseconds, Ordering::Relaxed);
        tracing::debug!(
            "fd {}: attached after {sent} bytes out, {received} in, within {set_up:?}",
            self.fd().raw()
        );
    }

    /// Whether the kernel's byte counts differ from this process's: then bytes have moved unseen
    /// (stdio, io_uring, another process), and the two sides' positions would not match.
    fn is_bypassed(&self, kernel: Option<&socket::KernelCounts>, sent: u64, received: u64) -> bool {
        let Some(kernel) = kernel else { return true };
        let syn = u64::from(self.role == Role::Connected);
        let sent_seen = kernel.sent.contains(&sent) || kernel.sent.contains(&(sent + syn));
        let bypassed = !kernel.received.contains(&received) || !sent_seen;
        if bypassed {
            tracing::info!("fd {}: {sent} out and {received} in seen, {kernel:?}", self.fd().raw());
        }
        bypassed
    }
}

/// Whether the peer's address belongs to another machine, of which this kernel knows nothing.
fn is_linked(negotiation: &Negotiation) -> bool {
    let peer = negotiation.tuple.map(|tuple| SocketAddr::from(tuple.peer).ip());
    peer.is_some_and(|peer| machine_links::link_to(peer).is_some())
}

/// The reply to `offer`, from the end to which it was made.
fn answer(offer: &Datagram, message: Message) -> Datagram {
    Datagram { message, target: offer.reply, reply: offer.target, tuple: offer.tuple.mirrored() }
}

fn unsent(error: &std::io::Error) -> Reason {
    tracing::debug!("the other end cannot be reached: {error}");
    scarcity::reason_of(error).unwrap_or(Reason::NoPeer)
}

#[cfg(test)]
mod tests;
