//! Images at the addresses of Deep Zoom and of IIIF, associated images, and properties.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header::{ACCEPT, HOST, LOCATION, VARY};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use seekwire_slides_image::Plane;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::counters::Counters;
use crate::deepzoom;
use crate::failure::{Failure, Result};
use crate::iiif::{self, ImageRequest, Version};
use crate::privacy;
use crate::render::colour::ColourMode;
use crate::render::rotation::{Quality, Turn};
use crate::render::{Appearance, ImageFormat, Picture, Shown, key};
use crate::rendering;
use crate::slide_cache::Open;
use crate::stamps::hexadecimal;
use crate::web::app::{App, Shared};
use crate::web::response;

/// Characters of an identifier that must be percent-encoded (RFC 3986, section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An identifier as part of an address.
pub(super) fn encoded(id: &str) -> String {
    utf8_percent_encode(id, ENCODED).to_string()
}

/// Query parameters of images.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Options {
    icc: Option<String>,
    width: Option<String>,
    /// Channels, a focal plane, a time.
    c: Option<String>,
    z: Option<String>,
    t: Option<String>,
    /// The [`version`] of the slide that the client shows.
    v: Option<String>,
}

impl Options {
    /// The number of one channel.
    pub(super) fn channel(&self) -> Option<&str> {
        self.c.as_deref()
    }

    /// The requested plane.
    pub(super) fn plane(&self, open: &Open) -> Result<Plane> {
        let [z, t] = [&self.z, &self.t].map(Option::as_deref);
        rendering::plane(open, z, t)
    }

    /// How long a response may be cached. A response to an address with another version of the
    /// slide must not be stored.
    ///
    /// # Errors
    ///
    /// 409 if the slide has changed since: a viewer would show parts of two slides together.
    pub(super) fn cache(&self, app: &App, open: &Open) -> Result<HeaderValue> {
        if self.v.as_ref().is_none_or(|wanted| *wanted == version(open)) {
            return Ok(app.cache.clone());
        }
        if open.identity.is_some() {
            let what = format!("{}: it has been replaced: load the page again", open.id);
            return Err(Failure::new(StatusCode::CONFLICT, what));
        }
        Ok(HeaderValue::from_static("no-store"))
    }

    /// The requested colours, channels and plane.
    fn look(&self, open: &Open) -> Result<Appearance> {
        let said = [&self.c, &self.z, &self.t].map(Option::as_deref);
        let rendering = rendering::of(open, said)?;
        Ok(Appearance { colours: self.colours(open)?, rendering })
    }

    /// The requested treatment of colours.
    fn colours(&self, open: &Open) -> Result<ColourMode> {
        let has_profile = open.slide.icc().is_some() && open.slide.channels().is_empty();
        match self.icc.as_deref() {
            None | Some("srgb") if open.converts => Ok(ColourMode::Srgb),
            Some("embed") if has_profile => Ok(ColourMode::Embedded),
            None | Some("raw" | "srgb" | "embed") => Ok(ColourMode::Raw),
            Some(_) => Err(Failure::bad("icc: srgb, embed or raw")),
        }
    }
}

/// The version of the slide in addresses: it changes whenever the slide does.
pub(super) fn version(open: &Open) -> String {
    hexadecimal(&Sha256::digest(open.identity.as_ref().unwrap_or(&open.stamp))[..6])
}

impl App {
    /// An image, unless the client has it in its cache.
    async fn image(
        &self,
        open: &Arc<Open>,
        headers: &HeaderMap,
        options: &Options,
        picture: Picture,
    ) -> Result<Response> {
        let cache = &options.cache(self, open)?;
        let kind = picture.kind.media_type();
        let etag = response::etag(
            kind,
            &[
                env!("CARGO_PKG_VERSION"),
                &open.id,
                &open.stamp,
                &self.images.quality().to_string(),
                &key(&picture),
            ],
        );
        if response::has(headers, &etag) {
            Counters::add(&self.counters.not_modified, 1);
            return Ok(response::kept(response::not_modified(), etag, cache));
        }
        let busy = self.prefetch.busy(open, &picture);
        let image = self.images.get(open, picture).await?;
        drop(busy);
        Ok(response::kept(response::body(kind, image), etag, cache))
    }

    /// A document that changes only with the slide. Clients revalidate it each time: an outdated
    /// one would make them request images of the new slide.
    fn document(
        &self,
        open: &Open,
        headers: &HeaderMap,
        kind: &'static str,
        text: String,
    ) -> Response {
        let etag = response::etag(kind, &[&open.stamp, kind, &text]);
        let is_open = self.token.is_none() && self.key.is_none();
        let cache =
            HeaderValue::from_static(if is_open { "no-cache" } else { "private, no-cache" });
        if response::has(headers, &etag) {
            return response::kept(response::not_modified(), etag, &cache);
        }
        response::kept(response::body(kind, text), etag, &cache)
    }

    /// The address of this server, without a trailing slash.
    pub(super) fn address(&self, uri: &Uri, headers: &HeaderMap) -> Result<String> {
        if let Some(base) = &self.base {
            return Ok(base.clone());
        }
        // In HTTP/2, the address contains it.
        let host = uri.authority().map(|authority| authority.as_str());
        let host = host.or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()));
        let is_host = |host: &&str| {
            let mut bytes = host.bytes();
            !host.is_empty()
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
        };
        let host =
            host.filter(is_host).ok_or_else(|| Failure::bad("Host: not a valid host name"))?;
        let scheme = if self.is_encrypted { "https" } else { "http" };
        Ok(format!("{scheme}://{host}"))
    }
}

/// `/{id}.dzi`
pub(super) async fn descriptor(
    State(app): Shared,
    Path(file): Path<String>,
    Query(options): Query<Options>,
    headers: HeaderMap,
) -> Result<Response> {
    let nothing = || Failure::not_found("there is nothing at this address");
    let id = file.strip_suffix(".dzi").ok_or_else(nothing)?;
    let open = app.slides.get(id).await?;
    // Viewers add the same query to the addresses of tiles: an error is reported here already.
    options.look(&open)?;
    options.cache(&app, &open)?;
    let text = deepzoom::descriptor(open.size(), deepzoom::side(&open.levels), ImageFormat::Jpeg);
    Ok(app.document(&open, &headers, "application/xml", text))
}

/// `/{id}_files/{level}/{column}_{row}.{format}`
pub(super) async fn tile(
    State(app): Shared,
    Path((files, level, tile)): Path<(String, String, String)>,
    Query(options): Query<Options>,
    headers: HeaderMap,
) -> Result<Response> {
    let nothing = || Failure::not_found("there is no such tile");
    let id = files.strip_suffix("_files").ok_or_else(nothing)?;
    let (position, format) = tile.rsplit_once('.').ok_or_else(nothing)?;
    let (column, row) = position.split_once('_').ok_or_else(nothing)?;
    let tile_index = [number(&level), number(column), number(row)];
    let [Some(level), Some(column), Some(row)] = tile_index else { return Err(nothing()) };
    let kind =
        ImageFormat::of(format).ok_or_else(|| Failure::format("format: jpg, png or webp"))?;
    let open = app.slides.get(id).await?;
    let side = deepzoom::side(&open.levels);
    let look = options.look(&open)?;
    let picture = deepzoom::tile(open.size(), side, [level, column, row], kind, &look);
    let image = app.image(&open, &headers, &options, picture.ok_or_else(nothing)?).await?;
    if app.prefetch.most() > 0 {
        let tile_index = [level, column, row];
        let around = deepzoom::neighbours(open.size(), side, tile_index, kind, &look);
        app.prefetch.want(&open, around);
    }
    Ok(image)
}

/// Digits only: each tile has one address.
pub(super) fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number && (text == "0" || !text.starts_with('0')))
}

fn iiif_version(text: &str) -> Result<Version> {
    Version::of(text).ok_or_else(|| Failure::not_found("IIIF Image API: versions 2 and 3"))
}

/// `/iiif/{version}/{id}`: redirects to the information.
pub(super) async fn iiif_base(
    State(app): Shared,
    Path((number, id)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let version = iiif_version(&number)?;
    let open = app.slides.get(&id).await?;
    let to = format!("{}/info.json", iiif_id(&app, version, &open, &uri, &headers)?);
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::from_str(&to).map_err(|_| Failure::bad("not a valid address"))?;
    response.headers_mut().insert(LOCATION, to);
    Ok(response)
}

/// The address that identifies an image.
fn iiif_id(
    app: &App,
    version: Version,
    open: &Open,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<String> {
    let address = app.address(uri, headers)?;
    Ok(format!("{address}/iiif/{}/{}", version.number(), encoded(&open.id)))
}

/// `/iiif/{version}/{id}/info.json`
pub(super) async fn iiif_information(
    State(app): Shared,
    Path((number, id)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let version = iiif_version(&number)?;
    let open = app.slides.get(&id).await?;
    let id = iiif_id(&app, version, &open, &uri, &headers)?;
    let side = deepzoom::side(&open.levels);
    let information = iiif::information(version, &id, &open.levels, side, app.most);
    let wants = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let kind = match wants.contains(iiif::MEDIA_TYPE) {
        true => iiif::MEDIA_TYPE,
        false => "application/json",
    };
    let mut response = app.document(&open, &headers, kind, information.to_string());
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept, host"));
    let context = iiif::context(version);
    let link = format!(
        "<{context}>;rel=\"http://www.w3.org/ns/json-ld#context\";type=\"application/ld+json\",\
         <{}>;rel=\"profile\"",
        version.profile()
    );
    Ok(response::linked(response, &link))
}

/// `/iiif/{version}/{id}/{region}/{size}/{rotation}/{quality}.{format}`
pub(super) async fn iiif_image(
    State(app): Shared,
    Path([number, id, region, size, rotation, file]): Path<[String; 6]>,
    Query(options): Query<Options>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let version = iiif_version(&number)?;
    let open = app.slides.get(&id).await?;
    let request = [&*region, &*size, &*rotation, &*file];
    let request = ImageRequest::parse(version, open.size(), app.most, request)?;
    let id = iiif_id(&app, version, &open, &uri, &headers)?;
    let look = options.look(&open)?;
    let links = format!(
        "<{id}/{}{}>;rel=\"canonical\",<{}>;rel=\"profile\"",
        request.canonical(),
        canonical_query(&open, &look),
        version.profile()
    );
    let picture = request.picture(&look);
    let image = app.image(&open, &headers, &options, picture).await?;
    Ok(response::linked(image, &links))
}

/// The query of the canonical address: what is not the default, and so shows in the image.
fn canonical_query(open: &Open, look: &Appearance) -> String {
    let query = rendering::query(open, look.rendering.as_deref());
    let and = if query.is_empty() { '?' } else { '&' };
    match look.colours {
        ColourMode::Raw if open.converts => format!("{query}{and}icc=raw"),
        ColourMode::Embedded => format!("{query}{and}icc=embed"),
        ColourMode::Raw | ColourMode::Srgb => query,
    }
}

/// Pixels of the longer side of a thumbnail, unless the client chooses.
const THUMBNAIL: u32 = 256;

/// `/slides/{id}/{name}.{format}`: an associated image, or the whole slide as a thumbnail.
/// `?width=` limits the longer side.
pub(super) async fn associated(
    State(app): Shared,
    Path((id, file)): Path<(String, String)>,
    Query(options): Query<Options>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response> {
    let open = app.slides.get(&id).await?;
    let (name, format) = file.rsplit_once('.').unwrap_or((&file, ""));
    let kind =
        ImageFormat::of(format).ok_or_else(|| Failure::format("format: jpg, png or webp"))?;
    let is_thumbnail = name == "thumbnail";
    // A thumbnail made by the scanner may also show the label.
    let is_there = app.shows_associated(&extensions)
        && open.slide.associated_names().any(|other| other == name);
    if !is_there && !is_thumbnail {
        return Err(Failure::not_found(format!("{}: no image {name}", open.id)));
    }
    let most = match &options.width {
        Some(width) => {
            let most = width.parse().ok().filter(|most| *most > 0);
            most.ok_or_else(|| Failure::bad("width: a number of pixels, from 1 on"))?
        }
        None if is_thumbnail => THUMBNAIL,
        None => app.most.side,
    };
    let most = most.min(app.most.side);
    let mut picture = Picture {
        shown: Shown::Associated(name.to_owned()),
        width: most,
        height: most,
        turn: Turn::default(),
        quality: Quality::Colour,
        kind,
        colours: ColourMode::Raw,
    };
    // The slide itself, if it has no thumbnail, or a better or different one is requested.
    let is_asked = options.c.is_some() || options.z.is_some() || options.t.is_some();
    if is_thumbnail && (!is_there || most > THUMBNAIL || is_asked) {
        let size = format!("!{most},{most}");
        let parts = ["full", &*size, "0", "default.jpg"];
        let request = ImageRequest::parse(Version::Three, open.size(), app.most, parts)?;
        picture = Picture { kind, ..request.picture(&options.look(&open)?) };
    }
    app.image(&open, &headers, &options, picture).await
}

/// `/slides/{id}/properties.json`
pub(super) async fn properties(
    State(app): Shared,
    Path(id): Path<String>,
    Query(options): Query<Options>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Result<Response> {
    let open = app.slides.get(&id).await?;
    let look = options.look(&open)?;
    let (width, height) = open.size();
    let levels: Vec<_> = open
        .levels
        .iter()
        .zip(open.slide.empty_tiles())
        .map(|(level, empty)| {
            json!({
                "width": level.width,
                "height": level.height,
                "tileWidth": level.tile_width,
                "tileHeight": level.tile_height,
                "downsample": level.downsample,
                "emptyTiles": empty,
            })
        })
        .collect();
    let microns = open.slide.microns_per_pixel().map(|(x, y)| json!([x, y]));
    let shows = app.shows_associated(&extensions);
    let associated: Vec<&str> = open.slide.associated_names().filter(|_| shows).collect();
    let (hidden, shown): (Vec<_>, Vec<_>) =
        open.slide.properties().iter().partition(|(key, _)| {
            privacy::may_name_a_person(key) && !app.shows_persons(&extensions)
        });
    let hidden: Vec<&String> = hidden.into_iter().map(|(key, _)| key).collect();
    let shown: BTreeMap<_, _> = shown.into_iter().collect();
    let mut text = json!({
        "id": open.id,
        "format": open.slide.format(),
        "width": width,
        "height": height,
        "micronsPerPixel": microns,
        "levels": levels,
        "associated": associated,
        "profileBytes": open.slide.icc().map(<[u8]>::len),
        "properties": shown,
        "hidden": hidden,
    });
    rendering::describe(&mut text, &open, look.rendering.as_deref());
    Ok(app.document(&open, &headers, "application/json", text.to_string()))
}
