//! Datagrams from any process: decoded or refused, and what is decoded is encoded to the same
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seekwire_protocol::offer::{Datagram, Message};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(datagram) = Datagram::decode(bytes) {
        let again = datagram.encode();
        assert_eq!(Datagram::decode(&again), Ok(datagram));
        // Only a refusal has a verdict; elsewhere that byte means nothing.
        if matches!(datagram.message, Message::Refused(_)) {
            assert_eq!(again, bytes);
        }
    }
});
