//! The messages around a test, as in `peer/streambench.c`: big-endian integers.

use crate::bench::Operation;

const MAGIC: u32 = 0x5357_4231;

/// Largest message, in bytes.
pub(super) const MAX_SIZE: u64 = 64 << 20;

/// Opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) operation: Operation,
    /// Bytes per message.
    pub(super) size: usize,
    /// Bytes of one-way messages before the server reports that it is warm.
    pub(super) warm_up: u64,
}

/// Ends a warm-up or a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// Bytes received.
    pub(super) bytes: u64,
    /// Processor time spent, in nanoseconds.
    pub(super) cpu_ns: u64,
}

impl Request {
    pub(super) const LENGTH: usize = 24;

    pub(super) fn encode(self) -> [u8; Self::LENGTH] {
        let operation: u32 = match self.operation {
            Operation::Pingpong => 1,
            Operation::Bandwidth => 2,
            Operation::Rate => 3,
            Operation::Short => 4,
        };
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&operation.to_be_bytes());
        bytes[8..16].copy_from_slice(&(self.size as u64).to_be_bytes());
        bytes[16..].copy_from_slice(&self.warm_up.to_be_bytes());
        bytes
    }

    /// `None` if these bytes are not a request.
    pub(super) fn decode(bytes: &[u8; Self::LENGTH]) -> Option<Self> {
        let [magic, code] = [u32_at(bytes, 0), u32_at(bytes, 4)];
        let operation = match code {
            1 => Operation::Pingpong,
            2 => Operation::Bandwidth,
            3 => Operation::Rate,
            4 => Operation::Short,
            _ => return None,
        };
        let size = u64_at(bytes, 8);
        let valid = magic == MAGIC && (1..=MAX_SIZE).contains(&size);
        valid.then(|| Self { operation, size: size as usize, warm_up: u64_at(bytes, 16) })
    }
}

impl Acknowledgement {
    pub(super) const LENGTH: usize = 16;

    pub(super) fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cpu_ns.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        Self { bytes: u64_at(bytes, 0), cpu_ns: u64_at(bytes, 8) }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let request = Request { operation: Operation::Rate, size: 65536, warm_up: 1 << 40 };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        let acknowledgement = Acknowledgement { bytes: u64::MAX, cpu_ns: 3 };
        assert_eq!(Acknowledgement::decode(&acknowledgement.encode()), acknowledgement);
    }

    #[test]
    fn unknown_clients_are_refused() {
        assert_eq!(
            Request::decode(b"GET / HTTP/1.1\r\nHost: x\r\n"[..24].try_into().unwrap()),
            None
        );
        let too_large =
            Request { operation: Operation::Rate, size: MAX_SIZE as usize + 1, warm_up: 0 };
        assert_eq!(Request::decode(&too_large.encode()), None);
    }
}
