//! Finding free pages in a half.

use std::ops::Range;

use crate::layout::PAGE;

/// The first free range of pages in `space` that has room for `bytes`.
pub(crate) fn first_fit(
    space: Range<usize>,
    mut used: Vec<Range<usize>>,
    bytes: usize,
) -> Option<Range<usize>> {
    let length = bytes.max(1).checked_next_multiple_of(PAGE)?;
    used.sort_unstable_by_key(|range| range.start);
    let mut at = space.start;
    for range in used {
        if range.start.saturating_sub(at) >= length {
            break;
        }
        at = at.max(range.end);
    }
    let end = at.checked_add(length).filter(|end| *end <= space.end)?;
    Some(at..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: usize = 3;
    const PAGES: usize = 40;

    fn pages(range: Range<usize>) -> Range<usize> {
        range.start * PAGE..range.end * PAGE
    }

    /// Checks page by page.
    fn model(used: &[Range<usize>], length: usize) -> Option<Range<usize>> {
        let is_free = |page| used.iter().all(|range| !range.contains(&page));
        let last = PAGES.checked_sub(length)?;
        let mut fits = (FIRST..=last).filter(|at| (*at..at + length).all(is_free));
        fits.next().map(|at| at..at + length)
    }

    proptest! {
        #[test]
        fn the_first_pages_that_are_free_are_found(
            used in proptest::collection::vec((FIRST..PAGES, 1..9usize), 0..20),
            length in 1..12usize,
        ) {
            let used: Vec<_> =
                used.iter().map(|(at, length)| *at..(at + length).min(PAGES)).collect();
            let taken = used.iter().cloned().map(pages).collect();
            let fit = first_fit(pages(FIRST..PAGES), taken, length * PAGE);
            prop_assert_eq!(fit, model(&used, length).map(pages));
        }
    }

    #[test]
    fn bytes_are_whole_pages_and_never_too_many() {
        let space = || pages(1..3);
        assert_eq!(first_fit(space(), Vec::new(), 0), Some(pages(1..2)));
        assert_eq!(first_fit(space(), Vec::new(), PAGE + 1), Some(pages(1..3)));
        assert_eq!(first_fit(space(), Vec::new(), 2 * PAGE + 1), None);
        assert_eq!(first_fit(space(), Vec::new(), usize::MAX), None);
    }
}
