//! Avoids memory of blocks beyond what is charged for them.
//!
//! A limit counts the bytes of a block, but its buffer may have room for more: a filter has read
//! less than it hoped for, or a buffer has grown by doubling. So sent and gathered bytes move to a
//! smaller buffer if the free part is larger than an eighth of the bytes.

use bytes::Bytes;

use crate::memory::ledger::Ledger;
use crate::policy::cut::OVERHEAD;

/// Allocators round sizes up themselves.
const SPARE: usize = 32;

/// Shorter buffers are copied: shrinking one would leave a hole that no buffer of that size fits
/// into. Longer ones shrink in place, since a copy would need twice the memory for a moment.
const IN_PLACE: usize = 1 << 20;

/// Checking a block costs a part of the time of the shortest ones, and nothing compared to these.
const SHORT: usize = 4 << 10;

/// The buffers of so few short blocks do not matter; the sender may be the one that all others wait
/// for.
const FEW: usize = 256 * OVERHEAD;

/// Whether to check a buffer of this length, on its way into a stream with that ledger.
pub(crate) fn is_worth_it(len: usize, ledger: &Ledger) -> bool {
    len >= SHORT || ledger.holds(FEW)
}

fn is_spacious(len: usize, capacity: usize) -> bool {
    capacity > len + len / 8 + SPARE
}

/// The same bytes, in little more memory than they need. Shared bytes are left alone, since their
/// buffer is not known.
pub(crate) fn compact(bytes: Bytes) -> Bytes {
    match bytes.try_into_mut() {
        Ok(own) if is_spacious(own.len(), own.capacity()) => gathered(own.into()),
        Ok(own) => own.freeze(),
        Err(shared) => shared,
    }
}

/// The same for gathered bytes.
pub(crate) fn gathered(mut bytes: Vec<u8>) -> Bytes {
    if is_spacious(bytes.len(), bytes.capacity()) {
        if bytes.len() < IN_PLACE {
            return Bytes::copy_from_slice(&bytes);
        }
        bytes.shrink_to_fit();
    }
    bytes.into()
}

/// Makes room for a line at the end of a block of `size` bytes, or a little more. It is never so
/// much that the whole block would have to be copied.
pub(crate) fn make_room(block: &mut Vec<u8>, line: usize, size: usize) {
    if block.capacity() - block.len() < line {
        let ahead = match block.len() {
            // The last line is mostly longer than the room that is left.
            0 => size.saturating_add(size / 16),
            // A line may come in many parts.
            len => len / 8,
        };
        block.reserve_exact(line.max(ahead));
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::{
        Block, Cut, Filter, FilterError, Graph, Outputs, Ports, Step, StreamOptions, Unit,
    };

    /// Capacity of bytes that are not shared.
    fn capacity(bytes: Bytes) -> usize {
        match bytes.try_into_mut() {
            Ok(own) => own.capacity(),
            Err(shared) if shared.is_empty() => 0,
            Err(_) => usize::MAX,
        }
    }

    fn with_capacity(len: usize, capacity: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.resize(len, 7);
        bytes
    }

    #[test]
    fn what_is_mostly_empty_gets_a_smaller_buffer() {
        for (len, room, most) in [
            (0, 1 << 16, 0),
            (1, 1 << 16, 1),
            (100, 150, 100),
            (50_000, 1 << 16, 50_000),
            (2 << 20, 3 << 20, 2 << 20),
        ] {
            let vec = || with_capacity(len, room);
            let cut = BytesMut::from(&vec()[..]).freeze();
            let mut truncated = BytesMut::zeroed(room);
            truncated.truncate(len);
            let mut split = BytesMut::zeroed(2 * room).split_off(room);
            split.truncate(len);
            for bytes in [vec().into(), cut, truncated.freeze(), split.freeze(), gathered(vec())] {
                let bytes = compact(bytes);
                assert_eq!(bytes.len(), len);
                assert!(capacity(bytes) <= most, "{len} of {room}");
            }
        }
    }

    #[test]
    fn what_is_nearly_full_or_shared_stays_where_it_is() {
        let address = |bytes: &Bytes| bytes.as_ptr();
        for (len, room) in [(10, 40), (60_000, 1 << 16), (1 << 16, 1 << 16), (9 << 20, 10 << 20)] {
            let bytes = Bytes::from(with_capacity(len, room));
            let at = address(&bytes);
            assert_eq!(address(&compact(bytes)), at);
        }
        let bytes = Bytes::from(with_capacity(1, 1 << 16));
        let (at, other) = (address(&bytes), bytes.clone());
        assert_eq!(address(&compact(bytes)), at);
        drop(other);
        let constant = Bytes::from_static(b"constant");
        assert_eq!(address(&compact(constant.clone())), address(&constant));
    }

    /// Lines of these lengths, in buffers of these capacities.
    const SENT: [(usize, usize); 4] = [(1, 1 << 16), (900, 2048), (5000, 9000), (3, 3)];

    struct Give;

    impl Filter for Give {
        fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
            for (len, room) in SENT.repeat(300) {
                let mut line = with_capacity(len, room);
                line[len - 1] = b'\n';
                out.send(0, line)?;
            }
            Ok(Step::Done)
        }
    }

    /// Keeps all blocks; at most this many may be in larger buffers.
    struct Take(Vec<Block>, usize);

    impl Filter for Take {
        fn process(
            &mut self,
            block: Block,
            _: usize,
            _: &mut Outputs<'_>,
        ) -> Result<(), FilterError> {
            self.0.push(block);
            Ok(())
        }

        fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
            let is_spacious = |block| {
                let bytes = Bytes::from(block);
                is_spacious(bytes.len(), capacity(bytes))
            };
            let count = self.0.drain(..).map(is_spacious).filter(|is_so| *is_so).count();
            assert!(count <= self.1, "{count}");
            Ok(())
        }
    }

    #[test]
    fn no_block_takes_much_more_than_is_charged() {
        let cuts = [Cut::Whole, Cut::Lines(1000), Cut::Lines(1), Cut::Bytes(8 << 20)];
        for (cut, most) in cuts.into_iter().zip([FEW / OVERHEAD, 0, 0, 0]) {
            let mut graph = Graph::new();
            graph.filter("give", 1, Ports::source(), || Give).unwrap();
            graph.filter("take", 1, Ports::sink(), move || Take(Vec::new(), most)).unwrap();
            let options = StreamOptions { cut, ..StreamOptions::default() };
            graph.connect("give", "take", options).unwrap();
            graph.start().unwrap().submit(Unit::new("")).wait().unwrap();
        }
    }

    #[test]
    fn lines_take_what_they_have() {
        for (line, size) in [(80, 1000), (80, 64 << 10), (1, 1), (5000, 64)] {
            let mut block = Vec::new();
            let mut moves = 0;
            while block.len() < size {
                make_room(&mut block, line, size);
                let at = block.as_ptr();
                block.resize(block.len() + line, 0);
                moves += usize::from(block.as_ptr() != at);
            }
            assert_eq!(moves, 0);
            assert!(!is_spacious(block.len(), block.capacity()), "{line} {size}");
        }
        // One long line in parts: it moves seldom, and is never spacious.
        let (mut block, mut grown) = (Vec::new(), 0);
        while block.len() < 1 << 20 {
            let before = block.capacity();
            make_room(&mut block, 100, 4096);
            grown += usize::from(block.capacity() != before);
            block.resize(block.len() + 100, 0);
            assert!(block.len() < 4096 || !is_spacious(block.len(), block.capacity()));
        }
        assert!(grown < 60, "{grown}");
    }
}
