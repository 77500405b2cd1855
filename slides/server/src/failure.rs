//! Why an HTTP request fails.

use std::fmt;
use std::sync::Arc;

use axum::http::StatusCode;
use seekwire_slides_image::{Error, public};

use crate::library::is_address;
use crate::render::work;

/// A failure, for the client to read. It contains no path of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) what: Arc<str>,
}

/// A result of this crate.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: StatusCode, what: impl Into<Arc<str>>) -> Self {
        Self { status, what: what.into() }
    }

    /// The request is invalid.
    pub(crate) fn bad(what: impl Into<Arc<str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, what)
    }

    pub(crate) fn not_found(what: impl Into<Arc<str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, what)
    }

    /// An image format that is not supported.
    pub(crate) fn format(what: impl Into<Arc<str>>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what)
    }

    /// The request is valid, but not implemented.
    pub(crate) fn not_implemented(what: impl Into<Arc<str>>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, what)
    }

    pub(crate) fn internal(what: impl Into<Arc<str>>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, what)
    }

    /// The server is shutting down, or is overloaded.
    pub(crate) fn unavailable(what: impl Into<Arc<str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, what)
    }

    /// Converts an error of a slide, which clients know as `id` and whose path is `location`.
    pub(crate) fn of_slide(error: &Error, id: &str, location: &str) -> Self {
        let status = match error {
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                StatusCode::NOT_FOUND
            }
            // A retry gets the new file.
            Error::Changed { .. } if !is_address(location) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Http { .. } | Error::Changed { .. } => StatusCode::BAD_GATEWAY,
            Error::Unsupported { .. } | Error::Limit { .. } | Error::LargeTiles { .. } => {
                StatusCode::NOT_IMPLEMENTED
            }
            Error::Argument(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut what = outside(&error.to_string(), id, location);
        if matches!(error, Error::LargeTiles { .. }) {
            what.push_str(&format!("; --max-tile allows more, up to {}", work::LARGEST_TILE));
        }
        Self::new(status, what)
    }
}

/// A text in which a slide is called by its identifier. Addresses appear as in the errors of
/// slides.
pub(crate) fn outside(text: &str, id: &str, location: &str) -> String {
    let text = text.replace(location, id).replace(&public(location), id);
    // For another file in the same directory.
    match location.rsplit_once('/') {
        Some((directory, _)) if location.starts_with('/') && !directory.is_empty() => {
            text.replace(&format!("{directory}/"), "")
        }
        _ => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_signatures_stay_inside() {
        let error = Error::Malformed { name: "/data/a.svs".into(), at: 3, what: "cut".into() };
        let failure = Failure::of_slide(&error, "a.svs", "/data/a.svs");
        assert_eq!(failure.to_string(), "a.svs: at byte 3: cut");
        let failure = Failure::of_slide(&error, "1.2.3", "/data/b.dcm");
        assert_eq!(failure.to_string(), "a.svs: at byte 3: cut");
        let error = Error::Http { name: "http://host/b.tif".into(), what: "403".into() };
        let failure = Failure::of_slide(&error, "b.tif", "http://host/b.tif?key=secret");
        assert_eq!(failure.to_string(), "b.tif: 403");
        assert_eq!(failure.status, StatusCode::BAD_GATEWAY);
        let changed = |location: &str| {
            let error = Error::Changed { name: location.into() };
            Failure::of_slide(&error, "a", location).status
        };
        assert_eq!(changed("http://host/a"), StatusCode::BAD_GATEWAY);
        assert_eq!(changed("/data/a"), StatusCode::SERVICE_UNAVAILABLE);
    }
}
