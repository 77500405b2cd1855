//! The parts of the server from which responses are made, and the access that clients have.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::access_control::{self, Rate, Token};
use super::metrics::Requests;
use super::sending::Room;
use super::signed::{self, Admission};
use crate::annotations::Annotations;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::iiif::SizeLimit;
use crate::prefetch::Prefetch;
use crate::privacy::LabelPolicy;
use crate::render::Images;
use crate::slide_cache::SlideCache;
use crate::web_limits::Web;
use crate::workers::Workers;

/// Marks requests from clients admitted to one slide only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guest {
    /// True if both the link that admitted them and this server allow labels and data that names a
    /// person.
    pub(super) sees_associated: bool,
}

/// Everything from which responses are made.
pub(crate) struct App {
    pub(crate) slides: Arc<SlideCache>,
    pub(crate) images: Arc<Images>,
    /// Limits for slides on web servers.
    pub(crate) remote: Arc<Web>,
    pub(crate) annotations: Arc<Annotations>,
    pub(crate) workers: Option<Arc<Workers>>,
    pub(crate) prefetch: Arc<Prefetch>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) requests: Requests,
    pub(crate) most: SizeLimit,
    /// URL under which clients reach this server, if it is not the host that they name.
    pub(crate) base: Option<String>,
    /// Cache header of cacheable responses.
    pub(crate) cache: HeaderValue,
    /// The token that clients must present, if any.
    pub(crate) token: Option<Token>,
    /// The key of signed addresses, if any.
    pub(crate) key: Option<signed::SigningKey>,
    /// True if clients reach this server over TLS.
    pub(crate) is_encrypted: bool,
    /// Clients that get no associated images.
    pub(crate) no_associated: Option<LabelPolicy>,
    /// True if metadata that names a person is shown.
    pub(crate) shows_persons: bool,
    pub(crate) rate: Option<Rate>,
    pub(crate) permits: Arc<Semaphore>,
    /// Maximum concurrent requests.
    pub(crate) most_requests: usize,
    /// Memory for responses being sent.
    pub(crate) room: Arc<Room>,
    pub(crate) timeout: Duration,
}

impl App {
    pub(super) fn in_flight(&self) -> usize {
        self.most_requests.saturating_sub(self.permits.available_permits())
    }

    /// Decides whether to admit a request; returns whether to one slide only, and the cookie that
    /// admits later requests.
    pub(super) fn entry(&self, request: &Request) -> Option<(Option<Guest>, Option<HeaderValue>)> {
        let (headers, uri) = (request.headers(), request.uri());
        let is_open = self.token.is_none() && self.key.is_none();
        if is_open || self.token.as_ref().is_some_and(|token| token.is_in(headers)) {
            return Some((None, None));
        }
        let key = self.key.as_ref()?;
        let now = signed::now();
        let address = uri.path_and_query().map_or("", |address| address.as_str());
        let guest = |admission: Admission| Guest {
            sees_associated: admission.has_associated && self.no_associated.is_none(),
        };
        if let Some(admission) = key.admits(address, now) {
            // The viewer's address gives access to the whole slide, any other only to itself.
            let is_viewer =
                |path: &str| path.strip_prefix("/slides/").is_some_and(|id| !id.contains('/'));
            let id = signed::slide(uri.path()).filter(|_| is_viewer(uri.path()));
            let end = access_control::manners(self.is_encrypted);
            let cookie = id.and_then(|id| key.cookie(&id, admission, now, end));
            return Some((Some(guest(admission)), cookie));
        }
        let admission = key.by_cookie(uri.path(), headers, now)?;
        Some((Some(guest(admission)), None))
    }

    /// True if the sender of a request may see labels and macros.
    pub(super) fn shows_associated(&self, extensions: &Extensions) -> bool {
        let guest = extensions.get::<Guest>();
        self.no_associated != Some(LabelPolicy::Everybody)
            && guest.is_none_or(|guest| guest.sees_associated)
    }

    /// True if the sender of a request may see metadata that names a person.
    pub(super) fn shows_persons(&self, extensions: &Extensions) -> bool {
        let guest = extensions.get::<Guest>();
        self.shows_persons && guest.is_none_or(|guest| guest.sees_associated)
    }

    /// The response to a client that is not admitted.
    pub(super) fn closed(&self, address: Option<&PathAndQuery>) -> Response {
        let address = address.map_or("", PathAndQuery::as_str);
        // The signature is valid, so only the time has passed.
        if self.key.as_ref().is_some_and(|key| key.admits(address, 0).is_some()) {
            let what = "this link has expired: ask whoever sent it for a new one";
            return Failure::new(StatusCode::FORBIDDEN, what).into_response();
        }
        if self.token.is_none() {
            let what = "a signed address is needed, and signed addresses expire";
            return Failure::new(StatusCode::FORBIDDEN, what).into_response();
        }
        let what = "a token is needed: as Authorization: Bearer, or once as ?token= at /";
        let mut response = Failure::new(StatusCode::UNAUTHORIZED, what).into_response();
        let challenge = HeaderValue::from_static("Bearer realm=\"seekwire slides\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        response
    }
}

pub(super) type Shared = State<Arc<App>>;
