//! The image of the repositories, and its checksum.

use bytes::Bytes;

use crate::imaging::IMAGE;

pub(super) struct Image(Bytes);

impl Image {
    pub(super) fn new() -> Self {
        let mut bytes = vec![0; IMAGE as usize];
        fastrand::Rng::with_seed(IMAGE).fill(&mut bytes);
        Self(bytes.into())
    }

    /// A part of it, which shares its memory.
    pub(super) fn part(&self, start: u64, bytes: u64) -> Bytes {
        self.0.slice(start as usize..(start + bytes) as usize)
    }

    pub(super) fn sum(&self, start: u64, bytes: u64) -> u64 {
        sum(&self.0[start as usize..(start + bytes) as usize])
    }
}

/// Independent of how bytes are cut into blocks, and of the order of these.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // Sums of few bytes fit into 16 bits, which processors add up many at once.
    let short = |part: &[u8]| u64::from(part.iter().map(|byte| u16::from(*byte)).sum::<u16>());
    bytes.chunks(256).map(short).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_all_bytes_however_they_are_cut() {
        let image = Image::new();
        let (start, bytes) = (12_345, 100_000);
        let part = image.part(start, bytes);
        let plain: u64 = part.iter().map(|byte| u64::from(*byte)).sum();
        let blocks: u64 = part.chunks(777).map(sum).sum();
        assert_eq!((image.sum(start, bytes), blocks), (plain, plain));
        assert_eq!(sum(&[255; 512]), 512 * 255);
    }
}
