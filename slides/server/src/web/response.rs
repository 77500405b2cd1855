//! Responses and their common headers.

use axum::body::Body;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK, RETRY_AFTER,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::stamps::hexadecimal;
use crate::web::compression::is_text;

/// A response of this type.
pub(crate) fn body(kind: &'static str, bytes: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(bytes.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A response that caches must revalidate.
pub(crate) fn fleeting(kind: &'static str, bytes: impl Into<Bytes>) -> Response {
    let mut response = body(kind, bytes);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The text of a failure, for the page about it.
#[derive(Debug, Clone)]
pub(super) struct FailureText(pub(super) std::sync::Arc<str>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response =
            fleeting("text/plain; charset=utf-8", format!("{}\n", self.what).into_bytes());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(FailureText(self.what));
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The entity tag of a response of that type: the same for the same parts, even after a restart.
/// For text it is weak, since the bytes depend on whether the client accepts gzip (RFC 9110,
/// section 8.8.3).
pub(crate) fn etag(kind: &str, parts: &[&str]) -> HeaderValue {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let weak = if is_text(kind) { "W/" } else { "" };
    let text = format!("{weak}\"{}\"", hexadecimal(&hash.finalize()[..16]));
    // Hexadecimal digits are always valid.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// True if the client has exactly this version (RFC 9110, section 13.1.2).
pub(crate) fn has(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = tags.flat_map(|tags| tags.split(',')).map(str::trim);
    fn opaque(tag: &[u8]) -> &[u8] {
        tag.strip_prefix(b"W/").unwrap_or(tag)
    }
    tags.any(|tag| tag == "*" || opaque(tag.as_bytes()) == opaque(etag.as_bytes()))
}

/// Adds an entity tag, and a header for caches.
pub(crate) fn kept(mut response: Response, etag: HeaderValue, cache: &HeaderValue) -> Response {
    response.headers_mut().insert(ETAG, etag);
    response.headers_mut().insert(CACHE_CONTROL, cache.clone());
    response
}

/// Confirms that the client's copy is current.
pub(crate) fn not_modified() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

/// Adds links to related addresses.
pub(crate) fn linked(mut response: Response, links: &str) -> Response {
    if let Ok(links) = HeaderValue::from_str(links) {
        response.headers_mut().insert(LINK, links);
    }
    response
}

/// Paths for operators only: pages of other sites may not read them.
const OWN: [&str; 2] = ["/metrics", "/status"];

/// Allows pages of all sites to read responses. Such requests carry no cookies, and need none.
const SHARED: [(&str, &str); 2] = [
    ("access-control-allow-origin", "*"),
    (
        "access-control-expose-headers",
        "Accept-Ranges, Content-Range, ETag, Link, Retry-After, Warning",
    ),
];

/// Adds the headers common to all responses.
pub(crate) fn finish(mut response: Response, method: &Method, path: &str) -> Response {
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = response.headers_mut().remove(ALLOW);
        let what = "only GET, HEAD and OPTIONS are supported";
        response = Failure::new(StatusCode::METHOD_NOT_ALLOWED, what).into_response();
        if let Some(allowed) = allowed {
            response.headers_mut().insert(ALLOW, allowed);
        }
    }
    let headers = response.headers_mut();
    if !OWN.contains(&path) {
        for (name, value) in SHARED {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    // An address may be signed.
    headers.insert("referrer-policy", HeaderValue::from_static("same-origin"));
    if method == Method::HEAD {
        let length = axum::body::HttpBody::size_hint(response.body()).exact();
        *response.body_mut() = Body::empty();
        if let Some(length) = length.filter(|_| response.status() != StatusCode::NOT_MODIFIED) {
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
    }
    response
}

/// The response to a CORS preflight request.
pub(crate) fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        ("access-control-allow-methods", "GET, HEAD, OPTIONS"),
        ("access-control-allow-headers", "Accept, Authorization, If-None-Match, If-Range, Range"),
        ("access-control-max-age", "86400"),
        ("allow", "GET, HEAD, OPTIONS"),
    ] {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_as_the_standard_says() {
        let tag = etag("image/png", &["a", "b"]);
        assert_ne!(tag, etag("image/png", &["ab", ""]));
        let text = tag.to_str().unwrap().to_owned();
        // The tag of text is the same, but weak.
        let weak = etag("text/css; charset=utf-8", &["a", "b"]);
        assert_eq!(weak.to_str().unwrap(), format!("W/{text}"));
        let rows = [
            (text.clone(), true),
            (format!("W/{text}"), true),
            (format!("\"other\", {text}"), true),
            ("*".to_owned(), true),
            ("\"other\"".to_owned(), false),
            (text.trim_matches('"').to_owned(), false),
            (String::new(), false),
        ];
        for (value, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, value.parse().unwrap());
            for tag in [&tag, &weak] {
                assert_eq!(has(&headers, tag), expected, "{value}");
            }
        }
        assert!(!has(&HeaderMap::new(), &tag));
    }
}
