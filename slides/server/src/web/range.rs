//! Range requests (RFC 9110, section 14).

use axum::http::HeaderMap;
use axum::http::HeaderValue;
use axum::http::header::{IF_RANGE, RANGE};

/// The requested bytes of a resource of known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Whole,
    /// From the first offset up to, but not including, the second; at least one byte.
    Part(u64, u64),
    /// The range lies outside the resource.
    Nothing,
}

/// Parses the headers of a request. Invalid and multiple ranges mean the whole resource, as the
/// standard allows; so does a range of an earlier version.
pub(super) fn wanted(headers: &HeaderMap, length: u64, etag: &HeaderValue) -> Wanted {
    // A date is not accepted: a file may change twice in a second.
    let is_same = headers.get(IF_RANGE).is_none_or(|condition| condition == etag);
    let range = headers.get(RANGE).filter(|_| is_same).and_then(|range| range.to_str().ok());
    range.and_then(|range| parse(range, length)).unwrap_or(Wanted::Whole)
}

fn parse(range: &str, length: u64) -> Option<Wanted> {
    let (unit, range) = range.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |text: &str| -> Option<u64> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number too large to parse is beyond every end.
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (from, to) = match (first, last) {
        ("", last) => (length.saturating_sub(number(last)?), length),
        (first, "") => (number(first)?, length),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            (first, last.saturating_add(1).min(length))
        }
    };
    Some(if from < to { Wanted::Part(from, to) } else { Wanted::Nothing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_given_and_nonsense_is_not_looked_at() {
        let rows = [
            ("bytes=0-0", Wanted::Part(0, 1)),
            ("bytes=10-19", Wanted::Part(10, 20)),
            ("BYTES = 10-", Wanted::Part(10, 100)),
            ("bytes=90-1000", Wanted::Part(90, 100)),
            ("bytes=-7", Wanted::Part(93, 100)),
            ("bytes=-1000", Wanted::Part(0, 100)),
            ("bytes=0-99999999999999999999999", Wanted::Part(0, 100)),
            ("bytes=100-", Wanted::Nothing),
            ("bytes=100-200", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=99999999999999999999999-", Wanted::Nothing),
            ("bytes=20-10", Wanted::Whole),
            ("bytes=0-1,5-6", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("rows=1-2", Wanted::Whole),
            ("nonsense", Wanted::Whole),
        ];
        let etag = HeaderValue::from_static("\"a\"");
        for (range, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, range.parse().unwrap());
            assert_eq!(wanted(&headers, 100, &etag), expected, "{range}");
            headers.insert(IF_RANGE, etag.clone());
            assert_eq!(wanted(&headers, 100, &etag), expected, "{range}");
            headers.insert(IF_RANGE, HeaderValue::from_static("\"b\""));
            assert_eq!(wanted(&headers, 100, &etag), Wanted::Whole, "{range}");
        }
        assert_eq!(wanted(&HeaderMap::new(), 100, &etag), Wanted::Whole);
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_static("bytes=0-"));
        assert_eq!(wanted(&headers, 0, &etag), Wanted::Nothing);
    }
}
