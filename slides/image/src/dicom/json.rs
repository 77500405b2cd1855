//! A dataset in the DICOM JSON model (PS3.18, annex F).

use super::element::{Cursor, Element, Visit};
use super::header::number;
use crate::source::Source;
use crate::{Error, Limits, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fmt::Write;

/// Reads the dataset that begins at `start`. The pixels get their VR and address.
pub(super) fn write(
    source: &dyn Source,
    limits: &Limits,
    start: u64,
    vr: [u8; 2],
    bulk: &str,
) -> Result<String> {
    let mut writer = Writer::new(limits);
    let mut cursor = Cursor::new(source, limits, start);
    if cursor.walk(&mut writer)?.is_some() {
        writer.key(super::element::PIXELS, vr);
        let _ = write!(writer.json, ",\"BulkDataURI\":{}}}", Value::from(bulk));
    }
    writer.finish(source.name())
}

/// Writes the elements that it visits.
pub(super) struct Writer {
    json: String,
    most: usize,
    /// True while the innermost object or array is empty.
    empty: bool,
}

impl Writer {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { json: "{".into(), most: limits.tables as usize, empty: true }
    }

    /// The object of everything visited. The name is for errors.
    pub(super) fn finish(mut self, name: &str) -> Result<String> {
        self.json.push('}');
        self.check(name)?;
        Ok(self.json)
    }

    fn check(&self, name: &str) -> Result<()> {
        if self.json.len() <= self.most {
            return Ok(());
        }
        let what = format!("a dataset of {} bytes in JSON", self.json.len());
        Err(Error::Limit { name: name.into(), what })
    }

    fn comma(&mut self) {
        if !self.empty {
            self.json.push(',');
        }
        self.empty = false;
    }

    /// Begins the object of an element.
    fn key(&mut self, tag: u32, [first, second]: [u8; 2]) {
        self.comma();
        let (first, second) = (char::from(first), char::from(second));
        // Writing to a string cannot fail.
        let _ = write!(self.json, "\"{tag:08X}\":{{\"vr\":\"{first}{second}\"");
    }
}

impl Visit for Writer {
    fn value(&mut self, cursor: &mut Cursor<'_>, element: &Element) -> Result<()> {
        // Group lengths, and the offsets of frames in this file.
        if element.tag & 0xffff == 0 || matches!(element.tag, 0x7fe0_0001 | 0x7fe0_0002) {
            return Ok(());
        }
        self.check(cursor.name())?;
        let bytes = cursor.value(element)?;
        // Nothing is written of an element that cannot be decoded.
        let text = match is_text(&element.vr) {
            true => cursor.decode(element, &bytes)?,
            false => String::new(),
        };
        self.key(element.tag, element.vr);
        let mut list = List { writer: self, name: cursor.name(), any: false };
        match &element.vr {
            b"OB" | b"OD" | b"OF" | b"OL" | b"OV" | b"OW" | b"UN" => {
                if !bytes.is_empty() {
                    self.json.push_str(",\"InlineBinary\":\"");
                    STANDARD.encode_string(&bytes, &mut self.json);
                    self.json.push('"');
                }
            }
            // The text is UTF-8 here, whatever the file's encoding.
            _ if element.tag == 0x0008_0005 => {
                list.put("ISO_IR 192".into())?;
                list.end();
            }
            vr => {
                values(vr, &bytes, &text, &mut |value| list.put(value))?;
                list.end();
            }
        }
        self.json.push('}');
        Ok(())
    }

    fn sequence(&mut self, element: &Element) -> Result<bool> {
        self.key(element.tag, element.vr);
        self.json.push_str(",\"Value\":[");
        self.empty = true;
        Ok(true)
    }

    fn item(&mut self) {
        self.comma();
        self.json.push('{');
        self.empty = true;
    }

    fn end_item(&mut self) {
        self.json.push('}');
        self.empty = false;
    }

    fn end_sequence(&mut self) {
        self.json.push_str("]}");
        self.empty = false;
    }
}

/// Writes the values of an element one at a time: as objects, all of them together would take many
/// times the memory of their text.
struct List<'a> {
    writer: &'a mut Writer,
    /// The name of the source, for errors.
    name: &'a str,
    any: bool,
}

impl List<'_> {
    fn put(&mut self, value: Value) -> Result<()> {
        self.writer.json.push_str(if self.any { "," } else { ",\"Value\":[" });
        self.any = true;
        // Writing to a string cannot fail.
        let _ = write!(self.writer.json, "{value}");
        self.writer.check(self.name)
    }

    fn end(self) {
        if self.any {
            self.writer.json.push(']');
        }
    }
}

/// True if the values of an element are text, and not bytes or binary numbers.
fn is_text(vr: &[u8; 2]) -> bool {
    const BYTES: [&[u8; 2]; 7] = [b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"UN"];
    const NUMBERS: [&[u8; 2]; 9] = [b"US", b"UL", b"UV", b"SS", b"SL", b"SV", b"FL", b"FD", b"AT"];
    !BYTES.contains(&vr) && !NUMBERS.contains(&vr)
}

/// Passes the values of an element that is neither a sequence nor bytes to `put`. If they are text,
/// it is already decoded.
fn values(
    vr: &[u8; 2],
    bytes: &[u8],
    text: &str,
    put: &mut dyn FnMut(Value) -> Result<()>,
) -> Result<()> {
    let mut all = |size: usize, value: &dyn Fn(&[u8]) -> Value| {
        bytes.chunks_exact(size).try_for_each(|bytes| put(value(bytes)))
    };
    match vr {
        b"US" | b"UL" | b"UV" => {
            let size = if vr == b"US" {
                2
            } else if vr == b"UL" {
                4
            } else {
                8
            };
            all(size, &|bytes| number(bytes).into())
        }
        b"SS" => all(2, &|bytes| (number(bytes) as u16 as i16).into()),
        b"SL" => all(4, &|bytes| (number(bytes) as u32 as i32).into()),
        b"SV" => all(8, &|bytes| (number(bytes) as i64).into()),
        b"FL" => all(4, &|bytes| float(f32::from_bits(number(bytes) as u32).into())),
        b"FD" => all(8, &|bytes| float(f64::from_bits(number(bytes)))),
        b"AT" => all(4, &|bytes| {
            let (group, element) = (number(&bytes[..2]), number(&bytes[2..]));
            format!("{group:04X}{element:04X}").into()
        }),
        b"LT" | b"ST" | b"UT" | b"UR" => {
            if text.is_empty() {
                Ok(())
            } else {
                put(text.into())
            }
        }
        _ => {
            if text.is_empty() {
                return Ok(());
            }
            text.split('\\').try_for_each(|part| put(one(vr, part.trim_end_matches(' '))))
        }
    }
}

fn float(value: f64) -> Value {
    // JSON cannot express these; the model has words for them.
    let word = || {
        if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
    };
    serde_json::Number::from_f64(value).map_or_else(|| word().into(), Value::Number)
}

/// One of the values of a text.
fn one(vr: &[u8; 2], text: &str) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    match vr {
        b"IS" => text.trim().parse::<i64>().map_or_else(|_| text.into(), Value::from),
        b"DS" => {
            let number = text.trim().parse().ok().and_then(serde_json::Number::from_f64);
            number.map_or_else(|| text.into(), Value::Number)
        }
        b"PN" => {
            let mut name = json!({});
            let groups = ["Alphabetic", "Ideographic", "Phonetic"];
            for (group, part) in groups.iter().zip(text.split('=')) {
                if !part.is_empty() {
                    name[*group] = part.into();
                }
            }
            name
        }
        _ => text.into(),
    }
}
