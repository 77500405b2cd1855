//! Images: each block is an image, and becomes one. Between these filters an image is a PPM of 8
//! bits for each of red, green and blue (`P6`), which many other programs read and write.

use std::io::Cursor;

use fast_image_resize as resize;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{
    DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, Limits,
    RgbImage,
};
use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports};

use super::built_filter::{Blockwise, BuiltFilter};
use crate::options::{Fault, OptionTable};

/// Default of the most pixels that an image may have.
const PIXELS: u64 = 100_000_000;

/// With three bytes each, they make a block of 1 GiB.
const MOST_PIXELS: u64 = (1 << 30) / 3;

/// The longest side that JPEG allows.
const LONGEST_SIDE: u64 = 65535;

pub(super) fn decode(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let pixels = pixels(options)?;
    Ok(each(move |block| {
        let image = read(block, pixels).map_err(|error| {
            format!("{error} (each block must be a whole image: read it with whole = true)")
        })?;
        Ok(ppm(&image))
    }))
}

pub(super) fn scale(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let pixels = pixels(options)?;
    let width = within("width", 1..=LONGEST_SIDE, options)?;
    let height = within("height", 1..=LONGEST_SIDE, options)?;
    let percent = within("percent", 1..=10_000, options)?;
    let (at, is_exact) = (options.location("exact"), options.boolean("exact")?);
    if is_exact && (width.is_none() || height.is_none()) {
        return Err((at, "exact requires both width and height".to_owned()));
    }
    let size = match (width, height, percent) {
        (None, None, Some(percent)) => Size::Percent(percent),
        (Some(width), Some(height), None) if is_exact => Size::Exactly(width, height),
        (None, None, None) | (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
            let message = "scale-image needs width, height or both, or percent".to_owned();
            return Err((options.span(), message));
        }
        (width, height, None) => {
            Size::Within(width.unwrap_or(u64::MAX), height.unwrap_or(u64::MAX))
        }
    };
    let kinds = [
        ("lanczos", Some(resize::FilterType::Lanczos3)),
        ("cubic", Some(resize::FilterType::CatmullRom)),
        ("linear", Some(resize::FilterType::Bilinear)),
        ("nearest", None),
    ];
    let kind = options.word("method", &kinds)?.unwrap_or(kinds[0].1);
    let algorithm = kind.map_or(resize::ResizeAlg::Nearest, resize::ResizeAlg::Convolution);
    Ok(each(move |block| {
        let image = read_ppm(block, pixels)?;
        let (width, height) = size.of(image.width().into(), image.height().into());
        check(width, height, pixels)?;
        Ok(ppm(&scaled(image, (width as u32, height as u32), algorithm)?))
    }))
}

pub(super) fn encode(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let pixels = pixels(options)?;
    let formats = [("jpeg", ImageFormat::Jpeg), ("png", ImageFormat::Png)];
    let format = options.word("format", &formats)?.unwrap_or(ImageFormat::Jpeg);
    let at = options.location("quality");
    let quality = within("quality", 1..=100, options)?;
    if quality.is_some() && format != ImageFormat::Jpeg {
        return Err((at, "quality is for jpeg; png is lossless".to_owned()));
    }
    let quality = quality.unwrap_or(85) as u8;
    Ok(each(move |block| {
        let image = read_ppm(block, pixels)?;
        let mut bytes = Vec::new();
        let (width, height, kind) = (image.width(), image.height(), ExtendedColorType::Rgb8);
        if format == ImageFormat::Jpeg {
            JpegEncoder::new_with_quality(&mut bytes, quality)
                .write_image(&image, width, height, kind)?;
        } else {
            PngEncoder::new(&mut bytes).write_image(&image, width, height, kind)?;
        }
        Ok(bytes)
    }))
}

fn pixels(options: &mut OptionTable<'_>) -> Result<u64, Fault> {
    Ok(within("pixels", 1..=MOST_PIXELS, options)?.unwrap_or(PIXELS))
}

fn within(
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    options: &mut OptionTable<'_>,
) -> Result<Option<u64>, Fault> {
    let at = options.location(name);
    let number = options.number(name)?;
    if number.is_some_and(|number| !range.contains(&number)) {
        return Err((at, format!("{name} must be {} to {}", range.start(), range.end())));
    }
    Ok(number)
}

fn each<M>(make: M) -> BuiltFilter
where
    M: Fn(&[u8]) -> Result<Vec<u8>, FilterError> + Clone + Send + Sync + 'static,
{
    BuiltFilter::new(Ports::step(), move || Each(make.clone())).blockwise(Blockwise::Always)
}

/// Turns each block into one.
struct Each<M>(M);

impl<M: Fn(&[u8]) -> Result<Vec<u8>, FilterError> + Send> Filter for Each<M> {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let made = (self.0)(&block)?;
        // Free its room early.
        drop(block);
        out.send(0, made)
    }
}

fn read(block: &[u8], pixels: u64) -> Result<RgbImage, FilterError> {
    let formats = [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Pnm];
    let format = image::guess_format(block).ok().filter(|format| formats.contains(format));
    let format = format.ok_or("this is not a JPEG, PNG or PNM image")?;
    if format == ImageFormat::Jpeg && is_cut_off(block) {
        return Err("this JPEG is truncated".into());
    }
    let mut reader = ImageReader::with_format(Cursor::new(block), format);
    // Four channels of 16 bits, and as much for the decoder's own use.
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(16 * pixels + (16 << 20));
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    check(width.into(), height.into(), pixels)?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(if image.color().has_alpha() { on_white(&image) } else { image.into_rgb8() })
}

/// An image that one of these filters or another program has sent.
fn read_ppm(block: &[u8], pixels: u64) -> Result<RgbImage, FilterError> {
    match image::guess_format(block) {
        Ok(ImageFormat::Pnm) => read(block, pixels),
        _ => Err("this is not a PPM image: convert it with decode-image first".into()),
    }
}

fn check(width: u64, height: u64, pixels: u64) -> Result<(), FilterError> {
    if width == 0 || height == 0 {
        return Err(format!("an image of {width} x {height} pixels is empty").into());
    }
    if width.saturating_mul(height) > pixels {
        let error = format!(
            "an image of {width} x {height} pixels has more than {pixels}, which `pixels` allows"
        );
        return Err(error.into());
    }
    Ok(())
}

/// Whether the end marker is missing: the decoder fills missing data with grey. It walks the
/// markers (ITU-T T.81, B.1.1), since the data of a segment may contain any bytes, as may those
/// behind the end, such as the video of a motion photo.
fn is_cut_off(jpeg: &[u8]) -> bool {
    let mut rest = jpeg;
    while let Some(at) = rest.iter().position(|byte| *byte == 0xff) {
        rest = &rest[at + 1..];
        match rest {
            // Coded data, a restart of it, or padding before a marker.
            [0 | 0xd0..=0xd7 | 0xff, ..] => {}
            [0xd9, ..] => return false,
            // These have no segment: the start of the image, and a marker for temporary use.
            [0xd8 | 0x01, ..] => {}
            [_, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = rest.get(1 + length..).unwrap_or_default();
            }
            _ => break,
        }
    }
    true
}

fn on_white(image: &DynamicImage) -> RgbImage {
    let image = image.to_rgba8();
    let mut flat = RgbImage::new(image.width(), image.height());
    for (to, from) in flat.pixels_mut().zip(image.pixels()) {
        let [red, green, blue, alpha] = from.0.map(u32::from);
        let blend = |colour| ((colour * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        to.0 = [blend(red), blend(green), blend(blue)];
    }
    flat
}

fn ppm(image: &RgbImage) -> Vec<u8> {
    let mut bytes = format!("P6\n{} {}\n255\n", image.width(), image.height()).into_bytes();
    bytes.reserve_exact(image.as_raw().len());
    bytes.extend_from_slice(image.as_raw());
    bytes
}

#[derive(Clone, Copy)]
enum Size {
    Percent(u64),
    /// As large as fits, with the same aspect ratio.
    Within(u64, u64),
    Exactly(u64, u64),
}

impl Size {
    fn of(self, width: u64, height: u64) -> (u64, u64) {
        // Rounded; each side keeps at least one pixel.
        let part = |side: u64, of: u64, all: u64| ((2 * side * of + all) / (2 * all)).max(1);
        match self {
            Self::Exactly(width, height) => (width, height),
            Self::Percent(percent) => (part(width, percent, 100), part(height, percent, 100)),
            Self::Within(most, most_height)
                if most.saturating_mul(height) <= most_height.saturating_mul(width) =>
            {
                (most, part(height, most, width))
            }
            Self::Within(_, most) => (part(width, most, height), most),
        }
    }
}

fn scaled(
    image: RgbImage,
    size: (u32, u32),
    algorithm: resize::ResizeAlg,
) -> Result<RgbImage, FilterError> {
    let (width, height) = size;
    let kind = resize::PixelType::U8x3;
    let (from_width, from_height) = image.dimensions();
    let from = resize::images::Image::from_vec_u8(from_width, from_height, image.into_raw(), kind)?;
    let mut to = resize::images::Image::new(width, height, kind);
    let options = resize::ResizeOptions::new().resize_alg(algorithm);
    resize::Resizer::new().resize(&from, &mut to, &options)?;
    let image = RgbImage::from_raw(width, height, to.into_vec());
    image.ok_or_else(|| "the scaled image has another size".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_jpeg_is_that_of_its_last_scan() {
        const SCAN: &[u8] = b"\xff\xda\x00\x04\xff\xd9\x01\xff\x00\xff\xd3\x02";
        // A comment or a thumbnail, with both markers in it.
        const SEGMENT: &[u8] = b"\xff\xe1\x00\x06\xff\xd9\xff\xda";
        let is_cut_off =
            |parts: &[&[u8]]| is_cut_off(&[&b"\xff\xd8"[..], &parts.concat()[..]].concat());
        let (end, padded) = (&b"\xff\xd9"[..], &b"\xff\xff\xff\xd9"[..]);
        for whole in [
            &[SEGMENT, SCAN, end][..],
            &[SCAN, SEGMENT, SCAN, padded],
            &[SCAN, end, b"video \xff\xda\x12", SCAN],
        ] {
            assert!(!is_cut_off(whole), "{whole:x?}");
        }
        for cut in [
            &[SEGMENT, SCAN][..],
            &[SCAN, SEGMENT],
            &[SCAN, &SEGMENT[..6]],
            &[SCAN, b"\xff"],
            &[SCAN, b"\xff\xe1\x00"],
            &[SEGMENT],
            &[],
        ] {
            assert!(is_cut_off(cut), "{cut:x?}");
        }
    }

    #[test]
    fn shapes_are_kept() {
        let none = u64::MAX;
        for (size, of, expected) in [
            (Size::Within(100, 100), (400, 200), (100, 50)),
            (Size::Within(100, 100), (200, 400), (50, 100)),
            (Size::Within(100, none), (400, 200), (100, 50)),
            (Size::Within(none, 100), (400, 200), (200, 100)),
            (Size::Within(100, 100), (10, 10), (100, 100)),
            (Size::Within(3, 3), (10_000, 1), (3, 1)),
            (Size::Within(none, 3), (1, 10_000), (1, 3)),
            (Size::Percent(50), (5, 4), (3, 2)),
            (Size::Percent(1), (5, 500), (1, 5)),
            (Size::Exactly(7, 9), (5, 4), (7, 9)),
        ] {
            assert_eq!(size.of(of.0, of.1), expected);
        }
    }
}
