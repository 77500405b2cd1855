//! Reports of a process about its copies and streams, for the coordinator.
//!
//! A report goes over the link as bytes. The coordinator reads them only if it has asked, and at
//! most as many reports as there are copies and streams: a few bytes can encode a report of a
//! hundred.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::protocol_error::ProtocolError;
use crate::stream::report::{CopyReport, StreamReport};

/// Reports about copies and streams.
pub(crate) type Stats = (Vec<CopyReport>, Vec<StreamReport>);

/// More reports than possible.
const TOO_MANY: ProtocolError =
    ProtocolError::Unexpected("reports of more copies or streams than there are");

/// A [`Stats`] in encoded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedStats(Vec<u8>);

impl EncodedStats {
    pub(crate) fn new(stats: &Stats) -> Self {
        let (copies, streams) = stats;
        let mut bytes = Vec::new();
        let written = write(copies, &mut bytes).and_then(|()| write(streams, &mut bytes));
        // Writing cannot fail; a partial report would be invalid.
        Self(written.map_or_else(|_| Vec::new(), |()| bytes))
    }

    /// Reads the reports of a process that has this many copies, in a pipeline of this many copies
    /// and streams.
    pub(crate) fn read(
        &self,
        [own, all]: [usize; 2],
        streams: usize,
    ) -> Result<Stats, ProtocolError> {
        let (copies, rest) = read(&self.0, own)?;
        let (streams, rest): (Vec<StreamReport>, _) = read(rest, streams)?;
        if streams.iter().any(|stream| stream.copies.len() > all) {
            return Err(TOO_MANY);
        }
        match rest {
            [] => Ok((copies, streams)),
            _ => Err(ProtocolError::Unexpected("bytes after reports")),
        }
    }
}

/// Writes the number of items, and then each.
fn write<T: Serialize>(all: &[T], into: &mut Vec<u8>) -> Result<(), postcard::Error> {
    *into = postcard::to_extend(&all.len(), std::mem::take(into))?;
    for one in all {
        *into = postcard::to_extend(one, std::mem::take(into))?;
    }
    Ok(())
}

/// Reads the items, and returns them with the remaining bytes.
fn read<'b, T: Deserialize<'b>>(
    bytes: &'b [u8],
    most: usize,
) -> Result<(Vec<T>, &'b [u8]), ProtocolError> {
    let (count, mut rest): (usize, _) =
        postcard::take_from_bytes(bytes).map_err(ProtocolError::Unreadable)?;
    if count > most {
        return Err(TOO_MANY);
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let (one, behind) = postcard::take_from_bytes(rest).map_err(ProtocolError::Unreadable)?;
        all.push(one);
        rest = behind;
    }
    Ok((all, rest))
}

impl Serialize for EncodedStats {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for EncodedStats {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_bytes(Written)
    }
}

struct Written;

impl Visitor<'_> for Written {
    type Value = EncodedStats;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<EncodedStats, E> {
        Ok(EncodedStats(bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::copy_state::CopyState;
    use crate::stream::sizing::SizeReport;

    fn copy() -> CopyReport {
        CopyReport {
            filter: "filter".into(),
            copy: 3,
            process: 1,
            host: Some("host".into()),
            busy: Duration::MAX,
            starved: Duration::ZERO,
            blocked: Duration::from_nanos(1),
            blocks: u64::MAX,
            bytes: 0,
            rejected: 0,
        }
    }

    fn stream(copies: usize) -> StreamReport {
        StreamReport {
            name: "a.out -> b.in".into(),
            blocks: 1,
            bytes: 2,
            held: 3,
            peak: 4,
            limit: usize::MAX,
            block: Some(SizeReport { size: 9, decisions: Vec::new() }),
            copies: vec![CopyState::default(); copies],
        }
    }

    #[test]
    fn reports_are_read_up_to_what_there_can_be() {
        let stats = (vec![copy(); 2], vec![stream(5); 3]);
        let encoded = EncodedStats::new(&stats);
        assert_eq!(encoded.read([2, 5], 3), Ok(stats));
        for (copies, streams) in [([1, 5], 3), ([2, 4], 3), ([2, 5], 2)] {
            assert_eq!(encoded.read(copies, streams), Err(TOO_MANY));
        }
        let EncodedStats(bytes) = encoded;
        for len in 0..bytes.len() {
            assert!(EncodedStats(bytes[..len].to_vec()).read([2, 5], 3).is_err());
        }
        assert!(EncodedStats([&bytes[..], &[0]].concat()).read([2, 5], 3).is_err());
        let long = postcard::to_extend(&stream(1 << 17), Vec::new()).unwrap();
        assert!(postcard::from_bytes::<StreamReport>(&long).is_err());
    }
}
