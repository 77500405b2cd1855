//! The source of the bytes of a block, so that an error can name it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// The longest name of a source in bytes; of a longer one, only the end is kept.
const LONGEST: usize = 255;

/// A source, such as a file, and the position in it at which a block begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    #[serde(serialize_with = "crate::encoding::text::serialize")]
    #[serde(deserialize_with = "short")]
    source: Arc<str>,
    position: u64,
}

impl Origin {
    /// The first byte of a source with that name. Of a long name, only the end is kept.
    #[must_use]
    pub fn new(source: &str) -> Self {
        let start = source.len().saturating_sub(LONGEST);
        let is_start = |at: &usize| source.is_char_boundary(*at);
        let start = (start..=source.len()).find(is_start).unwrap_or_default();
        Self { source: source[start..].into(), position: 0 }
    }

    /// The position that is this many bytes further on.
    #[must_use]
    pub fn skip(&self, bytes: u64) -> Self {
        let position = self.position.saturating_add(bytes);
        Self { source: Arc::clone(&self.source), position }
    }

    /// Shares the memory of the last name if the source is the same.
    pub(crate) fn share(mut self, last: &mut Option<Arc<str>>) -> Self {
        match last {
            Some(last) if **last == *self.source => self.source = Arc::clone(last),
            _ => *last = Some(Arc::clone(&self.source)),
        }
        self
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            0 => f.write_str(&self.source),
            position => write!(f, "{} from byte {position}", self.source),
        }
    }
}

/// Limits the length: another process may send any name.
fn short<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    let source = String::deserialize(from)?;
    match source.len() {
        0..=LONGEST => Ok(source.into()),
        length => Err(serde::de::Error::invalid_length(length, &"a shorter name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_end() {
        let long = format!("{}\u{e4}.log", "\u{e4}".repeat(200));
        let shown = Origin::new(&long).to_string();
        assert!(shown.len() <= LONGEST && long.ends_with(&shown) && shown.len() > 250, "{shown}");
        assert_eq!(Origin::new("a.log").skip(7).skip(5).to_string(), "a.log from byte 12");
        assert_eq!(Origin::new("").to_string(), "");
    }

    #[test]
    fn a_name_from_another_process_is_short() {
        let read = |length: usize| {
            let bytes = postcard::to_stdvec(&("x".repeat(length), 7_u64)).unwrap();
            postcard::from_bytes::<Origin>(&bytes)
        };
        assert_eq!(read(LONGEST), Ok(Origin::new(&"x".repeat(LONGEST)).skip(7)));
        assert!(read(LONGEST + 1).is_err());
    }
}
