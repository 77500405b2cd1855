//! The sender: one connection after the other, until it is killed.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use anyhow::{Context as _, Result};
use seekwire_protocol::message::{HEADER, HELLO, MessageHeader};

use super::connection::{Connection, Request, welcome};
use super::searcher::stamp;
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
        // A receiver that fails reports so itself; the next one deserves a sender.
        if let Err(error) = serve_one(&mut connection) {
            seekwire_program::tell(format_args!("lab-peer: {error:#}"));
        }
    }
}

/// Sends the requested messages, and waits until the receiver is gone.
pub(super) fn serve_one<C: Connection>(connection: &mut C) -> Result<()> {
    let request = welcome(connection)?;
    if request.piece < request.size {
        connection.set_nodelay()?;
    }
    match request.tags {
        0 => send_bytes(connection, request)?,
        _ => send_tagged(connection, request)?,
    }
    connection.finish()?;
    // Skip the receiver's announcements, e.g. that it is a mailbox.
    loop {
        match connection.read(&mut [0; 64]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn send_bytes<C: Connection>(connection: &mut C, request: Request) -> Result<()> {
    let mut message = vec![1u8; request.size as usize];
    let piece = request.piece.min(request.size) as usize;
    for number in 0..request.messages {
        stamp(&mut message, number);
        message.chunks(piece).try_for_each(|piece| connection.write_all(piece))?;
    }
    Ok(())
}

/// Sends as a mailbox does.
fn send_tagged<C: Connection>(connection: &mut C, request: Request) -> Result<()> {
    connection.write_all(&HELLO)?;
    let mut message = vec![1u8; HEADER + request.size as usize];
    for number in 0..request.messages {
        let header = MessageHeader {
            len: request.size as u32,
            sequence: number as u32,
            tag: number % request.tags,
        };
        message[..HEADER].copy_from_slice(&header.encode());
        stamp(&mut message[HEADER..], number);
        connection.write_all(&message)?;
    }
    Ok(())
}
