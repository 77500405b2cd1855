//! Transfer of files between two DEALER sockets: the sender announces a file with its length and
//! checksum, and sends it in chunks; the receiver writes it to the disk, acknowledges it, reads it
//! back and verifies it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use seekwire_lab::messaging::{
    CHUNK, Header, Hub, Member, Modelled, create, ready, report, transfer, verify,
};
use zmq::{Context, DEALER, Message, Socket};

use crate::frames::{bind, connect};

/// Messages of the receiver.
const STORED: &str = "stored";
const VERIFIED: &str = "verified";

/// Receives files until the sender sends an empty header.
pub(crate) fn receiver(order: &Hub) -> Result<()> {
    let context = Context::new();
    let sender = context.socket(DEALER)?;
    ready(&bind(&sender, &order.address)?)?;
    let path = order.directory.join("received");
    let mut part = Message::new();
    loop {
        let header = sender.recv_bytes(0)?;
        if header.is_empty() {
            return Ok(());
        }
        let header: Header = serde_json::from_slice(&header)?;
        let mut file = create(&path)?;
        let mut left = header.length;
        while left > 0 {
            sender.recv(&mut part, 0)?;
            file.write_all(&part)?;
            left = left.checked_sub(part.len() as u64).context("more came than was announced")?;
        }
        sender.send(STORED, 0)?;
        verify(&header, &path)?;
        sender.send(VERIFIED, 0)?;
    }
}

/// Sends the small file and then the large one, again and again, and measures until they are
/// stored.
pub(crate) fn sender(order: &Member) -> Result<()> {
    let context = Context::new();
    let receiver = context.socket(DEALER)?;
    connect(&receiver, &order.address)?;
    let (latencies, rate) = transfer(order, |path, header| {
        let began = Instant::now();
        send(&receiver, path, header)?;
        let time = began.elapsed();
        expect(&receiver, VERIFIED)?;
        Ok(time)
    })?;
    receiver.send("", 0)?;
    report(&Modelled::of(rate, &latencies, None)?)
}

/// Sends a file and waits until it is stored.
fn send(receiver: &Socket, path: &Path, header: &Header) -> Result<()> {
    receiver.send(serde_json::to_vec(header)?, 0)?;
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut part = vec![0; CHUNK];
    loop {
        match file.read(&mut part)? {
            0 => break,
            length => receiver.send(&part[..length], 0)?,
        }
    }
    expect(receiver, STORED)
}

fn expect(receiver: &Socket, word: &str) -> Result<()> {
    let said = receiver.recv_msg(0)?;
    ensure!(said.as_str() == Some(word), "the receiver said {said:?} instead of {word}");
    Ok(())
}
