//! Streams under mailboxes, and how both ends of one are created.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use seekwire::mailbox::{Hangup, Mailbox};
use seekwire::{Listener, SeekStream, Stream};

use crate::launch::Traffic;

/// How long both ends may take to find the ring.
const UPGRADE: Duration = Duration::from_secs(10);

/// A stream that mailboxes are made of.
pub(super) trait Line: Hangup + Sized + 'static {
    type Listener;

    fn listen(address: &str) -> Result<(Self::Listener, SocketAddr)>;
    fn accept(listener: &Self::Listener) -> Result<Mailbox<Self>>;
    fn connect(address: &str) -> Result<Mailbox<Self>>;
    /// The carriers that its bytes took, if known.
    fn traffic(mailbox: &Mailbox<Self>) -> Option<Traffic>;
}

impl Line for SeekStream {
    type Listener = TcpListener;

    fn listen(address: &str) -> Result<(TcpListener, SocketAddr)> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &TcpListener) -> Result<Mailbox<Self>> {
        Ok(Mailbox::from_tcp(listener.accept()?.0)?)
    }

    fn connect(address: &str) -> Result<Mailbox<Self>> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        Ok(Mailbox::from_tcp(stream)?)
    }

    fn traffic(_: &Mailbox<Self>) -> Option<Traffic> {
        None
    }
}

impl Line for Stream {
    type Listener = Listener;

    fn listen(address: &str) -> Result<(Listener, SocketAddr)> {
        let listener =
            Listener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &Listener) -> Result<Mailbox<Self>> {
        on_the_ring(listener.accept()?.0)
    }

    fn connect(address: &str) -> Result<Mailbox<Self>> {
        on_the_ring(Self::connect(address).with_context(|| format!("cannot connect to {address}"))?)
    }

    fn traffic(mailbox: &Mailbox<Self>) -> Option<Traffic> {
        let totals = mailbox.get_ref().status().ok()?.totals;
        Some(Traffic {
            ring: totals.tx_ring + totals.rx_ring,
            tcp: totals.tx_tcp + totals.rx_tcp,
            ..Traffic::default()
        })
    }
}

/// Both ends call this at the same time.
fn on_the_ring(stream: Stream) -> Result<Mailbox<Stream>> {
    stream.set_nodelay(true)?;
    ensure!(stream.upgrade(UPGRADE)?, "the two ends did not find each other's shared memory");
    Ok(Mailbox::new(stream)?)
}

/// The total traffic of several of them, if known.
pub(super) fn traffic<'a, S: Line>(
    mailboxes: impl IntoIterator<Item = &'a Mailbox<S>>,
) -> Option<Traffic> {
    let mut total: Option<Traffic> = None;
    for traffic in mailboxes.into_iter().filter_map(S::traffic) {
        *total.get_or_insert_default() += traffic;
    }
    total
}
