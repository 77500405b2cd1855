//! Mirroring, rotation and qualities, as in IIIF.

use seekwire_slides_image::Raster;
use serde::Serialize;

/// How an image is turned: first mirrored at its vertical axis, then rotated clockwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Turn {
    pub(crate) is_mirrored: bool,
    /// Thousandths of a degree, less than 360000.
    pub(crate) thousandths: u32,
}

/// The full circle, and a quarter of it.
pub(crate) const CIRCLE: u32 = 360_000;
const QUARTER: u32 = CIRCLE / 4;

impl Turn {
    /// True if it changes nothing.
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The bounding box of an image that was `width` x `height`.
    pub(crate) fn size(self, width: u32, height: u32) -> (u32, u32) {
        match self.thousandths {
            0 | 180_000 => (width, height),
            90_000 | 270_000 => (height, width),
            other => {
                let (sine, cosine) = sine_cosine(other);
                let (wide, high) = (f64::from(width), f64::from(height));
                let side = |side: f64| side.round().max(1.0) as u32;
                let across = side(wide * cosine.abs() + high * sine.abs());
                (across, side(wide * sine.abs() + high * cosine.abs()))
            }
        }
    }
}

fn sine_cosine(thousandths: u32) -> (f64, f64) {
    (f64::from(thousandths) / 1000.0).to_radians().sin_cos()
}

/// The colours of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Quality {
    #[default]
    Colour,
    Grey,
    /// Black and white.
    Bitonal,
}

/// Turns an image. Uncovered corners are white.
pub(crate) fn turned(raster: Raster, turn: Turn) -> Option<Raster> {
    let (width, height) = (raster.width(), raster.height());
    let mut pixels = raster.into_pixels();
    if turn.is_mirrored {
        for row in pixels.chunks_exact_mut(width as usize * 3) {
            mirror(row);
        }
    }
    if turn.thousandths == 0 {
        return Raster::new(width, height, pixels);
    }
    if turn.thousandths.is_multiple_of(QUARTER) {
        return quarters(&pixels, width, height, turn.thousandths / QUARTER);
    }
    rotated(&pixels, width, height, turn)
}

fn mirror(row: &mut [u8]) {
    let count = row.len() / 3;
    for left in 0..count / 2 {
        let right = count - 1 - left;
        for colour in 0..3 {
            row.swap(left * 3 + colour, right * 3 + colour);
        }
    }
}

/// Rotates by one, two or three quarters; pixels keep their colours.
fn quarters(pixels: &[u8], width: u32, height: u32, count: u32) -> Option<Raster> {
    let (wide, high) = (width as usize, height as usize);
    let (across, down) = if count.is_multiple_of(2) { (wide, high) } else { (high, wide) };
    let mut turned = Vec::with_capacity(pixels.len());
    for row in 0..down {
        for column in 0..across {
            let (x, y) = match count {
                1 => (row, high - 1 - column),
                2 => (wide - 1 - column, high - 1 - row),
                _ => (wide - 1 - row, column),
            };
            let at = (y * wide + x) * 3;
            turned.extend_from_slice(&pixels[at..at + 3]);
        }
    }
    Raster::new(across as u32, down as u32, turned)
}

/// Rotates around the centre, with linear interpolation.
fn rotated(pixels: &[u8], width: u32, height: u32, turn: Turn) -> Option<Raster> {
    let (sine, cosine) = sine_cosine(turn.thousandths);
    let (across, down) = turn.size(width, height);
    let (wide, high) = (i64::from(width), i64::from(height));
    let pixel = |x: i64, y: i64| match (0..wide).contains(&x) && (0..high).contains(&y) {
        true => {
            let at = (y * wide + x) as usize * 3;
            [pixels[at], pixels[at + 1], pixels[at + 2]]
        }
        false => [255; 3],
    };
    let middle = |side: u32| (f64::from(side) - 1.0) / 2.0;
    let mut turned = Vec::with_capacity(across as usize * down as usize * 3);
    for row in 0..down {
        let y = f64::from(row) - middle(down);
        for column in 0..across {
            let x = f64::from(column) - middle(across);
            // The original position.
            let from_x = x * cosine + y * sine + middle(width);
            let from_y = y * cosine - x * sine + middle(height);
            let (left, top) = (from_x.floor(), from_y.floor());
            let (right, below) = (from_x - left, from_y - top);
            let (left, top) = (left as i64, top as i64);
            let corners = [
                (pixel(left, top), (1.0 - right) * (1.0 - below)),
                (pixel(left + 1, top), right * (1.0 - below)),
                (pixel(left, top + 1), (1.0 - right) * below),
                (pixel(left + 1, top + 1), right * below),
            ];
            for colour in 0..3 {
                let sum: f64 = corners.iter().map(|(of, part)| f64::from(of[colour]) * part).sum();
                turned.push(sum.round() as u8);
            }
        }
    }
    Raster::new(across, down, turned)
}

/// Converts the image to grey, or to black and white.
pub(crate) fn of_quality(raster: Raster, quality: Quality) -> Option<Raster> {
    let (width, height) = (raster.width(), raster.height());
    if quality == Quality::Colour {
        return Some(raster);
    }
    let mut pixels = raster.into_pixels();
    for pixel in pixels.chunks_exact_mut(3) {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
        // Luminance as in Rec. ITU-R BT.601 and JPEG.
        let grey = (red * 299 + green * 587 + blue * 114 + 500) / 1000;
        let grey = match quality {
            Quality::Bitonal if grey < 128 => 0,
            Quality::Bitonal => 255,
            _ => grey as u8,
        };
        pixel.fill(grey);
    }
    Raster::new(width, height, pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three by two pixels, each of a different grey.
    fn small() -> Raster {
        let pixels = [1, 2, 3, 4, 5, 6].iter().flat_map(|grey| [*grey; 3]).collect();
        Raster::new(3, 2, pixels).unwrap()
    }

    fn greys(raster: &Raster) -> Vec<u8> {
        raster.pixels().iter().step_by(3).copied().collect()
    }

    #[test]
    fn quarters_and_mirrors_move_pixels_only() {
        let rows = [
            (false, 0, (3, 2), [1, 2, 3, 4, 5, 6]),
            (true, 0, (3, 2), [3, 2, 1, 6, 5, 4]),
            (false, 90, (2, 3), [4, 1, 5, 2, 6, 3]),
            (false, 180, (3, 2), [6, 5, 4, 3, 2, 1]),
            (false, 270, (2, 3), [3, 6, 2, 5, 1, 4]),
            (true, 90, (2, 3), [6, 3, 5, 2, 4, 1]),
        ];
        for (is_mirrored, degrees, size, expected) in rows {
            let turn = Turn { is_mirrored, thousandths: degrees * 1000 };
            let raster = turned(small(), turn).unwrap();
            assert_eq!((raster.width(), raster.height()), size, "{turn:?}");
            assert_eq!(turn.size(3, 2), size, "{turn:?}");
            assert_eq!(greys(&raster), expected, "{turn:?}");
        }
    }

    #[test]
    fn other_angles_are_in_a_white_box() {
        let black = Raster::new(21, 11, vec![0; 21 * 11 * 3]).unwrap();
        let turn = Turn { is_mirrored: false, thousandths: 45_000 };
        let raster = turned(black, turn).unwrap();
        assert_eq!((raster.width(), raster.height()), (23, 23));
        let values = greys(&raster);
        assert_eq!((values[0], values[11 * 23 + 11], values[23 * 23 - 1]), (255, 0, 255));
        // A tiny rotation changes little.
        let turn = Turn { is_mirrored: false, thousandths: 1 };
        assert_eq!(greys(&turned(small(), turn).unwrap()), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn qualities_are_of_luminance() {
        let colours = vec![255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];
        let raster = || Raster::new(4, 1, colours.clone()).unwrap();
        assert_eq!(greys(&of_quality(raster(), Quality::Grey).unwrap()), [76, 150, 29, 255]);
        assert_eq!(greys(&of_quality(raster(), Quality::Bitonal).unwrap()), [0, 255, 0, 255]);
        assert_eq!(of_quality(raster(), Quality::Colour).unwrap(), raster());
    }
}
