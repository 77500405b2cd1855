//! Two ends of a connection that is on the ring, in one process.

use std::io::IoSlice;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use protocol::Role;
use transport::sys::Fd;

use crate::connection::{Connection, SendFlags};

/// Long enough never to be reached unless a wake-up was lost.
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) struct Pair {
    pub(super) from: Connection,
    pub(super) to: Connection,
    _sockets: [TcpStream; 2],
}

impl Pair {
    pub(super) fn attached() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let (from, to) =
            (Connection::new(Fd::from(&a), Role::Connected), Connection::new(Fd::from(&b), Role::Accepted));
        while !(from.is_attached() && to.is_attached()) {
            to.hurry();
            from.hurry();
        }
        to.set_recv_timeout(Some(LONG));
        Self { from, to, _sockets: [a, b] }
    }
}

pub(super) fn send(from: &Connection, bytes: &[u8]) {
    let sent = from.send(&[IoSlice::new(bytes)], SendFlags { no_signal: true, ..SendFlags::default() });
    assert_eq!(sent, Ok(bytes.len()));
}
