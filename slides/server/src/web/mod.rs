//! HTTP: the addresses, and the handling common to all requests.
//!
//! ```text
//! connections   accepts them, with or without TLS, HTTP/1.1 and HTTP/2       (tls)
//! around        access log, counts, rate, token, number of requests, time
//!   pages       gallery, viewer and their assets
//!   (signed     addresses that admit their holders)
//!   images      Deep Zoom, IIIF, associated images, properties
//!   raw         samples of one channel
//!   dicomweb    WADO-RS and QIDO-RS                       (its first page has a map)
//!   annotations annotations in a view
//!   metrics     counters for Prometheus
//!   status      workers, distribution of work, guarantees
//! compression   of text, for clients that accept gzip
//! response      headers common to all responses, entity tags
//! sending       responses on their way: the resources held until they are sent
//! traffic       activity on a connection: detects idle and stuck ones
//! ```

mod annotations;
mod compression;
pub(crate) mod connections;
mod dicomweb;
pub(crate) mod gate;
mod images;
mod metrics;
mod pages;
mod range;
mod raw;
pub(crate) mod response;
pub(crate) mod sending;
pub(crate) mod signed;
mod status;
pub(crate) mod tls;
mod traffic;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;

use crate::annotations::Annotations;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::iiif::Most;
use crate::opened::Slides;
use crate::prefetch::Prefetch;
use crate::privacy::Whom;
use crate::render::Images;
use crate::shares::Web;
use crate::workers::Workers;
use connections::Peer;
use gate::{Rate, Token};
use metrics::{Requests, Route};
use sending::Room;
use signed::Admission;
use traffic::Traffic;

/// Marks requests from clients admitted to one slide only.
#[derive(Debug, Clone, Copy)]
struct Guest {
    /// True if both the link that admitted them and this server allow labels and data that names a
    /// person.
    sees_associated: bool,
}

/// Everything from which responses are made.
pub(crate) struct App {
    pub(crate) slides: Arc<Slides>,
    pub(crate) images: Arc<Images>,
    /// Limits for slides on web servers.
    pub(crate) remote: Arc<Web>,
    pub(crate) annotations: Arc<Annotations>,
    pub(crate) workers: Option<Arc<Workers>>,
    pub(crate) prefetch: Arc<Prefetch>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) requests: Requests,
    pub(crate) most: Most,
    /// URL under which clients reach this server, if it is not the host that they name.
    pub(crate) base: Option<String>,
    /// Cache header of cacheable responses.
    pub(crate) cache: HeaderValue,
    /// The token that clients must present, if any.
    pub(crate) token: Option<Token>,
    /// The key of signed addresses, if any.
    pub(crate) key: Option<signed::Key>,
    /// True if clients reach this server over TLS.
    pub(crate) is_encrypted: bool,
    /// Clients that get no associated images.
    pub(crate) no_associated: Option<Whom>,
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
    fn in_flight(&self) -> usize {
        self.most_requests.saturating_sub(self.permits.available_permits())
    }

    /// Decides whether to admit a request; returns whether to one slide only, and the cookie that
    /// admits later requests.
    fn entry(&self, request: &Request) -> Option<(Option<Guest>, Option<HeaderValue>)> {
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
            let end = gate::manners(self.is_encrypted);
            let cookie = id.and_then(|id| key.cookie(&id, admission, now, end));
            return Some((Some(guest(admission)), cookie));
        }
        let admission = key.by_cookie(uri.path(), headers, now)?;
        Some((Some(guest(admission)), None))
    }

    /// True if the sender of a request may see labels and macros.
    fn shows_associated(&self, extensions: &Extensions) -> bool {
        let guest = extensions.get::<Guest>();
        self.no_associated != Some(Whom::Everybody)
            && guest.is_none_or(|guest| guest.sees_associated)
    }

    /// True if the sender of a request may see metadata that names a person.
    fn shows_persons(&self, extensions: &Extensions) -> bool {
        let guest = extensions.get::<Guest>();
        self.shows_persons && guest.is_none_or(|guest| guest.sees_associated)
    }

    /// The response to a client that is not admitted.
    fn closed(&self, address: Option<&PathAndQuery>) -> Response {
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

type Shared = State<Arc<App>>;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(pages::gallery))
        .route("/slides.json", get(pages::list))
        .route("/static/{file}", get(pages::asset))
        .route("/healthz", get(|| async { response::fleeting("text/plain", "ok\n") }))
        .route("/metrics", get(exposition))
        .route("/status", get(status::show))
        .route("/slides/{id}", get(pages::viewer))
        .route("/slides/{id}/properties.json", get(images::properties))
        .route("/slides/{id}/annotations.json", get(annotations::view))
        .route("/slides/{id}/{file}", get(images::associated))
        .route("/slides/{id}/raw/{level}/{tile}", get(raw::tile))
        .route("/iiif/{version}/{id}", get(images::iiif_base))
        .route("/iiif/{version}/{id}/info.json", get(images::iiif_information))
        .route("/iiif/{version}/{id}/{region}/{size}/{rotation}/{file}", get(images::iiif_image))
        .merge(dicomweb::routes())
        .route("/{file}", get(images::descriptor))
        .route("/{files}/{level}/{tile}", get(images::tile))
        .fallback(|| async { Failure::not_found("there is nothing at this address") })
        .layer(compression::layer())
        .layer(from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

async fn exposition(State(app): Shared) -> Response {
    response::fleeting(metrics::CONTENT_TYPE, metrics::text(&app))
}

/// Wraps the handling of each request.
async fn around(State(app): Shared, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    // Without the query, which may contain the token.
    let path = request.uri().path().to_owned();
    let version = request.version();
    let wants_page = pages::is_wanted(request.headers());
    let mut answer = admitted(&app, peer, request, next).await;
    if wants_page {
        answer = pages::explained(answer, &path);
    }
    let response = response::finish(answer, &method, &path);
    let (status, took) = (response.status().as_u16(), began.elapsed());
    app.requests.add(Route::of(&path), status, took);
    let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let counters = Arc::clone(&app.counters);
    sending::counted(response, counters, move |bytes| {
        tracing::info!(
            target: "access",
            %peer, %method, path, ?version, status, bytes, microseconds,
        );
    })
}

async fn admitted(app: &App, peer: IpAddr, mut request: Request, next: Next) -> Response {
    // Health checks need no token, and are not refused because of other requests.
    if request.uri().path() == "/healthz" {
        return next.run(request).await;
    }
    if app.rate.as_ref().is_some_and(|rate| !rate.admits(peer, Instant::now())) {
        Counters::add(&app.counters.refused, 1);
        let what = "too many requests from this address";
        return Failure::new(StatusCode::TOO_MANY_REQUESTS, what).into_response();
    }
    if request.method() == Method::OPTIONS {
        return response::preflight();
    }
    if let Some(response) = app.token.as_ref().and_then(|token| login(app, token, &request)) {
        return response;
    }
    let (guest, cookie) = match app.entry(&request) {
        Some((guest, cookie)) => {
            if let Some(guest) = guest {
                request.extensions_mut().insert(guest);
            }
            (guest, cookie)
        }
        None => return app.closed(request.uri().path_and_query()),
    };
    let Ok(permit) = Arc::clone(&app.permits).try_acquire_owned() else {
        Counters::add(&app.counters.refused, 1);
        return Failure::unavailable("too many requests at a time").into_response();
    };
    let traffic = request.extensions().get::<Arc<Traffic>>().cloned().unwrap_or_default();
    let version = request.version();
    let mut response = match tokio::time::timeout(app.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure::unavailable("timed out").into_response(),
    };
    if let Some(cookie) = cookie.filter(|_| response.status().is_success()) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    match sending::holding(response, permit, &app.room, &traffic, version) {
        Ok(mut response) => {
            if let Some(guest) = guest {
                response.extensions_mut().insert(guest);
            }
            response
        }
        Err(failure) => {
            Counters::add(&app.counters.refused, 1);
            failure.into_response()
        }
    }
}

/// Answers a browser that sends the token in an address: with a cookie, and a redirection to the
/// address without it.
fn login(app: &App, token: &Token, request: &Request) -> Option<Response> {
    let path = request.uri().path();
    let pairs = request.uri().query()?.split('&');
    let given = pairs.filter_map(|pair| pair.strip_prefix("token=")).next()?;
    let given = percent_encoding::percent_decode_str(given).decode_utf8().ok()?;
    let cookie =
        gate::cookie(&given, gate::manners(app.is_encrypted)).filter(|_| token.is(&given))?;
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    // Relative, so that it also works behind a proxy.
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(".");
    let place = if name == "." { "./".to_owned() } else { format!("./{name}") };
    headers.insert(LOCATION, HeaderValue::from_str(&place).ok()?);
    headers.insert(SET_COOKIE, cookie);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}
