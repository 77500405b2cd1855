//! Splits rows of pixels into planes of luminance and colour differences, from which blocks are
//! cut.

use std::array::from_fn;

use super::transform::Block;

/// The rows of one line of units. A unit has one block of each colour difference, and one or four
/// of luminance.
pub(super) struct Planes {
    width: usize,
    /// Width in pixels, padded to whole units by repeating the last pixel.
    padded: usize,
    /// Pixels along each side of a colour sample: one or two.
    side: usize,
    /// As many rows as a unit has.
    luminance: Vec<f32>,
    /// Eight rows each, for blue and for red.
    colours: [Vec<f32>; 2],
    /// Blue minus luminance and red minus luminance, of one row or summed over two.
    above: [Vec<f32>; 2],
}

/// Scales the largest such difference to 127.5 (ITU-R BT.601, ITU-T T.871).
const ABOVE: [f32; 2] = [1.772, 1.402];

impl Planes {
    pub(super) fn new(width: usize, side: u8) -> Self {
        let side = usize::from(side);
        let padded = width.next_multiple_of(8 * side);
        let row = || vec![0.0; padded];
        let colour = || vec![0.0; padded / side * 8];
        Self {
            width,
            padded,
            side,
            luminance: vec![0.0; padded * 8 * side],
            colours: [colour(), colour()],
            above: [row(), row()],
        }
    }

    /// Pixel rows of a unit.
    pub(super) fn rows(&self) -> usize {
        8 * self.side
    }

    pub(super) fn units(&self) -> usize {
        self.padded / (8 * self.side)
    }

    /// Takes the next rows. If there are too few, the last one is repeated.
    pub(super) fn fill(&mut self, rows: &[u8]) {
        let line = self.width * 3;
        let last = (rows.len() / line).saturating_sub(1);
        let colour = self.padded / self.side;
        for row in 0..8 {
            self.above.iter_mut().for_each(|above| above.fill(0.0));
            for row in row * self.side..(row + 1) * self.side {
                let from = &rows[row.min(last) * line..][..line];
                let to = &mut self.luminance[row * self.padded..][..self.padded];
                let [blue, red] = &mut self.above;
                split(from, to, blue, red);
                let edge = to[self.width - 1];
                to[self.width..].fill(edge);
            }
            for ((above, to), most) in self.above.iter_mut().zip(&mut self.colours).zip(ABOVE) {
                let edge = above[self.width - 1];
                above[self.width..].fill(edge);
                let to = &mut to[row * colour..][..colour];
                if self.side == 1 {
                    to.iter_mut().zip(above).for_each(|(to, above)| *to = *above / most);
                } else {
                    let four = 0.25 / most;
                    let pairs = to.iter_mut().zip(above.chunks_exact(2));
                    pairs.for_each(|(to, pair)| *to = (pair[0] + pair[1]) * four);
                }
            }
        }
    }

    /// The blocks of a unit in file order, each with its component.
    pub(super) fn blocks(&self, unit: usize) -> impl Iterator<Item = (usize, Block)> + '_ {
        let side = self.side;
        let luminance = (0..side * side).map(move |number| {
            let (down, across) = (number / side, number % side);
            let left = (unit * side + across) * 8;
            (0, cut(&self.luminance[down * 8 * self.padded..], self.padded, left))
        });
        let colours = (1..).zip(&self.colours);
        luminance.chain(
            colours.map(move |(component, plane)| {
                (component, cut(plane, self.padded / side, unit * 8))
            }),
        )
    }
}

/// Splits a row of pixels: writes luminance - 128, and adds to the differences of blue and red from
/// the luminance.
#[inline(always)]
fn split(from: &[u8], luminance: &mut [f32], blue: &mut [f32], red: &mut [f32]) {
    let to = luminance.iter_mut().zip(blue).zip(red);
    for (pixel, ((luminance, blue), red)) in from.chunks_exact(3).zip(to) {
        let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(f32::from);
        let y = 0.299 * r + 0.587 * g + 0.114 * b;
        *luminance = y - 128.0;
        *blue += b - y;
        *red += r - y;
    }
}

#[inline(always)]
fn cut(plane: &[f32], width: usize, left: usize) -> Block {
    from_fn(|row| {
        let row = &plane[row * width + left..][..8];
        from_fn(|at| row[at])
    })
}
