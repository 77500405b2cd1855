//! The sender: one connection after the other, until it is killed.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use anyhow::{Context as _, Result};

use super::connection::{Connection, welcome};
use super::ways::stamp;
use crate::search::Carrier;

pub(super) fn serve(carrier: Carrier, announce: &mut impl Write) -> Result<()> {
    match carrier {
        Carrier::Tcp => listen::<TcpStream>(announce),
        Carrier::Ring => listen::<seekwire::Stream>(announce),
    }
}

fn listen<C: Connection>(announce: &mut impl Write) -> Result<()> {
    let (listener, address) = C::listen().context("cannot listen on loopback")?;
    writeln!(announce, "ready {}", address.port())?;
    announce.flush()?;
    loop {
        let mut connection = C::accept(&listener).context("cannot accept connections")?;
        // A receiver that fails says so itself; the next one deserves a sender.
        if let Err(error) = serve_one(&mut connection) {
            eprintln!("lab-peer: {error:#}");
        }
    }
}

/// Sends the messages that are asked for, and waits until the receiver is gone.
pub(super) fn serve_one<C: Connection>(connection: &mut C) -> Result<()> {
    let request = welcome(connection)?;
    let mut message = vec![1u8; request.size as usize];
    if request.piece < request.size {
        connection.set_nodelay()?;
    }
    let piece = request.piece.min(request.size) as usize;
    for number in 0..request.messages {
        stamp(&mut message, number);
        message.chunks(piece).try_for_each(|piece| connection.write_all(piece))?;
    }
    connection.finish()?;
    match connection.read(&mut [0]) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(()),
    }
}
