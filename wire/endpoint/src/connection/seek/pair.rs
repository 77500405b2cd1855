//! Two ends of a connection that is on the ring, in one process.

use std::io::{IoSlice, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use seekwire_protocol::Role;
use seekwire_transport::sys::Fd;

use crate::connection::state::Connection;
use crate::connection::types::SendFlags;

/// Long enough never to be reached unless a wake-up was lost.
pub(in crate::connection) const LONG: Duration = Duration::from_secs(60);

pub(in crate::connection) struct Pair {
    pub(in crate::connection) from: Connection,
    pub(in crate::connection) to: Connection,
    sockets: [TcpStream; 2],
}

impl Pair {
    pub(in crate::connection) fn attached() -> Self {
        let pair = Self::plain();
        while !(pair.from.is_attached() && pair.to.is_attached()) {
            pair.hurry();
        }
        pair
    }

    pub(in crate::connection) fn plain() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let (from, to) = (
            Connection::new(Fd::from(&a), Role::Connected),
            Connection::new(Fd::from(&b), Role::Accepted),
        );
        to.settings.set_recv_timeout(Some(LONG));
        Self { from, to, sockets: [a, b] }
    }

    /// Lets both ends advance towards the ring.
    pub(in crate::connection) fn hurry(&self) {
        self.to.hurry();
        self.from.hurry();
    }

    pub(in crate::connection) fn send(&self, bytes: &[u8]) {
        match self.from.enter_plain() {
            None => send(&self.from, bytes),
            Some(bracket) => {
                (&self.sockets[0]).write_all(bytes).unwrap();
                bracket.sent(bytes.len());
            }
        }
    }
}

pub(in crate::connection) fn send(from: &Connection, bytes: &[u8]) {
    let sent =
        from.send(&[IoSlice::new(bytes)], SendFlags { no_signal: true, ..SendFlags::default() });
    assert_eq!(sent, Ok(bytes.len()));
}
