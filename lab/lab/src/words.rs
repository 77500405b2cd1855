//! Texts in files, which may have several lines.

use serde::{Deserialize, Deserializer};

/// A text without its line breaks.
pub(crate) fn words<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    Ok(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// The same where there may be none.
pub(crate) fn some_words<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    words(from).map(Some)
}
