//! Responses in pieces that are read as they are sent, so that the largest file takes no more
//! memory than one piece of it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::iter;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use seekwire_slides_image::Instance;
use tokio::sync::Semaphore;

use super::accept::Offer;
use crate::failure::{Failure, Result};
use crate::slide_cache::Open;

/// Bytes of a file that are read at once.
const CHUNK: u64 = 256 << 10;

/// Datasets converted to JSON at a time: the largest take as much memory as the tables of a slide.
static DATASETS: Semaphore = Semaphore::const_new(4);

/// Separates parts. It is random, so that no file can contain it.
pub(super) static BOUNDARY: LazyLock<String> = LazyLock::new(|| {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
});

/// An instance, and the slide that stays open for it.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) open: Arc<Open>,
    number: usize,
}

impl Held {
    /// The instances of a slide; without its label and other associated images if `only_levels`.
    pub(super) fn all(open: &Arc<Open>, only_levels: bool) -> Vec<Self> {
        let instances = open.slide.dicom().into_iter().flat_map(|dicom| dicom.instances());
        instances
            .enumerate()
            .filter(|(_, one)| one.is_level() || !only_levels)
            .map(|(number, _)| Self { open: Arc::clone(open), number })
            .collect()
    }

    pub(super) fn of(open: &Arc<Open>, uid: &str, only_levels: bool) -> Option<Self> {
        let all = Self::all(open, only_levels);
        all.into_iter().find(|held| held.instance().is_ok_and(|one| one.uid() == uid))
    }

    pub(super) fn instance(&self) -> Result<&Instance> {
        let instance = self.open.slide.dicom().and_then(|dicom| dicom.numbered(self.number));
        instance.ok_or_else(|| Failure::internal("the slide has another number of instances"))
    }
}

type Read = Box<dyn FnOnce(&Instance) -> seekwire_slides_image::Result<Bytes> + Send>;

/// A piece of a response.
pub(super) enum Piece {
    Text(Bytes),
    /// Bytes of a file, from an offset on.
    File(Held, u64, usize),
    /// A frame, counted from 1.
    Frame(Held, u32),
    /// A dataset in JSON, and the address of its pixels.
    Dataset(Held, String),
}

pub(super) fn text(text: impl Into<String>) -> Piece {
    Piece::Text(Bytes::from(text.into()))
}

impl Piece {
    /// Reads the piece.
    async fn load(self) -> Result<Bytes> {
        let permit = match &self {
            Self::Dataset(..) => Some(DATASETS.acquire().await),
            _ => None,
        };
        let (held, read): (Held, Read) = match self {
            Self::Text(text) => return Ok(text),
            Self::File(held, at, length) => (held, Box::new(move |of| of.bytes(at, length))),
            Self::Frame(held, number) => (held, Box::new(move |of| of.frame(number))),
            Self::Dataset(held, bulk) => {
                (held, Box::new(move |of| of.json(&bulk).map(Bytes::from)))
            }
        };
        let reading = tokio::task::spawn_blocking(move || {
            // The client may disconnect meanwhile.
            let _permit = permit;
            read(held.instance()?).map_err(|error| held.open.wrong(&error))
        });
        reading.await.map_err(|_| Failure::internal("reading it panicked"))?
    }
}

/// Bytes of the file of an instance.
pub(super) fn file(held: Held, from: u64, to: u64) -> impl Iterator<Item = Piece> + Send {
    (from..to).step_by(CHUNK as usize).map(move |at| {
        let length = CHUNK.min(to - at) as usize;
        Piece::File(held.clone(), at, length)
    })
}

/// The boundary and header before the contents of a part of that type.
pub(super) fn head(kind: &str, is_first: bool) -> Piece {
    let before = if is_first { "" } else { "\r\n" };
    text(format!("{before}--{}\r\nContent-Type: {kind}\r\n\r\n", *BOUNDARY))
}

/// The closing boundary.
pub(super) fn tail() -> impl Iterator<Item = Piece> + Send {
    iter::once(text(format!("\r\n--{}--\r\n", *BOUNDARY)))
}

/// A response of a type. If its beginning cannot be read, this fails; a later error truncates the
/// response.
pub(super) async fn answer(
    offer: &Offer<'_>,
    pieces: impl Iterator<Item = Piece> + Send + 'static,
) -> Result<Response> {
    let kind = match offer.is_multipart {
        true => format!("{offer}; boundary={}", *BOUNDARY),
        false => offer.to_string(),
    };
    // Reads at most one piece in advance: a short response is then complete.
    let mut pieces = pieces;
    let (mut ready, mut rest) = (Vec::new(), None);
    let mut has_read = false;
    for piece in pieces.by_ref() {
        let is_text = matches!(piece, Piece::Text(_));
        if has_read && !is_text {
            rest = Some(piece);
            break;
        }
        has_read |= !is_text;
        ready.extend_from_slice(&piece.load().await?);
    }
    let ready = Bytes::from(ready);
    let body = match rest {
        None => Body::from(ready),
        Some(next) => {
            let ready = iter::once(Piece::Text(ready));
            stream(ready.chain(iter::once(next)).chain(pieces))
        }
    };
    let mut response = Response::new(body);
    let kind = HeaderValue::from_str(&kind).map_err(|_| Failure::internal("a broken type"))?;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// Pieces, each read after the previous ones have been sent. An error ends the stream.
pub(super) fn stream(pieces: impl Iterator<Item = Piece> + Send + 'static) -> Body {
    let load = |piece: Piece| async move {
        let failed = |failure: Failure| io::Error::other(failure.what.to_string());
        piece.load().await.map_err(failed)
    };
    Body::from_stream(stream::iter(pieces).then(load))
}
