//! Data elements in explicit VR little endian (DICOM PS3.5, section 7), read forward from a source.
//!
//! The crates that read DICOM make objects of all elements, and either of the bytes of every frame
//! or of none of the pixels. A slide has a million items before its pixels, and gigabytes of
//! pixels. Here items are looked at and forgotten, and a frame is a range of bytes. A length is
//! trusted only after a comparison with the file's.

use super::characters::Characters;
use crate::source::{self, Source};
use crate::{Error, Limits, Result};

/// Bytes read at once.
const WINDOW: u64 = 64 << 10;
/// Maximum nesting of sequences.
const DEPTH: usize = 16;

const CHARACTER_SET: u32 = 0x0008_0005;
pub(super) const PIXELS: u32 = 0x7fe0_0010;
pub(super) const ITEM: u32 = 0xfffe_e000;
const ITEM_END: u32 = 0xfffe_e00d;
pub(super) const SEQUENCE_END: u32 = 0xfffe_e0dd;

/// The head of an element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    /// Group and number.
    pub(super) tag: u32,
    /// Two letters; zeros for items.
    pub(super) vr: [u8; 2],
    /// `None` if the end is marked instead.
    pub(super) length: Option<u64>,
    /// Where its value begins.
    pub(super) at: u64,
}

/// Callbacks for the elements of a dataset, in their order.
pub(super) trait Visit {
    /// A value that is not a sequence. It may be read through the cursor or left alone.
    fn value(&mut self, cursor: &mut Cursor<'_>, element: &Element) -> Result<()>;

    /// A sequence begins; returns whether to enter it.
    fn sequence(&mut self, element: &Element) -> Result<bool>;

    /// An item of the sequence begins.
    fn item(&mut self) {}

    /// The item ends.
    fn end_item(&mut self) {}

    /// The sequence that was entered ends.
    fn end_sequence(&mut self) {}
}

/// Skips sequences of unknown length.
struct Nobody;

impl Visit for Nobody {
    fn value(&mut self, _: &mut Cursor<'_>, _: &Element) -> Result<()> {
        Ok(())
    }

    fn sequence(&mut self, _: &Element) -> Result<bool> {
        Ok(false)
    }
}

/// A position in a source.
pub(super) struct Cursor<'a> {
    source: &'a dyn Source,
    limits: &'a Limits,
    at: u64,
    window: Vec<u8>,
    start: u64,
    /// Bytes that may still be read; skipped bytes do not count.
    budget: u64,
    /// The character set of the dataset or item.
    characters: Characters,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a dyn Source, limits: &'a Limits, at: u64) -> Self {
        let (window, budget, characters) = (Vec::new(), limits.tables, Characters::default());
        Self { source, limits, at, window, start: 0, budget, characters }
    }

    /// The name of the source, for errors.
    pub(super) fn name(&self) -> &'a str {
        self.source.name()
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.source.length()
    }

    /// Goes to the end of a value that lies wholly inside the source.
    fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// The next few bytes.
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let length = N as u64;
        source::check(self.source, self.at, length)?;
        self.spend(length)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.look(self.at, length)?);
        self.at += length;
        Ok(bytes)
    }

    /// Bytes that lie wholly inside the source, at most one window of them.
    fn look(&mut self, at: u64, length: u64) -> Result<&[u8]> {
        let inside = at >= self.start && at + length <= self.start + self.window.len() as u64;
        if !inside {
            self.window = source::read(self.source, at, WINDOW.min(self.source.length() - at))?;
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(&self.window[from..from + length as usize])
    }

    fn spend(&mut self, length: u64) -> Result<()> {
        match self.budget.checked_sub(length) {
            Some(rest) => {
                self.budget = rest;
                Ok(())
            }
            None => Err(self.limit(format!("a dataset of {} bytes", self.limits.tables))),
        }
    }

    /// The head of the next element or item.
    pub(super) fn element(&mut self) -> Result<Element> {
        let start = self.at;
        let head: [u8; 8] = self.take()?;
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let tag = (u32::from(half(0)) << 16) | u32::from(half(2));
        let defined = |length: u32| (length != u32::MAX).then_some(u64::from(length));
        if tag >> 16 == 0xfffe {
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            return Ok(Element { tag, vr: [0; 2], length: defined(length), at: self.at });
        }
        let vr = [head[4], head[5]];
        let length = match &vr {
            b"OB" | b"OD" | b"OF" | b"OL" | b"OV" | b"OW" | b"SQ" | b"SV" | b"UC" | b"UN"
            | b"UR" | b"UT" | b"UV" => defined(u32::from_le_bytes(self.take()?)),
            [b'A'..=b'Z', b'A'..=b'Z'] => Some(half(6).into()),
            _ => {
                let what = format!("element {tag:08x} has no value representation");
                return Err(self.malformed(start, what));
            }
        };
        Ok(Element { tag, vr, length, at: self.at })
    }

    /// The bytes of a value.
    pub(super) fn value(&mut self, element: &Element) -> Result<Vec<u8>> {
        self.bytes(element, self.limits.value)
    }

    /// Why the value of an element is not read as a colour profile; `None` if it is.
    pub(super) fn refuse_profile(&self, element: &Element) -> Option<String> {
        self.limits.refuse_profile(element.length.unwrap_or(0))
    }

    /// The bytes of a value that is a table of offsets.
    pub(super) fn table(&mut self, element: &Element) -> Result<Vec<u8>> {
        self.bytes(element, self.limits.tables)
    }

    fn bytes(&mut self, element: &Element, most: u64) -> Result<Vec<u8>> {
        let length = element.length.unwrap_or(0);
        if length > most {
            return Err(self.limit(format!("element {:08x} of {length} bytes", element.tag)));
        }
        source::check(self.source, element.at, length)?;
        self.spend(length)?;
        if length <= WINDOW / 4 {
            return self.look(element.at, length).map(<[u8]>::to_vec);
        }
        source::read(self.source, element.at, length)
    }

    /// A value of ASCII, such as a code, a number or a UID, without the padding to an even length.
    pub(super) fn text(&mut self, element: &Element) -> Result<String> {
        Ok(Characters::utf8(&self.value(element)?))
    }

    /// Decodes the bytes of a value as text: in the character set of the dataset, if its
    /// representation allows others than ASCII.
    ///
    /// # Errors
    /// A character set that is not supported, unless the text is ASCII.
    pub(super) fn decode(&self, element: &Element, bytes: &[u8]) -> Result<String> {
        match &element.vr {
            b"LO" | b"LT" | b"PN" | b"SH" | b"ST" | b"UC" | b"UT" => {
                let decoded = self.characters.decode(bytes);
                decoded.map_err(|what| Error::Unsupported { name: self.name().into(), what })
            }
            _ => Ok(Characters::utf8(bytes)),
        }
    }

    /// A value of text that identifies a part of the slide. Different values stay different, in any
    /// character set.
    pub(super) fn identifier(&mut self, element: &Element) -> Result<String> {
        let bytes = self.value(element)?;
        Ok(self.decode(element, &bytes).unwrap_or_else(|_| Characters::latin1(&bytes)))
    }

    /// A value as text; `None` if its character set is not supported.
    pub(super) fn decoded(&mut self, element: &Element) -> Result<Option<String>> {
        let bytes = self.value(element)?;
        Ok(self.decode(element, &bytes).ok())
    }

    /// Visits the elements up to the pixels and returns the element of these; `None` if there is
    /// none.
    pub(super) fn walk(&mut self, visitor: &mut dyn Visit) -> Result<Option<Element>> {
        while !self.at_end() {
            let element = self.element()?;
            if element.tag == PIXELS {
                return Ok(Some(element));
            }
            self.visit(&element, 0, visitor)?;
        }
        Ok(None)
    }

    /// Skips an element.
    pub(super) fn skip(&mut self, element: &Element) -> Result<()> {
        self.visit(element, 0, &mut Nobody)
    }

    fn end(&self, element: &Element) -> Result<Option<u64>> {
        let Some(length) = element.length else { return Ok(None) };
        source::check(self.source, element.at, length)?;
        Ok(Some(element.at + length))
    }

    fn visit(&mut self, element: &Element, depth: usize, visitor: &mut dyn Visit) -> Result<()> {
        let end = self.end(element)?;
        match (end, &element.vr) {
            (_, b"SQ") => {
                if depth == DEPTH {
                    return Err(self.limit(format!("sequences more than {DEPTH} deep")));
                }
                if visitor.sequence(element)? {
                    self.items(end, depth, visitor)?;
                    visitor.end_sequence();
                    return Ok(());
                }
                match end {
                    Some(end) => {
                        self.seek(end);
                        Ok(())
                    }
                    None => self.items(None, depth, &mut Nobody),
                }
            }
            (Some(end), [b'A'..=b'Z', _]) => {
                if element.tag == CHARACTER_SET {
                    self.characters = Characters::of(&self.text(element)?);
                }
                visitor.value(self, element)?;
                self.seek(end);
                Ok(())
            }
            (None, b"OB" | b"OW") => self.fragments(),
            _ => {
                let what = format!("element {:08x} has no length, or is out of place", element.tag);
                Err(self.malformed(element.at, what))
            }
        }
    }

    fn items(&mut self, end: Option<u64>, depth: usize, visitor: &mut dyn Visit) -> Result<()> {
        while end.is_none_or(|end| self.at < end) {
            let item = self.element()?;
            match item.tag {
                ITEM => {}
                SEQUENCE_END if end.is_none() => return Ok(()),
                tag => {
                    return Err(self.malformed(item.at, format!("{tag:08x} instead of an item")));
                }
            }
            visitor.item();
            let inner = self.end(&item)?;
            let outer = self.characters.clone();
            while inner.is_none_or(|end| self.at < end) {
                let element = self.element()?;
                if element.tag == ITEM_END && inner.is_none() {
                    break;
                }
                self.visit(&element, depth + 1, visitor)?;
            }
            self.characters = outer;
            visitor.end_item();
        }
        Ok(())
    }

    /// Skips compressed pixels, for example of an icon.
    fn fragments(&mut self) -> Result<()> {
        loop {
            let item = self.element()?;
            match (item.tag, self.end(&item)?) {
                (ITEM, Some(end)) => self.seek(end),
                (SEQUENCE_END, _) => return Ok(()),
                _ => return Err(self.malformed(item.at, "a fragment is broken")),
            }
        }
    }

    pub(super) fn malformed(&self, at: u64, what: impl Into<String>) -> Error {
        Error::Malformed { name: self.source.name().into(), at, what: what.into() }
    }

    pub(super) fn limit(&self, what: String) -> Error {
        Error::Limit { name: self.source.name().into(), what }
    }
}
