//! Rendered images (DICOM PS3.18, section 10.4.1.1.3): of a frame, of an instance, which is a level
//! of the slide or an associated image, and of a series, which is the slide.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::accept::{self, Offer};
use super::address::{Address, Parameters, etag, instance, numbers, slides};
use super::body::Held;
use crate::counters::Counters;
use crate::failure::{Failure, Result};
use crate::iiif::{ImageRequest, Version};
use crate::render::colour::ColourMode;
use crate::render::rotation::{Quality, Turn};
use crate::render::{Appearance, FrameCrop, ImageFormat, Picture, Shown, key};
use crate::slide_cache::Open;
use crate::web::app::{App, Shared};
use crate::web::response;

/// Pixels of the longer side of a thumbnail, unless the client chooses.
const THUMBNAIL: u32 = 256;

/// The requested size and part of an image.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Viewport {
    /// The image is scaled to fit into this size.
    size: Option<(u32, u32)>,
    /// The part of the image: left, top, width, height.
    source: Option<[f64; 4]>,
}

impl Viewport {
    /// Parses the query. Other parameters of rendered images are not supported.
    fn of(query: &[(String, String)]) -> Result<Self> {
        let not_done = ["window", "annotation", "iccprofile"];
        if let Some((name, _)) = query.iter().find(|(name, _)| not_done.contains(&&**name)) {
            return Err(Failure::not_implemented(format!(
                "{name}: only viewport is supported for rendered images"
            )));
        }
        let Some((_, text)) = query.iter().find(|(name, _)| name == "viewport") else {
            return Ok(Self::default());
        };
        let wrong = || {
            Failure::bad("viewport: width,height or width,height,left,top,width,height in pixels")
        };
        let words: Vec<&str> = text.split(',').collect();
        let side = |text: &str| text.parse::<u32>().ok().filter(|side| *side > 0);
        let size = match words[..] {
            [width, height] | [width, height, _, _, _, _] => side(width).zip(side(height)),
            _ => None,
        };
        let mut viewport = Self { size: Some(size.ok_or_else(wrong)?), source: None };
        if let [_, _, window @ ..] = &words[..] {
            let numbers: Vec<f64> = window
                .iter()
                .map(|text| text.parse().map_err(|_| wrong()))
                .collect::<Result<_>>()?;
            if let Ok(source) = <[f64; 4]>::try_from(numbers) {
                let is_part = |[left, top, width, height]: [f64; 4]| {
                    left >= 0.0 && top >= 0.0 && width > 0.0 && height > 0.0
                };
                if !is_part(source) || source.iter().any(|number| !number.is_finite()) {
                    return Err(wrong());
                }
                viewport.source = Some(source);
            }
        }
        Ok(viewport)
    }

    /// The part of an image of that size, in whole pixels, at least one of which is inside.
    fn part(self, size: (u32, u32)) -> Result<[u32; 4]> {
        let (width, height) = size;
        let Some([left, top, wide, high]) = self.source else {
            return Ok([0, 0, width, height]);
        };
        if left >= f64::from(width) || top >= f64::from(height) {
            return Err(Failure::bad(format!("viewport: the image has {width} x {height} pixels")));
        }
        let side = |from: f64, length: f64, most: u32| {
            let start = from.floor().min(f64::from(most - 1));
            let end = (from + length).round().clamp(start + 1.0, f64::from(most));
            (start as u32, (end - start) as u32)
        };
        let ((left, width), (top, height)) = (side(left, wide, width), side(top, high, height));
        Ok([left, top, width, height])
    }

    /// The size of a part in the viewport, with its proportions kept.
    fn fit(self, size: (u32, u32)) -> (u32, u32) {
        let (width, height) = size;
        let Some((across, down)) = self.size else { return (width, height) };
        let (wide, high) = (f64::from(width), f64::from(height));
        let scale = (f64::from(across) / wide).min(f64::from(down) / high);
        let side = |length: f64, most: u32| ((length * scale).round() as u32).clamp(1, most);
        (side(wide, across), side(high, down))
    }
}

/// The type of image that a client accepts.
fn offers() -> [Offer<'static>; 3] {
    [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP]
        .map(|kind| Offer::single(kind.media_type(), ""))
}

fn kind(offer: &Offer<'_>) -> ImageFormat {
    let kinds = [ImageFormat::Png, ImageFormat::WebP];
    kinds.into_iter().find(|kind| kind.media_type() == offer.kind).unwrap_or(ImageFormat::Jpeg)
}

/// `I/frames/1/rendered`
pub(super) async fn frame(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    headers: HeaderMap,
) -> Result<Response> {
    let held = instance(&app, &address).await?;
    let list = address.frames.unwrap_or_default();
    let [number] = numbers(&list, held.instance()?.frames())?[..] else {
        return Err(Failure::bad("only one frame can be rendered at a time"));
    };
    let viewport = Viewport::of(&query)?;
    let offers = offers();
    let offer = accept::choose(&headers, &query, &offers)?;
    let view = match viewport == Viewport::default() {
        true => None,
        false => {
            let one = held.instance()?;
            let part = viewport.part((one.columns(), one.rows()))?;
            let to = viewport.fit((part[2], part[3]));
            app.check(to)?;
            Some(FrameCrop { part, to })
        }
    };
    let what = format!("rendered {number} {} {}", key(&view), app.images.quality());
    let etag = etag(std::slice::from_ref(&held), offer, &what)?;
    if response::has(&headers, &etag) {
        return Ok(app.unchanged(etag));
    }
    let open = Arc::clone(&held.open);
    let is_level = held.instance()?.is_level();
    let read = move || {
        let tile = held.instance()?.tile(number);
        tile.map_err(|error| held.open.wrong(&error))
    };
    let tile = tokio::task::spawn_blocking(read).await;
    let tile = tile.map_err(|_| Failure::internal("reading the frame panicked"))??;
    let image = app.images.frame(&open, tile, is_level, kind(offer), view).await?;
    Ok(app.of_dicom(response::body(offer.kind, image), etag))
}

/// `/rendered` of a series or an instance: in its own size, as far as images may have it, or in a
/// viewport.
pub(super) async fn rendered(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    headers: HeaderMap,
) -> Result<Response> {
    shown(&app, &address, Viewport::of(&query)?, &query, &headers).await
}

/// `/thumbnail`
pub(super) async fn thumbnail(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    headers: HeaderMap,
) -> Result<Response> {
    let viewport = Viewport::of(&query)?;
    if viewport.source.is_some() {
        return Err(Failure::bad("viewport: width,height for a thumbnail"));
    }
    let size = viewport.size.or(Some((THUMBNAIL, THUMBNAIL)));
    shown(&app, &address, Viewport { size, source: None }, &query, &headers).await
}

async fn shown(
    app: &Arc<App>,
    address: &Address,
    viewport: Viewport,
    query: &[(String, String)],
    headers: &HeaderMap,
) -> Result<Response> {
    let offers = offers();
    let offer = accept::choose(headers, query, &offers)?;
    let (open, held) = match address.instance {
        Some(_) => {
            let held = instance(app, address).await?;
            (Arc::clone(&held.open), held)
        }
        None => {
            let gone = || Failure::not_found("there is no such series");
            let open = slides(app, address).await?.into_iter().next().ok_or_else(gone)?;
            let held = Held::all(&open, true).into_iter().next().ok_or_else(gone)?;
            (open, held)
        }
    };
    let picture = match held.instance()?.associated() {
        Some(name) => associated(app, &held, name, viewport, kind(offer))?,
        None => level(app, &open, &held, viewport, kind(offer))?,
    };
    let what = format!("{} {}", key(&picture), app.images.quality());
    let etag = etag(std::slice::from_ref(&held), offer, &what)?;
    if response::has(headers, &etag) {
        Counters::add(&app.counters.not_modified, 1);
        return Ok(app.unchanged(etag));
    }
    let image = app.images.get(&open, picture).await?;
    Ok(app.of_dicom(response::body(offer.kind, image), etag))
}

/// True if an instance is complete, and the only one of its slide that shows the same.
fn is_alone(held: &Held, is_like: impl Fn(&seekwire_slides_image::Instance) -> bool) -> bool {
    let all = held.open.slide.dicom().into_iter().flat_map(|dicom| dicom.instances());
    held.instance().is_ok_and(|one| one.is_whole()) && all.filter(|one| is_like(one)).count() == 1
}

/// The slide in the size of one of its levels, or a part of it: with the level's own pixels.
fn level(
    app: &App,
    open: &Open,
    held: &Held,
    viewport: Viewport,
    kind: ImageFormat,
) -> Result<Picture> {
    let one = held.instance()?;
    let own = one.size();
    let is_level = open.levels.iter().any(|level| (level.width, level.height) == own);
    if !one.is_level()
        || !is_level
        || !is_alone(held, |other| other.is_level() && other.size() == own)
    {
        return Err(Failure::not_implemented(
            "an instance that is not a level by itself: only its frames can be rendered",
        ));
    }
    let (width, height) = open.size();
    let [left, top, wide, high] = viewport.part(own)?;
    let borders = |from: u32, length: u32, own: u32, whole: u32| {
        let at = |coordinate: u32| {
            (u64::from(coordinate) * u64::from(whole) + u64::from(own / 2)) / u64::from(own)
        };
        let start = at(from).min(u64::from(whole.saturating_sub(1)));
        (start, at(from + length).max(start + 1) - start)
    };
    let ((x, across), (y, down)) =
        (borders(left, wide, own.0, width), borders(top, high, own.1, height));
    let region = format!("{x},{y},{across},{down}");
    let to = viewport.fit((wide, high));
    // Without a viewport, as large as possible.
    let size = match viewport.size {
        None if app.check(to).is_err() => "max".to_owned(),
        _ => format!("^{},{}", to.0, to.1),
    };
    let request = [&*region, &*size, "0", "default.jpg"];
    let request = ImageRequest::parse(Version::Three, open.size(), app.most, request)?;
    let colours = if open.converts { ColourMode::Srgb } else { ColourMode::Raw };
    let look = Appearance { colours, rendering: open.rendering.clone() };
    Ok(Picture { kind, ..request.picture(&look) })
}

/// A label or another associated image. It is not enlarged.
fn associated(
    app: &App,
    held: &Held,
    name: &'static str,
    viewport: Viewport,
    kind: ImageFormat,
) -> Result<Picture> {
    if !is_alone(held, |other| other.associated() == Some(name)) || viewport.source.is_some() {
        return Err(Failure::not_implemented("for such an image, only its frames can be rendered"));
    }
    let (width, height) = viewport.size.unwrap_or((app.most.side, app.most.side));
    let (width, height) = (width.min(app.most.side), height.min(app.most.side));
    Ok(Picture {
        shown: Shown::Associated(name.to_owned()),
        width,
        height,
        turn: Turn::default(),
        quality: Quality::Colour,
        kind,
        colours: ColourMode::Raw,
    })
}

impl App {
    /// Checks that an image of that size may be made.
    fn check(&self, size: (u32, u32)) -> Result<()> {
        let (width, height) = size;
        let (side, area) = (self.most.side, self.most.area);
        match width.max(height) <= side && u64::from(width) * u64::from(height) <= area {
            true => Ok(()),
            false => Err(Failure::bad(format!(
                "viewport: at most {side} pixels along a side, {area} in all"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewport(text: &str) -> Result<Viewport> {
        Viewport::of(&[("viewport".to_owned(), text.to_owned())])
    }

    #[test]
    fn viewports_are_sizes_and_parts() {
        let whole = viewport("100,50").unwrap();
        assert_eq!(whole.part((301, 199)).unwrap(), [0, 0, 301, 199]);
        assert_eq!(whole.fit((301, 199)), (76, 50));
        assert_eq!(whole.fit((10, 1)), (100, 10));
        let part = viewport("64,64,290,10.4,1000,20").unwrap();
        assert_eq!(part.part((301, 199)).unwrap(), [290, 10, 11, 20]);
        assert_eq!(part.fit((11, 20)), (35, 64));
        assert_eq!(Viewport::of(&[]).unwrap(), Viewport::default());
        assert!(viewport("64,64,301,0,1,1").unwrap().part((301, 199)).is_err());
        for wrong in [
            "",
            "1",
            "1,",
            "0,1",
            "-1,1",
            "1,1,1",
            "1,1,0,0,1",
            "1,1,0,0,1,1,1",
            "a,b",
            "1.5,2",
            "1,1,-1,0,1,1",
            "1,1,0,0,0,1",
            "1,1,NaN,0,1,1",
            "1,1,0,0,inf,1",
            "99999999999,1",
        ] {
            assert_eq!(viewport(wrong).unwrap_err().status.as_u16(), 400, "{wrong}");
        }
        let window = [("window".to_owned(), "1,2".to_owned())];
        assert_eq!(Viewport::of(&window).unwrap_err().status.as_u16(), 501);
    }
}
