//! Pixels, to see whether two answers show the same.

use anyhow::{Context as _, Result, ensure};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// An image of three colours, of 8 bits each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pixels: Vec<u8>,
}

impl Picture {
    fn new(width: usize, height: usize, pixels: Vec<u8>) -> Result<Self> {
        let length = width.checked_mul(height).and_then(|area| area.checked_mul(3));
        ensure!(
            length == Some(pixels.len()) && !pixels.is_empty(),
            "{} bytes are not an image of {width} x {height}",
            pixels.len()
        );
        Ok(Self { width, height, pixels })
    }

    /// Decodes a JPEG.
    ///
    /// # Errors
    ///
    /// If it is broken.
    pub(crate) fn of_jpeg(bytes: &[u8]) -> Result<Self> {
        let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        let pixels = decoder.decode();
        let pixels = pixels.map_err(|error| anyhow::anyhow!("not a JPEG: {error:?}"))?;
        let info = decoder.info().context("a JPEG without a size")?;
        Self::new(info.width.into(), info.height.into(), pixels)
    }

    /// Reads a binary PPM of 8 bits, as vips writes it.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub(crate) fn of_ppm(bytes: &[u8]) -> Result<Self> {
        let mut rest = bytes.strip_prefix(b"P6\n").context("not a PPM")?;
        let mut numbers = Vec::new();
        while numbers.len() < 3 {
            let end =
                rest.iter().position(u8::is_ascii_whitespace).context("a PPM without a size")?;
            let (word, behind) = rest.split_at(end);
            // A comment takes the rest of its line.
            if word.starts_with(b"#") {
                let line = rest.iter().position(|byte| *byte == b'\n').context("no line ends")?;
                rest = &rest[line + 1..];
                continue;
            }
            let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
            numbers.push(number.context("a PPM with something other than numbers")?);
            rest = &behind[1..];
        }
        ensure!(numbers[2] == 255, "a PPM of other than 8 bits");
        Self::new(numbers[0], numbers[1], rest.to_vec())
    }

    /// Standard deviation of all values: small where nothing can be seen.
    pub(crate) fn contrast(&self) -> f64 {
        let count = self.pixels.len() as f64;
        let mean = self.pixels.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
        let squares = self.pixels.iter().map(|value| (f64::from(*value) - mean).powi(2));
        (squares.sum::<f64>() / count).sqrt()
    }

    /// The same with squares of `side` pixels replaced by their mean, so that it does not depend on
    /// how a picture was scaled. Pixels beyond the last whole square are left out.
    ///
    /// # Errors
    ///
    /// If nothing is left.
    pub(crate) fn coarse(&self, side: usize) -> Result<Self> {
        let (width, height) = (self.width / side, self.height / side);
        let mut pixels = Vec::with_capacity(width * height * 3);
        for (row, column) in (0..height).flat_map(|row| (0..width).map(move |at| (row, at))) {
            for colour in 0..3 {
                let at = |y: usize, x: usize| {
                    let (y, x) = (row * side + y, column * side + x);
                    usize::from(self.pixels[(y * self.width + x) * 3 + colour])
                };
                let sum: usize = (0..side * side).map(|of| at(of / side, of % side)).sum();
                pixels.push((sum / (side * side)) as u8);
            }
        }
        Self::new(width, height, pixels)
    }

    /// Peak signal-to-noise ratio against another one of the same size, in dB; at most 99.
    ///
    /// # Errors
    ///
    /// If it has another size.
    pub(crate) fn psnr(&self, other: &Self) -> Result<f64> {
        ensure!(
            (self.width, self.height) == (other.width, other.height),
            "{} x {} pixels, and not {} x {}",
            self.width,
            self.height,
            other.width,
            other.height
        );
        let squares = self.pixels.iter().zip(&other.pixels);
        let squares = squares.map(|(one, other)| (f64::from(*one) - f64::from(*other)).powi(2));
        let error = squares.sum::<f64>() / self.pixels.len() as f64;
        Ok((20.0 * 255f64.log10() - 10.0 * error.log10()).min(99.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ppm_is_read_and_compared() {
        let ppm = b"P6\n#vips\n2 1\n255\n\x00\x00\x00\xff\xff\xff";
        let picture = Picture::of_ppm(ppm).unwrap();
        assert_eq!((picture.width, picture.height), (2, 1));
        assert!((picture.contrast() - 127.5).abs() < 1e-9);
        assert_eq!(picture.psnr(&picture).unwrap(), 99.0);
        let other = Picture::of_ppm(b"P6 2 1 255 ".as_slice());
        assert!(other.is_err());
        let other = Picture::of_ppm(b"P6\n2 1\n255\n\x10\x10\x10\xef\xef\xef").unwrap();
        assert!((picture.psnr(&other).unwrap() - 24.05).abs() < 0.01);
        let taller = Picture::of_ppm(b"P6\n1 2\n255\n\x10\x10\x10\xef\xef\xef").unwrap();
        assert!(picture.psnr(&taller).unwrap_err().to_string().contains("1 x 2"));
        assert_eq!(picture.coarse(1).unwrap(), picture);
        let four = Picture::of_ppm(b"P6\n3 2\n255\n000444000444000444").unwrap();
        let coarse = four.coarse(2).unwrap();
        assert_eq!((coarse.width, coarse.height, &coarse.pixels[..]), (1, 1, &b"222"[..]));
        assert!(four.coarse(4).is_err(), "nothing is left");
        for wrong in [&b"P5\n1 1\n255\n0"[..], b"P6\n1 1\n65535\n000000", b"P6\n2 2\n255\n000"] {
            assert!(Picture::of_ppm(wrong).is_err());
        }
        assert!(Picture::of_jpeg(b"no").is_err());
    }
}
