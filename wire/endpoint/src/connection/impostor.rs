//! Rejects processes that falsely claim to hold the other end of a connection.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use seekwire_protocol::offer::{DATAGRAM, Datagram, Message, SlotRef};
use seekwire_protocol::{FourTuple, Reason, Role};
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::unix::Channel;
use seekwire_transport::sys::{Fd, thread};

use super::negotiation::LocalMemory;
use super::state::Connection;
use crate::proof;
use crate::registry::Registry;
use crate::rendezvous::{self, Received, rendezvous_path};

/// Two connected sockets.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (from, listener.accept().unwrap().0)
}

fn tuple_of(end: &TcpStream) -> FourTuple {
    FourTuple {
        local: end.local_addr().unwrap().into(),
        peer: end.peer_addr().unwrap().into(),
        namespace: seekwire_transport::sys::socket::namespace(Fd::from(end)).unwrap(),
    }
}

fn placed(fd: impl Into<OwnedFd>) -> PrivateFd {
    PrivateFd::new(fd.into()).unwrap()
}

/// Proofs that a process without `held`, the genuine end, may present; `other` is the end of the
/// process that it tries to deceive.
fn false_proofs(held: &TcpStream, other: &TcpStream) -> Vec<PrivateFd> {
    let (stranger, _) = pair();
    let of_another_process = epoll::create(CreateFlags::CLOEXEC).unwrap();
    epoll::add(&of_another_process, held, EventData::new_u64(1), EventFlags::empty()).unwrap();
    vec![
        proof::own(Fd::from(&stranger)).unwrap(),
        proof::own(Fd::from(other)).unwrap(),
        placed(of_another_process),
        placed(epoll::create(CreateFlags::CLOEXEC).unwrap()),
        placed(File::open("/dev/null").unwrap()),
        // The socket itself would be proof enough if its sender were known.
        placed(held.try_clone().unwrap()),
    ]
}

fn registry_and_nonce() -> (&'static Registry, u64) {
    let registry = Registry::of_process().unwrap();
    (registry, registry.rendezvous().unwrap())
}

/// An offer from `from` to the holder of the entry `slot`.
fn offer_to(slot: SlotRef, from: &Connection) -> Received {
    loop {
        from.hurry();
        if let Some(received) = rendezvous::datagrams(slot).pop() {
            return received;
        }
    }
}

/// The next message on a channel, and its number of descriptors.
fn received(channel: &Channel) -> (Message, usize) {
    let mut bytes = [0; DATAGRAM];
    let delivery = channel.receive(&mut bytes).unwrap().expect("something was sent");
    (Datagram::decode(&bytes[..delivery.len]).unwrap().message, delivery.descriptors.len())
}

#[test]
fn who_enters_itself_for_anothers_connection_is_sent_no_memory_and_gets_no_byte() {
    let (a, server) = pair();
    let from = Connection::new(Fd::from(&a), Role::Connected);
    let (registry, nonce) = registry_and_nonce();
    let slot = registry.enter(&tuple_of(&server), Role::Accepted, nonce).unwrap();
    let answer = |proof: &PrivateFd| {
        let Received { datagram, mut descriptors, .. } = offer_to(slot.slot(), &from);
        let channel = Channel::from_peer(descriptors.pop().unwrap());
        assert_eq!(
            descriptors.len(),
            1,
            "an offer has a proof and a channel with it, and no memory"
        );
        let granted = Datagram {
            message: Message::Granted,
            target: datagram.reply,
            reply: datagram.target,
            tuple: datagram.tuple.mirrored(),
        };
        let LocalMemory { descriptor: memory, doorbell, .. } = LocalMemory::new().unwrap();
        channel
            .send(&granted.encode(), &[memory.as_fd(), doorbell.as_fd(), proof.as_fd()])
            .unwrap();
        registry.signal(datagram.reply);
        from.hurry();
        channel
    };
    for proof in &false_proofs(&server, &a) {
        let channel = answer(proof);
        assert!(from.data_path.get().is_none());
        assert_eq!(from.reason(), Some(Reason::Unproven));
        assert!(channel.receive(&mut [0; DATAGRAM]).is_err(), "the conversation is over");
    }
    let channel = answer(&proof::own(Fd::from(&server)).unwrap());
    assert_eq!(received(&channel), (Message::Joined, 2));
    assert!(from.is_attached());
}

#[test]
fn a_strangers_offer_is_refused() {
    let (client, b) = pair();
    let to = Connection::new(Fd::from(&b), Role::Accepted);
    let (registry, nonce) = registry_and_nonce();
    while to.slot().is_none() {
        to.hurry();
    }
    let target = to.slot().unwrap().slot();
    let reply = SlotRef { index: 0, token: 0 };
    let path = rendezvous_path(registry.dir(), thread::process_id(), nonce);
    let offer = |proof: &PrivateFd| {
        let (channel, theirs) = Channel::pair().unwrap();
        let datagram =
            Datagram { message: Message::Offer, target, reply, tuple: tuple_of(&client) };
        // Other tests of this process may have filled the queue.
        while rendezvous::send(&path, &datagram, &[proof.as_fd(), theirs.as_fd()])
            != rendezvous::Sent::Yes
        {
            rendezvous::datagrams(reply);
        }
        registry.signal(target);
        to.hurry();
        received(&channel)
    };
    for proof in &false_proofs(&client, &b) {
        assert_eq!(offer(proof), (Message::Refused(Reason::Unproven), 0));
        assert!(to.data_path.get().is_none());
    }
    assert_eq!(offer(&proof::own(Fd::from(&client)).unwrap()), (Message::Granted, 3));
}
