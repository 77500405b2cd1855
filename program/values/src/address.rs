//! Where to listen or to connect.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A host, a port or both. The program has values for the part that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: Option<String>,
    port: Option<u16>,
}

impl Address {
    /// A name, or an IP address without brackets.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// `HOST:PORT`, with these values for the part that is left out.
    #[must_use]
    pub fn or(&self, host: &str, port: u16) -> String {
        let host = self.host().unwrap_or(host);
        let port = self.port.unwrap_or(port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// The parts that were written.
impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (Some(host), None) => to.write_str(host),
            (None, Some(port)) => write!(to, "{port}"),
            _ => to.write_str(&self.or("", 0)),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is no address, such as 8080, 10.0.0.1, 10.0.0.1:8080 or [::1]:8080")
        };
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u16>().ok()).flatten()
        };
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let port = number(text).ok_or_else(wrong)?;
            return Ok(Self { host: None, port: Some(port) });
        }
        let unbracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = unbracketed.unwrap_or(text).parse::<IpAddr>() {
            return Ok(Self { host: Some(address.to_string()), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            None => (text, None),
            Some((host, port)) => (host, Some(number(port).ok_or_else(wrong)?)),
        };
        let host = match host.strip_prefix('[') {
            Some(rest) => {
                let address = rest.strip_suffix(']').and_then(|inner| inner.parse::<IpAddr>().ok());
                Some(address.ok_or_else(wrong)?.to_string())
            }
            None => Some(host.to_owned()).filter(|host| !host.is_empty()),
        };
        let is_name = |host: &String| {
            host.parse::<IpAddr>().is_ok()
                || !host.contains(|letter: char| letter.is_whitespace() || "[]:/".contains(letter))
        };
        if !host.as_ref().is_none_or(is_name) {
            return Err(wrong());
        }
        Ok(Self { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_part_may_be_left_out() {
        for (text, whole) in [
            ("8080", "0.0.0.0:8080"),
            (":8080", "0.0.0.0:8080"),
            ("0", "0.0.0.0:0"),
            ("192.0.2.1", "192.0.2.1:7117"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("2001:db8::1", "[2001:db8::1]:7117"),
            ("[2001:db8::1]", "[2001:db8::1]:7117"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("peer", "peer:7117"),
            ("peer.example:80", "peer.example:80"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.or("0.0.0.0", 7117), whole, "{text}");
        }
        let port: Address = "80".parse().unwrap();
        assert_eq!(port.or("::", 1), "[::]:80");
        assert_eq!((port.host(), port.port()), (None, Some(80)));
        for text in ["80", "peer", "::1", "[::1]:80", "10.0.0.1:0"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in
            ["", ":", "65536", "host:", "host:x", "host:+1", "a:b:1", "[::1", "[x]:1", "http://a:1"]
        {
            let why = text.parse::<Address>().unwrap_err();
            assert!(why.contains("10.0.0.1:8080"), "{text}: {why}");
        }
    }
}
