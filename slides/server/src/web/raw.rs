//! Samples of one channel as they are stored, for viewers and programs that do their own blending.

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;

use crate::counters::Counters;
use crate::failure::{Failure, Result};
use crate::web::app::Shared;
use crate::web::images::{Options, number};
use crate::web::response;

const KIND: &str = "application/octet-stream";

/// `/slides/{id}/raw/{level}/{column}_{row}?c=0&z=0&t=0`
pub(super) async fn tile(
    State(app): Shared,
    Path((id, level, tile)): Path<(String, String, String)>,
    Query(options): Query<Options>,
    headers: HeaderMap,
) -> Result<Response> {
    let nothing = || Failure::not_found("there is no such tile");
    let open = app.slides.get(&id).await?;
    if open.slide.channels().is_empty() {
        let what = "this slide has no channels: its tiles are at the addresses of Deep Zoom";
        return Err(Failure::not_found(what));
    }
    let (column, row) = tile.split_once('_').ok_or_else(nothing)?;
    let tile_index = [number(&level), number(column), number(row)];
    let [Some(level), Some(column), Some(row)] = tile_index else { return Err(nothing()) };
    let of = open.levels.get(level as usize).ok_or_else(nothing)?;
    if column >= of.width.div_ceil(of.tile_width) || row >= of.height.div_ceil(of.tile_height) {
        return Err(nothing());
    }
    let most = open.slide.channels().len() - 1;
    let channel = options.channel().and_then(number).filter(|channel| *channel as usize <= most);
    let bad = || Failure::bad(format!("c: the number of one channel, from 0 to {most}, as in c=0"));
    let channel = channel.ok_or_else(bad)?;
    let plane = options.plane(&open)?;
    let etag = response::etag(
        KIND,
        &[
            env!("CARGO_PKG_VERSION"),
            &open.id,
            &open.stamp,
            &format!("raw {level} {column} {row} {channel} {} {}", plane.z, plane.t),
        ],
    );
    let cache = options.cache(&app, &open)?;
    if response::has(&headers, &etag) {
        Counters::add(&app.counters.not_modified, 1);
        return Ok(response::kept(response::not_modified(), etag, &cache));
    }
    let samples = app.images.raw(&open, level as usize, (column, row), channel, plane).await?;
    Ok(response::kept(response::body(KIND, samples), etag, &cache))
}
