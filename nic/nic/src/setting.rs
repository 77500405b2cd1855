//! Keys and values of settings, and their textual form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The kernel's four sets of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Flags of the driver's own (`private.NAME`).
    PrivateFlag,
    /// Sizes of the rings between driver and interface (`ring.NAME`).
    Ring,
    /// Offloads (`NAME`).
    Feature,
    /// When the interface interrupts the CPU (`coalesce.NAME`).
    Coalescing,
}

impl Group {
    const ALL: [Self; 4] = [Self::PrivateFlag, Self::Ring, Self::Feature, Self::Coalescing];

    /// The prefix of the name in a key; empty for features.
    fn prefix(self) -> &'static str {
        match self {
            Self::PrivateFlag => "private.",
            Self::Ring => "ring.",
            Self::Feature => "",
            Self::Coalescing => "coalesce.",
        }
    }
}

/// A key of a setting, written as `tx-scatter-gather`, `coalesce.rx-usecs`, `ring.rx` or
/// `private.NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The set that it belongs to.
    pub group: Group,
    /// The name in that set: the kernel's name for features and private flags, that of ethtool(8)
    /// for the others.
    pub name: String,
}

impl Key {
    pub(crate) fn new(group: Group, name: impl Into<String>) -> Self {
        Self { group, name: name.into() }
    }

    pub(crate) fn feature(name: impl Into<String>) -> Self {
        Self::new(Group::Feature, name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.group.prefix(), self.name)
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The value of a key. In JSON a boolean or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// Microseconds, frames, bytes or entries, depending on the key.
    Number(u32),
}

impl Value {
    /// The value as the kernel's netlink attributes encode it.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Switch(on) => on.into(),
            Self::Number(number) => number,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A requested key and its value. Parsed from `KEY=VALUE`.
///
/// The key may be a name of ethtool(8) for several features at once (`tso`); which ones depends on
/// the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The key; its name may stand for several features.
    pub key: Key,
    /// The requested value.
    pub value: Value,
    /// True if the interface must have the key: for keys that the user named, not for those of a
    /// profile.
    pub required: bool,
}

/// A feature that changes without having been requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SideEffect {
    /// The feature.
    pub key: Key,
    /// The value before the change.
    pub before: Value,
    /// The value after the change.
    pub after: Value,
}

/// Reasons why a `KEY=VALUE` cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No `=`.
    #[error("write KEY=VALUE, as in tso=on or coalesce.rx-usecs=0")]
    Form,
    /// No key before the `=`, or an invalid one.
    #[error("`{0}` is not a key; `seekwire nic show` lists them")]
    Key(String),
    /// The key cannot have this value.
    #[error("`{value}` is not a value for {key}: {expected}")]
    Value {
        /// The key.
        key: String,
        /// The text after the `=`.
        value: String,
        /// A description of the valid values.
        expected: &'static str,
    },
}

impl FromStr for Setting {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, value) = text.split_once('=').ok_or(ParseError::Form)?;
        let (name, value) = (name.trim(), value.trim());
        let key = Group::ALL
            .into_iter()
            .filter(|group| *group != Group::Feature)
            .find_map(|group| Some(Key::new(group, name.strip_prefix(group.prefix())?)))
            .unwrap_or_else(|| Key::feature(name));
        let is_word = |c: char| c.is_ascii_graphic() && c != '.';
        if key.name.is_empty() || key.group != Group::PrivateFlag && !key.name.chars().all(is_word)
        {
            return Err(ParseError::Key(name.to_owned()));
        }
        let unfit = |expected| ParseError::Value {
            key: key.to_string(),
            value: value.to_owned(),
            expected,
        };
        let switch = match value {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        };
        let value = match (key.group, switch) {
            (_, Some(on)) => Value::Switch(on),
            (Group::Feature | Group::PrivateFlag, None) => return Err(unfit("on or off")),
            (Group::Ring | Group::Coalescing, None) => match value.parse() {
                Ok(number) => Value::Number(number),
                Err(_) => return Err(unfit("a number from 0 to 4294967295, or on or off")),
            },
        };
        Ok(Self { key, value, required: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, Value), String> {
        text.parse::<Setting>()
            .map(|setting| (setting.key.to_string(), setting.value))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        for (text, key, value) in [
            ("tso=on", "tso", Value::Switch(true)),
            ("tx-udp_tnl-segmentation=off", "tx-udp_tnl-segmentation", Value::Switch(false)),
            ("coalesce.rx-usecs=0", "coalesce.rx-usecs", Value::Number(0)),
            ("coalesce.adaptive-rx=off", "coalesce.adaptive-rx", Value::Switch(false)),
            ("ring.rx = 4096", "ring.rx", Value::Number(4096)),
            ("private.rx_striding_rq=on", "private.rx_striding_rq", Value::Switch(true)),
            (
                "private.link-down-on-close v1.0=on",
                "private.link-down-on-close v1.0",
                Value::Switch(true),
            ),
        ] {
            assert_eq!(parse(text), Ok((key.to_owned(), value)), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, named) in [
            ("tso", "KEY=VALUE"),
            ("=on", "is not a key"),
            ("ring.=1", "`ring.`"),
            ("rings.rx=1", "`rings.rx`"),
            ("tso=1", "on or off"),
            ("tso=", "``"),
            ("ring.rx=-1", "a number from 0"),
            ("ring.rx=4294967296", "4294967295"),
            ("private.x=2", "on or off"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
