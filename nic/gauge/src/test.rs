//! A test: the measurement that a client requests.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Direction and pattern of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestKind {
    /// Requests and responses of the same size, one after another, without Nagle's algorithm:
    /// TCP_RR.
    RequestResponse,
    /// From the client to the server, as fast as possible: TCP_STREAM.
    Stream,
    /// From the server to the client: TCP_MAERTS.
    StreamBack,
}

impl fmt::Display for TestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestResponse => "request/response",
            Self::Stream => "stream",
            Self::StreamBack => "stream back",
        })
    }
}

/// One measurement on a connection of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Direction and pattern of the traffic.
    pub kind: TestKind,
    /// Bytes of a message, which one call sends: 1 to [`Test::MAX_SIZE`].
    pub size: usize,
    /// How long to measure: more than zero, at most [`Test::MAX_TIME`].
    #[serde(with = "microseconds")]
    pub time: Duration,
    /// How long to run the same traffic before the measurement: at most [`Test::MAX_TIME`].
    #[serde(with = "microseconds")]
    pub warm_up: Duration,
    /// TCP congestion control of both ends, as in `net.ipv4.tcp_available_congestion_control`.
    /// `None`: cubic, or reno if the kernel lacks cubic. Not the default of the host, because with
    /// BBR the test would measure its pacing timers instead of the interface.
    pub congestion: Option<String>,
    /// True if the receivers check every byte, which costs CPU time.
    pub verify: bool,
}

impl Test {
    /// Largest message, in bytes.
    pub const MAX_SIZE: usize = 16 << 20;
    /// Longest time.
    pub const MAX_TIME: Duration = Duration::from_secs(60);

    /// A test with a warm-up of a tenth of its time and the default congestion control.
    #[must_use]
    pub fn new(kind: TestKind, size: usize, time: Duration) -> Self {
        Self { kind, size, time, warm_up: time / 10, congestion: None, verify: false }
    }

    /// Checks the parameters; the error is a message for users.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=Self::MAX_SIZE).contains(&self.size) {
            return Err(format!("messages have 1 to {} bytes, not {}", Self::MAX_SIZE, self.size));
        }
        let most = Self::MAX_TIME.as_secs();
        if self.time.is_zero() || self.time > Self::MAX_TIME {
            return Err(format!(
                "a test takes more than 0 and at most {most} s, not {:?}",
                self.time
            ));
        }
        if self.warm_up > Self::MAX_TIME {
            return Err(format!("a warm-up takes at most {most} s, not {:?}", self.warm_up));
        }
        // TCP_CA_NAME_MAX is 16, including the terminator.
        let is_name = |name: &str| {
            (1..16).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        };
        match &self.congestion {
            Some(name) if !is_name(name) => {
                Err("the name of the congestion control is invalid".to_owned())
            }
            _ => Ok(()),
        }
    }
}

mod microseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused() {
        let good = Test::new(TestKind::Stream, 1, Duration::from_secs(1));
        assert_eq!(good.check(), Ok(()));
        let name = |name: &str| Test { congestion: Some(name.to_owned()), ..good.clone() };
        assert_eq!(name("dctcp").check(), Ok(()));
        for bad in [
            Test { size: 0, ..good.clone() },
            Test { size: Test::MAX_SIZE + 1, ..good.clone() },
            Test { time: Duration::ZERO, ..good.clone() },
            Test { time: Duration::from_secs(61), ..good.clone() },
            Test { warm_up: Duration::MAX, ..good.clone() },
            name(""),
            name("a name with blanks"),
            name("sixteen_letters_"),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_test_survives_the_wire() {
        let test = Test {
            congestion: Some("reno".to_owned()),
            ..Test::new(TestKind::StreamBack, 7, Test::MAX_TIME)
        };
        let line = serde_json::to_string(&test).unwrap();
        assert_eq!(serde_json::from_str::<Test>(&line).unwrap(), test);
        assert!(serde_json::from_str::<Test>(&line.replace("size", "length")).is_err());
    }
}
