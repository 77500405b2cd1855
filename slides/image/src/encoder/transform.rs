//! The cosine transform with five multiplications for eight samples, after Y. Arai, T. Agui and M.
//! Nakajima ("A Fast DCT-SQ Scheme for Images", Transactions of the IEICE E71, 1988). Each output
//! is scaled by a factor of its position, which the quantisation divisors absorb.

use std::array::from_fn;
use std::f32::consts::FRAC_1_SQRT_2;
use std::f64::consts::{PI, SQRT_2};

use super::tables::ZIGZAG;

/// Samples, row by row.
pub(super) type Block = [[f32; 8]; 8];

/// Columns transformed at once: they fill a vector register that all processors have.
type Lanes = [f32; 4];

/// Divides coefficients by a table.
pub(super) struct Quantiser {
    /// One factor per coefficient, in columns.
    factors: [f32; 64],
}

/// Largest magnitude that the standard's code words can express.
const MOST: f32 = 1023.0;
/// Added to a much smaller float, this leaves the rounded value in the last bits.
const ROUND: f32 = 12_582_912.0;

impl Quantiser {
    /// Takes a table row by row.
    pub(super) fn new(table: &[u8; 64]) -> Self {
        let scale = |at: usize| match at {
            0 => 1.0,
            _ => (at as f64 * PI / 16.0).cos() * SQRT_2,
        };
        let factors = from_fn(|at| {
            let (row, column) = (at % 8, at / 8);
            let step = f64::from(table[row * 8 + column]);
            (1.0 / (step * scale(row) * scale(column) * 8.0)) as f32
        });
        Self { factors }
    }

    /// The coefficients of a block, in file order.
    #[inline]
    pub(super) fn of(&self, block: &Block) -> [i16; 64] {
        let coefficients = transformed(&transposed(&transformed(block)));
        let mut rounded = [0; 64];
        let factors = self.factors.chunks_exact(8);
        for ((to, from), factors) in rounded.chunks_exact_mut(8).zip(&coefficients).zip(factors) {
            for ((to, from), factor) in to.iter_mut().zip(from).zip(factors) {
                let value = (from * factor).clamp(-MOST, MOST) + ROUND;
                *to = value.to_bits() as i16;
            }
        }
        ORDER.map(|at| rounded[usize::from(at & 63)])
    }
}

/// The file order of coefficients in columns.
const ORDER: [u8; 64] = {
    let mut order = ZIGZAG;
    let mut at = 0;
    while at < 64 {
        order[at] = ZIGZAG[at] % 8 * 8 + ZIGZAG[at] / 8;
        at += 1;
    }
    order
};

#[inline(always)]
fn transposed(block: &Block) -> Block {
    from_fn(|row| from_fn(|column| block[column][row]))
}

/// Transforms each column of a block.
#[inline(always)]
fn transformed(block: &Block) -> Block {
    let half = |from: usize| columns(from_fn(|row| from_fn(|lane| block[row][from + lane])));
    let (left, right) = (half(0), half(4));
    from_fn(|row| from_fn(|at| if at < 4 { left[row][at] } else { right[row][at - 4] }))
}

#[inline(always)]
fn add(one: Lanes, other: Lanes) -> Lanes {
    from_fn(|at| one[at] + other[at])
}

#[inline(always)]
fn subtract(one: Lanes, other: Lanes) -> Lanes {
    from_fn(|at| one[at] - other[at])
}

#[inline(always)]
fn times(one: Lanes, factor: f32) -> Lanes {
    one.map(|sample| sample * factor)
}

/// Transforms four columns of eight samples.
#[inline(always)]
fn columns(of: [Lanes; 8]) -> [Lanes; 8] {
    // cos(3 pi / 8), and its sum and difference with sin(3 pi / 8).
    const SMALL: f32 = 0.382_683_43;
    const DIFFERENCE: f32 = 0.541_196_1;
    const SUM: f32 = 1.306_563;
    let sums: [Lanes; 4] = from_fn(|at| add(of[at], of[7 - at]));
    let differences: [Lanes; 4] = from_fn(|at| subtract(of[at], of[7 - at]));

    let (outer, inner) = (add(sums[0], sums[3]), add(sums[1], sums[2]));
    let (outer_left, inner_left) = (subtract(sums[0], sums[3]), subtract(sums[1], sums[2]));
    let turned = times(add(outer_left, inner_left), FRAC_1_SQRT_2);

    let one = add(differences[3], differences[2]);
    let two = times(add(differences[2], differences[1]), FRAC_1_SQRT_2);
    let three = add(differences[1], differences[0]);
    let shared = times(subtract(one, three), SMALL);
    let (low, high) = (add(times(one, DIFFERENCE), shared), add(times(three, SUM), shared));
    let (up, down) = (add(differences[0], two), subtract(differences[0], two));

    [
        add(outer, inner),
        add(up, high),
        add(outer_left, turned),
        subtract(down, low),
        subtract(outer, inner),
        add(down, low),
        subtract(outer_left, turned),
        subtract(up, high),
    ]
}
