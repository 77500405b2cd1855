//! Entropy-coded blocks (ITU-T T.81, annex F.1).

/// A code word.
#[derive(Clone, Copy, Default)]
pub(super) struct Code {
    pub(super) word: u32,
    /// Length in bits.
    pub(super) length: u32,
}

/// Code words by the symbols they encode.
pub(super) struct Codes {
    /// By the number of bits of a difference.
    pub(super) dc: [Code; 256],
    /// By the number of zeros before a coefficient, in the upper four bits, and its number of bits.
    pub(super) ac: [Code; 256],
}

/// The end of a block, and sixteen zeros.
const END: usize = 0;
const ZEROS: usize = 0xf0;

/// Bits appended to the head of a file.
pub(super) struct Bits {
    file: Vec<u8>,
    /// The last `count` bits are not in the file yet; fewer than 32 between two code words.
    waiting: u64,
    count: u32,
}

impl Bits {
    pub(super) fn after(file: Vec<u8>) -> Self {
        Self { file, waiting: 0, count: 0 }
    }

    /// Appends the last `length` bits of `bits`, at most 32; the other bits are zero.
    #[inline(always)]
    fn put(&mut self, bits: u32, length: u32) {
        self.waiting = self.waiting << length | u64::from(bits);
        self.count += length;
        if self.count >= 32 {
            self.count -= 32;
            let word = (self.waiting >> self.count) as u32;
            // A byte of 255 in `word` is a zero here, so the subtraction borrows.
            let flipped = !word;
            if flipped.wrapping_sub(0x0101_0101) & word & 0x8080_8080 == 0 {
                self.file.extend_from_slice(&word.to_be_bytes());
            } else {
                word.to_be_bytes().iter().for_each(|byte| self.byte(*byte));
            }
        }
    }

    fn byte(&mut self, byte: u8) {
        self.file.push(byte);
        if byte == 0xff {
            self.file.push(0);
        }
    }

    /// Appends a code word, then the `size` low bits of a number; a negative one is written as one
    /// less.
    #[inline(always)]
    fn number(&mut self, code: Code, number: i32, size: u32) {
        let rest = (number + (number >> 31)) as u32 & ((1 << size) - 1);
        self.put(code.word << size | rest, code.length + size);
    }

    /// Writes a block whose samples are in the order of the file. `last` is the first coefficient
    /// of the previous block of this component.
    #[inline]
    pub(super) fn block(&mut self, samples: &[i16; 64], last: &mut i32, codes: &Codes) {
        let first = i32::from(samples[0]);
        let difference = first - *last;
        *last = first;
        let size = bits(difference);
        self.number(codes.dc[size as usize], difference, size);

        let mut others = nonzero(samples) & !1;
        let mut before = 0;
        while others != 0 {
            let at = others.trailing_zeros();
            others &= others - 1;
            let mut zeros = at - before - 1;
            before = at;
            while zeros >= 16 {
                let Code { word, length } = codes.ac[ZEROS];
                self.put(word, length);
                zeros -= 16;
            }
            let number = i32::from(samples[at as usize & 63]);
            let size = bits(number);
            self.number(codes.ac[(zeros << 4 | size) as usize & 255], number, size);
        }
        if before < 63 {
            let Code { word, length } = codes.ac[END];
            self.put(word, length);
        }
    }

    /// The file, with its last byte padded with ones.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.put(0x7f, 7);
        while self.count >= 8 {
            self.count -= 8;
            self.byte((self.waiting >> self.count) as u8);
        }
        self.file
    }
}

/// Number of bits of the absolute value.
#[inline(always)]
fn bits(number: i32) -> u32 {
    u32::BITS - number.unsigned_abs().leading_zeros()
}

/// One bit for each nonzero coefficient, from the lowest bit on.
#[inline(always)]
fn nonzero(samples: &[i16; 64]) -> u64 {
    let mut mask = 0;
    for (chunk, eight) in (0..).zip(samples.chunks_exact(8)) {
        let bits =
            (0..).zip(eight).fold(0, |bits, (at, sample)| bits | u8::from(*sample != 0) << at);
        mask |= u64::from(bits) << (8 * chunk);
    }
    mask
}
