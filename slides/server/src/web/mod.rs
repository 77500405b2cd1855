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
//!   exposition  metrics for Prometheus                    (metrics)
//!   status      workers, distribution of work, guarantees
//! app           everything from which responses are made
//! compression   of text, for clients that accept gzip
//! response      headers common to all responses, entity tags
//! sending       responses on their way: the resources held until they are sent
//! idle_detection  activity on a connection: detects idle and stuck ones
//! ```

pub(crate) mod access_control;
mod annotations;
mod app;
mod compression;
pub(crate) mod connections;
mod dicomweb;
mod exposition;
mod idle_detection;
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

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, LOCATION, RANGE, SET_COOKIE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::counters::Counters;
use crate::failure::Failure;
use access_control::Token;
use app::Shared;
use connections::ClientAddress;
use idle_detection::Traffic;
use metrics::Route;

pub(crate) use app::App;

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
    response::fleeting(seekwire_program::metrics::CONTENT_TYPE, exposition::text(&app))
}

/// Wraps the handling of each request.
async fn around(State(app): Shared, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let peer = request.extensions().get::<ClientAddress>().map(|peer| peer.0.ip());
    let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    // Without the query, which may contain the token.
    let path = request.uri().path().to_owned();
    let version = request.version();
    // Only GET knows ranges (RFC 9110, section 14.2).
    if method != Method::GET {
        request.headers_mut().remove(RANGE);
    }
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
    let given_token = pairs.filter_map(|pair| pair.strip_prefix("token=")).next()?;
    let given_token = percent_encoding::percent_decode_str(given_token).decode_utf8().ok()?;
    let cookie = access_control::cookie(&given_token, access_control::manners(app.is_encrypted))
        .filter(|_| token.is(&given_token))?;
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    // Relative, so that it also works behind a proxy.
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(".");
    let location = if name == "." { "./".to_owned() } else { format!("./{name}") };
    headers.insert(LOCATION, HeaderValue::from_str(&location).ok()?);
    headers.insert(SET_COOKIE, cookie);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}
