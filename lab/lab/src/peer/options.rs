//! Arguments of the role. They come from the laboratory itself, so there is no help.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::protocol::MAX_SIZE;
use crate::bench::{Operation, Test};

#[derive(Debug, PartialEq)]
pub(super) struct Options {
    pub(super) action: Action,
    pub(super) api: Api,
    pub(super) address: SocketAddr,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Serve,
    Drive(Vec<Test>),
}

/// How bytes are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// The sockets of the standard library.
    Std,
    /// Seekwire streams, by copying.
    Stream,
    /// Seekwire streams, in place.
    InPlace,
}

impl Options {
    pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut arguments =
            arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
        let mut action = match arguments.next().as_deref() {
            Some("serve") => Action::Serve,
            Some("drive") => Action::Drive(Vec::new()),
            _ => bail!("say serve or drive"),
        };
        let (mut api, mut address) = (Api::Std, None);
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} lacks its value"))?;
            match (name.as_str(), &mut action) {
                ("--tcp", _) => {
                    address = Some(
                        value
                            .parse()
                            .with_context(|| format!("'{value}' is not an address with a port"))?,
                    );
                }
                ("--api", _) => {
                    api = match value.as_str() {
                        "std" => Api::Std,
                        "stream" => Api::Stream,
                        "in-place" => Api::InPlace,
                        _ => bail!("there is no API '{value}'"),
                    }
                }
                ("--wait", _) if value == "block" => {}
                ("--test", Action::Drive(tests)) => tests.push(test(&value)?),
                _ => bail!("cannot do {name} {value}"),
            }
        }
        Ok(Self { action, api, address: address.context("say --tcp ADDRESS:PORT")? })
    }
}

fn test(text: &str) -> Result<Test> {
    let mut parts = text.split(':');
    let operations = [Operation::Pingpong, Operation::Bandwidth, Operation::Rate, Operation::Short];
    let parsed = (|| {
        let name = parts.next()?;
        let operation = operations.into_iter().find(|operation| operation.name() == name)?;
        let size: u64 = parts.next()?.parse().ok()?;
        let time = Duration::from_millis(parts.next()?.parse().ok()?);
        (parts.next().is_none() && (1..=MAX_SIZE).contains(&size)).then_some(Test {
            operation,
            size,
            time,
        })
    })();
    parsed.with_context(|| format!("'{text}' is not OPERATION:SIZE:MILLISECONDS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn what_the_laboratory_says_is_understood() {
        let options =
            parse("drive --api std --wait block --tcp 127.0.0.1:80 --test rate:64:50").unwrap();
        let test = Test { operation: Operation::Rate, size: 64, time: Duration::from_millis(50) };
        assert_eq!(options.action, Action::Drive(vec![test]));
        assert_eq!(options.address.port(), 80);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "serve",
            "serve --tcp nowhere",
            "drive --tcp 127.0.0.1:1 --test rate:0:1",
            "serve --wait spin",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
