//! TIFF 6.0 and BigTIFF: the chain of image file directories, and their entries.

use crate::grid::microns;
use crate::source::{self, Source};
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// An entry whose value is read when it is needed.
#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: u16,
    count: u64,
    /// Where the value is, even if it is inside the entry.
    at: u64,
}

impl Entry {
    fn size(&self) -> Option<u64> {
        match self.kind {
            1 | 2 | 6 | 7 => Some(1),
            3 | 8 => Some(2),
            4 | 9 | 11 | 13 => Some(4),
            5 | 10 | 12 | 16 | 17 | 18 => Some(8),
            _ => None,
        }
    }

    /// Bytes of the value; `None` if type or count are invalid.
    fn length(&self) -> Option<u64> {
        self.size()?.checked_mul(self.count)
    }
}

/// How numbers are stored in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) big_endian: bool,
    big: bool,
}

impl Numbers {
    fn get(self, bytes: &[u8]) -> u64 {
        let join = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
        if self.big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) }
    }
}

/// An image file directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) at: u64,
    entries: BTreeMap<u16, Entry>,
}

/// A file being read.
pub(super) struct Reader<'a> {
    pub(super) source: &'a Arc<dyn Source>,
    pub(super) limits: &'a Limits,
    pub(super) numbers: Numbers,
    /// True if an Aperio scanner wrote it.
    pub(super) is_aperio: bool,
    first: u64,
    seen: HashSet<u64>,
    /// Bytes left for tables.
    tables: u64,
    /// Values that several directories may share, by their offset and length.
    shared: BTreeMap<(u64, u64), Bytes>,
}

impl<'a> Reader<'a> {
    /// Reads the header; `None` if the file is not a TIFF.
    pub(super) fn new(source: &'a Arc<dyn Source>, limits: &'a Limits) -> Result<Option<Self>> {
        let start = source::read(&**source, 0, source.length().min(16))?;
        let big_endian = match start.get(..2) {
            Some(b"II") => false,
            Some(b"MM") => true,
            _ => return Ok(None),
        };
        let numbers = Numbers { big_endian, big: false };
        let (big, first) = match (start.len(), numbers.get(start.get(2..4).unwrap_or_default())) {
            (8.., 42) => (false, numbers.get(&start[4..8])),
            (16.., 43) if numbers.get(&start[4..6]) == 8 => (true, numbers.get(&start[8..16])),
            _ => return Ok(None),
        };
        let numbers = Numbers { big_endian, big };
        let (seen, tables, shared) = (HashSet::new(), limits.tables, BTreeMap::new());
        Ok(Some(Self { source, limits, numbers, is_aperio: false, first, seen, tables, shared }))
    }

    /// The directories of the chain that begins at the header.
    pub(super) fn chain(&mut self) -> Result<Vec<Directory>> {
        let mut directories = Vec::new();
        let mut at = self.first;
        while at != 0 {
            let (directory, next) = self.directory(at)?;
            directories.push(directory);
            at = next;
        }
        Ok(directories)
    }

    /// The directories to which this one points as reduced images.
    pub(super) fn below(&mut self, directory: &Directory) -> Result<Vec<Directory>> {
        let offsets = self.numbers(directory, SUB_IFDS)?.unwrap_or_default();
        offsets.into_iter().map(|at| Ok(self.directory(at)?.0)).collect()
    }

    fn directory(&mut self, at: u64) -> Result<(Directory, u64)> {
        if !self.seen.insert(at) {
            return Err(self.malformed(at, "a directory that was there before: a loop"));
        }
        if self.seen.len() > self.limits.directories {
            return Err(self.limit(format!("more than {} directories", self.limits.directories)));
        }
        let (head, each, word) = if self.numbers.big { (8, 20, 8) } else { (2, 12, 4) };
        let count = self.numbers.get(&source::read(&**self.source, at, head)?);
        if count > self.limits.entries as u64 {
            return Err(self.limit(format!("a directory of {count} entries at byte {at}")));
        }
        // Memory for the entries.
        let cost = count * size_of::<(u16, Entry)>() as u64;
        let left = self.tables.checked_sub(cost);
        self.tables =
            left.ok_or_else(|| self.limit(format!("another directory of {count} entries")))?;
        // The read above has shown that `at + head` is inside the file.
        let start = at + head;
        let bytes = source::read(&**self.source, start, count * each + word)?;
        let (entries, next) = bytes.split_at((count * each) as usize);
        let mut directory = Directory { at, entries: BTreeMap::new() };
        for (number, bytes) in (0..).zip(entries.chunks_exact(each as usize)) {
            let value = 4 + word as usize;
            let mut entry = Entry {
                kind: self.numbers.get(&bytes[2..4]) as u16,
                count: self.numbers.get(&bytes[4..value]),
                at: start + number * each + value as u64,
            };
            if entry.length().is_none_or(|all| all > word) {
                entry.at = self.numbers.get(&bytes[value..value + word as usize]);
            }
            directory.entries.insert(self.numbers.get(&bytes[..2]) as u16, entry);
        }
        Ok((directory, self.numbers.get(next)))
    }

    /// The bytes of a value.
    pub(super) fn bytes(&self, directory: &Directory, tag: u16) -> Result<Option<Vec<u8>>> {
        self.value(directory, tag, self.limits.value)
    }

    /// Bytes of a value.
    pub(super) fn length(&self, directory: &Directory, tag: u16) -> u64 {
        directory.entries.get(&tag).and_then(Entry::length).unwrap_or(0)
    }

    fn value(&self, directory: &Directory, tag: u16, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(entry) = directory.entries.get(&tag) else { return Ok(None) };
        let Some(length) = entry.length() else {
            return Err(
                self.malformed(directory.at, format!("tag {tag} has a broken type or count"))
            );
        };
        if length > most {
            return Err(self.limit(format!("tag {tag} of {length} bytes at byte {}", entry.at)));
        }
        source::read(&**self.source, entry.at, length).map(Some)
    }

    /// The bytes of a value that is kept for each directory; empty without such a tag. Values at
    /// the same offset are in memory once, and all of them count as tables.
    pub(super) fn shared(&mut self, directory: &Directory, tag: u16) -> Result<Bytes> {
        let Some(entry) = directory.entries.get(&tag) else { return Ok(Bytes::new()) };
        let length = entry.length().unwrap_or(0);
        if let Some(shared) = self.shared.get(&(entry.at, length)) {
            return Ok(shared.clone());
        }
        if length > self.tables {
            return Err(self.limit(format!("tag {tag} of {length} bytes at byte {}", entry.at)));
        }
        let bytes = Bytes::from(self.bytes(directory, tag)?.unwrap_or_default());
        self.tables -= length;
        self.shared.insert((entry.at, length), bytes.clone());
        Ok(bytes)
    }

    /// A text, up to its first zero byte.
    pub(super) fn text(&self, directory: &Directory, tag: u16) -> Result<Option<String>> {
        Ok(self.bytes(directory, tag)?.map(|bytes| text(&bytes)))
    }

    /// At most `most` bytes of a text.
    pub(super) fn start(&self, directory: &Directory, tag: u16, most: u64) -> Result<String> {
        let Some(entry) = directory.entries.get(&tag) else { return Ok(String::new()) };
        let length = entry.length().unwrap_or(0).min(most);
        Ok(text(&source::read(&**self.source, entry.at, length)?))
    }

    /// Integers.
    pub(super) fn numbers(&mut self, directory: &Directory, tag: u16) -> Result<Option<Vec<u64>>> {
        let Some(entry) = directory.entries.get(&tag).copied() else { return Ok(None) };
        let size = match entry.kind {
            1 | 3 | 4 | 13 | 16 | 18 => entry.size().unwrap_or(1),
            _ => return Err(self.malformed(directory.at, format!("tag {tag} is not a number"))),
        };
        // In memory each takes eight bytes.
        let cost = entry.count.saturating_mul(8);
        if cost > self.tables {
            return Err(self.limit(format!("tag {tag} has {} values", entry.count)));
        }
        let bytes = self.value(directory, tag, self.tables)?.unwrap_or_default();
        self.tables -= cost;
        let numbers = self.numbers;
        Ok(Some(bytes.chunks_exact(size as usize).map(|bytes| numbers.get(bytes)).collect()))
    }

    /// The first integer of a tag.
    pub(super) fn number(&mut self, directory: &Directory, tag: u16) -> Result<Option<u64>> {
        Ok(self.numbers(directory, tag)?.and_then(|numbers| numbers.first().copied()))
    }

    /// Ratios.
    pub(super) fn ratios(&self, directory: &Directory, tag: u16) -> Result<Option<Vec<f64>>> {
        if directory.entries.get(&tag).is_none_or(|entry| entry.kind != 5) {
            return Ok(None);
        }
        let bytes = self.bytes(directory, tag)?.unwrap_or_default();
        let ratio =
            |pair: &[u8]| self.numbers.get(&pair[..4]) as f64 / self.numbers.get(&pair[4..]) as f64;
        Ok(Some(bytes.chunks_exact(8).map(ratio).collect()))
    }

    /// The first ratio of a tag.
    pub(super) fn ratio(&self, directory: &Directory, tag: u16) -> Result<Option<f64>> {
        Ok(self.ratios(directory, tag)?.and_then(|ratios| ratios.first().copied()))
    }

    /// The first number of a tag, of any type; `None` if it is not finite.
    pub(super) fn real(&self, directory: &Directory, tag: u16) -> Result<Option<f64>> {
        let Some(bytes) = self.bytes(directory, tag)? else { return Ok(None) };
        let (kind, size) = match directory.entries.get(&tag) {
            Some(entry) => (entry.kind, entry.size().unwrap_or(0) as usize),
            None => return Ok(None),
        };
        let Some(bytes) = bytes.get(..size) else { return Ok(None) };
        let word = self.numbers.get(bytes);
        let value = match kind {
            6 => f64::from(word as i8),
            8 => f64::from(word as i16),
            9 => f64::from(word as i32),
            11 => f64::from(f32::from_bits(word as u32)),
            12 => f64::from_bits(word),
            17 => word as i64 as f64,
            1 | 3 | 4 | 16 => word as f64,
            _ => return Ok(None),
        };
        Ok(Some(value).filter(|value| value.is_finite()))
    }

    pub(super) fn malformed(&self, at: u64, what: impl Into<String>) -> Error {
        Error::Malformed { name: self.source.name().into(), at, what: what.into() }
    }

    pub(super) fn limit(&self, what: String) -> Error {
        Error::Limit { name: self.source.name().into(), what }
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::Unsupported { name: self.source.name().into(), what: what.into() }
    }
}

fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim_end().to_owned()
}

pub(super) const DESCRIPTION: u16 = 270;
pub(super) const SUB_IFDS: u16 = 330;
pub(super) const ICC: u16 = 34675;

impl Directory {
    pub(super) fn has(&self, tag: u16) -> bool {
        self.entries.contains_key(&tag)
    }
}

/// Microns per pixel, from the resolution.
pub(super) fn resolution(
    reader: &mut Reader<'_>,
    directory: &Directory,
) -> Result<Option<(f64, f64)>> {
    let unit = match reader.number(directory, 296)? {
        Some(2) => 25_400.0,
        Some(3) => 10_000.0,
        _ => return Ok(None),
    };
    let x = reader.ratio(directory, 282)?.unwrap_or(0.0);
    let y = reader.ratio(directory, 283)?.unwrap_or(0.0);
    Ok(microns(unit / x, unit / y))
}
