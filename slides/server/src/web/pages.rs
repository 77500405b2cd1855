//! The pages for people: a gallery of slides, and a viewer for each; also the list as JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::library::{List, SlideLocation};
use crate::web::app::{App, Guest, Shared};
use crate::web::images::{encoded, version};
use crate::web::response::{self, FailureText};

/// The viewer, OpenSeadragon; empty if the program was built without it.
const OPENSEADRAGON: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openseadragon.js"));

/// Files used by pages: name, type, content.
static ASSETS: [(&str, &str, &[u8]); 9] = [
    ("icon.svg", "image/svg+xml", include_bytes!("../../pages/icon.svg")),
    ("style.css", "text/css; charset=utf-8", include_bytes!("../../pages/style.css")),
    ("gallery.js", "text/javascript; charset=utf-8", include_bytes!("../../pages/gallery.js")),
    ("viewer.js", "text/javascript; charset=utf-8", include_bytes!("../../pages/viewer.js")),
    (
        "annotations.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../pages/annotations.js"),
    ),
    ("channels.js", "text/javascript; charset=utf-8", include_bytes!("../../pages/channels.js")),
    ("beside.js", "text/javascript; charset=utf-8", include_bytes!("../../pages/beside.js")),
    ("ruler.js", "text/javascript; charset=utf-8", include_bytes!("../../pages/ruler.js")),
    ("openseadragon.js", "text/javascript; charset=utf-8", OPENSEADRAGON),
];

const HTML: &str = "text/html; charset=utf-8";

/// Pages load nothing from other hosts. OpenSeadragon decodes in workers that it makes itself.
const POLICY: &str = "default-src 'none'; img-src 'self' data: blob:; script-src 'self'; \
    style-src 'self' 'unsafe-inline'; connect-src 'self'; worker-src 'self' blob:; \
    frame-src 'self'; base-uri 'none'; form-action 'self'";

/// Slides on one page of the gallery.
const PAGE: usize = 60;
/// Maximum folders listed on one page of the gallery.
const FOLDERS: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Paging {
    /// Page number, from 1.
    page: Option<usize>,
    /// Part of the names of slides to show, in any case.
    q: String,
    /// Only slides below this folder are shown; all if it is empty.
    folder: String,
    /// The name of an [`Order`].
    sort: String,
    /// The slide beside which another one is to be chosen; empty outside this choice.
    beside: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pair {
    /// The slide to show beside the other one; empty for none.
    beside: String,
}

/// The order of slides in the gallery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Name,
    Reversed,
    Newest,
    Oldest,
    Largest,
    Smallest,
}

impl Order {
    /// All orders, with their names in addresses and for people.
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Name, "", "A to Z"),
        (Self::Reversed, "reversed", "Z to A"),
        (Self::Newest, "newest", "Newest first"),
        (Self::Oldest, "oldest", "Oldest first"),
        (Self::Largest, "largest", "Largest first"),
        (Self::Smallest, "smallest", "Smallest first"),
    ];

    /// The order of this name; any other text means the order by name.
    fn of(name: &str) -> Self {
        let order = Self::ALL.iter().find(|(_, other, _)| *other == name);
        order.map_or(Self::Name, |(order, ..)| *order)
    }

    /// Sorts slides, which are in the order of their names. Blocks: it reads file metadata. Slides
    /// whose date or size is unknown come last.
    fn sort(self, list: &List, ids: &mut [String]) {
        let key = |id: &String| {
            let data = list.get(id).and_then(SlideLocation::data);
            match self {
                Self::Newest | Self::Oldest => data.map(|data| (data.mtime(), data.mtime_nsec())),
                // The length of a directory is unrelated to the size of its slide.
                _ => data.filter(Metadata::is_file).map(|data| (data.len() as i64, 0)),
            }
        };
        match self {
            Self::Name => {}
            Self::Reversed => ids.reverse(),
            Self::Newest | Self::Largest => {
                ids.sort_by_cached_key(|id| Reverse(key(id)));
            }
            Self::Oldest | Self::Smallest => {
                ids.sort_by_cached_key(|id| key(id).map_or((true, (0, 0)), |key| (false, key)));
            }
        }
    }
}

async fn slides(app: &Arc<App>) -> Result<Arc<List>> {
    let slides = Arc::clone(&app.slides);
    let listed = tokio::task::spawn_blocking(move || slides.library().list()).await;
    listed.map_err(|_| Failure::internal("the slides cannot be listed"))
}

pub(super) fn page(text: String) -> Response {
    let mut response = response::fleeting(HTML, text);
    let policy = HeaderValue::from_static(POLICY);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// Escapes text for HTML, also inside quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The address of the first page of the gallery with these settings.
fn shown(paging: &Paging, folder: &str) -> String {
    let mut address = format!("?q={}&amp;folder={}", encoded(&paging.q), encoded(folder));
    if !paging.sort.is_empty() {
        let _ = write!(address, "&amp;sort={}", encoded(&paging.sort));
    }
    if !paging.beside.is_empty() {
        let _ = write!(address, "&amp;beside={}", encoded(&paging.beside));
    }
    address
}

/// Links to the folders above and below one, with the number of slides in each.
fn folders(list: &List, paging: &Paging) -> String {
    let folder = paging.folder.as_str();
    let mut below: BTreeMap<&str, usize> = BTreeMap::new();
    for id in list.keys() {
        let inner = inside(id, folder).and_then(|inner| inner.split_once('/'));
        if let Some((name, _)) = inner {
            *below.entry(name).or_default() += 1;
        }
    }
    let mut links = String::new();
    let mut link = |to: &str, text: &str| {
        let to = shown(paging, to);
        let _ = writeln!(links, "<a href=\"{to}\">{}</a>", escaped(text));
    };
    if !folder.is_empty() {
        link("", "All folders");
        for (at, _) in folder.match_indices('/') {
            link(&folder[..at], &folder[..at]);
        }
    }
    for (name, count) in below.iter().take(FOLDERS) {
        let path = if folder.is_empty() { (*name).to_owned() } else { format!("{folder}/{name}") };
        link(&path, &format!("{name}/ ({count})"));
    }
    match below.len().saturating_sub(FOLDERS) {
        0 => {}
        more => {
            let _ = write!(links, "<span>and {more} more folders</span>");
        }
    }
    links
}

/// The part of an identifier below a folder; all of it if the folder is empty.
fn inside<'a>(id: &'a str, folder: &str) -> Option<&'a str> {
    match folder {
        "" => Some(id),
        folder => id.strip_prefix(folder)?.strip_prefix('/'),
    }
}

/// `/`
pub(super) async fn gallery(
    State(app): Shared,
    Query(mut paging): Query<Paging>,
) -> Result<Response> {
    let list = slides(&app).await?;
    paging.folder = paging.folder.trim_matches('/').to_owned();
    let order = Order::of(&paging.sort);
    let wanted = paging.q.to_lowercase();
    let fits =
        |id: &&String| inside(id, &paging.folder).is_some() && id.to_lowercase().contains(&wanted);
    let mut ids: Vec<String> = list.keys().filter(fits).cloned().collect();
    let sorted = Arc::clone(&list);
    let sort = move || {
        order.sort(&sorted, &mut ids);
        ids
    };
    let ids = tokio::task::spawn_blocking(sort).await;
    let ids = ids.map_err(|_| Failure::internal("the slides cannot be put in order"))?;
    let pages = ids.len().div_ceil(PAGE).max(1);
    let number = paging.page.unwrap_or(1).clamp(1, pages);
    // If a slide is being chosen, thumbnails lead to the page of both slides.
    let (beside, choosing) = match paging.beside.as_str() {
        "" => (String::new(), String::new()),
        id => {
            let (address, name) = (encoded(id), escaped(id));
            let what = format!("Choose the slide to show beside {name}.");
            let back = format!("<a href=\"slides/{address}\">Show it alone</a>");
            (address, format!("<p>{what} {back}</p>"))
        }
    };
    let mut cards = String::new();
    for id in ids.iter().skip((number - 1) * PAGE).take(PAGE) {
        let (address, name) = (encoded(id), escaped(id));
        let to = match beside.as_str() {
            "" => address.clone(),
            beside => format!("{beside}?beside={address}"),
        };
        let _ = writeln!(
            cards,
            "<li><a href=\"slides/{to}\"><span class=\"picture\"><img loading=\"lazy\" \
             alt=\"\" src=\"slides/{address}/thumbnail.jpg\"></span>\
             <span class=\"name\">{name}</span></a></li>"
        );
    }
    let count = match (list.len(), ids.len()) {
        (0, _) => "There are no slides here.".to_owned(),
        (all, some) if some < all => format!("{some} of {all} slides"),
        (1, _) => "One slide".to_owned(),
        (all, _) => format!("{all} slides"),
    };
    let here = shown(&paging, &paging.folder);
    let link =
        |number: usize, text: &str| format!("<a href=\"{here}&amp;page={number}\">{text}</a>");
    let mut turning = String::new();
    if pages > 1 {
        let before = if number > 1 { link(number - 1, "previous") } else { String::new() };
        let after = if number < pages { link(number + 1, "next") } else { String::new() };
        turning = format!("<nav>{before} <span>page {number} of {pages}</span> {after}</nav>");
    }
    let page_of = include_str!("../../pages/gallery.html");
    let option = |(other, name, text): &(Order, &str, &str)| {
        let selected = if *other == order { " selected" } else { "" };
        format!("<option value=\"{name}\"{selected}>{text}</option>")
    };
    let orders: String = Order::ALL.iter().map(option).collect();
    let filled = [
        ("{{count}}", count),
        ("{{choosing}}", choosing),
        ("{{beside}}", escaped(&paging.beside)),
        ("{{query}}", escaped(&paging.q)),
        ("{{folder}}", escaped(&paging.folder)),
        ("{{orders}}", orders),
        ("{{folders}}", folders(&list, &paging)),
        ("{{cards}}", cards),
        ("{{turning}}", turning),
    ];
    Ok(page(fill(page_of, &filled)))
}

/// `/slides/{id}`
pub(super) async fn viewer(
    State(app): Shared,
    Path(id): Path<String>,
    Query(Pair { beside }): Query<Pair>,
    extensions: Extensions,
) -> Result<Response> {
    let open = app.slides.get(&id).await?;
    if !beside.is_empty() {
        return pair(&app, &open.id, &beside, &extensions).await;
    }
    let (width, height) = open.size();
    let [microns, down] = match open.slide.microns_per_pixel() {
        Some((across, down)) => [across, down].map(|microns| microns.to_string()),
        None => Default::default(),
    };
    let version = version(&open);
    let associated: Vec<String> = open
        .slide
        .associated_names()
        .filter(|_| app.shows_associated(&extensions))
        .map(|name| {
            let address = format!("{}/{name}.jpg?v={version}", encoded(&open.id));
            format!("<a href=\"{address}\">{}</a>", escaped(name))
        })
        .collect();
    let annotated = if app.beside(&id).await?.is_some() { "yes" } else { "no" };
    let has_choices = !open.slide.channels().is_empty() || open.slide.planes() != (1, 1);
    let choices = if has_choices { "yes" } else { "no" };
    let missing = match OPENSEADRAGON.is_empty() {
        true => "This server was built without its viewer, OpenSeadragon.",
        false => "",
    };
    // A client admitted to this slide only may not see the others.
    let [back, beside] = match extensions.get::<Guest>() {
        Some(_) => Default::default(),
        None => [
            "<a href=\"../\" title=\"All slides\">&#8249;</a>".to_owned(),
            format!(
                "<a class=\"button\" id=\"beside\" href=\"../?beside={}\" \
                 title=\"Show another slide beside this one\">Beside</a>",
                encoded(&open.id)
            ),
        ],
    };
    let filled = [
        ("{{back}}", back),
        ("{{beside}}", beside),
        ("{{name}}", escaped(&open.id)),
        ("{{address}}", encoded(&open.id)),
        ("{{version}}", version.clone()),
        ("{{width}}", width.to_string()),
        ("{{height}}", height.to_string()),
        ("{{microns}}", microns),
        ("{{microns down}}", down),
        ("{{annotated}}", annotated.to_owned()),
        ("{{choices}}", choices.to_owned()),
        ("{{associated}}", associated.join(" ")),
        ("{{missing}}", missing.to_owned()),
    ];
    Ok(page(fill(include_str!("../../pages/viewer.html"), &filled)))
}

/// The page of two slides, each in a frame with its own viewer.
async fn pair(
    app: &Arc<App>,
    left: &str,
    right: &str,
    extensions: &Extensions,
) -> Result<Response> {
    if extensions.get::<Guest>().is_some() {
        let what = "this link is for one slide: no other can be shown beside it";
        return Err(Failure::new(StatusCode::FORBIDDEN, what));
    }
    let right = app.slides.get(right).await?;
    let filled = [
        ("{{left}}", escaped(left)),
        ("{{right}}", escaped(&right.id)),
        ("{{left address}}", encoded(left)),
        ("{{right address}}", encoded(&right.id)),
    ];
    Ok(page(fill(include_str!("../../pages/beside.html"), &filled)))
}

/// Replaces placeholders by values. Placeholders within values are not replaced.
fn fill(page: &str, values: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(page.len() + 1024);
    let mut rest = page;
    while let Some(at) = rest.find("{{") {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let value = values.iter().find(|(name, _)| rest.starts_with(name));
        let (length, value) = value.map_or((2, "{{"), |(name, value)| (name.len(), value.as_str()));
        filled.push_str(value);
        rest = &rest[length..];
    }
    filled.push_str(rest);
    filled
}

/// True if a browser requests a page to show, not a part of one.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let all = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

/// Replaces the text of a failure with a page that contains it and a link to the gallery.
pub(super) fn explained(mut response: Response, path: &str) -> Response {
    let Some(FailureText(what)) = response.extensions().get().cloned() else { return response };
    let status = response.status();
    // A client without access to the gallery gets no link to it.
    let is_closed = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        || response.extensions().get::<Guest>().is_some();
    let depth = path.matches('/').count().saturating_sub(1);
    let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
    let back = match is_closed {
        true => String::new(),
        false => format!("<p><a href=\"{root}\">All slides</a></p>"),
    };
    let title = status.canonical_reason().unwrap_or("Error");
    let filled = [
        ("{{title}}", format!("{} {title}", status.as_u16())),
        ("{{what}}", escaped(&what)),
        ("{{back}}", back),
    ];
    let shown = page(fill(include_str!("../../pages/error.html"), &filled));
    let (parts, body) = shown.into_parts();
    response.headers_mut().remove(CONTENT_LENGTH);
    for name in [CONTENT_TYPE, CONTENT_SECURITY_POLICY] {
        if let Some(value) = parts.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("accept"));
    *response.body_mut() = body;
    response
}

/// `/static/{file}`
pub(super) async fn asset(Path(file): Path<String>, headers: HeaderMap) -> Result<Response> {
    let asset = ASSETS.iter().find(|(name, _, bytes)| *name == file && !bytes.is_empty());
    let (name, kind, bytes) = asset.ok_or_else(|| Failure::not_found("there is no such file"))?;
    let etag = response::etag(kind, &[*name, &*String::from_utf8_lossy(bytes)]);
    let cache = HeaderValue::from_static("max-age=3600");
    if response::has(&headers, &etag) {
        return Ok(response::kept(response::not_modified(), etag, &cache));
    }
    Ok(response::kept(response::body(kind, *bytes), etag, &cache))
}

/// `/slides.json`: identifiers, and the addresses for each.
pub(super) async fn list(State(app): Shared) -> Result<Response> {
    let list = slides(&app).await?;
    let slides: Vec<_> = list
        .keys()
        .map(|id| {
            let address = encoded(id);
            json!({
                "id": id,
                "viewer": format!("slides/{address}"),
                "properties": format!("slides/{address}/properties.json"),
                "thumbnail": format!("slides/{address}/thumbnail.jpg"),
                "deepZoom": format!("{address}.dzi"),
                "iiif": format!("iiif/3/{address}/info.json"),
            })
        })
        .collect();
    Ok(response::fleeting("application/json", json!(slides).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_whatever_they_are() {
        let name = "<script>\"'&{{b}}";
        assert_eq!(escaped(name), "&lt;script&gt;&quot;&#39;&amp;{{b}}");
        let values = [("{{a}}", name.to_owned()), ("{{b}}", "B".to_owned())];
        assert_eq!(fill("1{{a}}2{{b}}3{{c}}4", &values), format!("1{name}2B3{{{{c}}}}4"));
        assert_eq!(encoded("a/b c.svs"), "a%2Fb%20c.svs");
    }
}
