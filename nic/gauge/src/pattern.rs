//! The bytes of a test: byte number n of each direction of a connection is n modulo a prime, which
//! exposes lost, duplicated and misplaced bytes.

use crate::error::Error;

const PERIOD: usize = 251;

/// Bytes of the pattern, enough for a piece of limited length from any position.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    /// For pieces of up to `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self((0..most + PERIOD).map(|at| (at % PERIOD) as u8).collect())
    }

    /// `length` bytes from `position` of the connection on.
    pub(crate) fn piece(&self, position: u64, length: usize) -> &[u8] {
        let start = (position % PERIOD as u64) as usize;
        &self.0[start..start + length]
    }

    /// Checks that `received` has the bytes of `position`.
    pub(crate) fn check(&self, position: u64, received: &[u8]) -> Result<(), Error> {
        let sent = self.piece(position, received.len());
        if sent == received {
            return Ok(());
        }
        let differs = sent.iter().zip(received).position(|(sent, received)| sent != received);
        Err(Error::Damaged(position + differs.unwrap_or_default() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join() {
        let pattern = Pattern::new(1000);
        let whole = pattern.piece(0, 1000);
        assert_eq!(&whole[600..1000], pattern.piece(600, 400));
        assert_eq!(whole[250..253], [250, 0, 1]);
        assert_eq!(pattern.piece(u64::MAX, 1), [(u64::MAX % 251) as u8]);
    }

    #[test]
    fn damage_is_found_where_it_is() {
        let pattern = Pattern::new(1000);
        let mut received = pattern.piece(300, 700).to_vec();
        assert!(pattern.check(300, &received).is_ok());
        // A byte that was lost.
        assert!(matches!(pattern.check(301, &received), Err(Error::Damaged(301))));
        received[99] ^= 1;
        assert!(matches!(pattern.check(300, &received), Err(Error::Damaged(399))));
    }
}
