//! Counts the blocks of a sequential JPEG (ITU-T T.81, annexes B and F), because the decoder in
//! Rust makes up those that are missing. libjpeg-turbo reports them itself.

use std::collections::BTreeSet;

/// Bits of a code that are looked up at once.
const LOOK: u32 = 9;
/// Longest code.
const LONGEST: usize = 16;

/// A Huffman code.
struct Code {
    /// Length and symbol for each beginning of [`LOOK`] bits; a length of 0 means a longer code.
    looked_up: Vec<(u8, u8)>,
    /// For each length, the first code that is longer, shifted to the longest; and what to add to
    /// a code for the index of its symbol.
    ends: [u32; LONGEST + 1],
    offsets: [i32; LONGEST + 1],
    symbols: Vec<u8>,
}

impl Code {
    /// Reads a table, and returns the bytes after it.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (counts, rest) = bytes.split_at_checked(LONGEST)?;
        let count = counts.iter().map(|count| usize::from(*count)).sum();
        let (symbols, rest) = rest.split_at_checked(count)?;
        let mut new = Self {
            looked_up: vec![(0, 0); 1 << LOOK],
            ends: [0; LONGEST + 1],
            offsets: [0; LONGEST + 1],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut index) = (0_u32, 0);
        for (length, count) in (1..).zip(counts) {
            new.offsets[length] = index as i32 - code as i32;
            for _ in 0..*count {
                if length as u32 <= LOOK {
                    let shift = LOOK - length as u32;
                    let places = (code << shift) as usize..((code + 1) << shift) as usize;
                    new.looked_up.get_mut(places)?.fill((length as u8, symbols[index]));
                }
                (code, index) = (code + 1, index + 1);
            }
            new.ends[length] = code << (LONGEST - length);
            code <<= 1;
        }
        Some((new, rest))
    }
}

/// The bits of entropy-coded data.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The next bits are the highest of so many.
    word: u64,
    count: u32,
}

impl Bits<'_> {
    /// Reads bytes up to a marker.
    fn fill(&mut self) {
        while self.count <= 48 {
            let byte = match self.bytes.get(self.at..) {
                Some([0xff, 0, ..]) => {
                    self.at += 2;
                    0xff
                }
                Some([0xff, ..] | []) | None => return,
                Some([byte, ..]) => {
                    self.at += 1;
                    *byte
                }
            };
            self.word = self.word << 8 | u64::from(byte);
            self.count += 8;
        }
    }

    /// The next bits, with zeros after the last one.
    fn peek(&self, bits: u32) -> u32 {
        let mask = (1 << bits) - 1;
        let word = match self.count.checked_sub(bits) {
            Some(more) => self.word >> more,
            None => self.word << (bits - self.count),
        };
        word as u32 & mask
    }

    /// `None` if the data end before.
    fn skip(&mut self, bits: u32) -> Option<()> {
        self.count = self.count.checked_sub(bits)?;
        Some(())
    }

    fn symbol(&mut self, code: &Code) -> Option<u8> {
        if self.count < 32 {
            self.fill();
        }
        let (length, symbol) = code.looked_up[self.peek(LOOK) as usize];
        if length > 0 {
            self.skip(length.into())?;
            return Some(symbol);
        }
        let next = self.peek(LONGEST as u32);
        let length = (LOOK as usize + 1..=LONGEST).find(|length| next < code.ends[*length])?;
        self.skip(length as u32)?;
        let index = (next >> (LONGEST - length)) as i32 + code.offsets[length];
        code.symbols.get(usize::try_from(index).ok()?).copied()
    }

    /// Skips a block of 8 x 8 coefficients.
    fn block(&mut self, first: &Code, others: &Code) -> Option<()> {
        let size = self.symbol(first)?;
        self.skip(u32::from(size & 15))?;
        let mut coefficients = 1;
        while coefficients < 64 {
            let symbol = self.symbol(others)?;
            let (run, size) = (symbol >> 4, symbol & 15);
            match (run, size) {
                (..15, 0) => break,
                _ => coefficients += u32::from(run) + 1,
            }
            self.skip(size.into())?;
        }
        Some(())
    }

    /// Goes on after the marker of a restart.
    fn restart(&mut self) -> Option<()> {
        (self.word, self.count) = (0, 0);
        while self.bytes.get(self.at..self.at + 2)? == [0xff, 0xff] {
            self.at += 1;
        }
        let marker = self.bytes.get(self.at..self.at + 2)?;
        self.at += 2;
        matches!(marker, [0xff, 0xd0..=0xd7]).then_some(())
    }
}

/// A component of the frame: its number, and its blocks across and down in a unit.
struct Component {
    number: u8,
    across: u32,
    down: u32,
}

/// Tables and the frame of a JPEG.
#[derive(Default)]
struct State {
    size: (u32, u32),
    components: Vec<Component>,
    /// Codes of first coefficients, then those of others.
    codes: [[Option<Code>; 4]; 2],
    /// Units between restarts; 0 if there are none.
    restart: u32,
}

/// True if a JPEG has data for all blocks of all components, or is not sequential with Huffman
/// codes.
pub(crate) fn are_all(jpeg: &[u8]) -> bool {
    read(jpeg).unwrap_or(false)
}

fn read(jpeg: &[u8]) -> Option<bool> {
    let mut state = State::default();
    let mut done = BTreeSet::new();
    let mut at = 2;
    loop {
        at += memchr::memchr(0xff, jpeg.get(at..)?)?;
        let marker = *jpeg.get(at + 1)?;
        match marker {
            0xff => {
                at += 1;
                continue;
            }
            0xd9 => return Some(done.len() == state.components.len() && !done.is_empty()),
            0x00 | 0x01 | 0xd0..=0xd8 => {
                at += 2;
                continue;
            }
            _ => {}
        }
        let length = usize::from(u16::from_be_bytes(jpeg.get(at + 2..at + 4)?.try_into().ok()?));
        let segment = jpeg.get(at + 4..at + 2 + length.max(2))?;
        at += 2 + length;
        match marker {
            0xc0 | 0xc1 => state.frame(segment)?,
            0xc4 => state.codes(segment)?,
            0xdd => state.restart = u16::from_be_bytes(segment.try_into().ok()?).into(),
            0xda => at = state.scan(segment, jpeg, at, &mut done)?,
            0xc2..=0xcf if marker != 0xc8 => return Some(true),
            _ => {}
        }
    }
}

impl State {
    fn frame(&mut self, segment: &[u8]) -> Option<()> {
        let &[_, high, low, wide_high, wide_low, _, ref components @ ..] = segment else {
            return None;
        };
        let side = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low]));
        self.size = (side(wide_high, wide_low), side(high, low));
        let component = |of: &[u8]| {
            let (across, down) = (u32::from(of[1] >> 4), u32::from(of[1] & 15));
            let is_valid = (1..=4).contains(&across) && (1..=4).contains(&down);
            is_valid.then_some(Component { number: of[0], across, down })
        };
        self.components = components.chunks_exact(3).map(component).collect::<Option<_>>()?;
        Some(())
    }

    fn codes(&mut self, mut segment: &[u8]) -> Option<()> {
        while let [place, rest @ ..] = segment {
            let (code, rest) = Code::read(rest)?;
            let codes = self.codes.get_mut(usize::from(place >> 4))?;
            *codes.get_mut(usize::from(place & 15))? = Some(code);
            segment = rest;
        }
        Some(())
    }

    /// Skips the data of a scan, and returns where they end; `None` if they end too early.
    fn scan(
        &self,
        segment: &[u8],
        jpeg: &[u8],
        at: usize,
        done: &mut BTreeSet<u8>,
    ) -> Option<usize> {
        let (count, components) = segment.split_first()?;
        let mut parts = Vec::new();
        for of in components.chunks_exact(2).take((*count).into()) {
            let component = self.components.iter().find(|component| component.number == of[0])?;
            let code =
                |class: usize, number: u8| self.codes[class].get(usize::from(number))?.as_ref();
            parts.push((component, code(0, of[1] >> 4)?, code(1, of[1] & 15)?));
            done.insert(of[0]);
        }
        // Its units would have no data, and so no end.
        if parts.is_empty() {
            return None;
        }
        let most = |side: fn(&Component) -> u32| self.components.iter().map(side).max();
        let (across, down) = (most(|of| of.across)?, most(|of| of.down)?);
        let (wide, high) = self.size;
        // A scan of one component has no blocks beyond its border.
        let (units, is_alone) = match &parts[..] {
            [(of, ..)] => {
                let blocks =
                    |side: u32, own: u32, most: u32| (side * own).div_ceil(most).div_ceil(8);
                (blocks(wide, of.across, across) * blocks(high, of.down, down), true)
            }
            _ => (wide.div_ceil(8 * across) * high.div_ceil(8 * down), false),
        };
        let mut bits = Bits { bytes: jpeg, at, word: 0, count: 0 };
        for unit in 0..units {
            if unit > 0 && unit.checked_rem(self.restart) == Some(0) {
                bits.restart()?;
            }
            for (of, first, others) in &parts {
                let blocks = if is_alone { 1 } else { of.across * of.down };
                for _ in 0..blocks {
                    bits.block(first, others)?;
                }
            }
        }
        Some(bits.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::codecs::jpeg::JpegEncoder;
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    /// Noise, which has long codes.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn blocks_are_counted_in_whole_and_in_cut_scans() {
        let pixels = noise(61 * 47 * 3);
        let mut files = Vec::new();
        for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_2, SamplingFactor::F_4_1] {
            for (optimized, restart) in [(false, 0), (true, 0), (false, 3)] {
                let mut file = Vec::new();
                let mut encoder = Encoder::new(&mut file, 90);
                encoder.set_sampling_factor(sampling);
                encoder.set_optimized_huffman_tables(optimized);
                if restart > 0 {
                    encoder.set_restart_interval(restart);
                }
                encoder.encode(&pixels, 61, 47, ColorType::Rgb).unwrap();
                files.push(file);
            }
        }
        let mut grey = Vec::new();
        let colour = image::ExtendedColorType::L8;
        JpegEncoder::new(&mut grey).encode(&pixels[..61 * 47], 61, 47, colour).unwrap();
        files.push(grey);
        for file in &files {
            assert!(are_all(file));
            let empty = [&file[..file.len() - 2], b"\xff\xda\0\x06\0\0\x3f\0\xff\xd9"].concat();
            assert!(!are_all(&empty), "a scan of nothing");
            let end = file.len() - 2;
            for missing in [3, 9, 100] {
                let part = [&file[..end - missing], b"\xff\xd9"].concat();
                assert!(!are_all(&part), "{missing}");
            }
            for length in 0..end {
                assert!(!are_all(&file[..length]));
            }
            // No panic, whatever is changed.
            for at in 0..700 {
                let mut changed = file.clone();
                changed[at] ^= 0x55;
                are_all(&changed);
            }
        }
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_progressive(true);
        encoder.encode(&pixels, 61, 47, ColorType::Rgb).unwrap();
        assert!(are_all(&file));
    }
}
