//! JPEG files by the crate `jpeg-encoder`, if libjpeg-turbo is missing or there is a colour profile.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// Encodes pixels of three bytes each as a baseline JPEG file, 4:4:4 with `full_colour` and 4:2:0
/// without it.
///
/// # Errors
/// A side of zero or more than 65535 pixels, a number of pixels that does not match the size, or a
/// profile too long for a JPEG file.
pub(crate) fn encode(
    pixels: &[u8],
    (width, height): (u32, u32),
    quality: u8,
    full_colour: bool,
    icc: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    let side = |side: u32| u16::try_from(side).ok().filter(|side| *side > 0);
    let (Some(wide), Some(high)) = (side(width), side(height)) else {
        return Err(format!("{width} x {height} pixels in a JPEG"));
    };
    if pixels.len() != width as usize * height as usize * 3 {
        return Err("the number of pixels does not match the size".into());
    }
    let mut file = Vec::with_capacity(1024 + pixels.len() / 12);
    let mut encoder = Encoder::new(&mut file, quality.clamp(1, 100));
    encoder.set_sampling_factor(if full_colour {
        SamplingFactor::R_4_4_4
    } else {
        SamplingFactor::R_4_2_0
    });
    if let Some(icc) = icc {
        encoder.add_icc_profile(icc).map_err(|error| error.to_string())?;
    }
    encoder.encode(pixels, wide, high, ColorType::Rgb).map_err(|error| error.to_string())?;
    Ok(file)
}

#[cfg(test)]
#[path = "jpeg_encode_tests.rs"]
mod tests;
