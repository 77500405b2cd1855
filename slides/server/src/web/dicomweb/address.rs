//! The slides and instances that addresses of DICOMweb name.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Query;
use axum::http::header::VARY;
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use serde::Deserialize;

use super::accept::Offer;
use super::body::{self, Held};
use crate::counters::Counters;
use crate::failure::{Failure, Result};
use crate::privacy::LabelPolicy;
use crate::series::Index;
use crate::slide_cache::Open;
use crate::web::app::App;
use crate::web::response;

pub(super) const JSON: &str = "application/dicom+json";

/// Maximum series of a study in one response: as many slides are open for it.
const SERIES: usize = 64;
/// Maximum frames of one response.
const FRAMES: usize = 1024;

pub(super) type Parameters = Query<Vec<(String, String)>>;

/// The parameters of an address.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Address {
    pub(super) study: Option<String>,
    pub(super) series: Option<String>,
    pub(super) instance: Option<String>,
    pub(super) frames: Option<String>,
    pub(super) tag: Option<String>,
}

impl Address {
    /// The study, and the series if there is one.
    pub(super) fn uids(&self) -> Result<(&str, Option<&str>)> {
        let all = [&self.study, &self.series, &self.instance];
        if !all.into_iter().flatten().all(|uid| is_uid(uid)) {
            return Err(Failure::bad("a UID has digits and dots, 64 of them at most"));
        }
        Ok((self.study.as_deref().unwrap_or_default(), self.series.as_deref()))
    }
}

pub(super) fn is_uid(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    (1..=64).contains(&text.len()) && text.bytes().all(is_part)
}

/// The DICOM series that exist. A scan for this does not block other requests; if it is too early
/// for a scan, no thread is used.
pub(super) async fn index(app: &Arc<App>) -> Result<Arc<Index>> {
    if let Some(index) = app.slides.library().fresh_series(Instant::now()) {
        return Ok(index);
    }
    let slides = Arc::clone(&app.slides);
    let looked = tokio::task::spawn_blocking(move || slides.library().series()).await;
    looked.map_err(|_| Failure::internal("the series cannot be listed"))
}

/// The slides of a study, or of one of its series.
pub(super) async fn slides(app: &Arc<App>, address: &Address) -> Result<Vec<Arc<Open>>> {
    let (study, series) = address.uids()?;
    let within = |index: &Index| -> Vec<(String, String)> {
        let from = (study.to_owned(), series.unwrap_or_default().to_owned());
        let all = index
            .range(from..)
            .take_while(|((of, one), _)| of == study && series.is_none_or(|series| one == series));
        all.map(|((_, series), files)| (files.id.clone(), series.clone())).collect()
    };
    let mut series_ids = match series {
        Some(_) => within(&app.slides.library().known_series()),
        None => Vec::new(),
    };
    if series_ids.is_empty() {
        series_ids = within(&*index(app).await?);
    }
    if series_ids.is_empty() {
        return Err(Failure::not_found("there is no such study or series"));
    }
    if series_ids.len() > SERIES {
        let what = format!("a study of {} series: ask for them one by one", series_ids.len());
        return Err(Failure::not_implemented(what));
    }
    let mut slides = Vec::with_capacity(series_ids.len());
    for (id, series) in series_ids {
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
pub(super) async fn instances(app: &Arc<App>, address: &Address) -> Result<Vec<Held>> {
    let slides = slides(app, address).await?;
    let only_levels = app.only_levels();
    let Some(uid) = &address.instance else {
        return Ok(slides.iter().flat_map(|open| Held::all(open, only_levels)).collect());
    };
    let instance = slides.iter().find_map(|open| Held::of(open, uid, only_levels));
    Ok(vec![instance.ok_or_else(|| Failure::not_found("there is no such instance"))?])
}

pub(super) async fn instance(app: &Arc<App>, address: &Address) -> Result<Held> {
    let mut held = instances(app, address).await?;
    held.pop().ok_or_else(|| Failure::not_found("there is no such instance"))
}

/// An entity tag that identifies the slides and the representation.
pub(super) fn etag(held: &[Held], offer: &Offer<'_>, what: &str) -> Result<HeaderValue> {
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
    pub(super) fn only_levels(&self) -> bool {
        self.no_associated == Some(LabelPolicy::Everybody)
    }

    /// Adds the headers for caches to a DICOMweb response.
    pub(super) fn of_dicom(&self, response: Response, etag: HeaderValue) -> Response {
        let mut response = response::kept(response, etag, &self.cache);
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    pub(super) fn unchanged(&self, etag: HeaderValue) -> Response {
        Counters::add(&self.counters.not_modified, 1);
        self.of_dicom(response::not_modified(), etag)
    }
}

/// The root address of DICOMweb, without a trailing slash.
pub(super) fn root(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<String> {
    Ok(format!("{}/dicomweb", app.address(uri, headers)?))
}

/// The address of an instance.
pub(super) fn address_of(root: &str, held: &Held) -> Result<String> {
    let uid = held.instance()?.uid();
    let dicom = held.open.slide.dicom();
    let (study, series) = dicom.map_or(("", ""), |dicom| (dicom.study(), dicom.series()));
    Ok(format!("{root}/studies/{study}/series/{series}/instances/{uid}"))
}

/// Parses frame numbers separated by commas.
pub(super) fn numbers(list: &str, count: u32) -> Result<Vec<u32>> {
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
