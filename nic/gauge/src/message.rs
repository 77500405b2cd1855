//! The messages between the two ends: one line of JSON each.
//!
//! ```text
//! control   client: hello   server: welcome                      once
//!           client: test    server: ready with a token           for each test
//! data      client: data with that token   server: go            then the bytes of the test
//! control   client: mark    server: marked                       end of the warm-up
//! data      the client ends its direction, the server its own
//! control   client: finish  server: done, or failed
//! ```
//!
//! Instead of any of its answers the server may send `refused`, or `busy`, after which the client
//! may retry later.

use serde::{Deserialize, Serialize};

use crate::cpu_load::Load;
use crate::test::Test;

/// Version of the protocol; it must be equal at both ends.
pub(crate) const VERSION: u32 = 2;

/// Name of the protocol, by which a client recognizes a server.
pub(crate) const NAME: &str = "seekwire-gauge";

/// From the client to the server.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The first message of a control connection.
    Hello {
        protocol: String,
        version: u32,
    },
    /// The only message of a data connection.
    Data {
        token: String,
    },
    Test(Test),
    Mark,
    Finish,
}

/// From the server to the client.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Response {
    Welcome {
        protocol: String,
        version: u32,
    },
    Ready {
        token: String,
    },
    Go,
    Marked,
    Done(Account),
    /// The server does not accept the test or the connection.
    Refused {
        reason: String,
    },
    /// The server has no capacity left at the moment.
    Busy {
        reason: String,
    },
    /// The server aborted a test that had begun.
    Failed {
        reason: String,
    },
}

/// The counters of the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Account {
    /// Bytes on the data connection.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The part of `received` since the mark.
    pub(crate) since_mark: u64,
    /// Load from the mark to the end.
    pub(crate) load: Load,
}

/// A reason that the other end sent, made fit to be shown: one line of limited length.
pub(crate) fn shown(reason: &str) -> String {
    reason.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_other_protocols_are_not_understood() {
        for line in [
            "{}",
            "null",
            "\"hello\"",
            r#"{"hello":{"protocol":"x"}}"#,
            r#"{"hello":{"protocol":"x","version":-1}}"#,
            r#"{"hello":{"protocol":"x","version":1,"more":1}}"#,
            r#"{"mark":1}"#,
            r#"{"shell":"ls"}"#,
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
        assert_eq!(serde_json::from_str::<Request>("\"mark\"").unwrap(), Request::Mark);
    }

    #[test]
    fn words_of_others_cannot_move_the_cursor() {
        assert_eq!(shown("no\x1b[2J\nmore"), "no [2J more");
        assert_eq!(shown(&"x".repeat(5000)).len(), 300);
    }
}
