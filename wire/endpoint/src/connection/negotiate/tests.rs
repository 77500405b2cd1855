use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use seekwire_protocol::Carrier;
use seekwire_transport::layout::RX_LOCK;
use seekwire_transport::lock::WAITERS;
use seekwire_transport::mem::OwnMemory;
use seekwire_transport::sys::Fd;

use seekwire_transport::sys::thread;

use super::*;

/// Both ends of a connection.
fn ends() -> ((TcpStream, Connection), (TcpStream, Connection)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    let (from, to) = (
        Connection::new(Fd::from(&a), Role::Connected),
        Connection::new(Fd::from(&b), Role::Accepted),
    );
    ((a, from), (b, to))
}

fn offer(from: &Connection, to: &Connection) {
    while from.negotiation().as_ref().is_none_or(|negotiation| negotiation.pending.is_none()) {
        to.hurry();
        from.hurry();
    }
}

#[test]
fn who_has_forked_since_the_offer_stays_on_tcp_until_it_is_alone() {
    let ((_a, from), (_b, to)) = ends();
    offer(&from, &to);
    from.before_fork();
    while !to.is_attached() {
        to.hurry();
        from.hurry();
    }
    assert!(!from.is_attached(), "its child receives by TCP alone");
    assert_eq!(from.reason(), Some(Reason::Shared));
    assert_eq!(to.next_carrier(), Ok(Carrier::Tcp));
    // Such a process never lives: their ids end at 2^22.
    from.holders.get().unwrap().fork_arrived(0x3fff_ffff);
    while !from.is_attached() {
        from.hurry();
    }
    assert_eq!(to.next_carrier(), Ok(Carrier::Ring));
}

#[test]
fn who_has_forked_since_both_agreed_keeps_the_peer_off_the_ring() {
    let ((_a, from), (_b, to)) = ends();
    let bracket = to.enter_plain().unwrap();
    offer(&from, &to);
    while to.data_path.get().is_none() {
        to.hurry();
        from.hurry();
    }
    to.before_fork();
    drop(bracket);
    while !from.is_attached() {
        from.hurry();
    }
    assert!(to.is_attached());
    assert_eq!(to.reason(), Some(Reason::Shared));
    assert_eq!(from.next_carrier(), Ok(Carrier::Tcp));
    assert_eq!(to.next_carrier(), Ok(Carrier::Tcp));
}

#[test]
fn a_fork_that_fails_keeps_nobody_off_the_ring() {
    let ((_a, from), (_b, to)) = ends();
    for end in [&from, &to] {
        end.before_fork();
        end.fork_failed();
    }
    while !from.is_attached() || !to.is_attached() {
        to.hurry();
        from.hurry();
    }
    assert_eq!(from.next_carrier(), Ok(Carrier::Ring));
    from.before_fork();
    from.fork_failed();
    assert!(from.data_path.get().unwrap().ring.queue.remove_holder(thread::process_id()));
}

#[test]
fn a_connection_that_is_over_when_it_comes_to_the_ring_is_not_said_to_be_bypassed() {
    let ((a, from), (b, to)) = ends();
    let bracket = to.enter_plain().unwrap();
    offer(&from, &to);
    while to.data_path.get().is_none() {
        to.hurry();
        from.hurry();
    }
    a.shutdown(Shutdown::Write).unwrap();
    b.shutdown(Shutdown::Write).unwrap();
    while !socket::kernel_counts(Fd::from(&b)).unwrap().over {
        std::thread::yield_now();
    }
    drop(bracket);
    assert!(to.is_attached());
    assert_eq!(to.reason(), Some(Reason::Over));
    assert_eq!(to.next_carrier(), Ok(Carrier::Tcp));
}

#[test]
fn nobody_uses_the_ring_before_it_knows_where_tcp_stands() {
    let ((_a, from), (_b, to)) = ends();
    let bracket = to.enter_plain().unwrap();
    offer(&from, &to);
    while to.data_path.get().is_none() {
        to.hurry();
        from.hurry();
    }
    let queue = &to.data_path.get().unwrap().ring.queue;
    let half = queue.try_rx().unwrap();
    std::thread::scope(|scope| {
        let last = scope.spawn(|| drop(bracket));
        while queue.own().word(RX_LOCK).load(Ordering::Relaxed) & WAITERS == 0 {
            assert!(
                !to.is_attached(),
                "others may use the ring, and TCP's bytes are not counted yet"
            );
            std::thread::yield_now();
        }
        drop(half);
        last.join().unwrap();
    });
    assert!(to.is_attached());
}
