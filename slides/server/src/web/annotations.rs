//! `/slides/{id}/annotations.json`: the annotations in a view of a slide.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use serde::Deserialize;

use crate::annotations::{self, AnnotationFile, VisibleArea};
use crate::failure::{Failure, Result};
use crate::library;
use crate::web::app::{App, Shared};
use crate::web::response;

/// Query parameters.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Wanted {
    bbox: Option<String>,
    zoom: Option<f32>,
}

impl App {
    /// The file with the annotations of a slide, if there is one.
    pub(super) async fn beside(&self, id: &str) -> Result<Option<AnnotationFile>> {
        if self.slides.library().is_unknown(id, Instant::now()) {
            return Err(library::none());
        }
        let (slides, id) = (Arc::clone(&self.slides), id.to_owned());
        let look =
            move || slides.library().find(&id).map(|location| annotations::beside(&location));
        let file = tokio::task::spawn_blocking(look).await;
        file.map_err(|_| Failure::internal("the annotations cannot be looked for"))?
    }
}

/// `/slides/{id}/annotations.json?bbox=LEFT,TOP,RIGHT,BOTTOM&zoom=Z`
pub(super) async fn view(
    State(app): Shared,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response> {
    let view = VisibleArea::parse(wanted.bbox.as_deref(), wanted.zoom).ok_or_else(|| {
        Failure::bad("bbox=LEFT,TOP,RIGHT,BOTTOM in pixels of the slide, and zoom= above 0")
    })?;
    let none = || Failure::not_found(format!("{id}: there are no annotations"));
    let beside = app.beside(&id).await?.ok_or_else(none)?;
    let kind = "application/geo+json";
    let of = [env!("CARGO_PKG_VERSION"), &beside.stamp, &format!("{view:?}")];
    let etag = response::etag(kind, &of);
    // Annotations may be edited while they are viewed, so caches must revalidate each time.
    let cache = HeaderValue::from_static("no-cache");
    if response::has(&headers, &etag) {
        return Ok(response::kept(response::not_modified(), etag, &cache));
    }
    let json = app.annotations.view(&beside, view).await?;
    Ok(response::kept(response::body(kind, json), etag, &cache))
}
