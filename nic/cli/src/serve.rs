//! `seekwire nic serve`: the server that other hosts measure against.

use std::io::{self, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Result;
use seekwire_gauge::{Limits, Server};
use seekwire_program::standard;
use seekwire_values::Address;

use crate::arguments::NicServe;
use crate::signals;

pub(crate) fn serve(options: &NicServe) -> Result<ExitCode> {
    let limits = Limits { clients: options.clients.into(), ..Limits::default() };
    let port = options.listen.as_ref().and_then(Address::port).unwrap_or(seekwire_gauge::PORT);
    let server = match options.listen.as_ref().filter(|address| address.host().is_some()) {
        None => everywhere(port),
        Some(address) => Server::bind(address.or("", port)),
    };
    let server = server?.limited(limits);
    let stop = server.stop();
    signals::at_interrupt(move || stop.stop())?;
    let mut out = standard::output()?.lock();
    writeln!(out, "listening on {}", server.local_addr())?;
    out.flush()?;
    server.serve(|event| {
        if !options.quiet {
            seekwire_program::tell(event);
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Listens on all IPv6 and IPv4 addresses, or only on IPv4 if there is no IPv6.
fn everywhere(port: u16) -> Result<Server, seekwire_gauge::Error> {
    Server::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).or_else(|error| match &error {
        seekwire_gauge::Error::Listen { reason, .. }
            if reason.kind() == io::ErrorKind::AddrInUse =>
        {
            Err(error)
        }
        _ => Server::bind(SocketAddr::from(([0; 4], port))),
    })
}
