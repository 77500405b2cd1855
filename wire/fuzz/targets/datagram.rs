//! Datagrams from any process: decoded or refused. A decoded datagram is encoded to the same bytes,
//! except those without meaning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seekwire_protocol::Reason;
use seekwire_protocol::offer::{Datagram, Message};

/// Position of the verdict, after the magic number, the layout and the kind.
const VERDICT: usize = 7;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(datagram) = Datagram::decode(bytes) {
        let again = datagram.encode();
        assert_eq!(Datagram::decode(&again), Ok(datagram));
        let parts = |bytes: &[u8]| (bytes[..VERDICT].to_vec(), bytes[VERDICT + 1..].to_vec());
        assert_eq!(parts(&again), parts(bytes));
        // Only a refusal has a verdict. A refusal from another version counts as one by the peer.
        match datagram.message {
            Message::Refused(Reason::PeerRefused) => {
                let known = Reason::from_code(bytes[VERDICT].into());
                assert!(matches!(known, None | Some(Reason::PeerRefused)));
            }
            Message::Refused(_) => assert_eq!(again[VERDICT], bytes[VERDICT]),
            _ => {}
        }
    }
});
