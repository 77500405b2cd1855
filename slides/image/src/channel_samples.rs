//! Picks the values of one channel from the samples of a tile.

use crate::codec::Codec;
use crate::samples::{Layout, Number};
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};

/// The position of a channel's samples among those of a tile, which are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    /// The sample of the upper left pixel.
    pub(crate) first: u64,
    /// Distance from a pixel to its right neighbour.
    pub(crate) across: u64,
    /// Distance from a pixel to the one below it.
    pub(crate) down: u64,
}

impl Pick {
    /// One of `count` interleaved samples per pixel, in rows of `width` pixels.
    pub(crate) fn beside(sample: u64, count: u64, width: u32) -> Self {
        Self { first: sample, across: count, down: count * u64::from(width) }
    }

    /// All samples of a tile.
    pub(crate) fn alone(width: u32) -> Self {
        Self::beside(0, 1, width)
    }

    /// True if all pixels of a tile of that size are among so many samples.
    pub(crate) fn is_inside(&self, size: (u32, u32), samples: u64) -> bool {
        let (width, height) = size;
        let step = |each: u64, side: u32| each.checked_mul(u64::from(side.max(1)) - 1);
        let last = step(self.across, width)
            .zip(step(self.down, height))
            .and_then(|(across, down)| self.first.checked_add(across)?.checked_add(down));
        last.is_some_and(|last| last < samples)
    }
}

/// The type of picked values. `f32` is for samples that [are narrow](Samples::are_narrow).
pub(crate) trait Sample: Copy + From<u8> + From<i8> + From<u16> + From<i16> {
    fn of(value: f64) -> Self;
}

impl Sample for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Sample for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

/// The samples of a decompressed tile, one byte or more each.
pub(crate) struct Samples<'a> {
    tile: &'a StoredTile,
    /// `None` if the tile is absent: all samples then have the fill value.
    bytes: Option<Vec<u8>>,
}

impl<'a> Samples<'a> {
    pub(crate) fn of(tile: &'a StoredTile, limits: &Limits) -> Result<Self> {
        let bytes = match tile.layout.codec {
            Codec::Absent => None,
            _ => Some(tile.values(limits)?),
        };
        Ok(Self { tile, bytes })
    }

    fn wide(&self) -> usize {
        usize::from(self.tile.layout.bits.max(8) / 8)
    }

    /// Checks that a channel is in the tile.
    pub(crate) fn check(&self, pick: Pick) -> Result<()> {
        let Some(bytes) = &self.bytes else { return Ok(()) };
        let (layout, count) = (&self.tile.layout, bytes.len() / self.wide());
        if pick.is_inside((layout.width, layout.height), count as u64) {
            return Ok(());
        }
        let what = format!("a channel that is not among its {count} samples");
        Err(Error::Tile { tile: self.tile.name.clone(), what })
    }

    /// True if they are integers of at most 16 bits.
    pub(crate) fn are_narrow(&self) -> bool {
        let layout = &self.tile.layout;
        layout.bits <= 16 && matches!(layout.number, Number::Unsigned | Number::Signed)
    }

    /// Writes row `y` of a channel that was [checked](Self::check).
    pub(crate) fn row<T: Sample>(&self, pick: Pick, y: u32, into: &mut [T]) {
        match &self.bytes {
            Some(bytes) => values(&self.tile.layout, bytes, pick, y, into),
            None => into.fill(T::of(self.tile.layout.fill)),
        }
    }

    /// The bytes of the samples of a channel that was [checked](Self::check), in the first `width`
    /// x `height` pixels: row by row, each little endian.
    pub(crate) fn bytes(&self, pick: Pick, size: (u32, u32)) -> Vec<u8> {
        let (width, height) = size;
        let (layout, wide) = (&self.tile.layout, self.wide());
        let Some(bytes) = &self.bytes else {
            let fill = Layout { big_endian: false, ..*layout }.bytes(layout.fill);
            return fill.repeat(width as usize * height as usize);
        };
        let mut picked = Vec::with_capacity(width as usize * height as usize * wide);
        for y in 0..u64::from(height) {
            for x in 0..u64::from(width) {
                let at = (pick.first + pick.down * y + pick.across * x) as usize * wide;
                let sample = bytes.get(at..at + wide).unwrap_or_default();
                match layout.big_endian {
                    true => picked.extend(sample.iter().rev()),
                    false => picked.extend_from_slice(sample),
                }
            }
        }
        picked
    }
}

fn values<T: Sample>(layout: &Layout, samples: &[u8], pick: Pick, y: u32, into: &mut [T]) {
    let start = (pick.first + pick.down * u64::from(y)) as usize;
    let across = pick.across as usize;
    match (layout.number, layout.bits.max(8) / 8, layout.big_endian) {
        (Number::Unsigned, 1, _) => gather(samples, start, across, into, |[byte]| byte.into()),
        (Number::Signed, 1, _) => {
            gather(samples, start, across, into, |[byte]| (byte as i8).into())
        }
        (Number::Unsigned, 2, false) => {
            gather(samples, start, across, into, |bytes| u16::from_le_bytes(bytes).into())
        }
        (Number::Unsigned, 2, true) => {
            gather(samples, start, across, into, |bytes| u16::from_be_bytes(bytes).into())
        }
        (Number::Signed, 2, false) => {
            gather(samples, start, across, into, |bytes| i16::from_le_bytes(bytes).into())
        }
        (Number::Float, 4, false) => {
            gather(samples, start, across, into, |bytes| T::of(f32::from_le_bytes(bytes).into()))
        }
        (_, 2, _) => gather(samples, start, across, into, |b: [u8; 2]| T::of(layout.value(&b))),
        (_, 4, _) => gather(samples, start, across, into, |b: [u8; 4]| T::of(layout.value(&b))),
        _ => gather(samples, start, across, into, |b: [u8; 8]| T::of(layout.value(&b))),
    }
}

/// Adjacent samples have a loop of their own, which the compiler vectorises.
fn gather<const N: usize, T: Sample>(
    samples: &[u8],
    start: usize,
    across: usize,
    into: &mut [T],
    value: impl Fn([u8; N]) -> T,
) {
    let samples = samples.get(start * N..).unwrap_or_default();
    let each = |bytes: &[u8]| <[u8; N]>::try_from(bytes).map_or(T::of(0.0), &value);
    match across {
        1 => into.iter_mut().zip(samples.chunks_exact(N)).for_each(|(to, bytes)| *to = each(bytes)),
        _ => {
            for (number, to) in into.iter_mut().enumerate() {
                let at = number * across * N;
                *to = samples.get(at..at + N).map_or(T::of(0.0), each);
            }
        }
    }
}
