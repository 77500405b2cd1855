//! Decodes and encodes one image.

use crate::{Error, Library, Result};
use std::ffi::{c_int, c_ulong};

/// Red, green and blue, a byte each.
const TJPF_RGB: c_int = 0;
const TJSAMP_444: c_int = 0;
const TJSAMP_420: c_int = 2;
/// Makes an image of more than 500 scans, which would take very long, an error (since version 2.1).
const TJFLAG_LIMITSCANS: c_int = 32_768;
/// Makes a warning an error: the library warns when it makes up missing data.
const TJFLAG_STOPONWARNING: c_int = 8192;
/// The buffer must not be replaced by a longer one.
const TJFLAG_NOREALLOC: c_int = 1024;

/// The warning about needless bytes before the end of an image.
const BEFORE_END: &str = "extraneous bytes before marker 0xd9";
/// The marker that defines restarts.
const RESTARTS: [u8; 2] = [0xff, 0xdd];

/// Pixels, three bytes each, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// `width * height * 3` bytes.
    pub bytes: Vec<u8>,
}

/// Decodes a complete JPEG of at most the size `most`, scaled by 1, 1/2, 1/4 or 1/8: `halvings` is
/// from 0 to 3. A side that is not a multiple is rounded up. The result has room for `spare` more
/// bytes after the pixels.
///
/// # Errors
/// An image that cannot be read, whose data end too early, or that is larger.
pub fn decode(
    library: &'static Library,
    jpeg: &[u8],
    most: (u32, u32),
    halvings: u32,
    spare: usize,
) -> Result<Pixels> {
    let instance = library.decompressor()?;
    let length = c_ulong::try_from(jpeg.len()).map_err(|_| argument("it is too long"))?;
    let (mut wide, mut high, mut sampling) = (0, 0, 0);
    // SAFETY: the handle is open, and only this thread uses it; the length is that of the bytes,
    // and the numbers outlive the call.
    let read = unsafe {
        (instance.functions().header)(
            instance.raw(),
            jpeg.as_ptr(),
            length,
            &mut wide,
            &mut high,
            &mut sampling,
        )
    };
    let (Ok(width), Ok(height)) = (u32::try_from(wide), u32::try_from(high)) else {
        return Err(argument("its JPEG has no size"));
    };
    if read != 0 {
        instance.error()?;
    }
    if width == 0 || height == 0 || width > most.0 || height > most.1 {
        let (right, bottom) = most;
        return Err(argument(&format!(
            "its JPEG is {width} x {height}, the tile {right} x {bottom}"
        )));
    }
    let scaled = |side: u32| side.div_ceil(1 << halvings.min(3));
    let (width, height) = (scaled(width), scaled(height));
    let mut bytes = Vec::new();
    let needed = width as usize * 3 * height as usize;
    bytes.try_reserve_exact(needed + spare).map_err(|_| argument("there is no memory"))?;
    bytes.resize(needed, 128);
    let mut decoded = |flags: c_int| {
        // SAFETY: as above; `bytes` has room for so many rows of three bytes per pixel, and the
        // library can scale to these sizes: its TJSCALED() also rounds up.
        let decoded = unsafe {
            (instance.functions().decompress)(
                instance.raw(),
                jpeg.as_ptr(),
                length,
                bytes.as_mut_ptr(),
                width as c_int,
                0,
                height as c_int,
                TJPF_RGB,
                TJFLAG_LIMITSCANS | flags,
            )
        };
        decoded == 0
    };
    if !decoded(TJFLAG_STOPONWARNING) {
        let what = instance.message();
        // Some encoders leave bytes before the end. That is the last warning then, unless the
        // library looked for the marker of a restart.
        let is_end = what.contains(BEFORE_END) && !jpeg.windows(2).any(|pair| pair == RESTARTS);
        if !is_end {
            return Err(Error::Broken(what));
        }
        if !decoded(0) {
            instance.error()?;
        }
    }
    Ok(Pixels { width, height, bytes })
}

/// Encodes pixels as a baseline JPEG with a quality from 1 to 100, with one sample of each colour
/// difference for each pixel or for 2 x 2 of them.
///
/// # Errors
/// A size that a JPEG cannot have, or a number of bytes that does not match the size.
pub fn encode(
    library: &'static Library,
    bytes: &[u8],
    size: (u32, u32),
    quality: u8,
    has_full_colour: bool,
) -> Result<Vec<u8>> {
    let (width, height) = size;
    let side = |side: u32| u16::try_from(side).ok().filter(|side| *side > 0).map(c_int::from);
    let (Some(wide), Some(high)) = (side(width), side(height)) else {
        return Err(argument(&format!("{width} x {height} pixels in a JPEG")));
    };
    if bytes.len() as u64 != u64::from(width) * u64::from(height) * 3 {
        return Err(argument("the number of pixels does not match the size"));
    }
    let instance = library.compressor()?;
    let sampling = if has_full_colour { TJSAMP_444 } else { TJSAMP_420 };
    // SAFETY: it takes only numbers.
    let most = unsafe { (instance.functions().buffer_size)(wide, high, sampling) };
    let most = usize::try_from(most).ok().filter(|most| *most < 1 << 31);
    let most = most.ok_or_else(|| argument("it would be too long"))?;
    let mut file = Vec::new();
    file.try_reserve_exact(most).map_err(|_| argument("there is no memory"))?;
    file.resize(most, 0);
    let (mut at, mut length) = (file.as_mut_ptr(), most as c_ulong);
    // SAFETY: the handle is open, and only this thread uses it; the number of pixels matches the
    // size; the buffer has the length that the library requires, and is not replaced.
    let encoded = unsafe {
        (instance.functions().compress)(
            instance.raw(),
            bytes.as_ptr(),
            wide,
            0,
            high,
            TJPF_RGB,
            &mut at,
            &mut length,
            sampling,
            c_int::from(quality.clamp(1, 100)),
            TJFLAG_NOREALLOC,
        )
    };
    if encoded != 0 {
        instance.error()?;
    }
    file.truncate(usize::try_from(length).unwrap_or(most).min(most));
    Ok(file)
}

fn argument(what: &str) -> Error {
    Error::Argument(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> &'static Library {
        Library::get().expect("libjpeg-turbo is installed (scripts/deps test installs it)")
    }

    /// Smooth colours, which JPEG preserves well.
    fn pixels(width: u32, height: u32) -> Vec<u8> {
        let of = |x: u32, y: u32| [x * 200 / width, y * 200 / height, 128].map(|value| value as u8);
        (0..height).flat_map(|y| (0..width).flat_map(move |x| of(x, y))).collect()
    }

    fn difference(one: &[u8], other: &[u8]) -> u8 {
        assert_eq!(one.len(), other.len());
        one.iter().zip(other).map(|(one, other)| one.abs_diff(*other)).max().unwrap()
    }

    #[test]
    fn pixels_come_back_and_another_decoder_sees_the_same() {
        for (size, has_full_colour) in [((64, 48), true), ((61, 47), false), ((1, 1), false)] {
            let before = pixels(size.0, size.1);
            let file = encode(library(), &before, size, 95, has_full_colour).unwrap();
            let after = decode(library(), &file, size, 0, 8).unwrap();
            assert_eq!((after.width, after.height), size);
            assert!(after.bytes.capacity() >= after.bytes.len() + 8);
            assert!(difference(&after.bytes, &before) < 16, "{size:?}");
            let other = image::load_from_memory(&file).unwrap().into_rgb8();
            assert_eq!(other.dimensions(), size);
            assert!(difference(&other, &after.bytes) < 8, "{size:?}");
        }
    }

    #[test]
    fn smaller_sizes_are_means() {
        let size = (64, 48);
        let file = encode(library(), &pixels(64, 48), size, 95, true).unwrap();
        for halvings in 1..=3 {
            let small = decode(library(), &file, size, halvings, 0).unwrap();
            let side = 1_u32 << halvings;
            assert_eq!((small.width, small.height), (64 / side, 48 / side));
            let whole = pixels(64, 48);
            for (at, pixel) in (0..).zip(small.bytes.chunks_exact(3)) {
                let (left, top) = (at % small.width * side, at / small.width * side);
                for colour in 0..3 {
                    let all = (0..side * side).map(|of| {
                        let (x, y) = (left + of % side, top + of / side);
                        u32::from(whole[((y * 64 + x) * 3) as usize + colour])
                    });
                    let mean = all.sum::<u32>() / (side * side);
                    assert!(mean.abs_diff(pixel[colour].into()) < 8, "{halvings}, {at}");
                }
            }
        }
        let odd = encode(library(), &pixels(61, 47), (61, 47), 95, false).unwrap();
        let small = decode(library(), &odd, (61, 47), 1, 0).unwrap();
        assert_eq!((small.width, small.height), (31, 24));
    }

    #[test]
    fn images_that_are_broken_or_end_too_early_are_errors() {
        let size = (64, 48);
        let file = encode(library(), &pixels(64, 48), size, 95, true).unwrap();
        assert!(decode(library(), &file, (63, 48), 0, 0).is_err());
        assert!(decode(library(), b"", size, 0, 0).is_err());
        assert!(decode(library(), b"\xff\xd8\xff\xd9", size, 0, 0).is_err());
        assert!(encode(library(), &[0; 3], (1, 0), 80, true).is_err());
        assert!(encode(library(), &[0; 3], (2, 1), 80, true).is_err());
        assert!(encode(library(), &[0; 3], (65536, 1), 80, true).is_err());
        for end in 0..file.len() {
            // No crash, whatever is missing.
            let _ = decode(library(), &file[..end], size, end as u32 % 4, 0);
        }
        let part = &file[..file.len() * 3 / 4];
        for end in [&[][..], b"\xff\xd9", b"\0\0\xff\xd9"] {
            for halvings in 0..4 {
                let error = decode(library(), &[part, end].concat(), size, halvings, 0);
                assert!(matches!(error, Err(Error::Broken(_))), "{error:?}");
            }
        }
        // Needless bytes before the end.
        let (all, end) = file.split_at(file.len() - 2);
        let filled = [all, &[0; 7], end].concat();
        assert_eq!(decode(library(), &filled, size, 0, 0), decode(library(), &file, size, 0, 0));
    }
}
