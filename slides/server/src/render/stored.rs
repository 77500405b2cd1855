//! Finds stored tiles that can be sent unchanged.

use seekwire_slides_image::{Level, Region};

use crate::render::colour::ColourMode;
use crate::render::plan::BaseRegion;
use crate::render::rotation::Quality;
use crate::render::{ImageFormat, Picture};

/// The level of which a picture shows one part without scaling; there may be a stored tile for it.
pub(crate) fn stored_tile(
    levels: &[Level],
    picture: &Picture,
    part: BaseRegion,
) -> Option<(usize, Region)> {
    let is_plain = picture.kind == ImageFormat::Jpeg
        && picture.quality == Quality::Colour
        && picture.colours != ColourMode::Srgb
        && picture.turn.is_none();
    if !is_plain {
        return None;
    }
    let main = levels.first()?;
    let (number, level) = levels.iter().enumerate().find(|(_, level)| {
        (level.tile_width, level.tile_height) == (picture.width, picture.height)
            && is_scaled(part.width, picture.width, level.downsample)
            && is_scaled(part.height, picture.height, level.downsample)
    })?;
    // Sides of levels are rounded, so the scale is not exactly an integer: a position within a
    // pixel of a tile is that tile.
    let across = f64::from(level.width) / f64::from(main.width);
    let down = f64::from(level.height) / f64::from(main.height);
    let x = tile(f64::from(part.x) * across, level.tile_width)?;
    let y = tile(f64::from(part.y) * down, level.tile_height)?;
    Some((number, region(x, y, level.tile_width, level.tile_height)))
}

/// A region of a level, in the form that slides take.
fn region(x: u32, y: u32, width: u32, height: u32) -> Region {
    Region { x: x.into(), y: y.into(), width, height }
}

fn is_scaled(from: u32, to: u32, scale: f64) -> bool {
    (f64::from(from) / scale - f64::from(to)).abs() < 1.0
}

/// The border of a tile, if it is at most a pixel away.
fn tile(at: f64, side: u32) -> Option<u32> {
    let side = f64::from(side);
    let border = (at / side).round() * side;
    ((border - at).abs() < 1.0).then_some(border as u32)
}

/// The first bytes of a profile segment (ICC.1, annex B.4); its number and the count follow.
const MARK: &[u8] = b"ICC_PROFILE\0";
/// Bytes of a profile in one segment.
const MOST: usize = 65_535 - 2 - MARK.len() - 2;

/// Puts a colour profile at the beginning of a JPEG file. One that is too long for a JPEG is left
/// out.
pub(crate) fn with_profile(jpeg: &[u8], icc: &[u8]) -> Vec<u8> {
    let count = icc.len().div_ceil(MOST);
    let (Some(body), Ok(count @ 1..)) = (jpeg.get(2..), u8::try_from(count)) else {
        return jpeg.to_vec();
    };
    let extra = icc.len() + usize::from(count) * (4 + MARK.len() + 2);
    let mut whole = Vec::with_capacity(jpeg.len() + extra);
    whole.extend_from_slice(&jpeg[..2]);
    for (number, part) in (1..=count).zip(icc.chunks(MOST)) {
        let length = (2 + MARK.len() + 2 + part.len()) as u16;
        whole.extend_from_slice(&[0xff, 0xe2]);
        whole.extend_from_slice(&length.to_be_bytes());
        whole.extend_from_slice(MARK);
        whole.extend_from_slice(&[number, count]);
        whole.extend_from_slice(part);
    }
    whole.extend_from_slice(body);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Shown;
    use crate::render::rotation::Turn;

    fn picture(width: u32, height: u32) -> Picture {
        Picture {
            shown: Shown::Associated(String::new()),
            width,
            height,
            turn: Turn::default(),
            quality: Quality::Colour,
            kind: ImageFormat::Jpeg,
            colours: ColourMode::Raw,
        }
    }

    #[test]
    fn a_picture_that_is_a_tile_is_found_at_all_levels() {
        let level = |width: u32, height: u32| Level {
            width,
            height,
            tile_width: 240,
            tile_height: 240,
            downsample: 2221.0 / f64::from(width),
        };
        // Scanners round down.
        let levels = [level(2221, 2967), level(555, 741)];
        let tile_of = |part: BaseRegion, picture: &Picture| {
            stored_tile(&levels, picture, part).map(|(level, region)| (level, region.x, region.y))
        };
        let part = |x, y, width, height| BaseRegion { x, y, width, height };
        assert_eq!(tile_of(part(480, 240, 240, 240), &picture(240, 240)), Some((0, 480, 240)));
        assert_eq!(tile_of(part(960, 960, 960, 960), &picture(240, 240)), Some((1, 240, 240)));
        assert_eq!(tile_of(part(481, 240, 240, 240), &picture(240, 240)), None);
        assert_eq!(tile_of(part(480, 240, 240, 240), &picture(120, 120)), None);
        assert_eq!(tile_of(part(970, 960, 960, 960), &picture(240, 240)), None);
        for changed in [
            Picture { kind: ImageFormat::Png, ..picture(240, 240) },
            Picture { quality: Quality::Grey, ..picture(240, 240) },
            Picture { colours: ColourMode::Srgb, ..picture(240, 240) },
            Picture { turn: Turn { is_mirrored: true, thousandths: 0 }, ..picture(240, 240) },
        ] {
            assert_eq!(tile_of(part(480, 240, 240, 240), &changed), None);
        }
    }

    #[test]
    fn a_profile_goes_into_a_file() {
        let mut jpeg = Vec::new();
        image::codecs::jpeg::JpegEncoder::new(&mut jpeg)
            .encode(&[200; 12], 2, 2, image::ExtendedColorType::Rgb8)
            .unwrap();
        let icc: Vec<u8> = (0..150_000).map(|at| (at % 253) as u8).collect();
        let whole = with_profile(&jpeg, &icc);
        let mut decoder =
            image::codecs::jpeg::JpegDecoder::new(std::io::Cursor::new(&whole)).unwrap();
        let profile = image::ImageDecoder::icc_profile(&mut decoder).unwrap();
        assert_eq!(profile.as_deref(), Some(&icc[..]));
        assert_eq!(with_profile(&jpeg, &[]), jpeg);
    }
}
