//! Character sets of text (DICOM PS3.3, C.12.1.1.2): UTF-8 and ISO 8859-1. Text in others is kept
//! if it is ASCII, and otherwise not shown: its characters would be others.

use std::sync::Arc;

/// The character set of a dataset.
#[derive(Debug, Clone, Default)]
pub(super) enum Characters {
    /// Not stated: ASCII by the standard, in practice one of the two.
    #[default]
    Unknown,
    Latin1,
    Utf8,
    Other(Arc<str>),
}

/// Starts the code of another character set, within 7 bits.
const ESCAPE: u8 = 0x1b;

impl Characters {
    /// Parses the value of the attribute Specific Character Set.
    pub(super) fn of(value: &str) -> Self {
        match value.trim() {
            "" | "ISO_IR 6" | "ISO 2022 IR 6" => Self::Unknown,
            "ISO_IR 100" | "ISO 2022 IR 100" => Self::Latin1,
            "ISO_IR 192" => Self::Utf8,
            other => Self::Other(other.into()),
        }
    }

    /// Decodes a text, without the padding at its end, or returns why it cannot be decoded.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<String, String> {
        let is_plain = bytes.is_ascii() && !bytes.contains(&ESCAPE);
        match self {
            Self::Other(name) if !is_plain => Err(format!("text in the character set {name:?}")),
            Self::Other(_) | Self::Utf8 => Ok(Self::utf8(bytes)),
            Self::Latin1 => Ok(Self::latin1(bytes)),
            Self::Unknown if std::str::from_utf8(bytes).is_ok() => Ok(Self::utf8(bytes)),
            Self::Unknown => Ok(Self::latin1(bytes)),
        }
    }

    /// Decodes ISO 8859-1. Other bytes never give the same text, whatever their character set is.
    pub(super) fn latin1(bytes: &[u8]) -> String {
        let text: String = bytes.iter().copied().map(char::from).collect();
        trimmed(&text)
    }

    /// Decodes UTF-8, of which ASCII is a part. Other bytes become replacement characters.
    pub(super) fn utf8(bytes: &[u8]) -> String {
        trimmed(&String::from_utf8_lossy(bytes))
    }
}

fn trimmed(text: &str) -> String {
    text.trim_end_matches([' ', '\0']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_in_its_own_character_set_or_not_at_all() {
        let of = |set: &str, bytes: &[u8]| Characters::of(set).decode(bytes).ok();
        let (utf8, latin1) = ("M\u{fc}ller".as_bytes(), b"M\xfcller \0");
        let name = Some("M\u{fc}ller".to_owned());
        assert_eq!(of("ISO_IR 192", utf8), name);
        assert_eq!(of("ISO_IR 192", latin1).as_deref(), Some("M\u{fffd}ller"));
        assert_eq!(of("ISO_IR 100", latin1), name);
        assert_eq!(of("ISO_IR 100", utf8).as_deref(), Some("M\u{c3}\u{bc}ller"));
        for unknown in ["", "ISO_IR 6"] {
            assert_eq!((of(unknown, utf8), of(unknown, latin1)), (name.clone(), name.clone()));
        }
        for other in ["ISO_IR 144", "GB18030", "\\ISO 2022 IR 87", "ISO_IR 13"] {
            assert_eq!(of(other, latin1), None, "{other}");
            assert_eq!(of(other, b"\x1b$B;3ED\x1b(B"), None, "{other}");
            assert_eq!(of(other, b"Miller ").as_deref(), Some("Miller"), "{other}");
        }
    }
}
