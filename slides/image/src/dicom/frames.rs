//! Locates the frames of an instance: native ones follow each other; encapsulated ones are in items
//! (DICOM PS3.5, annex A.4), found by one of two tables or, without these, from item to item.

use super::element::{Element, ITEM, SEQUENCE_END};
use super::header::number;
use crate::source::{self, Source};
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Items that one call visits at most to find a frame. The next call continues from there.
const LOOKS: u32 = 1 << 20;
/// Items visited before other callers get their turn.
const TOGETHER: u32 = 256;

/// How the bytes of a frame are found.
#[derive(Debug)]
pub(super) enum Frames {
    /// All of the same length.
    Native { at: u64, each: u64 },
    /// Where the first item of each frame is.
    Known(Vec<u64>),
    /// Not known until it is looked for.
    Walked(Walk),
}

/// The extent of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameSize {
    /// The length of a native one.
    pub(super) bytes: u64,
    /// True if an encapsulated one is always one item, as in RLE (PS3.5, section A.4.2).
    pub(super) is_item: bool,
}

/// The walk from item to item.
#[derive(Debug)]
pub(super) struct Walk {
    /// True if each item is a frame.
    is_item: bool,
    /// Not locked during reads, so that a caller that asks for a known frame does not wait.
    table: Mutex<FrameTable>,
    /// Held by the thread that reads: others would read the same items.
    turn: Mutex<()>,
}

/// Frames found so far.
#[derive(Debug)]
struct FrameTable {
    starts: Vec<u64>,
    position: ScanPosition,
}

/// How far the walk has come.
#[derive(Debug, Clone, Copy)]
struct ScanPosition {
    at: u64,
    fragments: u64,
    ended: bool,
}

impl Frames {
    /// Builds this from the element of the pixels.
    pub(super) fn new(
        source: &dyn Source,
        limits: &Limits,
        pixels: &Element,
        frames: u32,
        size: FrameSize,
        offsets: Option<Vec<u64>>,
    ) -> Result<Self> {
        let each = size.bytes;
        let malformed = |at, what| Error::Malformed { name: source.name().into(), at, what };
        if let Some(length) = pixels.length {
            source::check(source, pixels.at, length)?;
            if u64::from(frames).checked_mul(each).is_none_or(|all| all > length) {
                let what = format!("{frames} frames of {each} bytes, but {length} bytes of them");
                return Err(malformed(pixels.at, what));
            }
            return Ok(Self::Native { at: pixels.at, each });
        }
        let (tag, length) = item(source, pixels.at)?;
        if tag != ITEM {
            return Err(malformed(pixels.at, "the pixels have no first item".into()));
        }
        let start = pixels.at + 8;
        source::check(source, start, length)?;
        let first = start + length;
        let relative = match offsets {
            Some(offsets) => offsets,
            None if length == 0 => {
                let position = ScanPosition { at: first, fragments: 0, ended: false };
                let table = Mutex::new(FrameTable { starts: Vec::new(), position });
                let is_item = size.is_item;
                return Ok(Self::Walked(Walk { is_item, table, turn: Mutex::new(()) }));
            }
            None if length > limits.tables => {
                let what = format!("a table of {length} bytes");
                return Err(Error::Limit { name: source.name().into(), what });
            }
            None => source::read(source, start, length)?.chunks_exact(4).map(number).collect(),
        };
        if relative.len() != frames as usize {
            let what = format!("offsets of {} frames, of which there are {frames}", relative.len());
            return Err(malformed(start, what));
        }
        let absolute = |offset: u64| first.checked_add(offset).filter(|at| *at < source.length());
        let starts: Option<Vec<u64>> = relative.into_iter().map(absolute).collect();
        let Some(starts) = starts else {
            return Err(malformed(start, "a frame begins beyond the end of the file".into()));
        };
        if !starts.is_sorted_by(|one, next| one < next) {
            return Err(malformed(start, "the offsets of frames are not in order".into()));
        }
        Ok(Self::Known(starts))
    }

    /// Bytes of memory for the offsets of so many frames, once all have been found.
    pub(super) fn kept(&self, frames: u32) -> u64 {
        match self {
            Self::Native { .. } => 0,
            Self::Known(_) | Self::Walked(_) => 8 * u64::from(frames),
        }
    }

    /// The bytes of a frame, at most as many as `limits` allows.
    pub(super) fn read(
        &self,
        source: &dyn Source,
        limits: &Limits,
        frame: u32,
        frames: u32,
    ) -> Result<Bytes> {
        let number = frame as usize;
        let (at, end) = match self {
            Self::Native { at, each } => {
                if *each > limits.stored {
                    return Err(too_long(source, frame, *each));
                }
                return Ok(source::read(source, at + each * u64::from(frame), *each)?.into());
            }
            Self::Known(starts) => (starts[number], starts.get(number + 1).copied()),
            Self::Walked(walk) => {
                let (at, end) = walk.find(source, frame, frames)?;
                (at, Some(end))
            }
        };
        fragments(source, limits, frame, at, end)
    }
}

impl Walk {
    fn table(&self) -> MutexGuard<'_, FrameTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a frame begins and ends.
    fn find(&self, source: &dyn Source, frame: u32, frames: u32) -> Result<(u64, u64)> {
        let number = frame as usize;
        for _ in 0..LOOKS / TOGETHER {
            if let Some(bounds) = self.table().frame(number, source)? {
                return Ok(bounds);
            }
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let (known_starts, mut position) = {
                let table = self.table();
                (table.starts.len(), table.position)
            };
            let mut starts = Vec::new();
            let mut looked = Ok(());
            for _ in 0..TOGETHER {
                let count = known_starts + starts.len();
                if looked.is_err() || position.ended || count > number + 1 {
                    break;
                }
                let begins = self.is_item || count == 0;
                looked = position.step(source, begins, frames.into()).map(|start| {
                    starts.extend(start);
                });
            }
            let mut table = self.table();
            table.starts.append(&mut starts);
            table.position = position;
            looked?;
        }
        if let Some(bounds) = self.table().frame(number, source)? {
            return Ok(bounds);
        }
        let what =
            format!("frame {} comes after {LOOKS} items that were not visited yet", frame + 1);
        Err(Error::Limit { name: source.name().into(), what })
    }
}

impl FrameTable {
    /// Where a frame begins and ends; `None` if that is not known yet.
    fn frame(&self, number: usize, source: &dyn Source) -> Result<Option<(u64, u64)>> {
        let ScanPosition { at, ended, .. } = self.position;
        if !ended && self.starts.len() <= number + 1 {
            return Ok(None);
        }
        let end = self.starts.get(number + 1).copied().unwrap_or(at);
        if let Some(start) = self.starts.get(number) {
            return Ok(Some((*start, end)));
        }
        let what = format!("the frames end before frame {}", number + 1);
        Err(Error::Malformed { name: source.name().into(), at, what })
    }
}

impl ScanPosition {
    /// Visits one more item; returns where a frame begins.
    fn step(&mut self, source: &dyn Source, begins: bool, frames: u64) -> Result<Option<u64>> {
        // Including the first bytes of its contents.
        let length = source.length().saturating_sub(self.at).clamp(8, 12);
        let head = source::read(source, self.at, length)?;
        let (tag, length) = parsed(&head);
        if tag == SEQUENCE_END {
            self.ended = true;
            return Ok(None);
        }
        let data = self.at + 8;
        source::check(source, data, length)?;
        // A frame may be in several items, but no writer makes them that small.
        if tag != ITEM || self.fragments >= 1024 + 16 * frames {
            let what = "the items of the pixels are broken".into();
            return Err(Error::Malformed { name: source.name().into(), at: self.at, what });
        }
        // Only the first fragment of a frame begins as a JPEG or a JPEG 2000 does.
        let begin = &head[8..head.len().min(8 + length.min(4) as usize)];
        let is_first = begin.starts_with(&[0xff, 0xd8]) || begin == [0xff, 0x4f, 0xff, 0x51];
        let begins = begins || (frames > 1 && is_first);
        let start = begins.then_some(self.at);
        self.fragments += 1;
        self.at = data + length;
        Ok(start)
    }
}

/// Tag and length of an item.
fn item(source: &dyn Source, at: u64) -> Result<(u32, u64)> {
    Ok(parsed(&source::read(source, at, 8)?))
}

fn parsed(head: &[u8]) -> (u32, u64) {
    let tag = (number(&head[..2]) << 16) | number(&head[2..4]);
    (tag as u32, number(&head[4..8]))
}

/// Joins the fragments of a frame. Without an `end`, the frame is the last one.
fn fragments(
    source: &dyn Source,
    limits: &Limits,
    frame: u32,
    mut at: u64,
    end: Option<u64>,
) -> Result<Bytes> {
    if let Some(end) = end {
        // One read suffices where, as usual, the frame is one fragment.
        let length = end - at;
        if length > limits.stored {
            return Err(too_long(source, frame, length));
        }
        let run = Bytes::from(source::read(source, at, length)?);
        let alone = run.get(4..8).is_some_and(|bytes| number(bytes) + 8 == length);
        if alone && run[..4] == [0xfe, 0xff, 0x00, 0xe0] {
            return Ok(run.slice(8..));
        }
    }
    let mut whole = Vec::new();
    for _ in 0..limits.entries {
        if end.is_some_and(|end| at >= end) {
            return Ok(whole.into());
        }
        let (tag, length) = item(source, at)?;
        match tag {
            ITEM => {}
            SEQUENCE_END if !whole.is_empty() => return Ok(whole.into()),
            _ => {
                let what = format!("an item of frame {} is broken", frame + 1);
                return Err(Error::Malformed { name: source.name().into(), at, what });
            }
        }
        if whole.len() as u64 + length > limits.stored {
            return Err(too_long(source, frame, whole.len() as u64 + length));
        }
        whole.extend(source::read(source, at + 8, length)?);
        at += 8 + length;
    }
    let what = format!("frame {} is in more than {} fragments", frame + 1, limits.entries);
    Err(Error::Limit { name: source.name().into(), what })
}

fn too_long(source: &dyn Source, frame: u32, length: u64) -> Error {
    let what = format!("frame {} of {length} bytes", frame + 1);
    Error::Limit { name: source.name().into(), what }
}
