//! A baseline JPEG encoder (ITU-T T.81), used if libjpeg-turbo is missing or there is a colour
//! profile.
//!
//! ```text
//! rows -> planes of Y, Cb, Cr (planes.rs) -> blocks -> transform, quantise (transform.rs)
//!                                                           -> code words (tables.rs, bits.rs)
//! ```
//!
//! This encoder exists because no crate is as fast when built by the oldest supported compiler, and
//! has a licence that dependencies may have: `image` takes four times as long, `jpeg-encoder` has
//! the licence of the IJG, and mozjpeg-rs needs a newer compiler. Its loops run over arrays of
//! fixed length, which compilers vectorise; there is no unsafe code.
//!
//! Below [`FULL_COLOUR`], each colour difference has one sample for 2 x 2 pixels (4:2:0), as
//! scanners and other servers store tiles; from that quality on, one for each pixel (4:4:4). Tables
//! are those of annex K of the standard, scaled by the quality as usual.

mod bits;
mod planes;
mod tables;
mod transform;

use bits::Bits;
use planes::Planes;
use tables::{ZIGZAG, codes, quantisation};
use transform::Quantiser;

/// From this quality on, colour differences have as many samples as luminance.
pub(crate) const FULL_COLOUR: u8 = 90;

/// Bytes that a marker segment can hold.
const SEGMENT: usize = 65_535 - 2;
/// The first bytes of a colour profile segment (ICC.1, annex B.4); its number and the count follow.
const PROFILE: &[u8] = b"ICC_PROFILE\0";

/// Encodes pixels of three bytes each as a JPEG file.
///
/// # Errors
/// A side of zero or more than 65535 pixels, a number of pixels that does not match the size, or a
/// profile too long for a JPEG file.
pub(crate) fn encode(
    pixels: &[u8],
    (width, height): (u32, u32),
    quality: u8,
    icc: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    let side = |side: u32| u16::try_from(side).ok().filter(|side| *side > 0);
    let (Some(wide), Some(high)) = (side(width), side(height)) else {
        return Err(format!("{width} x {height} pixels in a JPEG"));
    };
    if pixels.len() != width as usize * height as usize * 3 {
        return Err("the number of pixels does not match the size".into());
    }
    let quality = quality.clamp(1, 100);
    let side = if quality < FULL_COLOUR { 2 } else { 1 };
    let tables = [false, true].map(|is_colour| quantisation(quality, is_colour));
    let mut file = Vec::with_capacity(1024 + pixels.len() / 12);
    head(&mut file, (wide, high), side, &tables, icc)?;

    let quantisers = tables.map(|table| Quantiser::new(&table));
    let codes = codes();
    let mut bits = Bits::after(file);
    let mut planes = Planes::new(usize::from(wide), side);
    // Last DC coefficients of Y, Cb and Cr.
    let mut last = [0; 3];
    for rows in pixels.chunks(width as usize * 3 * planes.rows()) {
        planes.fill(rows);
        for unit in 0..planes.units() {
            for (component, block) in planes.blocks(unit) {
                let is_colour = usize::from(component > 0);
                let samples = quantisers[is_colour].of(&block);
                bits.block(&samples, &mut last[component], &codes[is_colour]);
            }
        }
    }
    let mut file = bits.end();
    file.extend_from_slice(&[0xff, 0xd9]);
    Ok(file)
}

fn segment(file: &mut Vec<u8>, marker: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    file.extend_from_slice(&[0xff, marker]);
    file.extend_from_slice(&(length as u16 + 2).to_be_bytes());
    parts.iter().for_each(|part| file.extend_from_slice(part));
}

/// Writes everything that precedes the coded blocks.
fn head(
    file: &mut Vec<u8>,
    (width, height): (u16, u16),
    side: u8,
    tables: &[[u8; 64]; 2],
    icc: Option<&[u8]>,
) -> Result<(), String> {
    file.extend_from_slice(&[0xff, 0xd8]);
    // JFIF 1.2; pixels are square.
    segment(file, 0xe0, &[b"JFIF\0", &[1, 2, 0, 0, 1, 0, 1, 0, 0]]);
    let icc = icc.unwrap_or_default();
    let most = SEGMENT - PROFILE.len() - 2;
    let count = u8::try_from(icc.len().div_ceil(most)).map_err(|_| "a profile is too long")?;
    for (number, part) in (1..=count).zip(icc.chunks(most)) {
        segment(file, 0xe2, &[PROFILE, &[number, count], part]);
    }
    for (number, table) in (0..).zip(tables) {
        segment(file, 0xdb, &[&[number], &ZIGZAG.map(|at| table[usize::from(at)])]);
    }
    let [[top, low], [left, right]] = [height, width].map(u16::to_be_bytes);
    let luminance = side << 4 | side;
    let frame = [8, top, low, left, right, 3, 1, luminance, 0, 2, 0x11, 1, 3, 0x11, 1];
    segment(file, 0xc0, &[&frame]);
    for (number, [dc, ac]) in (0..).zip(tables::code_lists()) {
        segment(file, 0xc4, &[&[number], &dc.0, &dc.1]);
        segment(file, 0xc4, &[&[0x10 | number], &ac.0, &ac.1]);
    }
    segment(file, 0xda, &[&[3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]]);
    Ok(())
}

#[cfg(test)]
mod tests;
