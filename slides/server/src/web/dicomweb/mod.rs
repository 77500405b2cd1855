//! DICOMweb for slides in DICOM: WADO-RS and the searches of QIDO-RS (DICOM PS3.18, sections 10.4
//! and 10.6). Files and frames are sent as they are stored.
//!
//! ```text
//! search   studies, series, instances: found by the beginnings of files, read during a scan
//! address  the slides and instances that an address names
//! accept   content negotiation
//! body     responses in pieces, read as they are sent
//! render   images that browsers can show: of frames, instances and series
//! ```

mod accept;
mod address;
mod body;
mod render;
mod search;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::range::{self, Wanted};
use crate::failure::{Failure, Result};
use crate::web::app::{App, Guest, Shared};
use crate::web::response;
use accept::Offer;
use address::{Address, JSON, Parameters, address_of, etag, instance, instances, numbers, root};
use body::{Held, Piece};

const DICOM: &str = "application/dicom";
const BYTES: &str = "application/octet-stream";

/// The tag of pixels, the only values to which a dataset in JSON refers.
const PIXELS: &str = "7FE00010";

pub(super) fn routes() -> Router<Arc<App>> {
    let study = "/dicomweb/studies/{study}";
    let series = &format!("{study}/series/{{series}}");
    let instance = &format!("{series}/instances/{{instance}}");
    Router::new()
        .route("/dicomweb/studies", get(search::studies))
        .route("/dicomweb/series", get(search::series))
        .route("/dicomweb/instances", get(search::instances))
        .route(&format!("{study}/series"), get(search::series))
        .route(&format!("{study}/instances"), get(search::instances))
        .route(&format!("{series}/instances"), get(search::instances))
        .route(study, get(files))
        .route(series, get(files))
        .route(instance, get(files))
        .route(&format!("{study}/metadata"), get(metadata))
        .route(&format!("{series}/metadata"), get(metadata))
        .route(&format!("{instance}/metadata"), get(metadata))
        .route(&format!("{instance}/frames/{{frames}}"), get(frames))
        .route(&format!("{instance}/frames/{{frames}}/rendered"), get(render::frame))
        .route(&format!("{series}/rendered"), get(render::rendered))
        .route(&format!("{series}/thumbnail"), get(render::thumbnail))
        .route(&format!("{instance}/rendered"), get(render::rendered))
        .route(&format!("{instance}/thumbnail"), get(render::thumbnail))
        .route(&format!("{instance}/bulkdata/{{tag}}"), get(bulk))
        .route_layer(from_fn(guarded))
}

/// Files and metadata name patients, so a signed link gives access only if it includes associated
/// images.
async fn guarded(request: Request, next: Next) -> Response {
    match request.extensions().get::<Guest>() {
        Some(guest) if !guest.sees_associated => {
            let what =
                "this link does not give access to files and metadata, which may name a patient";
            Failure::new(StatusCode::FORBIDDEN, what).into_response()
        }
        _ => next.run(request).await,
    }
}

/// Serves files: of a study, a series, or one.
async fn files(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    headers: HeaderMap,
) -> Result<Response> {
    let held = instances(&app, &address).await?;
    let syntaxes: Vec<&str> = held
        .iter()
        .map(|one| one.instance().map(|one| one.transfer_syntax()))
        .collect::<Result<_>>()?;
    let is_alike = syntaxes.windows(2).all(|pair| pair[0] == pair[1]);
    let syntax = syntaxes.first().copied().filter(|_| is_alike).unwrap_or_default();
    let alone = [Offer::single(DICOM, syntax), Offer::parts(DICOM, syntax)];
    let offers = if address.instance.is_some() { &alone[..] } else { &alone[1..] };
    let offer = accept::choose(&headers, &query, offers)?;
    let etag = etag(&held, offer, "files")?;
    if response::has(&headers, &etag) {
        return Ok(app.unchanged(etag));
    }
    if let ([one], false) = (&held[..], offer.is_multipart) {
        let instance = one.instance()?;
        let name = format!("attachment; filename=\"{}.dcm\"", instance.uid());
        let mut answer = part(&headers, one, 0, instance.length(), offer, &etag)?;
        // An invalid UID is left out.
        if let Ok(name) = HeaderValue::from_str(&name) {
            answer.headers_mut().insert(CONTENT_DISPOSITION, name);
        }
        return Ok(app.of_dicom(answer, etag));
    }
    let mut pieces: Vec<Box<dyn Iterator<Item = Piece> + Send>> = Vec::new();
    for (number, one) in held.iter().cloned().enumerate() {
        let instance = one.instance()?;
        let kind = Offer::single(DICOM, instance.transfer_syntax()).to_string();
        let length = instance.length();
        pieces.push(Box::new(std::iter::once(body::head(&kind, number == 0))));
        pieces.push(Box::new(body::file(one, 0, length)));
    }
    pieces.push(Box::new(body::tail()));
    let answer = body::answer(offer, pieces.into_iter().flatten()).await?;
    Ok(app.of_dicom(answer, etag))
}

/// Bytes of a file, or the requested part of them.
fn part(
    headers: &HeaderMap,
    held: &Held,
    start: u64,
    length: u64,
    offer: &Offer<'_>,
    etag: &HeaderValue,
) -> Result<Response> {
    let wanted = range::wanted(headers, length, etag);
    let (from, to) = match wanted {
        Wanted::Whole => (0, length),
        Wanted::Part(from, to) => (from, to),
        Wanted::Nothing => (0, 0),
    };
    let pieces = body::file(held.clone(), start + from, start + to);
    let mut response = Response::new(body::stream(pieces));
    let text = |text: String| {
        HeaderValue::from_str(&text).map_err(|_| Failure::internal("a broken header"))
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, text(offer.to_string())?);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, (to - from).into());
    let (status, range) = match wanted {
        Wanted::Whole => return Ok(response),
        Wanted::Part(..) => {
            (StatusCode::PARTIAL_CONTENT, format!("bytes {from}-{}/{length}", to - 1))
        }
        Wanted::Nothing => (StatusCode::RANGE_NOT_SATISFIABLE, format!("bytes */{length}")),
    };
    headers.insert(CONTENT_RANGE, text(range)?);
    *response.status_mut() = status;
    Ok(response)
}

/// Serves datasets in JSON: of a study, a series, or one.
async fn metadata(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let offers = [Offer::single(JSON, ""), Offer::single("application/json", "")];
    let offer = accept::choose(&headers, &query, &offers)?;
    let held = instances(&app, &address).await?;
    let root = root(&app, &uri, &headers)?;
    let etag = etag(&held, offer, &root)?;
    if response::has(&headers, &etag) {
        return Ok(app.unchanged(etag));
    }
    let mut pieces = Vec::with_capacity(2 * held.len() + 1);
    for one in held {
        pieces.push(body::text(if pieces.is_empty() { "[" } else { "," }));
        let bulk = format!("{}/bulkdata/{PIXELS}", address_of(&root, &one)?);
        pieces.push(Piece::Dataset(one, bulk));
    }
    pieces.push(body::text("]"));
    let answer = body::answer(offer, pieces.into_iter()).await?;
    let mut answer = app.of_dicom(answer, etag);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept, host"));
    Ok(answer)
}

/// Serves frames as they are stored.
async fn frames(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    headers: HeaderMap,
) -> Result<Response> {
    let held = instance(&app, &address).await?;
    let list = address.frames.unwrap_or_default();
    let numbers = numbers(&list, held.instance()?.frames())?;
    let (text, is_one) = (format!("{numbers:?}"), numbers.len() == 1);
    let frames = Frames { numbers, text: &text, is_one };
    stored(&app, held, frames, &query, &headers).await
}

/// Serves the bytes to which a dataset in JSON refers: the pixels, or frames if they are
/// compressed.
async fn bulk(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    headers: HeaderMap,
) -> Result<Response> {
    let held = instance(&app, &address).await?;
    if address.tag.as_deref() != Some(PIXELS) {
        return Err(Failure::not_found(format!("all values except {PIXELS} are in the metadata")));
    }
    let instance = held.instance()?;
    let Some(native) = instance.native() else {
        let frames = instance.frames();
        let frames = Frames { numbers: 1..=frames, text: "all", is_one: frames == 1 };
        return stored(&app, held, frames, &query, &headers).await;
    };
    let syntax = instance.transfer_syntax();
    let offers = [Offer::parts(BYTES, syntax), Offer::single(BYTES, syntax)];
    let offer = accept::choose(&headers, &query, &offers)?;
    let etag = etag(std::slice::from_ref(&held), offer, "pixels")?;
    if response::has(&headers, &etag) {
        return Ok(app.unchanged(etag));
    }
    if !offer.is_multipart {
        return Ok(app.of_dicom(part(&headers, &held, native.0, native.1, offer, &etag)?, etag));
    }
    let kind = Offer::single(BYTES, syntax).to_string();
    let file = body::file(held.clone(), native.0, native.0 + native.1);
    let pieces = std::iter::once(body::head(&kind, true)).chain(file).chain(body::tail());
    let answer = body::answer(offer, pieces).await?;
    Ok(app.of_dicom(answer, etag))
}

/// Frames of an instance: their numbers, the same as a text, and whether the request is for a
/// single frame.
struct Frames<'a, I> {
    numbers: I,
    text: &'a str,
    is_one: bool,
}

/// Serves frames.
async fn stored<I>(
    app: &App,
    held: Held,
    frames: Frames<'_, I>,
    query: &[(String, String)],
    headers: &HeaderMap,
) -> Result<Response>
where
    I: IntoIterator<Item = u32>,
    I::IntoIter: Send + 'static,
{
    let Frames { numbers, text, is_one } = frames;
    let instance = held.instance()?;
    let (kind, syntax) = (instance.media_type(), instance.transfer_syntax());
    let mut offers = vec![Offer::parts(kind, syntax)];
    // A client that wants compressed pixels as plain bytes must name the transfer syntax, or accept
    // any.
    let special = kind != BYTES;
    if special {
        offers.push(Offer { is_special: true, ..Offer::parts(BYTES, syntax) });
    }
    if is_one {
        offers.push(Offer::single(kind, syntax));
        if special {
            offers.push(Offer { is_special: true, ..Offer::single(BYTES, syntax) });
        }
    }
    let offer = accept::choose(headers, query, &offers)?;
    let etag = etag(std::slice::from_ref(&held), offer, text)?;
    if response::has(headers, &etag) {
        return Ok(app.unchanged(etag));
    }
    let answer = match offer.is_multipart {
        true => {
            let kind = Offer { is_multipart: false, ..*offer }.to_string();
            let of = held.clone();
            let pieces = numbers.into_iter().enumerate().flat_map(move |(at, number)| {
                [body::head(&kind, at == 0), Piece::Frame(of.clone(), number)]
            });
            body::answer(offer, pieces.chain(body::tail())).await?
        }
        false => {
            let of = held.clone();
            let pieces = numbers.into_iter().map(move |number| Piece::Frame(of.clone(), number));
            body::answer(offer, pieces).await?
        }
    };
    Ok(app.of_dicom(answer, etag))
}
