//! Transfer of files. The sender announces a file with its length and checksum, and sends it in
//! chunks; the receiver writes it to the disk, acknowledges it, reads it back and verifies it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use seekwire::mailbox::{Mailbox, RecvError, Selector};

use super::mailbox_stream::{self, Line};
use crate::messaging::{
    CHUNK, Header, Hub, Member, Modelled, create, ready, report, transfer, verify,
};

/// Tags to the receiver.
const HEADER: u64 = 0;
const PART: u64 = 1;
/// Tags to the sender: the file has been written, and it has been verified.
const STORED: u64 = 2;
const VERIFIED: u64 = 3;

/// Receives files until the sender finishes.
pub(super) fn receiver<S: Line>(order: &Hub) -> Result<()> {
    let (listener, address) = S::listen(&order.address)?;
    ready(&address.to_string())?;
    let sender = S::accept(&listener)?;
    let path = order.directory.join("received");
    let mut part = vec![0; CHUNK];
    loop {
        let header: Header = match sender.recv_vec(Selector::exact(HEADER)) {
            Err(RecvError::Closed) => break,
            received => serde_json::from_slice(&received?.1)?,
        };
        let mut file = create(&path)?;
        let mut left = header.length;
        while left > 0 {
            let length = sender.recv(Selector::exact(PART), &mut part)?.len;
            file.write_all(&part[..length])?;
            left = left.checked_sub(length as u64).context("more came than was announced")?;
        }
        sender.send(STORED, b"")?;
        verify(&header, &path)?;
        sender.send(VERIFIED, b"")?;
    }
    Ok(sender.finish()?)
}

/// Sends the small file and then the large one, again and again, and measures until they are
/// stored.
pub(super) fn sender<S: Line>(order: &Member) -> Result<()> {
    let receiver = S::connect(&order.address)?;
    let (latencies, rate) = transfer(order, |path, header| {
        let began = Instant::now();
        send(&receiver, path, header)?;
        let time = began.elapsed();
        receiver.recv(Selector::exact(VERIFIED), &mut [])?;
        Ok(time)
    })?;
    receiver.finish()?;
    report(&Modelled::of(rate, &latencies, mailbox_stream::traffic([&receiver]))?)
}

/// Sends a file and waits until it is stored.
fn send<S: Line>(receiver: &Mailbox<S>, path: &Path, header: &Header) -> Result<()> {
    receiver.send(HEADER, &serde_json::to_vec(header)?)?;
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut part = vec![0; CHUNK];
    loop {
        match file.read(&mut part)? {
            0 => break,
            length => receiver.send(PART, &part[..length])?,
        }
    }
    receiver.recv(Selector::exact(STORED), &mut [])?;
    Ok(())
}
