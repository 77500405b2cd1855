//! A picture that resembles stained tissue, as a TIFF with tiles and smaller levels.

use std::f64::consts::PI;

const SIZE: (u32, u32) = (1536, 1280);
const TILE: u32 = 256;
const LEVELS: usize = 3;
const ABOUT: &[u8] = b"Synthetic: made by seekwire slides --demo\0";

struct Level {
    width: u32,
    height: u32,
    /// Three bytes for each pixel.
    pixels: Vec<u8>,
}

impl Level {
    fn largest() -> Self {
        let (width, height) = SIZE;
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| colour(x, y)));
        Self { width, height, pixels: pixels.collect() }
    }

    /// Halves the size; each pixel is the mean of four.
    fn half(&self) -> Self {
        let (width, height) = (self.width / 2, self.height / 2);
        let of = |x: u32, y: u32, part: usize| {
            u32::from(self.pixels[(y * self.width + x) as usize * 3 + part])
        };
        let mean = |x: u32, y: u32, part: usize| {
            let (x, y) = (2 * x, 2 * y);
            let sum =
                of(x, y, part) + of(x + 1, y, part) + of(x, y + 1, part) + of(x + 1, y + 1, part);
            (sum / 4) as u8
        };
        let pixel = |x, y| [0, 1, 2].map(|part| mean(x, y, part));
        let pixels = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y)));
        Self { width, height, pixels: pixels.collect() }
    }

    /// All tiles, row by row; white beyond the border.
    fn tiles(&self) -> Vec<u8> {
        let mut tiles = Vec::new();
        for top in (0..self.height).step_by(TILE as usize) {
            for left in (0..self.width).step_by(TILE as usize) {
                for y in top..top + TILE {
                    for x in left..left + TILE {
                        let at = (y * self.width + x) as usize * 3;
                        match x < self.width && y < self.height {
                            true => tiles.extend_from_slice(&self.pixels[at..at + 3]),
                            false => tiles.extend_from_slice(&[255; 3]),
                        }
                    }
                }
            }
        }
        tiles
    }
}

/// A pseudorandom number between 0 and 1.
fn chance(x: u32, y: u32) -> f64 {
    let mixed = x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca77);
    f64::from((mixed ^ (mixed >> 15)).wrapping_mul(0x2c1b_3c6d) >> 8) / f64::from(1 << 24)
}

/// Glass, tissue with fibres, and nuclei, one in each cell of a grid.
fn colour(x: u32, y: u32) -> [u8; 3] {
    const CELL: u32 = 28;
    let (across, down) = (f64::from(x), f64::from(y));
    let (right, below) = (across / f64::from(SIZE.0) - 0.5, down / f64::from(SIZE.1) - 0.5);
    let border = 0.16 + 0.03 * (below.atan2(right) * 7.0).sin();
    if right * right + below * below > border {
        return [243, 241, 244];
    }
    let (column, row) = (x / CELL, y / CELL);
    let middle = |cell: u32, part: f64| (f64::from(cell) + 0.3 + 0.4 * part) * f64::from(CELL);
    let (left, top) = (middle(column, chance(column, row)), middle(row, chance(row, column + 99)));
    let far = (across - left).hypot(down - top);
    if far < 4.0 + 4.0 * chance(column + 7, row) {
        return [92, 58, 128];
    }
    let fibre = ((across * 0.9 + 18.0 * (down / 60.0).sin()) / 9.0 * PI / 2.0).sin();
    let [red, green, blue] = [222.0, 140.0, 182.0].map(|part: f64| part + 14.0 * fibre);
    [red as u8, green as u8, blue as u8]
}

/// The contents of the file.
pub(super) fn slide() -> Vec<u8> {
    let mut file = b"II\x2a\0\0\0\0\0".to_vec();
    let mut link = 4;
    let mut level = Level::largest();
    for number in 0..LEVELS {
        if number > 0 {
            level = level.half();
        }
        let tiles = level.tiles();
        let first = file.len() as u32;
        file.extend_from_slice(&tiles);
        let bytes = TILE * TILE * 3;
        let count = tiles.len() as u32 / bytes;
        let offsets = append(&mut file, (0..count).map(|tile| first + tile * bytes));
        let counts = append(&mut file, (0..count).map(|_| bytes));
        // Half a micron per pixel, so 20000 in a centimetre.
        let scale = append(&mut file, [20_000 >> number, 1].into_iter());
        let bits = append(&mut file, [8 | 8 << 16, 8].into_iter());
        let about = file.len() as u32;
        file.extend_from_slice(ABOUT);
        let (short, long, text, ratio) = (3, 4, 2, 5);
        let entries: [(u16, u16, u32, u32); 16] = [
            (254, long, 1, u32::from(number > 0)),
            (256, long, 1, level.width),
            (257, long, 1, level.height),
            (258, short, 3, bits),
            (259, short, 1, 1),
            (262, short, 1, 2),
            (270, text, ABOUT.len() as u32, about),
            (277, short, 1, 3),
            (282, ratio, 1, scale),
            (283, ratio, 1, scale),
            (284, short, 1, 1),
            (296, short, 1, 3),
            (322, long, 1, TILE),
            (323, long, 1, TILE),
            (324, long, count, offsets),
            (325, long, count, counts),
        ];
        let directory = file.len() as u32;
        file[link..link + 4].copy_from_slice(&directory.to_le_bytes());
        file.extend_from_slice(&(entries.len() as u16).to_le_bytes());
        for (tag, kind, count, value) in entries {
            file.extend_from_slice(&tag.to_le_bytes());
            file.extend_from_slice(&kind.to_le_bytes());
            file.extend_from_slice(&count.to_le_bytes());
            file.extend_from_slice(&value.to_le_bytes());
        }
        link = file.len();
        file.extend_from_slice(&[0; 4]);
    }
    file
}

/// Appends numbers and returns their offset.
fn append(file: &mut Vec<u8>, numbers: impl Iterator<Item = u32>) -> u32 {
    let at = file.len() as u32;
    numbers.for_each(|number| file.extend_from_slice(&number.to_le_bytes()));
    at
}
