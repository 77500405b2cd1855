//! Pasting, scaling and encoding of pixels.

use crate::{Error, Result, jpeg_encode};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::codecs::{png::PngEncoder, webp::WebPEncoder};
use image::{ExtendedColorType, ImageEncoder};
use seekwire_turbojpeg::Library;

/// How pixels are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JPEG.
    Jpeg {
        /// From 1 to 100.
        quality: u8,
        /// True if colour differences have as many samples as luminance (4:4:4), rather than one
        /// for 2 x 2 pixels (4:2:0), as scanners store tiles.
        full_colour: bool,
    },
    /// PNG.
    Png,
    /// Lossless WebP.
    WebP,
}

/// Pixels of 8 bits each for red, green and blue, row by row, in the colours of the slide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raster {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Raster {
    /// A white raster. The caller has checked the size.
    pub(crate) fn white(width: u32, height: u32) -> Self {
        Self::filled(width, height, 255)
    }

    /// A grey raster. The caller has checked the size.
    pub(crate) fn filled(width: u32, height: u32, grey: u8) -> Self {
        Self { width, height, pixels: vec![grey; width as usize * height as usize * 3] }
    }

    /// Builds a raster from pixels of three bytes each; `None` if their number does not match the
    /// size.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Option<Self> {
        let bytes = u64::from(width) * u64::from(height) * 3;
        (pixels.len() as u64 == bytes).then_some(Self { width, height, pixels })
    }

    /// Swaps black and white.
    pub(crate) fn inverted(mut self) -> Self {
        self.pixels.iter_mut().for_each(|sample| *sample = 255 - *sample);
        self
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// `width * height * 3` bytes.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The `width * height * 3` bytes, without a copy.
    pub fn into_pixels(self) -> Vec<u8> {
        self.pixels
    }

    /// Copies the top left `width` x `height` pixels of `from` so that their corner is at `x`, `y`;
    /// pixels outside either raster are left out.
    pub(crate) fn paste(&mut self, from: &Raster, size: (u32, u32), x: i64, y: i64) {
        let (width, height) = size;
        let width = i64::from(from.width.min(width));
        let height = i64::from(from.height.min(height));
        let (left, right) = (x.max(0), (x + width).min(i64::from(self.width)));
        let (top, bottom) = (y.max(0), (y + height).min(i64::from(self.height)));
        if left >= right {
            return;
        }
        let length = (right - left) as usize * 3;
        for row in top..bottom {
            let to = (row as usize * self.width as usize + left as usize) * 3;
            let at = ((row - y) as usize * from.width as usize + (left - x) as usize) * 3;
            self.pixels[to..to + length].copy_from_slice(&from.pixels[at..at + length]);
        }
    }

    /// Scales the part of `width` x `height` at `left`, `top` to another size by convolution with a
    /// three-lobed Lanczos window. If it shrinks by integer factors, pixels are averaged instead.
    ///
    /// # Errors
    /// A side of zero, or a part that is not inside.
    pub fn scale(&self, part: (f64, f64, f64, f64), width: u32, height: u32) -> Result<Self> {
        Self::scaled((self.width, self.height), &self.pixels, part, (width, height))
    }

    /// Scales borrowed pixels likewise: `size` is theirs, and `to` that of the result.
    ///
    /// # Errors
    /// As [`scale`](Self::scale); also a number of pixels that does not match the size.
    pub fn scaled(
        size: (u32, u32),
        pixels: &[u8],
        part: (f64, f64, f64, f64),
        to: (u32, u32),
    ) -> Result<Self> {
        let fail = |what: String| Error::Argument(format!("cannot scale: {what}"));
        let (width, height) = to;
        if width == 0 || height == 0 {
            return Err(fail("no pixels are asked for".into()));
        }
        if pixels.len() as u64 != u64::from(size.0) * u64::from(size.1) * 3 {
            return Err(fail("the number of pixels does not match the size".into()));
        }
        if part == (0.0, 0.0, f64::from(size.0), f64::from(size.1)) && to == size {
            return Ok(Self { width, height, pixels: pixels.to_vec() });
        }
        let from = ImageRef::new(size.0, size.1, pixels, PixelType::U8x3)
            .map_err(|error| fail(error.to_string()))?;
        let mut to = Image::new(width, height, PixelType::U8x3);
        // The same averaging as for the levels of a pyramid.
        let is_whole = |from: f64, to: u32| {
            let factor = from / f64::from(to);
            factor > 1.0 && factor.fract() == 0.0
        };
        let is_mean = is_whole(part.2, width)
            && is_whole(part.3, height)
            && part.0.fract() == 0.0
            && part.1.fract() == 0.0;
        let filter = if is_mean { FilterType::Box } else { FilterType::Lanczos3 };
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(filter))
            .crop(part.0, part.1, part.2, part.3);
        Resizer::new().resize(&from, &mut to, &options).map_err(|error| fail(error.to_string()))?;
        Ok(Self { width, height, pixels: to.into_vec() })
    }

    /// Halves both sides so many times by averaging pixels; a side keeps at least one pixel.
    ///
    /// # Errors
    /// An empty raster.
    pub(crate) fn halved(self, halvings: u32) -> Result<Self> {
        if halvings == 0 {
            return Ok(self);
        }
        let part =
            |side: u32| if side >> halvings == 0 { side } else { side >> halvings << halvings };
        let (wide, high) = (f64::from(part(self.width)), f64::from(part(self.height)));
        let to = |side: u32| (side >> halvings).max(1);
        self.scale((0.0, 0.0, wide, high), to(self.width), to(self.height))
    }

    /// Encodes the raster, with a colour profile if given. With `turbojpeg`, JPEG without a profile
    /// is encoded by libjpeg-turbo if it is installed.
    ///
    /// # Errors
    /// A side that the format cannot represent: more than 65535 in JPEG, 16384 in WebP.
    pub fn encode(&self, format: Format, icc: Option<&[u8]>, turbojpeg: bool) -> Result<Vec<u8>> {
        let fail = |what: String| Error::Argument(format!("cannot encode: {what}"));
        let mut bytes = Vec::new();
        match format {
            Format::Jpeg { quality, full_colour } => {
                let (size, fast) = ((self.width, self.height), turbojpeg && icc.is_none());
                bytes = match fast.then(Library::get).and_then(std::result::Result::ok) {
                    Some(library) => seekwire_turbojpeg::encode(
                        library,
                        &self.pixels,
                        size,
                        quality,
                        full_colour,
                    )
                    .map_err(|error| fail(error.to_string()))?,
                    None => jpeg_encode::encode(&self.pixels, size, quality, full_colour, icc)
                        .map_err(fail)?,
                };
            }
            Format::Png => self
                .with(PngEncoder::new(&mut bytes), icc)
                .map_err(|error| fail(error.to_string()))?,
            Format::WebP => self
                .with(WebPEncoder::new_lossless(&mut bytes), icc)
                .map_err(|error| fail(error.to_string()))?,
        }
        // It may be kept for a long time.
        bytes.shrink_to_fit();
        Ok(bytes)
    }

    fn with(&self, mut to: impl ImageEncoder, icc: Option<&[u8]>) -> image::ImageResult<()> {
        if let Some(icc) = icc {
            to.set_icc_profile(icc.to_vec()).map_err(image::ImageError::Unsupported)?;
        }
        to.write_image(&self.pixels, self.width, self.height, ExtendedColorType::Rgb8)
    }
}
