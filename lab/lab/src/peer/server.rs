//! The server of the role: one connection after the other, until it is killed.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use super::channel::Channel;
use super::protocol::{Acknowledgement, Request};
use crate::bench::Operation;

/// Receive buffer of the bandwidth test, unless messages are larger.
const BULK_RECEIVE: usize = 64 << 10;

/// Serves connections to `address`; the chosen port is announced on `announce`.
pub(super) fn listen<C: Channel>(address: SocketAddr, announce: &mut impl Write) -> Result<()> {
    let (listener, address) =
        C::listen(address).with_context(|| format!("cannot listen on {address}"))?;
    writeln!(announce, "ready {}", address.port())?;
    announce.flush()?;
    loop {
        let mut channel = C::accept(&listener).context("cannot accept connections")?;
        // A client that fails reports so itself; the next one deserves a server.
        if let Err(error) = connection(&mut channel) {
            seekwire_program::tell(format_args!("lab-peer: {error:#}"));
        }
    }
}

/// Serves one connection to its end.
pub(super) fn connection<C: Channel>(channel: &mut C) -> Result<()> {
    let mut request = [0; Request::LENGTH];
    if !channel.receive(&mut request)? {
        return Ok(());
    }
    let request = Request::decode(&request).context("this is not a request")?;
    match request.operation {
        Operation::Pingpong => {
            channel.set_nodelay()?;
            let cpu = cpu_ns();
            let mut bytes = 0;
            while channel.receive_message(request.size)? {
                channel.send_message(request.size)?;
                bytes += request.size as u64;
            }
            acknowledge(channel, bytes, cpu_ns() - cpu)?;
        }
        Operation::Bandwidth | Operation::Rate => one_way(channel, request)?,
        Operation::Short => {
            if channel.receive_message(request.size)? {
                channel.send_message(request.size)?;
            }
        }
    }
    Ok(())
}

fn one_way<C: Channel>(channel: &mut C, request: Request) -> Result<()> {
    let bulk = request.size.max(BULK_RECEIVE);
    let (mut bytes, mut cpu) = (0, cpu_ns());
    let mut warm = request.warm_up == 0;
    loop {
        let received = if request.operation == Operation::Rate {
            if channel.receive_message(request.size)? { request.size } else { 0 }
        } else {
            // Not past the end of the warm-up: its acknowledgement must not wait for more.
            let left = if warm { bulk as u64 } else { request.warm_up - bytes };
            channel.receive_some(left.min(bulk as u64) as usize)?
        };
        if received == 0 {
            break;
        }
        bytes += received as u64;
        if !warm && bytes >= request.warm_up {
            acknowledge(channel, bytes, 0)?;
            (bytes, cpu, warm) = (0, cpu_ns(), true);
        }
    }
    acknowledge(channel, bytes, cpu_ns() - cpu)?;
    Ok(())
}

fn acknowledge<C: Channel>(channel: &mut C, bytes: u64, cpu_ns: u64) -> io::Result<()> {
    match channel.send(&Acknowledgement { bytes, cpu_ns }.encode()) {
        // The client has what it wanted and is gone.
        Err(error)
            if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// User and system time of this process, in nanoseconds.
pub(super) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
