//! Keys and values as text that every launcher carries. PMI-1 ends a line at a newline and a field
//! at a space, and `;` and `=` are special in Slurm's PMI-2; so all but a few characters of a value
//! become `%` and two hexadecimal digits, as in a URL.

use crate::error::Error;

/// Most characters of a key.
const KEY: usize = 32;

/// Most bytes of a value before it is encoded.
pub(crate) const VALUE: usize = 16 << 10;

pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if key.is_empty() || key.len() > KEY || !key.bytes().all(fits) {
        return Err(Error::Key(key.into()));
    }
    Ok(())
}

pub(crate) fn check_value(key: &str, value: &str) -> Result<(), Error> {
    if value.len() > VALUE {
        return Err(Error::TooLong { key: key.into(), length: value.len(), limit: VALUE });
    }
    Ok(())
}

pub(crate) fn encode(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._:,/@[]+".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// `None` if the text does not come from [`encode`].
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push((high << 4 | low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_value_comes_back(value in any::<String>()) {
            let text = encode(&value);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(!text.contains(['=', ';', ' ']));
            prop_assert_eq!(decode(&text), Some(value));
        }

        #[test]
        fn any_text_is_decoded_or_refused(text in any::<String>()) {
            let _ = decode(&text);
        }
    }

    #[test]
    fn addresses_stay_as_they_are_and_nonsense_is_refused() {
        assert_eq!(encode("[2001:db8::1]:4711"), "[2001:db8::1]:4711");
        assert_eq!(encode("a b=\u{e9}"), "a%20b%3D%C3%A9");
        for text in ["%", "%4", "%zz", "%FF"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn keys_are_words() {
        for key in ["address", "a", "ring-2_x", &"k".repeat(KEY)] {
            check_key(key).unwrap();
        }
        for key in ["", "a b", "a=b", "a.b", "\u{e4}", "a\n", &"k".repeat(KEY + 1)] {
            assert!(matches!(check_key(key), Err(Error::Key(_))), "{key}");
        }
    }
}
