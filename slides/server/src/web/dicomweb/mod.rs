//! DICOMweb for slides in DICOM: WADO-RS and the searches of QIDO-RS (DICOM PS3.18, sections 10.4
//! and 10.6). Files and frames are sent as they are stored.
//!
//! ```text
//! search   studies, series, instances: found by the beginnings of files, read during a scan
//! accept   content negotiation
//! body     responses in pieces, read as they are sent
//! render   images that browsers can show: of frames, instances and series
//! ```

mod accept;
mod body;
mod render;
mod search;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::range::{self, Wanted};
use crate::counters::Counters;
use crate::failure::{Failure, Result};
use crate::opened::Open;
use crate::privacy::Whom;
use crate::series::Index;
use crate::web::{App, Guest, Shared, response};
use accept::Offer;
use body::{Held, Piece};

const DICOM: &str = "application/dicom";
const JSON: &str = "application/dicom+json";
const BYTES: &str = "application/octet-stream";

/// The tag of pixels, the only values to which a dataset in JSON refers.
const PIXELS: &str = "7FE00010";

/// Maximum series of a study in one response: as many slides are open for it.
const SERIES: usize = 64;
/// Maximum frames of one response.
const FRAMES: usize = 1024;

type Parameters = Query<Vec<(String, String)>>;

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

/// The parameters of an address.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Address {
    study: Option<String>,
    series: Option<String>,
    instance: Option<String>,
    frames: Option<String>,
    tag: Option<String>,
}

impl Address {
    /// The study, and the series if there is one.
    fn uids(&self) -> Result<(&str, Option<&str>)> {
        let all = [&self.study, &self.series, &self.instance];
        if !all.into_iter().flatten().all(|uid| is_uid(uid)) {
            return Err(Failure::bad("a UID has digits and dots, 64 of them at most"));
        }
        Ok((self.study.as_deref().unwrap_or_default(), self.series.as_deref()))
    }
}

fn is_uid(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    (1..=64).contains(&text.len()) && text.bytes().all(is_part)
}

/// The DICOM series that exist. A scan for this does not block other requests; if it is too early
/// for a scan, no thread is used.
async fn index(app: &Arc<App>) -> Result<Arc<Index>> {
    if let Some(index) = app.slides.library().fresh_series(Instant::now()) {
        return Ok(index);
    }
    let slides = Arc::clone(&app.slides);
    let looked = tokio::task::spawn_blocking(move || slides.library().series()).await;
    looked.map_err(|_| Failure::internal("the series cannot be listed"))
}

/// The slides of a study, or of one of its series.
async fn slides(app: &Arc<App>, address: &Address) -> Result<Vec<Arc<Open>>> {
    let (study, series) = address.uids()?;
    let within = |index: &Index| -> Vec<(String, String)> {
        let from = (study.to_owned(), series.unwrap_or_default().to_owned());
        let all = index
            .range(from..)
            .take_while(|((of, one), _)| of == study && series.is_none_or(|series| one == series));
        all.map(|((_, series), found)| (found.id.clone(), series.clone())).collect()
    };
    let mut found = match series {
        Some(_) => within(&app.slides.library().known_series()),
        None => Vec::new(),
    };
    if found.is_empty() {
        found = within(&*index(app).await?);
    }
    if found.is_empty() {
        return Err(Failure::not_found("there is no such study or series"));
    }
    if found.len() > SERIES {
        let what = format!("a study of {} series: ask for them one by one", found.len());
        return Err(Failure::not_implemented(what));
    }
    let mut slides = Vec::with_capacity(found.len());
    for (id, series) in found {
        let open = app.slides.get(&id).await?;
        // The file may have been replaced since the scan.
        if open.slide.dicom().is_none_or(|dicom| dicom.series() != series) {
            return Err(Failure::not_found("the study or series no longer exists"));
        }
        slides.push(open);
    }
    Ok(slides)
}

/// The instances for an address.
async fn instances(app: &Arc<App>, address: &Address) -> Result<Vec<Held>> {
    let slides = slides(app, address).await?;
    let only_levels = app.only_levels();
    let Some(uid) = &address.instance else {
        return Ok(slides.iter().flat_map(|open| Held::all(open, only_levels)).collect());
    };
    let found = slides.iter().find_map(|open| Held::of(open, uid, only_levels));
    Ok(vec![found.ok_or_else(|| Failure::not_found("there is no such instance"))?])
}

async fn instance(app: &Arc<App>, address: &Address) -> Result<Held> {
    let mut found = instances(app, address).await?;
    found.pop().ok_or_else(|| Failure::not_found("there is no such instance"))
}

/// An entity tag that identifies the slides and the representation.
fn etag(held: &[Held], offer: &Offer<'_>, what: &str) -> Result<HeaderValue> {
    let mut parts = vec![env!("CARGO_PKG_VERSION").to_owned(), offer.to_string(), what.to_owned()];
    if offer.is_multipart {
        parts.push(body::BOUNDARY.clone());
    }
    for one in held {
        parts.push(one.open.stamp.clone());
        parts.push(one.instance()?.uid().to_owned());
    }
    Ok(response::etag(offer.kind, &parts.iter().map(String::as_str).collect::<Vec<_>>()))
}

impl App {
    /// True if instances of labels and other associated images are withheld.
    fn only_levels(&self) -> bool {
        self.no_associated == Some(Whom::Everybody)
    }

    /// Adds the headers for caches to a DICOMweb response.
    fn of_dicom(&self, response: Response, etag: HeaderValue) -> Response {
        let mut response = response::kept(response, etag, &self.cache);
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    fn unchanged(&self, etag: HeaderValue) -> Response {
        Counters::add(&self.counters.not_modified, 1);
        self.of_dicom(response::not_modified(), etag)
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
        let of = (0, instance.length());
        let mut answer = part(&headers, one, of, offer, &etag)?;
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
    (start, length): (u64, u64),
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
        let bulk = format!("{}/bulkdata/{PIXELS}", place(&root, &one)?);
        pieces.push(Piece::Dataset(one, bulk));
    }
    pieces.push(body::text("]"));
    let answer = body::answer(offer, pieces.into_iter()).await?;
    let mut answer = app.of_dicom(answer, etag);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept, host"));
    Ok(answer)
}

/// The root address of DICOMweb, without a trailing slash.
fn root(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<String> {
    Ok(format!("{}/dicomweb", app.address(uri, headers)?))
}

/// The address of an instance.
fn place(root: &str, held: &Held) -> Result<String> {
    let uid = held.instance()?.uid();
    let dicom = held.open.slide.dicom();
    let (study, series) = dicom.map_or(("", ""), |dicom| (dicom.study(), dicom.series()));
    Ok(format!("{root}/studies/{study}/series/{series}/instances/{uid}"))
}

/// Parses frame numbers separated by commas.
fn numbers(list: &str, count: u32) -> Result<Vec<u32>> {
    let list: Vec<&str> = list.split(',').collect();
    if list.len() > FRAMES {
        return Err(Failure::bad(format!("at most {FRAMES} frames in one request")));
    }
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|number| is_number && *number > 0);
        let number = number.ok_or_else(|| Failure::bad("frames: numbers from 1, with commas"))?;
        let inside = u32::try_from(number).ok().filter(|number| *number <= count);
        inside.ok_or_else(|| Failure::not_found(format!("there are {count} frames")))
    };
    list.into_iter().map(number).collect()
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
    let (what, is_one) = (format!("{numbers:?}"), numbers.len() == 1);
    stored(&app, held, (numbers, &*what, is_one), &query, &headers).await
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
        return stored(&app, held, (1..=frames, "all", frames == 1), &query, &headers).await;
    };
    let syntax = instance.transfer_syntax();
    let offers = [Offer::parts(BYTES, syntax), Offer::single(BYTES, syntax)];
    let offer = accept::choose(&headers, &query, &offers)?;
    let etag = etag(std::slice::from_ref(&held), offer, "pixels")?;
    if response::has(&headers, &etag) {
        return Ok(app.unchanged(etag));
    }
    if !offer.is_multipart {
        return Ok(app.of_dicom(part(&headers, &held, native, offer, &etag)?, etag));
    }
    let kind = Offer::single(BYTES, syntax).to_string();
    let file = body::file(held.clone(), native.0, native.0 + native.1);
    let pieces = std::iter::once(body::head(&kind, true)).chain(file).chain(body::tail());
    let answer = body::answer(offer, pieces).await?;
    Ok(app.of_dicom(answer, etag))
}

/// Serves frames, given their numbers, the same as a text, and whether the request is for a single
/// frame.
async fn stored<I>(
    app: &App,
    held: Held,
    (numbers, what, is_one): (I, &str, bool),
    query: &[(String, String)],
    headers: &HeaderMap,
) -> Result<Response>
where
    I: IntoIterator<Item = u32>,
    I::IntoIter: Send + 'static,
{
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
    let etag = etag(std::slice::from_ref(&held), offer, what)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_numbers_from_one() {
        assert_eq!(numbers("1", 7).unwrap(), [1]);
        assert_eq!(numbers("7,1,7", 7).unwrap(), [7, 1, 7]);
        for (list, status) in [
            ("", 400),
            ("0", 400),
            ("1,,2", 400),
            ("-1", 400),
            ("+1", 400),
            ("1-3", 400),
            ("a", 400),
            ("8", 404),
            ("99999999999", 404),
            ("99999999999999999999999", 400),
        ] {
            assert_eq!(numbers(list, 7).unwrap_err().status.as_u16(), status, "{list}");
        }
        assert_eq!(numbers(&"1,".repeat(2000), 7).unwrap_err().status.as_u16(), 400);
        assert!(is_uid("1.2.826") && !is_uid("") && !is_uid("1.2a") && !is_uid("../1"));
        assert!(!is_uid(&"1".repeat(65)));
    }
}
