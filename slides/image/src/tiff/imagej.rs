//! ImageJ stacks: the description of the first image counts channels, slices and frames, and a
//! table has the colours and ranges of channels (`ij.io.TiffEncoder`).

use super::directory::{self, Directory, Reader};
use super::page::{NOT_SHOWN, Page};
use super::planes::{self, Described};
use crate::Result;
use crate::channels::{self, ChannelMetadata, Window};
use crate::grid::{Parts, microns};

/// The colours in which ImageJ shows channels by default.
const COLOURS: [[u8; 3]; 7] = [
    [255, 0, 0],
    [0, 255, 0],
    [0, 0, 255],
    [255, 255, 255],
    [0, 255, 255],
    [255, 0, 255],
    [255, 255, 0],
];

/// The table, and the lengths of its parts.
const COUNTS: u16 = 50838;
const TABLE: u16 = 50839;
const MAGIC: &[u8] = b"IJIJ";

pub(super) fn is(description: &str) -> bool {
    description.starts_with("ImageJ=")
}

/// Reads a stack; false if the file is a single image, or its pages do not form the stack.
pub(super) fn fill(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    chain: &[Directory],
    pages: &[Page<'_>],
    description: &str,
) -> Result<bool> {
    let first = &pages[0];
    let pairs = || description.lines().filter_map(|line| line.split_once('='));
    let word = |key: &str| pairs().find(|(name, _)| *name == key).map(|(_, value)| value.trim());
    let count = |key: &str| match word(key) {
        Some(text) => text.parse::<u32>().ok().filter(|count| *count > 0),
        None => Some(1),
    };
    let has_colours = planes::has_colours(first);
    let counts = [count("channels"), count("slices"), count("frames"), count("images")];
    let [Some(channels), Some(depth), Some(times), Some(images)] = counts else {
        parts.not_shown(NOT_SHOWN, "a stack with invalid counts");
        return Ok(false);
    };
    let window = number(word("min")).zip(number(word("max")));
    let mut said =
        vec![ChannelMetadata::default(); channels.min(channels::MOST as u32 + 1) as usize];
    if let [said] = &mut said[..] {
        said.window = window.and_then(|(least, most)| Window::new(least, most));
    }
    if channels > 1 {
        said.iter_mut().zip(COLOURS).for_each(|(said, colour)| said.colour = Some(colour));
    }
    table(reader, &chain[0], &mut said)?;
    // The full range was not chosen by anyone.
    let whole = Window::new(0.0, 255.0);
    if planes::is_of(first, crate::samples::Number::Unsigned, 8) {
        said.iter_mut().for_each(|said| said.window = said.window.filter(|of| Some(*of) != whole));
    }
    let is_grey = planes::is_grey(first, &said);
    let planes_of = (depth, times);
    if planes_of == (1, 1) && channels == 1 && (has_colours || is_grey) {
        return Ok(false);
    }
    let each = u64::from(depth) * u64::from(times);
    let all = each.checked_mul(channels.into());
    let samples = first.common(277).first().copied().unwrap_or(1);
    let why = if all != Some(images.into()) || images as usize > pages.len() {
        Some(format!(
            "{channels} x {depth} x {times} planes, {images} images, {} pages",
            pages.len()
        ))
    } else if !has_colours && samples > 1 || has_colours && channels > 1 {
        Some(format!("{channels} channels, but {samples} samples of a pixel"))
    } else {
        let mut reason = None;
        for (number, page) in pages.iter().enumerate().take(images as usize) {
            if let Some(why) = planes::unlike(reader, first, page)? {
                reason = Some(format!("page {number}: {why}"));
                break;
            }
        }
        reason
    };
    if let Some(why) = why {
        parts.not_shown(NOT_SHOWN, &format!("a stack: {why}"));
        return Ok(false);
    }
    // In the file, channels vary fastest, then slices, then frames.
    let number = |channel: u32, z: u32, t: u32| (t * depth + z) * channels + channel;
    let mut order = Vec::with_capacity(images as usize);
    for channel in 0..channels {
        for z in 0..depth {
            order.extend((0..times).map(|t| number(channel, z, t) as usize));
        }
    }
    let mut ordered = Vec::with_capacity(order.len());
    for number in order {
        ordered.push(Page::read(reader, &chain[number])?);
    }
    let microns = directory::resolution(reader, &chain[0])?;
    parts.microns = microns.or_else(|| resolution(reader, &chain[0], word("unit")));
    parts.properties.insert("tiff.ImageDescription".into(), description.into());
    let has_colours = has_colours || is_grey;
    let of = Described { said, samples: 1, has_colours, planes: planes_of };
    parts.format = "imagej";
    planes::fill(parts, reader, of, &ordered, &[])?;
    Ok(true)
}

fn number(text: Option<&str>) -> Option<f64> {
    text?.parse().ok()
}

/// Microns per pixel: TIFF has no such unit, so the description names it.
fn resolution(reader: &Reader<'_>, of: &Directory, unit: Option<&str>) -> Option<(f64, f64)> {
    let is_micron = ["micron", "um", "\\u00B5m", "µm"].contains(&unit?);
    let ratio = |tag: u16| reader.ratio(of, tag).ok().flatten();
    let (x, y) = ratio(282).zip(ratio(283)).filter(|_| is_micron)?;
    microns(1.0 / x, 1.0 / y)
}

/// Reads windows and colours from the table: a header counts the parts of each kind, which follow.
/// An inconsistent table is ignored.
fn table(reader: &mut Reader<'_>, of: &Directory, said: &mut [ChannelMetadata]) -> Result<()> {
    if reader.length(of, TABLE) > reader.limits.value || !of.has(COUNTS) {
        return Ok(());
    }
    let counts = reader.numbers(of, COUNTS)?.unwrap_or_default();
    let Some(bytes) = reader.bytes(of, TABLE)? else { return Ok(()) };
    let _ = parse(&bytes, &counts, reader.numbers.big_endian, said);
    Ok(())
}

fn parse(
    bytes: &[u8],
    counts: &[u64],
    big_endian: bool,
    said: &mut [ChannelMetadata],
) -> Option<()> {
    let head = usize::try_from(*counts.first()?).ok()?;
    let (head, mut rest) = bytes.split_at_checked(head)?;
    let mut counts = counts[1..].iter();
    let ordered = |bytes: &[u8]| -> Vec<u8> {
        if big_endian { bytes.to_vec() } else { bytes.iter().rev().copied().collect() }
    };
    let kinds = head.get(4..)?.chunks_exact(8);
    if ordered(&head[..4]) != MAGIC {
        return None;
    }
    let mut luts = 0;
    for kind in kinds {
        let count = u32::from_be_bytes(ordered(&kind[4..]).try_into().ok()?);
        for _ in 0..count {
            let length = usize::try_from(*counts.next()?).ok()?;
            let (part, after) = rest.split_at_checked(length)?;
            rest = after;
            match &ordered(&kind[..4])[..] {
                b"rang" if part.len() == 16 * said.len() => {
                    let value =
                        |bytes: &[u8]| Some(f64::from_be_bytes(ordered(bytes).try_into().ok()?));
                    for (said, pair) in said.iter_mut().zip(part.chunks_exact(16)) {
                        said.window = Window::new(value(&pair[..8])?, value(&pair[8..])?);
                    }
                }
                b"luts" if part.len() == 768 && luts < said.len() => {
                    // The last entry is the brightest.
                    let colour = [part[255], part[511], part[767]];
                    said[luts].colour = Some(colour).filter(|colour| *colour != [0; 3]);
                    luts += 1;
                }
                _ => {}
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with the ranges of two channels, and their colours.
    fn made(big_endian: bool) -> (Vec<u8>, Vec<u64>) {
        let order = |bytes: &[u8]| -> Vec<u8> {
            if big_endian { bytes.to_vec() } else { bytes.iter().rev().copied().collect() }
        };
        let mut bytes = order(MAGIC);
        for (kind, count) in [(b"rang", 1_u32), (b"luts", 2)] {
            bytes.extend(order(kind));
            bytes.extend(order(&count.to_be_bytes()));
        }
        let head = bytes.len() as u64;
        for value in [5.0, 50.0, 7.0, 70.0_f64] {
            bytes.extend(order(&value.to_be_bytes()));
        }
        for colour in [[255, 128, 0], [0, 0, 200]] {
            bytes.extend(
                colour.iter().flat_map(|most| (0..=255).map(move |at| (at * most / 255) as u8)),
            );
        }
        (bytes, vec![head, 32, 768, 768])
    }

    #[test]
    fn a_table_has_windows_and_colours_and_broken_ones_do_no_harm() {
        for big_endian in [false, true] {
            let (bytes, counts) = made(big_endian);
            let mut said = vec![ChannelMetadata::default(); 2];
            parse(&bytes, &counts, big_endian, &mut said).unwrap();
            assert_eq!(said[0].window, Window::new(5.0, 50.0));
            assert_eq!(said[1].window, Window::new(7.0, 70.0));
            assert_eq!(said[0].colour, Some([255, 128, 0]));
            assert_eq!(said[1].colour, Some([0, 0, 200]));
            for length in 0..bytes.len() {
                let mut said = vec![ChannelMetadata::default(); 2];
                let _ = parse(&bytes[..length], &counts, big_endian, &mut said);
            }
            for wrong in [&[][..], &[u64::MAX], &[3], &[20, u64::MAX, 768], &[20]] {
                assert_eq!(parse(&bytes, wrong, big_endian, &mut said), None, "{wrong:?}");
            }
        }
    }
}
