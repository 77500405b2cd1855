//! `seekwire nic serve`: the server that other hosts measure against.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Result;
use seekwire_gauge::{Limits, Server};
use seekwire_program::standard;

use crate::arguments::NicServe;
use crate::signals;

pub(crate) fn serve(options: &NicServe) -> Result<ExitCode> {
    let limits = Limits { clients: options.clients.into(), ..Limits::default() };
    let server = match options.listen.as_deref().map(|text| (text, text.parse())) {
        None => everywhere(seekwire_gauge::PORT),
        Some((_, Ok(port))) => everywhere(port),
        Some((text, Err(_))) => Server::bind(endpoint(text)),
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

/// HOST:PORT, with the default port if `text` has none.
pub(crate) fn endpoint(text: &str) -> String {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return SocketAddr::new(address, seekwire_gauge::PORT).to_string();
    }
    if text.contains(':') { text.to_owned() } else { format!("{text}:{}", seekwire_gauge::PORT) }
}

#[cfg(test)]
mod tests {
    use super::endpoint;

    #[test]
    fn what_is_missing_is_added() {
        for (text, whole) in [
            ("192.0.2.1", "192.0.2.1:7117"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("2001:db8::1", "[2001:db8::1]:7117"),
            ("[2001:db8::1]", "[2001:db8::1]:7117"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("peer", "peer:7117"),
            ("peer:80", "peer:80"),
        ] {
            assert_eq!(endpoint(text), whole);
        }
    }
}
