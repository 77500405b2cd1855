//! Compression of responses: text, for clients that accept gzip. Images and files are compressed
//! already, or are requested by ranges.

use axum::http::header::CONTENT_TYPE;
use axum::http::{Extensions, HeaderMap, StatusCode, Version};
use tower_http::compression::{CompressionLayer, Predicate, predicate::SizeAbove};

/// Media types of text. Parameters are ignored.
const TEXT: [&str; 9] = [
    "application/dicom+json",
    "application/geo+json",
    "application/json",
    "application/ld+json",
    "application/xml",
    "image/svg+xml",
    "text/css",
    "text/html",
    "text/javascript",
];

/// Bytes of the smallest response worth compressing.
const SMALLEST: u64 = 1024;

/// True if responses of a type are compressed for clients that accept gzip.
pub(super) fn is_text(kind: &str) -> bool {
    TEXT.contains(&kind.split(';').next().unwrap_or_default().trim())
}

fn has_text(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(is_text)
}

pub(super) fn layer() -> CompressionLayer<impl Predicate> {
    CompressionLayer::new().compress_when(SizeAbove::new(SMALLEST).and(has_text))
}
