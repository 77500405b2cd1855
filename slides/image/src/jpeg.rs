//! JPEG as TIFF stores it: tiles without their tables (TIFF Technical Note 2, "abbreviated").

use crate::jpeg_blocks;
use crate::raster::Raster;
use seekwire_turbojpeg::Library;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

const SOI: [u8; 2] = [0xff, 0xd8];
const EOI: [u8; 2] = [0xff, 0xd9];
/// Adobe's application segment, declaring that there is no colour transform. Without it, decoders
/// take three components for YCbCr.
const RGB: [u8; 16] = [0xff, 0xee, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, 0];

/// Builds a complete JPEG file from a tile and the tables of its directory. `is_rgb`: the
/// components are red, green and blue, unless Adobe's segment declares otherwise.
pub(crate) fn merged(tile: &[u8], tables: &[u8], is_rgb: bool) -> Result<Vec<u8>, String> {
    let mut body = tile.strip_prefix(&SOI).ok_or("it does not begin as a JPEG")?;
    let tables = match tables {
        [] => tables,
        _ => tables.strip_prefix(&SOI).ok_or("its tables do not begin as a JPEG")?,
    };
    let tables = tables.strip_suffix(&EOI).unwrap_or(tables);
    let is_rgb = is_rgb && !header(tile).is_some_and(|header| header.adobe);
    let mut whole = Vec::with_capacity(tile.len() + tables.len() + RGB.len());
    whole.extend_from_slice(&SOI);
    if is_rgb {
        whole.extend_from_slice(&RGB);
        // If there is a JFIF segment, decoders always take the components for YCbCr.
        if let [0xff, 0xe0, high, low, b'J', b'F', b'I', b'F', ..] = body {
            let length = 2 + usize::from(u16::from_be_bytes([*high, *low]));
            body = body.get(length..).ok_or("it ends in its first segment")?;
        }
    }
    whole.extend_from_slice(tables);
    whole.extend_from_slice(body);
    Ok(whole)
}

/// Fields of a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JpegHeader {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) components: u8,
    /// Bits of a sample.
    pub(crate) precision: u8,
    /// True if every browser reads this kind of JPEG: sequential or progressive, with Huffman
    /// codes.
    pub(crate) is_common: bool,
    /// True if Adobe's segment precedes it.
    pub(crate) adobe: bool,
}

/// Reads the frame header.
pub(crate) fn header(jpeg: &[u8]) -> Option<JpegHeader> {
    let mut at = 2;
    let mut adobe = false;
    loop {
        let &[0xff, marker] = jpeg.get(at..at + 2)? else { return None };
        if marker == 0xff {
            at += 1;
            continue;
        }
        let length = usize::from(u16::from_be_bytes(jpeg.get(at + 2..at + 4)?.try_into().ok()?));
        let segment = jpeg.get(at + 4..at + 2 + length.max(2))?;
        match marker {
            0xc4 | 0xc8 | 0xcc => {}
            0xc0..=0xcf => {
                let height = u16::from_be_bytes(segment.get(1..3)?.try_into().ok()?);
                let width = u16::from_be_bytes(segment.get(3..5)?.try_into().ok()?);
                return Some(JpegHeader {
                    width: width.into(),
                    height: height.into(),
                    components: *segment.get(5)?,
                    precision: segment[0],
                    is_common: matches!(marker, 0xc0..=0xc2),
                    adobe,
                });
            }
            0xee => adobe |= segment.starts_with(b"Adobe"),
            0xd8..=0xda => return None,
            _ => {}
        }
        at += 2 + length;
    }
}

/// The missing part of a JPEG: the marker after its scans that ends it, or all scans of a component.
/// Decoders would fill it in.
pub(crate) fn missing(jpeg: &[u8]) -> Option<&'static str> {
    match unscanned(jpeg) {
        None => Some("its JPEG has no end"),
        Some(0) => None,
        Some(_) => Some("its JPEG lacks one of its colours"),
    }
}

/// Number of components of the frame without a scan; `None` if there is no scan with an end after
/// it.
fn unscanned(jpeg: &[u8]) -> Option<usize> {
    let (mut at, mut has_scan) = (SOI.len(), false);
    let mut components: Vec<u8> = Vec::new();
    loop {
        at += memchr::memchr(0xff, jpeg.get(at..)?)?;
        let marker = *jpeg.get(at + 1)?;
        match marker {
            0xd9 => return has_scan.then_some(components.len()),
            // Filling before a marker.
            0xff => at += 1,
            // A byte of a scan, and markers without a length.
            0x00 | 0x01 | 0xd0..=0xd8 => at += 2,
            _ => {
                let length = jpeg.get(at + 2..at + 4)?.try_into().ok()?;
                let next = at + 2 + usize::from(u16::from_be_bytes(length));
                let segment = jpeg.get(at + 4..next).unwrap_or_default();
                match (marker, segment) {
                    (0xc4 | 0xc8 | 0xcc, _) => {}
                    (0xc0..=0xcf, [_, _, _, _, _, _, of @ ..]) => {
                        components = of.chunks_exact(3).map(|component| component[0]).collect();
                    }
                    (0xda, [_, of @ ..]) => {
                        let scanned = of.chunks_exact(2);
                        components.retain(|one| scanned.clone().all(|other| other[0] != *one));
                    }
                    _ => {}
                }
                has_scan |= marker == 0xda;
                at = next;
            }
        }
    }
}

/// Spare bytes after decoded pixels: code that sends the pixels elsewhere appends their size
/// without copying them.
const ROOM: usize = 8;

/// Decodes a complete JPEG of at most `most` with libjpeg-turbo.
pub(crate) fn decode_by(
    library: &'static Library,
    jpeg: &[u8],
    most: (u32, u32),
    halvings: u32,
) -> Result<Raster, String> {
    let decoded = seekwire_turbojpeg::decode(library, jpeg, most, halvings, ROOM);
    let decoded = decoded.map_err(|error| error.to_string())?;
    let raster = Raster::new(decoded.width, decoded.height, decoded.bytes);
    raster.ok_or_else(|| "its JPEG does not have the expected size".into())
}

/// Decodes a complete JPEG of at most `width` x `height`.
pub(crate) fn decode(jpeg: &[u8], width: u32, height: u32) -> Result<Raster, String> {
    let JpegHeader { width: wide, height: high, .. } =
        header(jpeg).ok_or("its JPEG header is broken")?;
    if wide == 0 || high == 0 || wide > width || high > height {
        return Err(format!("its JPEG is {wide} x {high}, the tile {width} x {height}"));
    }
    // The decoder continues with zeros where the data end.
    if !jpeg_blocks::are_all(jpeg) {
        return Err("its JPEG ends too early".into());
    }
    let options = DecoderOptions::default()
        .set_max_width(wide as usize)
        .set_max_height(high as usize)
        // Otherwise it makes up what it cannot decode.
        .set_strict_mode(true)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(jpeg), options);
    let wrong = |error| format!("{error:?}");
    decoder.decode_headers().map_err(wrong)?;
    let length = decoder.output_buffer_size().ok_or("its JPEG header is broken")?;
    let mut pixels = vec![0; length + ROOM];
    decoder.decode_into(&mut pixels).map_err(wrong)?;
    pixels.truncate(length);
    Raster::new(wide, high, pixels).ok_or_else(|| "its JPEG is not of three colours".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_has_a_scan() {
        let frame = b"\xff\xd8\xff\xc0\0\x11\x08\0\x08\0\x08\x03\x01\x11\0\x02\x11\0\x03\x11\0";
        let scan = |components: &[u8]| {
            let length = (6 + 2 * components.len()) as u8;
            let of: Vec<u8> = components.iter().flat_map(|component| [*component, 0]).collect();
            let head = [0xff, 0xda, 0, length, components.len() as u8];
            [&head[..], &of, &[0, 63, 0, 0x55]].concat()
        };
        let of = |scans: &[&[u8]]| {
            let scans: Vec<u8> = scans.iter().flat_map(|components| scan(components)).collect();
            missing(&[&frame[..], &scans, &EOI].concat())
        };
        let lacks = Some("its JPEG lacks one of its colours");
        assert_eq!(of(&[&[1, 2, 3]]), None);
        assert_eq!(of(&[&[1], &[3], &[2], &[1]]), None);
        assert_eq!(of(&[&[1]]), lacks);
        assert_eq!(of(&[&[1, 2], &[2]]), lacks);
        assert_eq!(of(&[]), Some("its JPEG has no end"));
    }

    #[test]
    fn an_end_comes_after_a_scan_and_is_in_no_segment() {
        let start = b"\xff\xd8\xff\xe1\0\x04\xff\xd9\xff\xdb\0\x04\xff\xd9";
        let scan = b"\xff\xda\0\x04\xff\xd9\x01\xff\0\xff\xd0\x02\xff\xff";
        let of = |parts: &[&[u8]]| missing(&parts.concat()).is_some();
        assert!(of(&[start]) && of(&[start, &EOI]) && of(&[start, scan]));
        assert!(!of(&[start, scan, b"\xd9"]));
        assert!(!of(&[start, scan, b"\xd9 more \xff"]));
        // Another scan, after tables of its own.
        let tables = b"\xc4\0\x04\xff\xd9";
        assert!(of(&[start, scan, tables]) && of(&[start, scan, tables, scan]));
        assert!(!of(&[start, scan, tables, scan, b"\xd9"]));
        assert!(of(&[b""]) && of(&[&SOI]) && of(&[start, scan, b"\xc4\xff"]));
    }
}
