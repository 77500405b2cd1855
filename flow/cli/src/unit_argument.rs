//! Arguments of units as text. Arguments may be any bytes, as paths are, but the runtime and the
//! processes of a job pass on text.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use seekwire_flow::FilterError;

/// The characters from here on each stand for the byte of their value: for bytes that are not
/// UTF-8, and for the bytes of these characters themselves.
const BYTES: u32 = 0x10_ff00;

fn byte(letter: char) -> Option<u8> {
    u32::from(letter).checked_sub(BYTES).and_then(|byte| u8::try_from(byte).ok())
}

pub(crate) fn to_text(argument: &OsStr) -> String {
    let mut text = String::new();
    let add = |text: &mut String, bytes: &[u8]| {
        text.extend(bytes.iter().filter_map(|byte| char::from_u32(BYTES + u32::from(*byte))));
    };
    for chunk in argument.as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            match byte(letter) {
                Some(_) => add(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
                None => text.push(letter),
            }
        }
        add(&mut text, chunk.invalid());
    }
    text
}

pub(crate) fn of_text(text: &str) -> OsString {
    let mut bytes = Vec::new();
    for letter in text.chars() {
        match byte(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes)
}

/// As shown to people.
pub(crate) fn shown(text: &str) -> String {
    of_text(text).to_string_lossy().into_owned()
}

/// The name for which `{name}` stands: that of the unit's file.
fn name(argument: &str) -> Result<String, FilterError> {
    let argument = of_text(argument);
    let name = Path::new(&argument).file_stem();
    let name = name.ok_or("{name} in path stands for the file of the unit, which has none")?;
    Ok(to_text(name))
}

/// The path that the unit writes: `{}` is the number of the unit, `{name}` the name of its file,
/// and `{block}` the number of a block, which stays as it is if there is none. A name may contain
/// any of these as text.
pub(crate) fn expanded(
    path: &str,
    unit: impl Display,
    argument: &str,
    block: Option<u64>,
) -> Result<String, FilterError> {
    let mut text = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        (text, rest) = if let Some(after) = after.strip_prefix('}') {
            (text + &unit.to_string(), after)
        } else if let Some(after) = after.strip_prefix("name}") {
            (text + &name(argument)?, after)
        } else if let (Some(after), Some(block)) = (after.strip_prefix("block}"), block) {
            (text + &block.to_string(), after)
        } else {
            (text + "{", after)
        };
    }
    Ok(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_as_they_were() {
        for bytes in
            [&b"plain"[..], b"", "\u{e4}\u{10ff41}\u{10fffd}".as_bytes(), b"a\xff\xc3b\xf4\x8f\xbf"]
        {
            let text = to_text(OsStr::from_bytes(bytes));
            assert_eq!(of_text(&text).as_bytes(), bytes);
        }
        assert_eq!(to_text(OsStr::new("log-\u{e4}.gz")), "log-\u{e4}.gz");
        assert_eq!(shown(&to_text(OsStr::from_bytes(b"a\xffb"))), "a\u{fffd}b");
    }

    #[test]
    fn placeholders_in_a_name_are_text() {
        let path = |path: &str, block| expanded(path, 0, "in/{name}{}{block}.log", block).unwrap();
        assert_eq!(path("{name}-{}", None), "{name}{}{block}-0");
        assert_eq!(path("{{block}}{name}{", Some(7)), "{7}{name}{}{block}{");
        assert_eq!(path("{block}", None), "{block}");
    }
}
