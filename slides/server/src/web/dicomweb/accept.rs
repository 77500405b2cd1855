//! Content negotiation (RFC 9110, section 12.5.1), with the types inside `multipart/related` and
//! the transfer syntaxes of DICOMweb (PS3.18, section 8.7).

use std::cmp::Reverse;
use std::fmt;

use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};

use crate::failure::{Failure, Result};

const MULTIPART: &str = "multipart/related";

/// A representation that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer<'a> {
    /// True if it consists of parts of `multipart/related`.
    pub(super) is_multipart: bool,
    pub(super) kind: &'static str,
    /// The transfer syntax; empty if there is none, or if parts have several.
    pub(super) syntax: &'a str,
    /// True if it is only for clients that name the transfer syntax, or accept any.
    pub(super) is_special: bool,
}

impl<'a> Offer<'a> {
    pub(super) fn single(kind: &'static str, syntax: &'a str) -> Self {
        Self { is_multipart: false, kind, syntax, is_special: false }
    }

    pub(super) fn parts(kind: &'static str, syntax: &'a str) -> Self {
        Self { is_multipart: true, ..Self::single(kind, syntax) }
    }
}

impl fmt::Display for Offer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let syntax = match self.syntax {
            "" => String::new(),
            syntax => format!("; transfer-syntax={syntax}"),
        };
        match self.is_multipart {
            true => write!(f, "{MULTIPART}; type=\"{}\"{syntax}", self.kind),
            false => write!(f, "{}{syntax}", self.kind),
        }
    }
}

/// The offer that the client prefers; of equal ones the first.
pub(super) fn choose<'o, 'a>(
    headers: &HeaderMap,
    query: &[(String, String)],
    offers: &'o [Offer<'a>],
) -> Result<&'o Offer<'a>> {
    let named = query.iter().find(|(name, _)| name == "accept").map(|(_, value)| value.clone());
    let all = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let wanted = named.unwrap_or_else(|| all.collect::<Vec<_>>().join(","));
    let mut ranges: Vec<Range> = split(&wanted, ',').into_iter().filter_map(Range::of).collect();
    if wanted.trim().is_empty() {
        ranges.extend(Range::of("*/*"));
    }
    ranges.sort_by_key(|range| Reverse(range.quality));
    let ranges = ranges.iter().filter(|range| range.quality > 0);
    let mut chosen = ranges.filter_map(|range| offers.iter().find(|offer| range.takes(offer)));
    chosen.next().ok_or_else(|| {
        let offers: Vec<String> = offers.iter().map(Offer::to_string).collect();
        let what = format!("Accept: there is {}", offers.join(", "));
        Failure::new(StatusCode::NOT_ACCEPTABLE, what)
    })
}

/// One of the types that a client accepts.
struct Range {
    kind: String,
    /// The type inside it.
    inner: Option<String>,
    syntax: Option<String>,
    /// Quality in thousandths.
    quality: u16,
}

impl Range {
    fn of(text: &str) -> Option<Self> {
        let mut parts = split(text, ';').into_iter();
        let kind = parts.next()?.trim().to_ascii_lowercase();
        let mut range = Self { kind, inner: None, syntax: None, quality: 1000 };
        for part in parts {
            let Some((name, value)) = part.split_once('=') else { continue };
            let value = value.trim().trim_matches('"');
            match &*name.trim().to_ascii_lowercase() {
                "type" => range.inner = Some(value.to_ascii_lowercase()),
                "transfer-syntax" => range.syntax = Some(value.to_owned()),
                "q" => {
                    let quality = value.parse().unwrap_or(1.0_f32).clamp(0.0, 1.0);
                    range.quality = (quality * 1000.0) as u16;
                }
                _ => {}
            }
        }
        (!range.kind.is_empty()).then_some(range)
    }

    fn takes(&self, offer: &Offer<'_>) -> bool {
        let is_kind = match &*self.kind {
            "*/*" => return !offer.is_special,
            MULTIPART | "multipart/*" => {
                let inner = self.inner.as_deref().unwrap_or("*/*");
                offer.is_multipart && covers(inner, offer.kind)
            }
            kind => !offer.is_multipart && covers(kind, offer.kind),
        };
        let is_syntax = match self.syntax.as_deref() {
            None => !offer.is_special,
            Some(syntax) => syntax == "*" || syntax == offer.syntax,
        };
        is_kind && is_syntax
    }
}

/// True if a range includes a type, by its name or with a wildcard.
fn covers(range: &str, kind: &str) -> bool {
    let of = range.strip_suffix('*').filter(|of| of.ends_with('/'));
    range == "*/*" || range == kind || of.is_some_and(|of| kind.starts_with(of))
}

/// Splits at separators that are not in quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    let is_between = |character: char| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    };
    text.split(is_between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASELINE: &str = "1.2.840.10008.1.2.4.50";

    fn chosen(accept: &str, offers: &[Offer<'_>]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        choose(&headers, &[], offers).ok().map(Offer::to_string)
    }

    #[test]
    fn types_inside_of_others_and_syntaxes_are_looked_at() {
        let special =
            Offer { is_special: true, ..Offer::parts("application/octet-stream", BASELINE) };
        let offers =
            [Offer::parts("image/jpeg", BASELINE), special, Offer::single("image/jpeg", BASELINE)];
        let rows = [
            ("*/*", Some(0)),
            ("", Some(0)),
            ("multipart/related", Some(0)),
            ("multipart/related; type=\"image/jpeg\"", Some(0)),
            ("multipart/related;type=image/jpeg;transfer-syntax=*", Some(0)),
            (
                "Multipart/Related; Type=\"image/jpeg\"; transfer-syntax=1.2.840.10008.1.2.4.50",
                Some(0),
            ),
            ("multipart/related; type=\"*/*\"", Some(0)),
            ("multipart/related; type=\"image/*\"", Some(0)),
            (
                "multipart/related; type=\"image/jpeg\"; transfer-syntax=1.2.840.10008.1.2.4.70",
                None,
            ),
            ("multipart/related; type=\"application/octet-stream\"", None),
            ("multipart/related; type=application/octet-stream; transfer-syntax=*", Some(1)),
            ("image/jpeg", Some(2)),
            ("image/*", Some(2)),
            ("application/*", None),
            ("image/jp2, image/jpeg;q=0.5", Some(2)),
            ("image/jpeg;q=0.5, multipart/related;type=\"image/jpeg\"", Some(0)),
            ("image/jpeg;q=0", None),
            ("text/html,\";,\";x", None),
            ("nonsense", None),
            (";;;,,,", None),
        ];
        for (accept, expected) in rows {
            let expected = expected.map(|at: usize| offers[at].to_string());
            assert_eq!(chosen(accept, &offers), expected, "{accept}");
        }
        let query = [("accept".to_owned(), "image/jpeg".to_owned())];
        let by_query = choose(&HeaderMap::new(), &query, &offers).unwrap();
        assert_eq!(by_query, &offers[2]);
        let refused = choose(&HeaderMap::new(), &[("accept".into(), "a/b".into())], &offers);
        let failure = refused.unwrap_err();
        assert_eq!(failure.status, StatusCode::NOT_ACCEPTABLE);
        assert!(failure.what.contains("type=\"image/jpeg\"; transfer-syntax="), "{failure}");
    }
}
