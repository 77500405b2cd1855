//! The pages that list the pages of a region: the root, and the lists.
//!
//! | page    | holds                                                                              |
//! |---------|------------------------------------------------------------------------------------|
//! | root    | magic, token, length of the region in bytes; the references of the lists           |
//! | a list  | the references of 1024 pages of the region; after the last one of the region, 0    |
//!
//! Both machines have processors of one kind, so numbers have their byte order.

use seekwire_transport::sys::grants::PAGE;

const MAGIC: u64 = u64::from_ne_bytes(*b"SWGRANTS");
/// Number of references on a page.
const PER_LIST: usize = PAGE / 4;
/// Number of words of the root before the references.
const WORDS: usize = 3;
/// Maximum number of pages of a region: those that can be mapped at once.
const MOST: usize = seekwire_transport::sys::grants::MOST;

const _: () = assert!(MOST / PER_LIST <= (PAGE - WORDS * 8) / 4);

/// Number of pages of a region.
pub(super) fn pages_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX) / PAGE
}

/// Number of lists of a region of `length` bytes.
pub(super) fn count(length: u64) -> usize {
    pages_of(length).div_ceil(PER_LIST)
}

/// The root, followed by the lists.
pub(super) fn write(token: u64, length: u64, lists: &[u32], references: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [MAGIC, token, length] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(lists.iter().flat_map(|list| list.to_ne_bytes()));
    bytes.resize(PAGE, 0);
    bytes.extend(references.iter().flat_map(|reference| reference.to_ne_bytes()));
    bytes.resize(PAGE + lists.len() * PAGE, 0);
    bytes
}

/// The references of the lists, if the root belongs to a region with this token and length.
pub(super) fn read_root(root: &[u8], token: u64, length: u64) -> Option<Vec<u32>> {
    let expected = [MAGIC, token, length];
    let (words, rest) = root.split_at_checked(WORDS * 8)?;
    let is_root = words.chunks_exact(8).zip(expected).all(|(word, it)| word == it.to_ne_bytes());
    let count = Some(count(length)).filter(|_| is_root && pages_of(length) <= MOST)?;
    numbers(rest, count)
}

/// The references of the pages of a region, from its lists.
pub(super) fn read(lists: &[u8], length: u64) -> Option<Vec<u32>> {
    numbers(lists, pages_of(length))
}

/// The first `count` numbers; `None` if `count` is 0 or there are fewer.
pub(super) fn numbers(bytes: &[u8], count: usize) -> Option<Vec<u32>> {
    let references = bytes.chunks_exact(4).take(count).filter_map(|bytes| bytes.try_into().ok());
    let numbers: Vec<u32> = references.map(u32::from_ne_bytes).collect();
    (count > 0 && numbers.len() == count).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(pages in 1..=5000usize, token: u64, first: u32) {
            let length = (pages * PAGE) as u64;
            let reference = |at: usize| first.wrapping_add(at as u32 * 3);
            let references: Vec<u32> = (0..pages).map(reference).collect();
            let lists: Vec<u32> = (0..count(length)).map(|at| at as u32 + 7).collect();
            let bytes = write(token, length, &lists, &references);
            prop_assert_eq!(bytes.len(), PAGE * (1 + lists.len()));
            prop_assert_eq!(read_root(&bytes[..PAGE], token, length), Some(lists));
            prop_assert_eq!(read(&bytes[PAGE..], length), Some(references));
        }

        #[test]
        fn any_other_page_is_no_root(bytes in proptest::collection::vec(any::<u8>(), PAGE)) {
            prop_assert_eq!(read_root(&bytes, 1, 1 << 20), None);
        }
    }

    #[test]
    fn a_root_is_that_of_one_token_and_length() {
        let bytes = write(5, 1 << 20, &[9], &[8; 256]);
        assert_eq!(read_root(&bytes, 5, 1 << 20), Some(vec![9]));
        assert_eq!(read_root(&bytes, 6, 1 << 20), None);
        assert_eq!(read_root(&bytes, 5, 2 << 20), None);
        assert_eq!(read_root(&bytes[..8], 5, 1 << 20), None);
        // A length that cannot be mapped is rejected.
        let long = ((MOST + 1) * PAGE) as u64;
        assert_eq!(read_root(&write(5, long, &[9; 65], &[]), 5, long), None);
        assert_eq!(read(&bytes[PAGE..PAGE + 400], 1 << 20), None);
    }
}
