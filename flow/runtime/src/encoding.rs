//! How text and lists are encoded that processes send one another, and their limits.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The longest argument of a unit, and the longest error.
pub(crate) const LONGEST_TEXT: usize = 1 << 20;

/// Most copies of a filter.
pub(crate) const MOST_COPIES: usize = 1 << 16;

/// `Arc<str>`, as text.
pub(crate) mod text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        Ok(String::deserialize(from)?.into())
    }
}

/// The same, if there is one.
pub(crate) mod maybe_text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        text: &Option<Arc<str>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<str>>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(Into::into))
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
    use super::*;

    #[test]
    fn no_list_is_longer_than_there_can_be() {
        #[derive(Deserialize)]
        struct Three(#[serde(deserialize_with = "few::<_, _, 3>")] Vec<u8>);
        let read = |bytes: &[u8]| postcard::from_bytes(bytes).map(|Three(all)| all);
        assert_eq!(read(&[3, 7, 8, 9]), Ok(vec![7, 8, 9]));
        assert!(read(&[4, 7, 8, 9, 10]).is_err());
        // Whatever length is announced, no memory is taken for items that do not arrive.
        assert!(read(&[0xff, 0xff, 0xff, 0x7f, 1]).is_err());
    }
}
