//! Reports of a process about its copies and streams, for the front.
//!
//! A report goes over the link as bytes. The front reads them only if it has asked, and at most as
//! many reports as there are copies and streams: a few bytes can encode a report of a hundred.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::message::Garbled;
use crate::report::{CopyReport, StreamReport};

/// Reports about copies and streams.
pub(crate) type Known = (Vec<CopyReport>, Vec<StreamReport>);

/// More reports than possible.
const TOO_MANY: Garbled = Garbled::Unexpected("reports of more copies or streams than there are");

/// A [`Known`] in encoded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told(Vec<u8>);

impl Told {
    pub(crate) fn new((copies, streams): &Known) -> Self {
        let mut bytes = Vec::new();
        let written = write(copies, &mut bytes).and_then(|()| write(streams, &mut bytes));
        // Writing cannot fail; a partial report would be invalid.
        Self(written.map_or_else(|_| Vec::new(), |()| bytes))
    }

    /// Reads the reports of a process that has this many copies, in a pipeline of this many copies
    /// and streams.
    pub(crate) fn read(&self, [own, all]: [usize; 2], streams: usize) -> Result<Known, Garbled> {
        let (copies, rest) = read(&self.0, own)?;
        let (streams, rest): (Vec<StreamReport>, _) = read(rest, streams)?;
        if streams.iter().any(|stream| stream.copies.len() > all) {
            return Err(TOO_MANY);
        }
        match rest {
            [] => Ok((copies, streams)),
            _ => Err(Garbled::Unexpected("bytes after reports")),
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
) -> Result<(Vec<T>, &'b [u8]), Garbled> {
    let (count, mut rest): (usize, _) =
        postcard::take_from_bytes(bytes).map_err(Garbled::Unreadable)?;
    if count > most {
        return Err(TOO_MANY);
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let (one, behind) = postcard::take_from_bytes(rest).map_err(Garbled::Unreadable)?;
        all.push(one);
        rest = behind;
    }
    Ok((all, rest))
}

impl Serialize for Told {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Told {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_bytes(Written)
    }
}

struct Written;

impl Visitor<'_> for Written {
    type Value = Told;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Told, E> {
        Ok(Told(bytes.to_vec()))
    }
}

/// A list of at most `MOST`: memory must not grow with the length that another process claims.
pub(crate) fn few<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(Few::<T, MOST>(PhantomData))
}

struct Few<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Few<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<T>, A::Error> {
        let mut few = Vec::new();
        while let Some(one) = all.next_element()? {
            if few.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            few.push(one);
        }
        Ok(few)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::deal::CopyState;
    use crate::sizing::SizeReport;

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
            hedged: 0,
            hedges_won: 0,
        }
    }

    #[test]
    fn what_is_told_is_read_up_to_what_there_can_be() {
        let known = (vec![copy(); 2], vec![stream(5); 3]);
        let told = Told::new(&known);
        assert_eq!(told.read([2, 5], 3), Ok(known));
        for (copies, streams) in [([1, 5], 3), ([2, 4], 3), ([2, 5], 2)] {
            assert_eq!(told.read(copies, streams), Err(TOO_MANY));
        }
        let Told(bytes) = told;
        for len in 0..bytes.len() {
            assert!(Told(bytes[..len].to_vec()).read([2, 5], 3).is_err());
        }
        assert!(Told([&bytes[..], &[0]].concat()).read([2, 5], 3).is_err());
    }

    #[test]
    fn no_list_is_longer_than_there_can_be() {
        #[derive(Deserialize)]
        struct Three(#[serde(deserialize_with = "few::<_, _, 3>")] Vec<u8>);
        let read = |bytes: &[u8]| postcard::from_bytes(bytes).map(|Three(all)| all);
        assert_eq!(read(&[3, 7, 8, 9]), Ok(vec![7, 8, 9]));
        assert!(read(&[4, 7, 8, 9, 10]).is_err());
        // Whatever length is announced, no memory is taken for items that do not arrive.
        assert!(read(&[0xff, 0xff, 0xff, 0x7f, 1]).is_err());
        let long = postcard::to_extend(&stream(1 << 17), Vec::new()).unwrap();
        assert!(postcard::from_bytes::<StreamReport>(&long).is_err());
    }
}
